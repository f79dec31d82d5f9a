//! A stream that is nothing but keys, numbers and bytes, so that another process can go on with it
//! and the other side notices nothing.
//!
//! rustls makes the connection and gives the keys up; what is left to do is the record layer of
//! TLS 1.3 (RFC 8446, 5.2) with one cipher. Neither side of a trunk changes its keys or sends
//! tickets, so a record that is not data or an alert ends the connection.

use std::io::{self, Read, Write};

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::crypto::{Aead, Job, Key, Verdict};
use ringgate_core::limits::TAG_BYTES;
use rustls::crypto::cipher::NONCE_LEN;
use rustls::{Connection, ConnectionTrafficSecrets, Error, ExtractedSecrets};
use zeroize::Zeroize;

use super::failure::{Failure, Received};
use super::records::{HEADER_BYTES, Records};
use super::whole::{BUFFER_BYTES, Come, is_blocked, receive};
use crate::protocol::control::{Inbox, Outbox, take_off};

/// One connection.
#[derive(Debug)]
pub(super) struct Bare {
    aead: Cipher,
    here: Way,
    there: Way,
    /// Sealed, and not taken by the sink.
    sealed: Vec<u8>,
    /// Opened, and not taken by the inbox.
    opened: Vec<u8>,
    /// The other side has said that nothing more comes.
    is_closed: bool,
}

ringgate_core::carried!(Bare { aead, here, there, sealed, opened, is_closed });

/// The implementation that this processor has, which is not carried.
#[derive(Debug)]
struct Cipher(Aead);

impl Carry for Cipher {
    fn write(&self, _: &mut Writer<'_>) {}

    fn read(_: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Self(Aead::detect()))
    }
}

/// One direction.
#[derive(Debug)]
struct Way {
    key: Key,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

ringgate_core::carried!(Way { key, iv, sequence });

impl Bare {
    /// What a connection is that rustls has made. It has whole records alone, because nothing else
    /// is handed to it.
    pub(super) fn of(mut whole: Connection, records: &mut Records) -> Result<Self, Failure> {
        let mut opened = Vec::new();
        let is_closed = loop {
            let mut room = [0; 4096];
            let come = receive(&mut whole, &mut records.of(&mut Dry), &mut room)?;
            match come {
                Come::Bytes(bytes) => opened.extend_from_slice(&room[..bytes]),
                Come::Closed => break true,
                Come::Nothing => break false,
            }
        };
        let mut sealed = Vec::new();
        while whole.wants_write() {
            whole.write_tls(&mut sealed).map_err(Failure::Io)?;
        }
        let ExtractedSecrets { tx, rx } =
            whole.dangerous_extract_secrets().map_err(Failure::Tls)?;
        let (here, there) = (Way::of(tx)?, Way::of(rx)?);
        Ok(Self { aead: Cipher(Aead::detect()), here, there, sealed, opened, is_closed })
    }

    pub(super) fn receive(
        &mut self,
        records: &mut Records,
        source: &mut impl Read,
        inbox: &mut Inbox,
    ) -> Result<Received, Failure> {
        if self.opened.is_empty() && !self.is_closed {
            match records.next(source) {
                Ok(Some(record)) => self.open(record)?,
                Ok(None) => return Err(Failure::Io(io::ErrorKind::UnexpectedEof.into())),
                Err(why) if is_blocked(&why) => return Ok(Received::Nothing),
                Err(why) if why.kind() == io::ErrorKind::InvalidData => {
                    return Err(broken("what came is no record"));
                }
                Err(why) => return Err(Failure::Io(why)),
            }
        }
        if self.opened.is_empty() && self.is_closed {
            return Ok(Received::Closed);
        }
        let room = inbox.room();
        let len = room.len().min(self.opened.len());
        room[..len].copy_from_slice(&self.opened[..len]);
        take_off(&mut self.opened, len);
        inbox.handle_read(len);
        Ok(Received::Something)
    }

    pub(super) fn transmit(
        &mut self,
        sink: &mut impl Write,
        outbox: &mut Outbox,
    ) -> io::Result<()> {
        loop {
            while !outbox.bytes().is_empty() && self.sealed.len() < BUFFER_BYTES {
                let len = outbox.bytes().len().min(RECORD_BYTES_MAX);
                self.seal(kind::DATA, &outbox.bytes()[..len]);
                outbox.handle_sent(len);
            }
            if self.sealed.is_empty() {
                return Ok(());
            }
            match sink.write(&self.sealed) {
                Err(why) if is_blocked(&why) => return Ok(()),
                Err(why) => return Err(why),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => drop(self.sealed.drain(..taken)),
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.seal(kind::ALERT, &[LEVEL_WARNING, CLOSE_NOTIFY]);
    }

    /// Of both directions.
    #[cfg(test)]
    pub(super) const fn keys(&self) -> [&[u8; 32]; 2] {
        [self.here.key.as_bytes(), self.there.key.as_bytes()]
    }

    pub(super) const fn wants_to_write(&self) -> bool {
        !self.sealed.is_empty()
    }

    fn seal(&mut self, kind: u8, bytes: &[u8]) {
        let Self { aead, here, sealed, .. } = self;
        let header = header(bytes.len() + 1 + TAG_BYTES);
        sealed.extend_from_slice(&header);
        let start = sealed.len();
        sealed.extend_from_slice(bytes);
        sealed.push(kind);
        sealed.extend_from_slice(&[0; TAG_BYTES]);
        let nonce = here.next();
        aead.0.seal(&mut [Job::new(&here.key, nonce, &header, &mut sealed[start..])]);
    }

    fn open(&mut self, record: &mut [u8]) -> Result<(), Failure> {
        let Self { aead, there, opened, is_closed, .. } = self;
        let split = record.split_first_chunk_mut::<HEADER_BYTES>();
        let (header, body) = split.ok_or_else(|| broken("a record has no header"))?;
        if header[..3] != [kind::DATA, 3, 3] || body.len() <= TAG_BYTES {
            return Err(broken("a record is not sealed"));
        }
        let nonce = there.next();
        let mut jobs = [Job::new(&there.key, nonce, header, body)];
        aead.0.open(&mut jobs);
        if jobs[0].verdict != Verdict::Done {
            return Err(Failure::Tls(Error::DecryptError));
        }
        let inner = &body[..body.len() - TAG_BYTES];
        // The kind stands behind the content, and filling behind both.
        let at = inner.iter().rposition(|byte| *byte != 0);
        let at = at.ok_or_else(|| broken("a record has no kind"))?;
        match (inner[at], &inner[..at]) {
            (kind::DATA, bytes) => opened.extend_from_slice(bytes),
            (kind::ALERT, [_, CLOSE_NOTIFY]) => *is_closed = true,
            (kind::ALERT, [_, why]) => {
                return Err(Failure::Tls(Error::AlertReceived((*why).into())));
            }
            _ => return Err(broken("a record is neither data nor an alert")),
        }
        body.zeroize();
        Ok(())
    }
}

impl Way {
    fn of((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Failure> {
        let ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else {
            return Err(broken("the cipher is another one"));
        };
        let both = key.as_ref().try_into().ok().zip(iv.as_ref().try_into().ok());
        let (mut bytes, iv): ([u8; 32], _) =
            both.ok_or_else(|| broken("the key is another one"))?;
        let key = Key::from_bytes(bytes);
        bytes.zeroize();
        Ok(Self { key, iv, sequence })
    }

    /// The number of the next record, which is never used again.
    fn next(&mut self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        let number = self.sequence.to_be_bytes();
        nonce[NONCE_LEN - number.len()..].iter_mut().zip(number).for_each(|(it, bits)| *it ^= bits);
        self.sequence = self.sequence.wrapping_add(1);
        nonce
    }
}

/// A source that has nothing more.
struct Dry;

impl Read for Dry {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }
}

const fn header(bytes: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (bytes as u16).to_be_bytes();
    [kind::DATA, 3, 3, high, low]
}

fn broken(why: &str) -> Failure {
    Failure::Tls(Error::General(why.to_owned()))
}

mod kind {
    pub(super) const ALERT: u8 = 21;
    pub(super) const DATA: u8 = 23;
}

const LEVEL_WARNING: u8 = 1;
const CLOSE_NOTIFY: u8 = 0;

/// Content of one record.
const RECORD_BYTES_MAX: usize = 1 << 14;
