//! What a request asks for behind its `?`.

use http::{StatusCode, Uri};

use super::answer::NotDone;

/// Names and values, decoded.
#[derive(Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of a request that may have these fields only, and `as_of`, which was seen to before.
    pub fn of(uri: &Uri, known: &[&str]) -> Result<Self, NotDone> {
        let pairs = uri.query().unwrap_or_default().split('&');
        let pairs: Vec<_> = pairs
            .filter(|pair| !pair.is_empty() && !pair.starts_with("as_of="))
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(wrong(format_args!(
                "{name:?} is not known here, expected {}",
                known.join(", ")
            ))),
            None => Ok(Self(pairs)),
        }
    }

    /// The value of a field.
    pub fn text(&self, name: &'static str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a field.
    pub fn all(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a field, read.
    pub fn read<T>(
        &self,
        name: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, NotDone> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match read(text) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong(format_args!("{name}: found {text:?}, expected {expected}"))),
        }
    }
}

/// A request that cannot be understood.
pub fn wrong(why: impl std::fmt::Display) -> NotDone {
    (StatusCode::BAD_REQUEST, format!("{why}\n"))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let hex = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_unknown_ones_refused() {
        let uri: Uri = "/x?a=1%2F2&b&a=%zz+".parse().expect("a path");
        let query = Query::of(&uri, &["a", "b"]).expect("known fields");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1/2", "%zz "]);
        assert_eq!((query.text("b"), query.text("c")), (Some(""), None));
        assert!(query.read("a", "a number", |text| text.parse::<u8>().ok()).is_err());
        assert!(Query::of(&uri, &["a"]).is_err());
        let now: Uri = "/x?as_of=now&a=1".parse().expect("a path");
        let query = Query::of(&now, &["a"]).expect("every page can be as of now");
        assert_eq!((query.text("a"), query.text("as_of")), (Some("1"), None));
    }
}
