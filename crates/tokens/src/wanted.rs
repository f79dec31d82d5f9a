//! What callers ask for: bodies of requests, read as what anybody may have written.
//!
//! A body is bounded before it is read (`limits`), has no field that is not known, and says what is
//! wrong with it in one sentence. 64-bit numbers may be text, because JavaScript has none.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringgate_core::netcode::{USER_DATA_BYTES, UserData, destination};
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::question::{MOVE_MS, MOVE_MS_MAX, MOVE_TRIES};
use ringgate_fleet::values::{Backend, What};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::limits::{
    ADDRESSES_MAX, BATCH_MAX, DEADLINE_S_MAX, FOR_S_MAX, GATEWAYS_MAX, LABELS_MAX, LIMIT_MAX,
    REGIONS_MAX, TEXT_BYTES_MAX, WITHIN_S_MAX,
};

/// The bytes of user data that name the backend.
pub const BACKEND_BYTES: usize = destination::DESTINATION_BYTES;
/// The bytes of user data that callers have.
pub const OWN_BYTES: usize = USER_DATA_BYTES - BACKEND_BYTES;
/// The longest name that user data can carry, with a zero byte behind it.
pub const BACKEND_NAME_MAX: usize = BACKEND_BYTES - 1;

/// Where a player shall go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Where {
    /// To a backend of this group. Without one, to the only group that there is.
    pub group: Option<Name>,
    /// To this backend.
    pub backend: Option<Name>,
    /// To one that has all of these.
    pub labels: BTreeMap<String, String>,
    /// Through a gateway of the first of these regions that has room; without any, of any region.
    pub regions: Vec<Name>,
    /// Through so many gateways, one after the other.
    pub addresses: usize,
    /// At addresses of this family.
    pub family: Option<Family>,
}

impl Where {
    /// Whether a backend has all the labels.
    pub fn fits(&self, backend: &Backend) -> bool {
        let has = |(key, value): (&String, &String)| backend.labels.get(key) == Some(value);
        self.labels.iter().all(has)
    }
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// 32 bits.
    Ipv4,
    /// 128 bits.
    Ipv6,
}

/// A token that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedToken {
    /// For whom.
    pub client_id: u64,
    /// Which game; `None` for what the gateways say.
    pub protocol_id: Option<u64>,
    /// Where.
    pub place: Where,
    /// What the game server is to know, without the backend's name.
    pub user_data: [u8; OWN_BYTES],
    /// Seconds during which it can be used; `None` for the service's default.
    pub expire_s: Option<u64>,
    /// Seconds of silence until either side gives up.
    pub timeout_s: i32,
}

/// Many of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedBatch {
    /// Each of them.
    pub tokens: Vec<WantedToken>,
    /// All at one backend, or none at all.
    pub together: bool,
}

/// A place that is asked for, without a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPlace {
    /// What players speak: `unreal` or `plain`; `None` for whichever of them the group has.
    pub protocol: Option<Unsealed>,
    /// Where.
    pub place: Where,
}

/// What all gateways are asked, or some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedAnswers {
    /// What stands behind a page's `?`.
    pub query: String,
    /// Which gateways; all of them where there are none.
    pub gateways: Vec<Name>,
    /// Who has not answered after so many seconds is named.
    pub within_s: u64,
    /// What goes on for a while does so for so many seconds.
    pub for_s: u64,
}

/// A protocol without connect tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unsealed {
    /// Unreal's own handshake.
    Unreal,
    /// Anything over UDP.
    Plain,
}

/// What is wrong with a body: one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn unfit(why: impl Into<String>) -> Unfit {
    Unfit(why.into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    client_id: Number,
    protocol_id: Option<Number>,
    group: Option<String>,
    backend: Option<String>,
    #[serde(default)]
    labels: LabelsBody,
    #[serde(default)]
    region: Regions,
    addresses: Option<usize>,
    family: Option<Family>,
    #[serde(default)]
    user_data: String,
    expire: Option<u64>,
    timeout: Option<i32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    tokens: Bounded<TokenBody, BATCH_MAX>,
    #[serde(default)]
    together: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceBody {
    protocol: Option<Unsealed>,
    group: Option<String>,
    backend: Option<String>,
    #[serde(default)]
    labels: LabelsBody,
    #[serde(default)]
    region: Regions,
    addresses: Option<usize>,
    family: Option<Family>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskBody {
    client_id: Option<Number>,
    session: Option<String>,
    address: Option<String>,
    backend: Option<String>,
    limit: Option<u64>,
    deadline: Option<u64>,
    to: Option<String>,
    time_ms: Option<u64>,
    confirm: Option<bool>,
    gateways: Option<Bounded<String, GATEWAYS_MAX>>,
    within: Option<u64>,
    #[serde(default, rename = "for")]
    lasts: Option<u64>,
}

impl WantedAnswers {
    /// Reads the body of a question.
    pub fn parse(what: What, body: &[u8]) -> Result<Self, Unfit> {
        let body: AskBody = parse(body)?;
        let gateways = body.gateways.map_or_else(Vec::new, |it| it.0);
        let gateways =
            gateways.iter().map(|it| name("gateways", it)).collect::<Result<Vec<_>, _>>()?;
        let within_s = ranged("within", body.within, 1..=WITHIN_S_MAX)?.unwrap_or(WITHIN_S);
        let backend = body.backend.map(|it| name("backend", &it)).transpose()?;
        let address = body.address.map(|it| plain("address", it, 2..=64, b".:/[]")).transpose()?;
        let session = body.session.map(|it| plain("session", it, 16..=16, b"")).transpose()?;
        let limit = ranged("limit", body.limit, 1..=LIMIT_MAX)?;
        let deadline_s = ranged("deadline", body.deadline, 0..=DEADLINE_S_MAX)?;
        let lasts_s = ranged("for", body.lasts, 1..=FOR_S_MAX)?;
        let lasts_s = if what == What::Trace { lasts_s.or(Some(FOR_S)) } else { lasts_s };
        let to = body.to.map(|it| name("to", &it)).transpose()?;
        let time_ms = ranged("time_ms", body.time_ms, 1..=MOVE_MS_MAX.into())?;
        let (is_move, is_of_client) = (what == What::Move, body.client_id.is_some());
        // The answer comes once the game process has said something.
        let lasts_within_s =
            u64::from(MOVE_TRIES) * time_ms.unwrap_or_else(|| MOVE_MS.into()).div_ceil(1000);
        let within_s = within_s + if is_move { lasts_within_s } else { 0 };
        let lacks_target = to.is_none();
        let (is_of_backend, is_session) = (backend.is_some(), session.is_some());
        let fields = [
            ("client_id", body.client_id.map(|it| it.0.to_string())),
            ("session", session),
            ("address", address.map(|it| it.replace('/', "%2F"))),
            ("backend", backend.map(|it| it.to_string())),
            ("limit", limit.map(|it| it.to_string())),
            ("to", to.map(|it| it.to_string())),
            ("time_ms", time_ms.map(|it| it.to_string())),
            ("confirm", body.confirm.map(|it| it.to_string())),
            ("deadline_ms", deadline_s.map(|it| (it * 1000).to_string())),
            ("for_ms", lasts_s.map(|it| (it * 1000).to_string())),
        ];
        let known: &[&str] = match what {
            What::Kick => &["client_id", "session"],
            What::Drain => &["backend", "deadline_ms"],
            What::Undrain => &["backend"],
            What::Sessions => &["client_id", "address", "backend", "limit"],
            What::Move => &["client_id", "to", "time_ms", "confirm"],
            What::Trace => &["client_id", "address", "for_ms"],
        };
        let given: Vec<_> = fields.into_iter().filter_map(|(name, it)| Some((name, it?))).collect();
        if let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(name)) {
            let name = name.trim_end_matches("_ms");
            return Err(unfit(format!("{name}: it is not for this path")));
        }
        let lacks = match what {
            What::Kick if given.len() != 1 => "expected client_id, or session with one of gateways",
            What::Kick if is_session && gateways.len() != 1 => {
                "session: gateways number sessions each for itself: expected one of gateways"
            }
            What::Move if !is_of_client || lacks_target => "expected client_id, and to",
            What::Trace if given.len() != 2 => "expected client_id, or address",
            What::Drain | What::Undrain if !is_of_backend && gateways.is_empty() => {
                "expected backend, or gateways"
            }
            _ => "",
        };
        if !lacks.is_empty() {
            return Err(unfit(lacks));
        }
        let query: Vec<_> = given.into_iter().map(|(name, it)| format!("{name}={it}")).collect();
        let for_s = lasts_s.unwrap_or_default();
        Ok(Self { query: query.join("&"), gateways, within_s, for_s })
    }
}

fn ranged(
    field: &str,
    found: Option<u64>,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Unfit> {
    let (first, last) = (range.start(), range.end());
    match found.filter(|it| !range.contains(it)) {
        Some(it) => Err(unfit(format!("{field}: found {it}, expected {first} to {last}"))),
        None => Ok(found),
    }
}

/// A text of hexadecimal digits and some others.
fn plain(
    field: &str,
    text: String,
    len: std::ops::RangeInclusive<usize>,
    others: &[u8],
) -> Result<String, Unfit> {
    let is_plain = |it: u8| it.is_ascii_hexdigit() || others.contains(&it);
    let fits = len.contains(&text.len()) && text.bytes().all(is_plain);
    fits.then_some(text).ok_or_else(|| unfit(format!("{field}: it is none")))
}

impl WantedToken {
    /// Reads the body of a request for one token.
    pub fn parse(body: &[u8]) -> Result<Self, Unfit> {
        parse::<TokenBody>(body)?.try_into()
    }
}

impl WantedBatch {
    /// Reads the body of a request for many.
    pub fn parse(body: &[u8]) -> Result<Self, Unfit> {
        let BatchBody { tokens: Bounded(tokens), together } = parse(body)?;
        if tokens.is_empty() {
            return Err(unfit(format!("tokens: found 0, expected 1 to {BATCH_MAX}")));
        }
        let read = |(index, token): (usize, TokenBody)| {
            WantedToken::try_from(token)
                .map_err(|Unfit(why)| unfit(format!("tokens[{index}].{why}")))
        };
        let tokens = tokens.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let asks = |token: &WantedToken| (token.place.clone(), token.protocol_id);
        let first = asks(&tokens[0]);
        if together && tokens.iter().any(|token| asks(token) != first) {
            let why = "together: tokens for one backend have to ask for the same place and game";
            return Err(unfit(why));
        }
        Ok(Self { tokens, together })
    }
}

impl WantedPlace {
    /// Reads the body of a request for a place.
    pub fn parse(body: &[u8]) -> Result<Self, Unfit> {
        let PlaceBody { protocol, group, backend, labels, region, addresses, family } =
            parse(body)?;
        let place = place(group, backend, labels, region, addresses, family)?;
        Ok(Self { protocol, place })
    }
}

impl TryFrom<TokenBody> for WantedToken {
    type Error = Unfit;

    fn try_from(body: TokenBody) -> Result<Self, Unfit> {
        let TokenBody { group, backend, labels, region, addresses, family, .. } = body;
        if body.expire == Some(0) {
            return Err(unfit("expire: found 0, expected seconds"));
        }
        let timeout_s = body.timeout.unwrap_or(TIMEOUT_S);
        if timeout_s == 0 {
            return Err(unfit("timeout: found 0, expected seconds, or a negative number for none"));
        }
        Ok(Self {
            client_id: body.client_id.0,
            protocol_id: body.protocol_id.map(|it| it.0),
            place: place(group, backend, labels, region, addresses, family)?,
            user_data: own_data(&body.user_data)?,
            expire_s: body.expire,
            timeout_s,
        })
    }
}

pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Unfit> {
    serde_json::from_slice(body).map_err(|why| {
        // What it quotes comes from the body; a caller's log should survive it.
        let said = why.to_string();
        Unfit(said.chars().filter(|it| !it.is_control()).take(TEXT_BYTES_MAX).collect())
    })
}

fn place(
    group: Option<String>,
    backend: Option<String>,
    LabelsBody(labels): LabelsBody,
    region: Regions,
    addresses: Option<usize>,
    family: Option<Family>,
) -> Result<Where, Unfit> {
    let is_text = |text: &String| text.len() <= TEXT_BYTES_MAX;
    if !labels.iter().all(|(key, value)| is_text(key) && is_text(value)) {
        return Err(unfit("labels: one is too long"));
    }
    let Regions(regions) = region;
    let addresses = addresses.unwrap_or(1);
    if !(1..=ADDRESSES_MAX).contains(&addresses) {
        return Err(unfit(format!("addresses: found {addresses}, expected 1 to {ADDRESSES_MAX}")));
    }
    Ok(Where {
        group: group.map(|it| name("group", &it)).transpose()?,
        backend: backend.map(|it| name("backend", &it)).transpose()?,
        labels,
        regions: regions.iter().map(|it| name("region", it)).collect::<Result<_, _>>()?,
        addresses,
        family,
    })
}

fn name(field: &str, text: &str) -> Result<Name, Unfit> {
    Name::new(text).ok_or_else(|| {
        unfit(format!("{field}: expected a name of letters, digits, '.', '_' and '-', at most 64"))
    })
}

fn own_data(text: &str) -> Result<[u8; OWN_BYTES], Unfit> {
    let bytes =
        STANDARD.decode(text).map_err(|_| unfit("user_data: expected base64 with its padding"))?;
    let mut data = [0; OWN_BYTES];
    let place = data.get_mut(..bytes.len()).ok_or_else(|| {
        unfit(format!("user_data: found {} bytes, expected at most {OWN_BYTES}", bytes.len()))
    })?;
    place.copy_from_slice(&bytes);
    Ok(data)
}

/// The user data of a token: the backend's name, a tag of this number where the gateways know what
/// that is and the name leaves room for it, and behind it what the caller wants.
///
/// # Panics
/// Where the name is longer than [`BACKEND_NAME_MAX`].
pub fn user_data(backend: &str, own: &[u8; OWN_BYTES], tag: Option<u64>) -> UserData {
    assert!(backend.len() <= BACKEND_NAME_MAX, "backends with long names are not chosen");
    let mut data = [0; USER_DATA_BYTES];
    data[..backend.len()].copy_from_slice(backend.as_bytes());
    data[BACKEND_BYTES..].copy_from_slice(own);
    if let Some(number) = tag {
        destination::mark(&mut data, number);
    }
    data
}

/// A number of 64 bits: as such, or as text in decimal or, after `0x`, hexadecimal.
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor).map(Self)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of 64 bits, or a string that holds one")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        let digits = text.strip_prefix("0x");
        let is_number = digits.unwrap_or(text).bytes().all(|it| it.is_ascii_hexdigit());
        let number = match digits {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        number
            .filter(|_| is_number)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Other("another text"), &self))
    }
}

/// A list that is read no further than it may be long: a body of empty elements takes many times
/// its size.
struct Bounded<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedVisitor::<T, MAX>(PhantomData)).map(Self)
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX}")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = list.next_element()? {
            if all.len() == MAX {
                return Err(de::Error::invalid_length(MAX + 1, &self));
            }
            all.push(element);
        }
        Ok(all)
    }
}

/// Labels, of which each is said once: of two values one would be asked for by chance.
#[derive(Default)]
struct LabelsBody(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for LabelsBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LabelsVisitor).map(Self)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {LABELS_MAX} labels, each of them once")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, String>()? {
            if all.len() == LABELS_MAX {
                return Err(de::Error::invalid_length(LABELS_MAX + 1, &self));
            }
            if all.insert(key, value).is_some() {
                return Err(de::Error::invalid_value(de::Unexpected::Other("a second one"), &self));
            }
        }
        Ok(all)
    }
}

/// One region, or several in the order in which they are tried.
#[derive(Default)]
struct Regions(Vec<String>);

impl<'de> Deserialize<'de> for Regions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RegionsVisitor).map(Self)
    }
}

struct RegionsVisitor;

impl<'de> Visitor<'de> for RegionsVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a region, or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<String>, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Vec<String>, A::Error> {
        BoundedVisitor::<String, REGIONS_MAX>(PhantomData).visit_seq(list)
    }
}

/// Seconds that gateways have for an answer where a caller does not say.
const WITHIN_S: u64 = 5;
/// How long a trace goes on where nothing else is said.
const FOR_S: u64 = 10;

const TIMEOUT_S: i32 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_asked_for_with_little_or_with_much() {
        let little = WantedToken::parse(br#"{"client_id": 7}"#).unwrap();
        assert_eq!((little.client_id, little.protocol_id, little.timeout_s), (7, None, 15));
        assert_eq!(little.place, Where { addresses: 1, ..Where::default() });
        let much = WantedToken::parse(
            br#"{"client_id": "18446744073709551615", "protocol_id": "0x11", "group": "main",
            "backend": "arena-1", "labels": {"map": "dust"}, "region": ["eu", "us"], "addresses": 2,
            "family": "ipv6", "user_data": "aGVsbG8=", "expire": 60, "timeout": -1}"#,
        )
        .unwrap();
        assert_eq!((much.client_id, much.protocol_id), (u64::MAX, Some(17)));
        assert_eq!((much.place.regions.len(), much.place.addresses), (2, 2));
        assert_eq!(&much.user_data[..6], b"hello\0");
        let data = user_data("arena-1", &much.user_data, None);
        assert_eq!((&data[..8], &data[32..38]), (&b"arena-1\0"[..], &b"hello\0"[..]));
    }

    #[test]
    fn what_is_wrong_with_a_body_is_said() {
        for (body, why) in [
            (&br"{}"[..], "client_id"),
            (br#"{"client_id": -1}"#, "a number of 64 bits"),
            (br#"{"client_id": "+1"}"#, "a number of 64 bits"),
            (br#"{"client_id": 1.5}"#, "a number of 64 bits"),
            (br#"{"client_id": 1, "clientid": 2}"#, "unknown field"),
            (br#"{"client_id": 1, "client_id": 2}"#, "duplicate field"),
            (br#"{"client_id": 1, "labels": {"a": "1", "a": "2"}}"#, "each of them once"),
            (br#"{"client_id": 1, "labels": {"a": 1}}"#, "expected a string"),
            (br#"{"client_id": 18446744073709551616}"#, "a number of 64 bits"),
            (br#"{"client_id": "18446744073709551616"}"#, "a number of 64 bits"),
            (br#"{"client_id": 1, "timeout": 2147483648}"#, "i32"),
            (b"{\"client_id\": 1, \"group\": \"\xff\"}", "unicode"),
            (br#"{"client_id": 1} {}"#, "trailing characters"),
            (br#"{"client_id": 1, "group": "a/b"}"#, "group: expected a name"),
            (br#"{"client_id": 1, "user_data": "x"}"#, "user_data: expected base64"),
            (br#"{"client_id": 1, "addresses": 0}"#, "addresses: found 0"),
            (br#"{"client_id": 1, "expire": 0}"#, "expire: found 0"),
            (br#"{"client_id": 1, "timeout": 0}"#, "timeout: found 0"),
            (br#"{"client_id": 1, "region": 5}"#, "a region"),
            (b"[[[[", ""),
            (b"", ""),
            (b"\xff", ""),
        ] {
            let Unfit(said) = WantedToken::parse(body).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let long = format!(r#"{{"client_id": 1, "user_data": "{}"}}"#, STANDARD.encode([0; 225]));
        assert!(WantedToken::parse(long.as_bytes()).is_err());
        let deep = format!(r#"{{"client_id": {}1"#, "[".repeat(100_000));
        assert!(WantedToken::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_batch_is_bounded_and_says_which_of_its_tokens_is_wrong() {
        let one = r#"{"client_id": 1, "group": "main"}"#;
        let body = |list: &str| format!(r#"{{"tokens": [{list}], "together": true}}"#);
        assert_eq!(WantedBatch::parse(body(one).as_bytes()).unwrap().tokens.len(), 1);
        assert!(WantedBatch::parse(body("").as_bytes()).is_err());
        let many = vec![one; BATCH_MAX].join(",");
        assert_eq!(WantedBatch::parse(body(&many).as_bytes()).unwrap().tokens.len(), BATCH_MAX);
        // It is read no further: what comes behind need not even be JSON.
        let Unfit(why) =
            WantedBatch::parse(body(&format!("{many},{one},<")).as_bytes()).unwrap_err();
        assert!(why.contains("a list of at most 256"), "{why}");
        let regions = format!(r#"{{"client_id": 1, "region": [{}]}}"#, [r#""eu""#; 9].join(","));
        let Unfit(why) = WantedToken::parse(regions.as_bytes()).unwrap_err();
        assert!(why.contains("a list of at most 8"), "{why}");
        for other in [r#""group": "x""#, r#""group": "main", "protocol_id": 9"#] {
            let other = body(&format!(r#"{one}, {{"client_id": 2, {other}}}"#));
            let Unfit(why) = WantedBatch::parse(other.as_bytes()).unwrap_err();
            assert!(why.starts_with("together"), "{why}");
        }
        let labels: Vec<_> = (0..17).map(|at| format!(r#""{at}": "x""#)).collect();
        let labelled = format!(r#"{{"client_id": 1, "labels": {{{}}}}}"#, labels.join(","));
        let Unfit(why) = WantedToken::parse(labelled.as_bytes()).unwrap_err();
        assert!(why.contains("at most 16 labels"), "{why}");
        let wrong = body(&format!(r#"{one}, {{"client_id": 2, "expire": 0}}"#));
        let Unfit(why) = WantedBatch::parse(wrong.as_bytes()).unwrap_err();
        assert!(why.starts_with("tokens[1].expire"), "{why}");
    }

    #[test]
    fn a_place_is_asked_for_without_a_player() {
        let place = WantedPlace::parse(br#"{"protocol": "plain", "region": "eu"}"#).unwrap();
        assert_eq!(place.protocol, Some(Unsealed::Plain));
        assert!(WantedPlace::parse(br#"{"protocol": "netcode"}"#).is_err());
    }
}
