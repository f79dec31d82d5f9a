//! Single values as text: durations, numbers, addresses, names, choices. The command line reads its
//! arguments with the same functions, so that a value is written the same way in both.
//!
//! Addresses are numbers: a name that resolves differently tomorrow has no place in a token or on
//! the packet path.

use std::net::SocketAddr;
use std::ops::{RangeBounds, RangeFrom};
use std::time::Duration;

use super::NAME_BYTES_MAX;
use ringgate_process::levels;
use ringgate_trunk::protocol::tls::DOMAIN;

/// An enum that the config file writes as one of a few words.
pub trait Word: Copy + 'static {
    /// Every word with its meaning, in the order in which they are listed to the reader.
    const WORDS: &'static [(&'static str, Self)];
}

/// Declares such enums: each value with its word, in that order.
macro_rules! worded {
    ($(
        $(#[$about:meta])* $vis:vis enum $type:ident {
            $($(#[$doc:meta])* $value:ident = $word:literal,)+
        }
    )+) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $type { $($(#[$doc])* $value),+ }

        impl $crate::values::Word for $type {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }
    )+ };
}
pub(super) use worded;

/// The words of an enum that has a name for each of its values.
pub(super) const fn paired<T: Copy, const N: usize>(
    names: [&'static str; N],
    all: [T; N],
) -> [(&'static str, T); N] {
    let mut words = [("", all[0]); N];
    let mut at = 0;
    while at < N {
        words[at] = (names[at], all[at]);
        at += 1;
    }
    words
}

/// Switches that have a word instead of `true` and `false`.
impl Word for bool {
    const WORDS: &'static [(&'static str, Self)] = &[("on", true), ("off", false)];
}

/// The meaning of a word.
pub fn word<T: Word>(text: &str) -> Option<T> {
    T::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
}

/// The word for a value, which every value has.
pub fn word_of<T: Word + PartialEq>(value: T) -> &'static str {
    T::WORDS.iter().find(|(_, it)| *it == value).map_or("", |(word, _)| word)
}

/// All words of a type.
pub fn words<T: Word>() -> Vec<&'static str> {
    T::WORDS.iter().map(|(word, _)| *word).collect()
}

/// A whole number with its unit, such as `50us`, `10ms`, `30s`, `5m` or `1h`.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().ok()?;
    let seconds = |each: u64| Some(Duration::from_secs(count.checked_mul(each)?));
    match &text[digits..] {
        "us" => Some(Duration::from_micros(count)),
        "ms" => Some(Duration::from_millis(count)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        _ => None,
    }
}

/// A time that an argument gives, where it lies within these bounds; what is expected stands behind
/// `expected` in the sentence for one that does not.
pub fn time_within(
    text: &str,
    bounds: impl RangeBounds<Duration>,
    expected: &str,
) -> Result<Duration, String> {
    let found = duration(text).filter(|it| bounds.contains(it));
    found.ok_or_else(|| format!("found {text:?}, expected {expected}"))
}

/// A time that takes a while.
pub const LASTING: RangeFrom<Duration> = Duration::from_nanos(1)..;

/// The name of a user of this system.
pub fn user(text: &str) -> Option<String> {
    let fits = !text.is_empty() && text.len() <= USER_BYTES_MAX && !text.contains(['\0', ':', '/']);
    fits.then(|| text.to_owned())
}

/// What `useradd` allows.
const USER_BYTES_MAX: usize = 32;

/// Levels of log lines.
pub fn levels(text: &str) -> Option<String> {
    levels::read(text).is_ok().then(|| text.to_owned())
}

/// A 64-bit number, decimal or, after `0x`, hexadecimal.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Any `IP:port`. IPv4-mapped IPv6 becomes IPv4, the form in which addresses are compared.
pub fn address(text: &str) -> Option<SocketAddr> {
    let mut address: SocketAddr = text.parse().ok()?;
    address.set_ip(address.ip().to_canonical());
    Some(address)
}

/// An `IP:port` that a datagram can be sent to: no wildcard, no multicast, no port of 0.
pub fn reachable_address(text: &str) -> Option<SocketAddr> {
    let address = address(text)?;
    let ip = address.ip();
    (address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()).then_some(address)
}

/// What is odd about a text that is no address, where that can be told.
pub fn oddity(text: &str) -> Option<&'static str> {
    let (host, port) = text.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
    let is_name = host.bytes().any(|it| it.is_ascii_alphabetic()) && !host.contains(':');
    match port.parse::<u16>() {
        Err(_) if is_port => Some("ports end at 65535"),
        Ok(_) if is_name => Some("names are not looked up: give the address itself"),
        _ => None,
    }
}

/// A name that is safe in metrics, file names and user data.
pub fn name(text: &str) -> Option<String> {
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (fits && text.bytes().all(plain)).then(|| text.to_owned())
}

/// An agent's name: what a certificate can be for, which is a host's name.
pub fn agent(text: &str) -> Option<String> {
    let is_label = |label: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_inner = !label.starts_with('-') && !label.ends_with('-');
        !label.is_empty() && label.bytes().all(is_fine) && is_inner
    };
    let is_name = text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label);
    (is_name && !text.ends_with(DOMAIN)).then(|| text.to_owned())
}

/// A host's name as a browser sends it: letters, digits, dots and hyphens.
pub fn host(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    let fits = (1..=HOST_BYTES_MAX).contains(&text.len());
    (fits && text.bytes().all(plain)).then(|| text.to_ascii_lowercase())
}

/// The longest name of the DNS.
const HOST_BYTES_MAX: usize = 253;

/// Up to so many bytes, as pairs of hex digits.
pub fn bytes(text: &str, max: usize) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let fits = rest.is_empty() && pairs.len() <= max;
    fits.then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Up to 32 digits 0 and 1, the first one first on the wire.
pub fn magic(text: &str) -> Option<Vec<bool>> {
    if text.len() > 32 {
        return None;
    }
    text.bytes()
        .map(|digit| match digit {
            b'0' => Some(false),
            b'1' => Some(true),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_odd_about_an_address_is_said() {
        for text in ["0.0.0.0:99999", "[::]:65536", "x:70000"] {
            assert_eq!(oddity(text), Some("ports end at 65535"), "{text}");
        }
        for text in ["game-1.example:9", "localhost:40000"] {
            let names = Some("names are not looked up: give the address itself");
            assert_eq!(oddity(text), names, "{text}");
        }
        for text in ["", "127.0.0.1", "0.0.0.0:", "127.0.0.1:0", "[::1]:9", "256.0.0.1:9"] {
            assert_eq!(oddity(text), None, "{text}");
        }
    }

    #[test]
    fn durations_need_a_whole_number_and_a_unit() {
        assert_eq!(duration("50us"), Some(Duration::from_micros(50)));
        assert_eq!(duration("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(duration("30s"), Some(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Some(Duration::from_mins(2)));
        assert_eq!(duration("1h"), Some(Duration::from_hours(1)));
        for text in ["", "30", "s", "-1s", "+1s", "1.5s", "1 s", "1sec", "99999999999999999999s"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(duration("18446744073709551615h"), None);
    }

    #[test]
    fn numbers_span_all_64_bits() {
        assert_eq!(number("0xffffffffffffffff"), Some(u64::MAX));
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        for text in ["", "0x", "-1", "0x1g", "18446744073709551616", "0x10000000000000000"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        assert_eq!(address("[::ffff:10.0.0.1]:7"), "10.0.0.1:7".parse().ok());
    }

    #[test]
    fn only_addresses_one_can_send_to_are_reachable() {
        for text in ["0.0.0.0:1", "[::]:1", "10.0.0.1:0", "224.0.0.1:1", "[ff02::1]:1", "host:1"] {
            assert_eq!(reachable_address(text), None, "{text}");
        }
        assert!(reachable_address("[::1]:7777").is_some());
    }

    #[test]
    fn names_are_short_and_plain() {
        assert!(name("eu-west.1_a").is_some());
        assert!(name(&"x".repeat(NAME_BYTES_MAX)).is_some());
        for text in ["", "a b", "é", "a/b", "a\0b", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(name(text), None, "{text}");
        }
    }

    #[test]
    fn hosts_are_names_without_a_port() {
        assert_eq!(host("Gate-1.example").as_deref(), Some("gate-1.example"));
        for text in ["", "a:1", "http://a", "a/b", "é", "a b", "[::1]", &"x".repeat(254)] {
            assert_eq!(host(text), None, "{text}");
        }
    }

    #[test]
    fn bytes_are_pairs_of_digits() {
        assert_eq!(bytes("00fFa1", 3), Some(vec![0, 255, 0xa1]));
        assert_eq!(bytes("", 0), Some(Vec::new()));
        for text in ["0", "000", "0x", "+1", "é0", "00000000"] {
            assert_eq!(bytes(text, 3), None, "{text}");
        }
    }

    #[test]
    fn magic_is_at_most_32_binary_digits() {
        assert_eq!(magic("10"), Some(vec![true, false]));
        assert_eq!(magic(""), Some(Vec::new()));
        assert_eq!(magic("102"), None);
        assert_eq!(magic(&"1".repeat(33)), None);
    }
}
