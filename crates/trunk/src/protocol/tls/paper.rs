//! What certificates say of themselves, for who wants to know it before they are shown: when they
//! are good, and for which name.
//!
//! A TLS library verifies them, and does not say when their time is, which lies at a fixed place of
//! each (RFC 5280, 4.1).

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

const DAY_S: i64 = 86_400;

/// From when until when all certificates of a file in PEM are good, in seconds of the Unix epoch.
/// `None` where there is none.
pub fn good_s(pem: &[u8]) -> Option<[i64; 2]> {
    let all = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    let all = all.filter_map(|certificate| validity_s(certificate.as_ref()));
    all.reduce(|[from, to], [later, sooner]| [from.max(later), to.min(sooner)])
}

/// Whether the first certificate of a file in PEM is for this name.
pub fn is_for(pem: &[u8], name: &str) -> bool {
    let first = CertificateDer::pem_slice_iter(pem).next().and_then(Result::ok);
    let parsed = first.as_ref().and_then(|it| ParsedCertificate::try_from(it).ok());
    let both = parsed.zip(ServerName::try_from(name).ok());
    both.is_some_and(|(parsed, name)| verify_server_name(&parsed, &name).is_ok())
}

/// A certificate's time, in seconds of the Unix epoch.
fn validity_s(certificate: &[u8]) -> Option<[i64; 2]> {
    let (_, certificate, _) = element(certificate)?;
    let (_, signed, _) = element(certificate)?;
    let mut rest = signed;
    // The version, which only later ones have.
    if let (0xa0, _, behind) = element(rest)? {
        rest = behind;
    }
    // Serial number, signature, issuer.
    for _ in 0..3 {
        rest = element(rest)?.2;
    }
    let (_, validity, _) = element(rest)?;
    let read = |kind, time| seconds(kind, std::str::from_utf8(time).ok()?);
    let (kind, time, rest) = element(validity)?;
    let from_s = read(kind, time)?;
    let (kind, time, _) = element(rest)?;
    Some([from_s, read(kind, time)?])
}

/// An element of DER: its tag, what is in it, and what is behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (inside, behind) = rest.split_at_checked(len)?;
    Some((tag, inside, behind))
}

/// `YYMMDDhhmmssZ` (`UTCTime`) or `YYYYMMDDhhmmssZ` (`GeneralizedTime`).
fn seconds(kind: u8, text: &str) -> Option<i64> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let text = text.strip_suffix('Z').filter(|text| text.bytes().all(|it| it.is_ascii_digit()))?;
    let (year, rest) = match kind {
        UTC_TIME if text.len() == 12 => {
            let year: i64 = text[..2].parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        GENERALIZED_TIME if text.len() == 14 => (text[..4].parse().ok()?, &text[4..]),
        _ => return None,
    };
    let at = |from: usize| rest[from..from + 2].parse::<i64>().ok();
    let (month, day) = (at(0)?, at(2)?);
    let (hour, minute, second) = (at(4)?, at(6)?, at(8)?);
    (1..=12)
        .contains(&month)
        .then(|| days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second)
}

/// Days of the Gregorian calendar, whose years are counted from March here, so that the day that
/// some years have more is their last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months_since_march = (month + 9) % 12;
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + day_of_year - DAYS_TO_1970
}

/// From the first of March of the year 0.
const DAYS_TO_1970: i64 = 719_468;

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    const AGENT: &[u8] = fixtures::AGENT.certificate;
    const EXPIRED: &[u8] = fixtures::EXPIRED.certificate;

    /// The first of January 2021, and of 2119.
    const ENDS_S: [i64; 2] = [1_609_459_200, 4_701_974_400];

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1969, 12, 31), -1),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }

    #[test]
    fn both_ways_to_write_a_time_are_read_and_nothing_else() {
        for (kind, text, expected) in [
            (0x17, "210101000000Z", Some(1_609_459_200)),
            (0x18, "20210101000000Z", Some(1_609_459_200)),
            (0x17, "500101000000Z", Some(-631_152_000)),
            (0x18, "210101000000Z", None),
            (0x17, "210101000000", None),
            (0x17, "2101010000+0Z", None),
            (0x17, "211301000000Z", None),
            (0x02, "210101000000Z", None),
        ] {
            assert_eq!(seconds(kind, text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_cut_off_says_nothing() {
        let whole = CertificateDer::from_pem_slice(AGENT).expect("one");
        assert_eq!(validity_s(&whole).map(|it| it[1]), Some(ENDS_S[1]));
        for len in 0..whole.len() {
            let cut = validity_s(&whole[..len]);
            assert!(cut.is_none(), "{len} bytes of it");
        }
    }

    #[test]
    fn a_certificate_says_until_when_it_is_good_and_for_whom() {
        let both = [EXPIRED, AGENT].concat();
        for (pem, end_s) in [(EXPIRED, ENDS_S[0]), (AGENT, ENDS_S[1]), (&both, ENDS_S[0])] {
            assert_eq!(good_s(pem).map(|it| it[1]), Some(end_s));
        }
        let [begun, both] = [AGENT, &both].map(|pem| good_s(pem).expect("they say so")[0]);
        assert!(0 < begun && begun <= both);
        assert_eq!(good_s(b"no certificate"), None);
        assert!(is_for(AGENT, "host-7") && !is_for(AGENT, "host-8") && !is_for(b"", "host-7"));
    }
}
