//! What the processor can do, where more is taken for granted than every processor has.

/// Whether it has what TLS needs: Graviola, which encrypts, panics without. Says why not.
pub fn suffices_for_tls() -> Result<(), &'static str> {
    if has_what_graviola_needs() {
        return Ok(());
    }
    Err("this processor lacks what TLS needs (AES, AVX2, ADX, BMI2, PCLMULQDQ)")
}

fn has_what_graviola_needs() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        has!("aes")
            && has!("ssse3")
            && has!("avx")
            && has!("avx2")
            && has!("adx")
            && has!("bmi1")
            && has!("bmi2")
            && has!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        has!("aes") && has!("sha2") && has!("pmull") && has!("neon")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}
