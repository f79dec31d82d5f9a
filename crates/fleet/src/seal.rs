//! Seals the keys of listeners for etcd: XChaCha20-Poly1305 under the fleet's key, which gateways
//! and token services have from a file or a credential, and etcd does not.
//!
//! Sealed along with a key are the place where it stands and its validity, so whoever may write to
//! etcd can neither bring an old key back under a new number nor make one live longer. He can
//! delete keys: that is seen, and held back (`mirror::judge`).
//!
//! Questions of operators and what gateways answer are sealed as texts for their places, so whoever
//! may write to etcd can ask nothing, and whoever may read it sees no player's address.
//!
//! Bans, registrations and an operator's confirmations are not secret. They are vouched for: the
//! value's last field holds a counter and a code over the place, the counter and all bytes before.
//! Programs that do not know that field pass over it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use ringgate_core::secret::{COOKIE_SECRET_BYTES, CookieSecret, KEY_BYTES, Key, SharedKey};
use zeroize::{Zeroizing, zeroize_stack};

use crate::epochs::Validity;
use crate::values::{ListenerKey, SealedText, VALUE_BYTES_MAX};

/// The key that opens the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetKey(SharedKey);

/// A sealed key that does not open: of another fleet, of another place, or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;

impl std::fmt::Display for NotOurs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the sealed key does not open with this fleet's key")
    }
}

impl std::error::Error for NotOurs {}

impl FleetKey {
    /// Takes a key over.
    pub fn new(key: impl Into<SharedKey>) -> Self {
        Self(key.into())
    }

    /// Seals a listener's key for the place in etcd where it will stand.
    pub fn seal(
        &self,
        place: &[u8],
        validity: Validity,
        key: &Key,
    ) -> Result<ListenerKey, getrandom::Error> {
        let mut bytes = Zeroizing::new(*key.as_bytes());
        let sealed = self.sealed(&bound(place, validity), &mut bytes[..])?;
        Ok(ListenerKey { validity, sealed })
    }

    /// Seals a text, which is no key, for the place in etcd where it will stand.
    pub fn seal_text(&self, place: &[u8], text: &[u8]) -> Result<SealedText, getrandom::Error> {
        let mut bytes = text.to_vec();
        let sealed = self.sealed(&bound_text(place), &mut bytes)?;
        Ok(SealedText { sealed })
    }

    /// Opens a text that stands at a place in etcd.
    pub fn open_text(&self, place: &[u8], stored: &SealedText) -> Result<Vec<u8>, NotOurs> {
        let sealed = STANDARD.decode(&stored.sealed).map_err(|_| NotOurs)?;
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(NotOurs)?;
        let (text, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or(NotOurs)?;
        let mut text = text.to_vec();
        let opened = self.with_cipher(|cipher| {
            let buffer = InOutBuf::from(&mut text[..]);
            let bound = bound_text(place);
            cipher.decrypt_inout_detached(&(*nonce).into(), &bound, buffer, &(*tag).into())
        });
        opened.map(|()| text).map_err(|_| NotOurs)
    }

    /// Nonce, bytes and code, for a value. What was in `bytes` is sealed afterwards.
    fn sealed(&self, bound: &[u8], bytes: &mut [u8]) -> Result<String, getrandom::Error> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        Ok(self.with_cipher(|cipher| {
            let tag = cipher
                .encrypt_inout_detached(&nonce.into(), bound, InOutBuf::from(&mut *bytes))
                .expect("the bytes of a value are not too many");
            STANDARD.encode([&nonce[..], bytes, &tag[..]].concat())
        }))
    }

    /// Opens what stands at a place in etcd.
    pub fn open(&self, place: &[u8], stored: &ListenerKey) -> Result<SharedKey, NotOurs> {
        let sealed = STANDARD.decode(&stored.sealed).map_err(|_| NotOurs)?;
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(NotOurs)?;
        let (key, tag) = rest.split_first_chunk::<KEY_BYTES>().ok_or(NotOurs)?;
        let tag: [u8; TAG_BYTES] = tag.try_into().map_err(|_| NotOurs)?;
        let bound = bound(place, stored.validity);
        let opened = self.with_cipher(|cipher| {
            SharedKey::written(|bytes| {
                *bytes = *key;
                let buffer = InOutBuf::from(&mut bytes[..]);
                cipher.decrypt_inout_detached(&(*nonce).into(), &bound, buffer, &tag.into()).ok()
            })
        });
        opened.ok_or(NotOurs)
    }

    /// Wipes a key while it is over, and opens it again where it is not: the clock was ahead.
    pub fn renew<P: AsRef<[u8]>>(
        &self,
        key: &mut Option<SharedKey>,
        stored: &ListenerKey,
        place: impl FnOnce() -> P,
        now_s: u64,
    ) {
        if now_s >= stored.validity.accept_until {
            *key = None;
        } else if key.is_none() {
            *key = self.open(place().as_ref(), stored).ok();
        }
    }

    /// Vouches for a value, a JSON object, at a place in etcd: this is the fleet's word, and
    /// `counter` says what is newer. A value that this would make too large stays as it is.
    pub fn vouch(
        &self,
        place: &[u8],
        value: &[u8],
        counter: u64,
    ) -> Result<Bytes, getrandom::Error> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce)?;
        let whole = Bytes::copy_from_slice(value);
        let Some(said) = value.strip_suffix(b"}").filter(|it| it.len() > 1) else {
            return Ok(whole);
        };
        if said.len() + VOUCHED_BYTES > VALUE_BYTES_MAX {
            return Ok(whole);
        }
        let vouched_for = vouched_for(place, said, counter);
        let tag = self.with_cipher(|cipher| {
            let nothing = InOutBuf::from(&mut [][..]);
            cipher
                .encrypt_inout_detached(&nonce.into(), &vouched_for, nothing)
                .expect("no bytes are not too many")
        });
        let code = STANDARD.encode([&nonce[..], &tag[..]].concat());
        let end = format!("{VOUCHED_BEGIN}{counter:016x}{code}\"}}");
        Ok([said, end.as_bytes()].concat().into())
    }

    /// The counter of a value that was vouched for, at this place, under this key.
    pub fn vouched(&self, place: &[u8], value: &[u8]) -> Option<u64> {
        let (said, end) = value.split_at(value.len().checked_sub(VOUCHED_BYTES)?);
        let text = std::str::from_utf8(end).ok()?;
        let text = text.strip_prefix(VOUCHED_BEGIN)?.strip_suffix("\"}")?;
        let (counter, code) = text.split_at_checked(COUNTER_DIGITS)?;
        let counter = u64::from_str_radix(counter, 16).ok()?;
        let code = STANDARD.decode(code).ok()?;
        let (nonce, tag) = code.split_first_chunk::<NONCE_BYTES>()?;
        let tag: [u8; TAG_BYTES] = tag.try_into().ok()?;
        let vouched_for = vouched_for(place, said, counter);
        let is_ours = self.with_cipher(|cipher| {
            let nothing = InOutBuf::from(&mut [][..]);
            cipher
                .decrypt_inout_detached(&(*nonce).into(), &vouched_for, nothing, &tag.into())
                .is_ok()
        });
        is_ours.then_some(counter)
    }

    /// Makes something of a secret for another purpose, which tells nothing of this key: the
    /// cipher's stream under a nonce that is used for nothing else. (Nonces of seals are random and
    /// 24 bytes long.)
    pub(crate) fn derive<T>(
        &self,
        purpose: &[u8; NONCE_BYTES],
        make: impl FnOnce(&CookieSecret) -> T,
    ) -> T {
        self.with_cipher(|cipher| {
            let mut secret = Zeroizing::new([0; COOKIE_SECRET_BYTES]);
            cipher
                .encrypt_inout_detached(&(*purpose).into(), b"", InOutBuf::from(&mut secret[..]))
                .expect("64 bytes are not too many");
            make(&CookieSecret::from_bytes(*secret))
        })
    }

    /// The cipher has the key by value, and leaves it where it worked: that part of the stack is
    /// wiped.
    fn with_cipher<T>(&self, act: impl FnOnce(&XChaCha20Poly1305) -> T) -> T {
        #[inline(never)]
        fn below<T>(key: &Key, act: impl FnOnce(&XChaCha20Poly1305) -> T) -> T {
            act(&XChaCha20Poly1305::new(key.as_bytes().into()))
        }
        let done = below(&self.0, act);
        zeroize_stack::<STACK_BYTES>();
        done
    }
}

/// What a listener's key is called where others may read it: 64 bits of the cipher's stream under a
/// nonce that is used for nothing else. They tell nothing of the key. They show that a guess of it
/// is right, as any connect token does, and nobody guesses one of 2^256. Two keys have the same
/// name once in 2^64 times; that would hide a difference from operators, and opens nothing.
pub fn name_of(key: &SharedKey) -> String {
    FleetKey(key.clone()).derive(b"ringgate listener key id", |secret| {
        let bytes = secret.as_bytes().iter().take(8);
        format!("{:016x}", bytes.fold(0_u64, |name, byte| name << 8 | u64::from(*byte)))
    })
}

/// What a sealed key is bound to.
fn bound(place: &[u8], validity: Validity) -> Vec<u8> {
    let Validity { from, mint_until, accept_until } = validity;
    let times = [from, mint_until, accept_until].map(u64::to_le_bytes).concat();
    [&b"ringgate fleet key v1\0"[..], &times, place].concat()
}

/// What a text is bound to. Neither a key nor a word is bound to anything that begins so.
fn bound_text(place: &[u8]) -> Vec<u8> {
    [&b"ringgate fleet text v1\0"[..], place].concat()
}

/// What a value is vouched for with. Nothing that a listener's key is bound to begins so.
fn vouched_for(place: &[u8], said: &[u8], counter: u64) -> Vec<u8> {
    let len = (place.len() as u64).to_le_bytes();
    [&b"ringgate fleet word v1\0"[..], &counter.to_le_bytes(), &len, place, said].concat()
}

const VOUCHED_BEGIN: &str = ",\"seal\":\"";
const COUNTER_DIGITS: usize = 16;
/// Of what stands behind a value that is vouched for: 40 bytes are 56 of base64.
const VOUCHED_BYTES: usize = VOUCHED_BEGIN.len() + COUNTER_DIGITS + 56 + 2;
/// What the cipher takes of the stack, with room to spare.
const STACK_BYTES: usize = 16 << 10;

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const VALIDITY: Validity = Validity { from: 1, mint_until: 2, accept_until: 3 };

    fn fleet(byte: u8) -> FleetKey {
        FleetKey::new(Key::from_bytes([byte; KEY_BYTES]))
    }

    #[test]
    fn what_is_sealed_is_opened_at_its_place() {
        let key = Key::from_bytes([7; KEY_BYTES]);
        let sealed = fleet(1).seal(b"/f/truth/key/main/1", VALIDITY, &key).unwrap();
        assert_eq!(fleet(1).open(b"/f/truth/key/main/1", &sealed), Ok(key.clone().into()));
        let again = fleet(1).seal(b"/f/truth/key/main/1", VALIDITY, &key).unwrap();
        assert_ne!(again, sealed, "a nonce is used once");
    }

    #[test]
    fn a_key_has_the_same_name_at_every_gateway_and_no_other_has_it() {
        let name = |byte: u8| name_of(&Key::from_bytes([byte; KEY_BYTES]).into());
        // It stands in etcd while gateways of several releases compare it.
        assert_eq!(name(7), "490bd406ee7e107d");
        assert_ne!(name(7), name(8));
    }

    #[test]
    fn a_key_of_another_place_time_or_fleet_is_refused() {
        let place = b"/f/truth/key/main/1";
        let sealed = fleet(1).seal(place, VALIDITY, &Key::from_bytes([7; KEY_BYTES])).unwrap();
        assert_eq!(fleet(2).open(place, &sealed), Err(NotOurs));
        assert_eq!(fleet(1).open(b"/f/truth/key/main/2", &sealed), Err(NotOurs));
        let longer =
            ListenerKey { validity: Validity { accept_until: 9, ..VALIDITY }, ..sealed.clone() };
        assert_eq!(fleet(1).open(place, &longer), Err(NotOurs));
        let bytes = STANDARD.decode(&sealed.sealed).unwrap();
        for index in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[index] ^= 1;
            let forged = ListenerKey { validity: VALIDITY, sealed: STANDARD.encode(&forged) };
            assert_eq!(fleet(1).open(place, &forged), Err(NotOurs));
            let cut = STANDARD.encode(&bytes[..index]);
            let cut = ListenerKey { validity: VALIDITY, sealed: cut };
            assert_eq!(fleet(1).open(place, &cut), Err(NotOurs));
        }
    }

    #[test]
    fn a_text_is_opened_at_its_place_and_nobody_else_can_have_sealed_it() {
        let place = b"/f/claim/ask/i/1";
        let sealed = fleet(1).seal_text(place, b"kick").unwrap();
        assert_eq!(fleet(1).open_text(place, &sealed).as_deref(), Ok(&b"kick"[..]));
        assert_ne!(fleet(1).seal_text(place, b"kick").unwrap(), sealed, "a nonce is used once");
        assert_eq!(fleet(2).open_text(place, &sealed), Err(NotOurs));
        assert_eq!(fleet(1).open_text(b"/f/claim/ask/i/2", &sealed), Err(NotOurs));
        let bytes = STANDARD.decode(&sealed.sealed).unwrap();
        for index in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[index] ^= 1;
            for wrong in [&forged[..], &bytes[..index]] {
                let wrong = SealedText { sealed: STANDARD.encode(wrong) };
                assert_eq!(fleet(1).open_text(place, &wrong), Err(NotOurs));
            }
        }
        // A listener's key is no text, and a text is no listener's key.
        let key = fleet(1).seal(place, VALIDITY, &Key::from_bytes([7; KEY_BYTES])).unwrap();
        assert_eq!(fleet(1).open_text(place, &SealedText { sealed: key.sealed }), Err(NotOurs));
        let long = fleet(1).seal_text(place, &[7; KEY_BYTES]).unwrap();
        let as_key = ListenerKey { validity: VALIDITY, sealed: long.sealed };
        assert_eq!(fleet(1).open(place, &as_key), Err(NotOurs));
    }

    #[test]
    fn a_word_is_the_fleets_at_its_place_and_as_it_was_said() {
        let (place, value) = (&b"/f/truth/ban/client/1"[..], br#"{"v":1,"until":9}"#);
        let word = fleet(1).vouch(place, value, 77).unwrap();
        assert_eq!(fleet(1).vouched(place, &word), Some(77));
        assert_eq!(fleet(2).vouched(place, &word), None);
        assert_eq!(fleet(1).vouched(b"/f/truth/ban/client/2", &word), None);
        assert_eq!(fleet(1).vouched(place, value), None);
        for index in 0..word.len() {
            let mut forged = word.to_vec();
            forged[index] ^= 1;
            assert_eq!(fleet(1).vouched(place, &forged), None, "{index}");
            assert_eq!(fleet(1).vouched(place, &word[..index]), None, "{index}");
        }
        let read: serde_json::Value = serde_json::from_slice(&word).unwrap();
        assert_eq!((&read["until"], &read["v"]), (&9.into(), &1.into()));
        for other in [&b""[..], b"ready", b"}", b"{}"] {
            assert_eq!(fleet(1).vouch(place, other, 1).unwrap(), other);
        }
    }
}
