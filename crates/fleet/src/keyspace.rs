//! Where everything stands below the fleet's prefix.
//!
//! ```text
//! PREFIX/truth/gateway/ID              a gateway, under its lease
//! PREFIX/truth/backend/NAME            a game process, under its lease
//! PREFIX/truth/key/LISTENER/EPOCH      a listener's key, sealed
//! PREFIX/truth/ban/client/ID           a banned client, under a lease that ends with the ban
//! PREFIX/truth/ban/prefix/ADDRESS-LEN  banned addresses, likewise
//! PREFIX/truth/service/ID              a token service, under its lease
//! PREFIX/truth/agent/NAME              an agent, under its lease
//! PREFIX/truth/confirm                 up to where an operator believes what etcd says
//! PREFIX/truth/gone/LEASE              what stood under this lease was taken away by its owner
//! PREFIX/claim/token/MAC               a token that was used, until it expires
//! PREFIX/claim/player/GROUP/CLIENT     at which gateway a player is
//! PREFIX/claim/ousted/INSTANCE/GROUP/CLIENT  which of its sessions a start of a gateway is to end
//! PREFIX/claim/name/HOST/NAME          whose a game process's name is at a host
//! PREFIX/claim/promise/GROUP/CLIENT    at which server a slot is promised to a client
//! PREFIX/claim/ask/INSTANCE/ID         what an operator asks of a start of a gateway, sealed
//! PREFIX/claim/move/INSTANCE/ID        which player a start of a gateway is to move, sealed
//! PREFIX/claim/answer/ID/INSTANCE/PART a part of what that answers, sealed
//! PREFIX/claim/cluster/CLUSTER         how many processes the gateways of a cluster have had
//! PREFIX/claim/slots/BACKEND/ID        slots that only this token service may promise
//! PREFIX/claim/slots/BACKEND/-         by which token services decide about them one by one
//! ```
//!
//! Everybody mirrors `truth`; nobody mirrors `claim`, of which there are as many as players.

use std::fmt::{self, Write};
use std::net::IpAddr;

use bytes::Bytes;

/// The longest name of a gateway, a backend, a listener or a group.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest key that is ours.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of the message authentication code that names a token.
pub const TOKEN_MAC_BYTES: usize = 16;

/// Something that stands at a key of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A gateway by its name.
    Gateway(Name),
    /// A game process by its name.
    Backend(Name),
    /// A listener's key of one epoch.
    Key(Name, u32),
    /// A banned client.
    BanClient(u64),
    /// Banned addresses.
    BanPrefix(IpPrefix),
    /// A token by its message authentication code.
    Token([u8; TOKEN_MAC_BYTES]),
    /// A player within a listener group.
    Player(Name, u64),
    /// A player within a listener group, and the start of a gateway whose session of it is to end.
    Ousted(Name, Name, u64),
    /// A game process's name, and the host at which it is a user's.
    Owned(Name, Name),
    /// How many processes the gateways of a cluster have had.
    Incarnations(Name),
    /// A client to whom a slot is promised within a listener group.
    Promise(Name, u64),
    /// A start of a gateway, and the question that it is asked.
    Question(Name, Name),
    /// A start of a gateway, and the question by which it is to move a player.
    Move(Name, Name),
    /// A question, the start of a gateway that answers it, and which part of the answer.
    Answer(Name, Name, u32),
    /// A token service by its name.
    Service(Name),
    /// An agent by its name.
    Agent(Name),
    /// Slots of a backend that a token service may promise.
    Block(Name, Name),
    /// By which token services decide about a backend's slots one by one.
    Guard(Name),
    /// Up to where an operator believes what etcd says.
    Confirm,
    /// A process has ended, and has taken away what stood under its lease.
    Gone(i64),
    /// A game process has ended, and the gateway that registered it has taken its key away.
    GoneBackend(Name),
}

/// A name as it may stand in a key: letters, digits, `.`, `_` and `-`, beginning with a letter or a
/// digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

impl Name {
    /// A name, if it is one.
    pub fn new(text: &str) -> Option<Self> {
        let first = text.bytes().next()?;
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
        let is_name = text.len() <= NAME_BYTES_MAX
            && first.is_ascii_alphanumeric()
            && text.bytes().all(is_plain);
        is_name.then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Addresses that begin with the same bits. The bits behind are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

impl IpPrefix {
    /// A prefix; `None` if it is longer than an address, or has bits behind its end.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        let behind = match address {
            IpAddr::V4(ip) if len <= 32 => {
                u128::from(ip.to_bits().checked_shl(len.into()).unwrap_or(0))
            }
            IpAddr::V6(ip) if len <= 128 => ip.to_bits().checked_shl(len.into()).unwrap_or(0),
            _ => return None,
        };
        (behind == 0).then_some(Self { address, len })
    }

    /// Reads one whose address and length this separates; `None` if it is none.
    pub fn parse(text: &str, separator: char) -> Option<Self> {
        let (address, len) = text.split_once(separator)?;
        let found = Self::new(address.parse().ok()?, number(len)?)?;
        // One prefix has one text, and so one key.
        (found.address.to_string() == address).then_some(found)
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

/// Below which prefix a fleet's keys stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyspace {
    prefix: Box<str>,
}

impl Keyspace {
    /// A prefix such as `/ringgate/eu`; `None` if it is none: names between slashes, one slash at
    /// its beginning, none at its end.
    pub fn new(prefix: &str) -> Option<Self> {
        let parts = prefix.strip_prefix('/')?;
        let is_short = prefix.len() <= KEY_BYTES_MAX / 2;
        let is_prefix = is_short && parts.split('/').all(|part| Name::new(part).is_some());
        is_prefix.then(|| Self { prefix: prefix.into() })
    }

    /// Where the mirrored part begins.
    pub fn truth(&self) -> Bytes {
        format!("{}/truth/", self.prefix).into()
    }

    /// The part of it that says what has ended.
    pub fn gone(&self) -> Bytes {
        format!("{}/truth/gone/", self.prefix).into()
    }

    /// The part of it that is about gateways.
    pub fn gateways(&self) -> Bytes {
        format!("{}/truth/gateway/", self.prefix).into()
    }

    /// What all keys begin with that are about slots.
    pub fn all_slots(&self) -> Bytes {
        format!("{}/claim/slots/", self.prefix).into()
    }

    /// What all keys begin with that are about promises to clients.
    pub fn promises(&self) -> Bytes {
        format!("{}/claim/promise/", self.prefix).into()
    }

    /// The part of it that is about bans.
    pub fn bans(&self) -> Bytes {
        format!("{}/truth/ban/", self.prefix).into()
    }

    /// What all keys begin with that are about a backend's slots.
    pub fn slots(&self, backend: &Name) -> Bytes {
        format!("{}/claim/slots/{backend}/", self.prefix).into()
    }

    /// What all keys begin with that tell a start of a gateway which of its sessions have to end.
    pub fn ousted(&self, instance: &Name) -> Bytes {
        format!("{}/claim/ousted/{instance}/", self.prefix).into()
    }

    /// What all keys begin with that ask a start of a gateway something.
    pub fn questions(&self, instance: &Name) -> Bytes {
        format!("{}/claim/ask/{instance}/", self.prefix).into()
    }

    /// What all keys begin with that have a start of a gateway move a player.
    pub fn moves(&self, instance: &Name) -> Bytes {
        format!("{}/claim/move/{instance}/", self.prefix).into()
    }

    /// What all keys begin with that answer a question.
    pub fn answers(&self, question: &Name) -> Bytes {
        format!("{}/claim/answer/{question}/", self.prefix).into()
    }

    /// What all keys of this fleet begin with.
    pub fn all(&self) -> Bytes {
        format!("{}/", self.prefix).into()
    }

    /// The key at which something stands.
    pub fn key(&self, place: &Place) -> Bytes {
        let prefix = &self.prefix;
        match place {
            Place::Gateway(name) => format!("{prefix}/truth/gateway/{name}"),
            Place::Backend(name) => format!("{prefix}/truth/backend/{name}"),
            Place::Key(listener, epoch) => format!("{prefix}/truth/key/{listener}/{epoch}"),
            Place::BanClient(client) => format!("{prefix}/truth/ban/client/{client}"),
            Place::BanPrefix(IpPrefix { address, len }) => {
                format!("{prefix}/truth/ban/prefix/{address}-{len}")
            }
            Place::Token(mac) => format!("{prefix}/claim/token/{}", hex(mac)),
            Place::Player(group, client) => format!("{prefix}/claim/player/{group}/{client}"),
            Place::Owned(host, name) => format!("{prefix}/claim/name/{host}/{name}"),
            Place::Incarnations(cluster) => format!("{prefix}/claim/cluster/{cluster}"),
            Place::Promise(group, client) => format!("{prefix}/claim/promise/{group}/{client}"),
            Place::Ousted(instance, group, client) => {
                format!("{prefix}/claim/ousted/{instance}/{group}/{client}")
            }
            Place::Question(instance, id) => format!("{prefix}/claim/ask/{instance}/{id}"),
            Place::Move(instance, id) => format!("{prefix}/claim/move/{instance}/{id}"),
            // In the order of the parts.
            Place::Answer(id, instance, part) => {
                format!("{prefix}/claim/answer/{id}/{instance}/{part:08x}")
            }
            Place::Service(name) => format!("{prefix}/truth/service/{name}"),
            Place::Agent(name) => format!("{prefix}/truth/agent/{name}"),
            Place::Block(backend, service) => format!("{prefix}/claim/slots/{backend}/{service}"),
            Place::Guard(backend) => format!("{prefix}/claim/slots/{backend}/-"),
            Place::Confirm => format!("{prefix}/truth/confirm"),
            Place::Gone(lease) => format!("{prefix}/truth/gone/{lease}"),
            Place::GoneBackend(name) => format!("{prefix}/truth/gone/backend/{name}"),
        }
        .into()
    }

    /// What stands at a key; `None` if it is none of ours.
    pub fn place(&self, key: &[u8]) -> Option<Place> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let key = std::str::from_utf8(key).ok()?;
        let rest = key.strip_prefix(&*self.prefix)?.strip_prefix('/')?;
        if rest == "truth/confirm" {
            return Some(Place::Confirm);
        }
        let mut parts = rest.split('/');
        let mut next = || parts.next();
        let place = match (next()?, next()?, next()?) {
            ("truth", "gateway", name) => Place::Gateway(Name::new(name)?),
            ("truth", "backend", name) => Place::Backend(Name::new(name)?),
            ("truth", "key", listener) => Place::Key(Name::new(listener)?, number(next()?)?),
            ("truth", "ban", "client") => Place::BanClient(number(next()?)?),
            ("truth", "ban", "prefix") => Place::BanPrefix(IpPrefix::parse(next()?, '-')?),
            ("claim", "token", mac) => Place::Token(from_hex(mac)?),
            ("claim", "player", group) => Place::Player(Name::new(group)?, number(next()?)?),
            ("claim", "name", host) => Place::Owned(Name::new(host)?, Name::new(next()?)?),
            ("claim", "cluster", cluster) => Place::Incarnations(Name::new(cluster)?),
            ("claim", "promise", group) => Place::Promise(Name::new(group)?, number(next()?)?),
            ("claim", "ousted", instance) => {
                Place::Ousted(Name::new(instance)?, Name::new(next()?)?, number(next()?)?)
            }
            ("claim", "ask", instance) => {
                Place::Question(Name::new(instance)?, Name::new(next()?)?)
            }
            ("claim", "move", instance) => Place::Move(Name::new(instance)?, Name::new(next()?)?),
            ("claim", "answer", id) => {
                Place::Answer(Name::new(id)?, Name::new(next()?)?, part(next()?)?)
            }
            ("truth", "service", name) => Place::Service(Name::new(name)?),
            ("truth", "agent", name) => Place::Agent(Name::new(name)?),
            ("truth", "gone", "backend") => Place::GoneBackend(Name::new(next()?)?),
            ("truth", "gone", lease) => Place::Gone(number(lease)?),
            ("claim", "slots", backend) => match next()? {
                "-" => Place::Guard(Name::new(backend)?),
                service => Place::Block(Name::new(backend)?, Name::new(service)?),
            },
            _ => return None,
        };
        next().is_none().then_some(place)
    }
}

ringgate_core::named! {
    /// The kinds of keys of which a mirror holds back one by one what it does not believe, and what
    /// there are many of.
    pub enum Class;
    /// Gateways.
    Gateways = "gateways",
    /// Game processes.
    Backends = "backends",
    /// Listeners' keys.
    Keys = "keys",
    /// Who is banned.
    Bans = "bans",
}

impl Class {
    /// The kind that a key is of, in any fleet.
    pub fn of(key: &[u8]) -> Option<Self> {
        let has = |part: &[u8]| key.windows(part.len()).any(|window| window == part);
        let parts = [&b"/truth/gateway/"[..], b"/truth/backend/", b"/truth/key/", b"/truth/ban/"];
        parts.into_iter().position(has).map(|index| Self::ALL[index])
    }

    /// Whether many of it that are gone at once are missed. Bans come and go: they are missed where
    /// they go together with something else.
    pub const fn is_missed(self) -> bool {
        !matches!(self, Self::Bans)
    }
}

/// A number in the one way in which it can be written.
fn number<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse::<T>().ok().filter(|number| number.to_string() == text)
}

/// The number of a part in the one way in which it can be written.
fn part(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok().filter(|number| format!("{number:08x}") == text)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes everything");
    }
    text
}

fn from_hex(text: &str) -> Option<[u8; TOKEN_MAC_BYTES]> {
    let mut bytes = [0; TOKEN_MAC_BYTES];
    if text.len() != 2 * TOKEN_MAC_BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn every_place_is_found_at_its_key() {
        let keyspace = Keyspace::new("/ringgate/eu-1").unwrap();
        for (place, key) in [
            (Place::Gateway(name("gw-1.example")), "truth/gateway/gw-1.example"),
            (Place::Backend(name("b_7")), "truth/backend/b_7"),
            (Place::Key(name("main"), 12), "truth/key/main/12"),
            (Place::Incarnations(name("fra")), "claim/cluster/fra"),
            (Place::BanClient(u64::MAX), "truth/ban/client/18446744073709551615"),
            (
                Place::BanPrefix(IpPrefix::new([10, 1, 0, 0].into(), 16).unwrap()),
                "truth/ban/prefix/10.1.0.0-16",
            ),
            (
                Place::BanPrefix(IpPrefix::parse("2001:db8::/32", '/').unwrap()),
                "truth/ban/prefix/2001:db8::-32",
            ),
            (Place::Token([0xab; 16]), "claim/token/abababababababababababababababab"),
            (Place::Player(name("g"), 7), "claim/player/g/7"),
            (Place::Owned(name("h"), name("b")), "claim/name/h/b"),
            (Place::Promise(name("g"), 7), "claim/promise/g/7"),
            (Place::Ousted(name("1f"), name("g"), 7), "claim/ousted/1f/g/7"),
            (Place::Question(name("1f"), name("9a")), "claim/ask/1f/9a"),
            (Place::Move(name("1f"), name("9a")), "claim/move/1f/9a"),
            (Place::Answer(name("9a"), name("1f"), 26), "claim/answer/9a/1f/0000001a"),
            (Place::Service(name("t-1")), "truth/service/t-1"),
            (Place::Agent(name("host-7")), "truth/agent/host-7"),
            (Place::Block(name("b"), name("t-1")), "claim/slots/b/t-1"),
            (Place::Guard(name("b")), "claim/slots/b/-"),
            (Place::Confirm, "truth/confirm"),
            (Place::Gone(7_587_876_543_210), "truth/gone/7587876543210"),
            (Place::GoneBackend(name("b_7")), "truth/gone/backend/b_7"),
        ] {
            let whole = format!("/ringgate/eu-1/{key}");
            assert_eq!(keyspace.key(&place), whole.as_bytes());
            assert_eq!(keyspace.place(whole.as_bytes()), Some(place));
        }
    }

    #[test]
    fn keys_of_others_are_none_of_ours() {
        let keyspace = Keyspace::new("/f").unwrap();
        for key in [
            "/f/truth/gateway/",
            "/f/truth/gateway/a/b",
            "/f/truth/gateway",
            "/g/truth/gateway/a",
            "/f/truth/gateway/-a",
            "/f/truth/key/main/01",
            "/f/truth/key/main",
            "/ff/truth/x/y",
            "/f/truth/ban/prefix/10.1.0.1-16",
            "/f/truth/ban/prefix/10.0.0.0-33",
            "/f/truth/ban/prefix/2001:DB8::-32",
            "/f/claim/token/AB",
            "/f/truth/ban/client/+1",
            "/f/truth/confirm/1",
            "/f/claim/ask/1f",
            "/f/claim/answer/9a/1f",
            "/f/claim/answer/9a/1f/1a",
            "/f/claim/answer/9a/1f/0000001A",
            "/f/truth/gone/07",
            "/f/truth/gone/backend",
        ] {
            assert_eq!(keyspace.place(key.as_bytes()), None, "{key}");
        }
        assert_eq!(keyspace.place(b"/f/truth/gateway/\xff"), None);
    }

    #[test]
    fn prefixes_are_names_between_slashes() {
        for prefix in ["", "/", "a", "/a/", "/a//b", "/a b"] {
            assert_eq!(Keyspace::new(prefix), None, "{prefix}");
        }
        assert!(Keyspace::new("/ringgate").is_some());
    }

    #[test]
    fn keys_are_sorted_by_kind() {
        for (key, class) in [
            ("gateway/a", Some(Class::Gateways)),
            ("backend/a", Some(Class::Backends)),
            ("key/main/1", Some(Class::Keys)),
            ("ban/client/1", Some(Class::Bans)),
            ("service/a", None),
            ("gone/backend/a", None),
        ] {
            assert_eq!(Class::of(format!("/f/truth/{key}").as_bytes()), class);
        }
    }
}
