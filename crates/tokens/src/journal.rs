//! What a service has promised, written before the caller is answered: the service's next start
//! takes over just that, even after a kill.
//!
//! A *list of starts* stands beside the records. It names those all of whose promises are written,
//! and the folder and the boot of the machine for which that holds: what no disk had yet is lost
//! with the power. A start names itself before it promises anything, and takes the list away before
//! it answers with a promise that could not be written. So a start that has the folder to itself
//! and finds a list knows every promise that the listed starts may have answered with. A start that
//! finds no list leaves the blocks of earlier ones until their lease ends.
//!
//! A kill may tear the last record of a file. No caller was told of that promise: it is cut off.
//! Anything else that is no record has the whole list disbelieved.

use std::fmt::{Debug, Write as _};
use std::io;

use ringgate_core::netcode::destination::Join;
use ringgate_fleet::copy::checksum;
use ringgate_fleet::etcd::Error;
use ringgate_fleet::etcd::wire::{Reader, Writer};
use ringgate_fleet::keyspace::{Keyspace, Name};

use crate::book::Now;

/// Slots of a backend that were promised at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised {
    /// Where.
    pub backend: Name,
    /// Until when the players may come.
    pub until_s: u64,
    /// Whose each token is, and what is told when it is used.
    pub tokens: Vec<(u64, Option<Join>)>,
    /// Players without a client id.
    pub nameless: u32,
}

/// Where a service writes. One process at a time has it.
pub trait Disk: Debug + Send {
    /// What has to be the same for that to be there which was written: the boot and the folder.
    fn identity(&self) -> String;
    /// The list of starts; `None` where there is none.
    fn list(&self) -> io::Result<Option<Vec<u8>>>;
    /// Puts another list in its place, or none.
    fn set_list(&mut self, text: Option<&str>) -> io::Result<()>;
    /// Each file of records, by its number.
    fn records(&self) -> io::Result<Vec<(u64, Vec<u8>)>>;
    /// Adds a record that ends then. It outlives this process once this returns.
    fn add(&mut self, until_s: u64, record: &[u8], now: Now) -> io::Result<()>;
    /// Has a file of records hold this and nothing else.
    fn replace(&mut self, file: u64, records: &[u8]) -> io::Result<()>;
    /// Removes files whose records have all ended.
    fn forget_ended(&mut self, now: Now) -> io::Result<()>;
    /// The leases of the last start's registration; none where it may live.
    fn leases(&self) -> Vec<i64>;
    /// Puts others in their place.
    fn set_leases(&mut self, leases: &[i64]) -> io::Result<()>;
    /// Removes all records.
    fn clear(&mut self) -> io::Result<()>;
}

/// What earlier starts have left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Those all of whose promises are among these.
    pub starts: Vec<Name>,
    /// The promises.
    pub promised: Vec<Promised>,
}

/// The journal of this start.
#[derive(Debug)]
pub struct Journal {
    disk: Box<dyn Disk>,
    /// Whether everything that was promised is written.
    is_whole: bool,
    /// Whether the list stands there.
    is_listed: bool,
}

impl Journal {
    /// Begins a start's journal. What earlier ones have left is returned.
    pub fn begin(
        mut disk: Box<dyn Disk>,
        keyspace: &Keyspace,
        owner: &Name,
        now: Now,
    ) -> (Self, Before) {
        let fleet = String::from_utf8_lossy(&keyspace.all()).into_owned();
        let head = format!("{FIRST_LINE}\nfleet {fleet}\nhere {}\n", disk.identity());
        let found = find(&mut *disk, &head, now);
        let is_believed = found.is_ok();
        let before = found.unwrap_or_else(|why| {
            if let Some(why) = why {
                tracing::warn!(
                    event = "promises_not_believed",
                    why,
                    "what earlier starts have promised is not known for certain: {why}; their slots stay leased until their lease \
                     ends"
                );
            }
            Before::default()
        });
        if !before.starts.is_empty() {
            let (starts, promises) = (before.starts.len(), before.promised.len());
            tracing::info!(
                event = "promises_found",
                starts,
                promises,
                "goes on with {promises} promises of {starts} earlier starts"
            );
        }
        let mut text = head;
        for start in [owner].into_iter().chain(&before.starts).take(STARTS_MAX) {
            writeln!(text, "start {start}").expect("a string takes everything");
        }
        let mut journal = Self { disk, is_whole: true, is_listed: true };
        if let Err(why) = journal.disk.set_list(Some(&text)) {
            journal.give_up(&why);
        }
        if !is_believed && let Err(why) = journal.disk.clear() {
            // They would count beside the blocks that stand for them.
            tracing::warn!("promises that are not believed cannot be removed: {why}");
        }
        (journal, before)
    }

    /// Writes that this is promised. Called before the caller is answered.
    pub fn add(&mut self, promised: &Promised, now: Now) {
        if !self.is_whole {
            return;
        }
        if let Err(why) = self.disk.add(promised.until_s, &promised.record(), now) {
            self.give_up(&why);
        }
    }

    /// Removes what is over, now and then.
    pub fn tidy(&mut self, now: Now) {
        // What cannot be removed is tried again.
        let _ = self.disk.forget_ended(now);
        if !self.is_whole && self.is_listed {
            self.is_listed = self.disk.set_list(None).is_err();
        }
    }

    /// The service ends, and has left its promises in etcd.
    pub fn end(&mut self) {
        if self.disk.set_list(None).is_ok() {
            // Without a list they are not believed anyway.
            let _ = self.disk.clear();
        }
    }

    /// The leases under which the last start was registered: what stands there is this one's.
    pub fn leases(&self) -> Vec<i64> {
        self.disk.leases()
    }

    /// Writes the leases of this one.
    pub fn keep_leases(&mut self, leases: &[i64]) {
        if let Err(why) = self.disk.set_leases(leases) {
            tracing::warn!(
                event = "fleet_leases_not_written",
                "cannot write to state_dir: {why}; a service that is started again at once will wait for the end of this one's lease"
            );
        }
    }

    /// Whether the next start will know everything that this one has promised.
    pub const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Something was not written: the next start is not to believe that all of it is there.
    fn give_up(&mut self, why: &io::Error) {
        self.is_whole = false;
        self.is_listed = self.disk.set_list(None).is_err();
        tracing::error!(
            event = "promises_not_written",
            why = %why,
            "cannot write to state_dir what is promised: {why}; after a kill all slots of this service stay leased until its lease \
             ends"
        );
    }
}

/// What is there, if it is all. The error says why it is not; nothing where nothing is to be said.
fn find(disk: &mut dyn Disk, head: &str, now: Now) -> Result<Before, Option<String>> {
    let said = |why: io::Error| Some(why.to_string());
    let list = disk.list().map_err(said)?.ok_or(None)?;
    let starts = str::from_utf8(&list).ok().and_then(|text| text.strip_prefix(head));
    let Some(starts) = starts else {
        return Err(Some("it is of another boot, another folder or another fleet".to_owned()));
    };
    let start = |line: &str| line.strip_prefix("start ").and_then(Name::new);
    let starts = starts.lines().map(start).collect::<Option<Vec<_>>>();
    let starts = starts.ok_or_else(|| Some("the list of starts is malformed".to_owned()))?;
    let mut promised = Vec::new();
    for (file, bytes) in disk.records().map_err(said)? {
        let whole = take_records(&bytes, &mut promised).map_err(|why| Some(why.to_string()))?;
        if whole < bytes.len() {
            disk.replace(file, &bytes[..whole]).map_err(said)?;
        }
    }
    promised.retain(|it| it.until_s > now.unix_s);
    Ok(Before { starts, promised })
}

/// Reads records, and returns how many bytes are whole ones.
pub fn take_records(bytes: &[u8], promised: &mut Vec<Promised>) -> Result<usize, Error> {
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let [len @ .., _, _, _, _, _, _, _, _] = *head;
        let [_, _, sum @ ..] = *head;
        let Some((message, next)) = behind.split_at_checked(u16::from_le_bytes(len).into()) else {
            break;
        };
        if u64::from_le_bytes(sum) != checksum(message) && !cfg!(fuzzing) {
            return Err(Error::Malformed("a record is damaged"));
        }
        promised.push(Promised::decode(message)?);
        rest = next;
    }
    if rest.len() >= RECORD_BYTES_MAX {
        return Err(Error::Malformed("a record is longer than any"));
    }
    Ok(bytes.len() - rest.len())
}

impl Promised {
    /// Its bytes: the length, a check and a message.
    pub fn record(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.bytes(1, self.backend.as_str().as_bytes());
        writer.uint(2, self.until_s);
        writer.uint(3, self.nameless.into());
        for (client, join) in &self.tokens {
            writer.message(4, |it| {
                it.uint(1, *client);
                it.uint(2, join.map_or(0, |Join(number)| number));
            });
        }
        let message = writer.into_bytes();
        let len = u16::try_from(message.len()).expect("a batch is no longer than that");
        [&len.to_le_bytes()[..], &checksum(&message).to_le_bytes(), &message].concat()
    }

    fn decode(message: &[u8]) -> Result<Self, Error> {
        let name = |bytes: &[u8]| {
            let name = str::from_utf8(bytes).ok().and_then(Name::new);
            name.ok_or(Error::Malformed("a record has no name"))
        };
        let (mut backend, mut tokens) = (None, Vec::new());
        let (mut until_s, mut nameless) = (0, 0);
        let mut reader = Reader::new(message);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => backend = Some(name(value.bytes()?)?),
                2 => until_s = value.uint()?,
                3 => nameless = u32::try_from(value.uint()?).unwrap_or(u32::MAX),
                4 => tokens.push(token(value.bytes()?)?),
                _ => return Err(Error::Malformed("a record is of another release")),
            }
        }
        let backend = backend.ok_or(Error::Malformed("a record has no backend"))?;
        if (tokens.is_empty() && nameless == 0) || u64::from(nameless) > NAMELESS_MAX {
            return Err(Error::Malformed("a record promises what no service does"));
        }
        Ok(Self { backend, until_s, tokens, nameless })
    }
}

fn token(message: &[u8]) -> Result<(u64, Option<Join>), Error> {
    let (mut client, mut join) = (0, 0);
    let mut reader = Reader::new(message);
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => client = value.uint()?,
            2 => join = value.uint()?,
            _ => return Err(Error::Malformed("a record is of another release")),
        }
    }
    Ok((client, Some(Join(join)).filter(|_| join != 0)))
}

const FIRST_LINE: &str = "ringgate promises 1";

/// A service that is started more often while a token lives has other troubles.
const STARTS_MAX: usize = 16;

const HEAD_BYTES: usize = size_of::<u16>() + size_of::<u64>();

const RECORD_BYTES_MAX: usize = HEAD_BYTES + u16::MAX as usize;

/// As many as are taken over at once of what earlier starts have left in etcd.
const NAMELESS_MAX: u64 = crate::ledger::INHERITED_MAX;
