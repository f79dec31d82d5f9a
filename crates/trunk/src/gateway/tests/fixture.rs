//! A gateway's trunks of the first version of the format, as they were written once: they are read
//! for ever.
//!
//! `WRITE_HAND_OVER_FIXTURE=1` writes what is missing. What is there is not written again: a
//! release may have written it.

use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ringgate_link::bundle::Hello;
use socket2::{SockRef, Type};

use super::rig::Rig;
use super::{WELCOME, session};
use crate::protocol::tls::fixtures::AGENT;

fn path(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../tests/fixtures/hand_over_1").join(name)
}

/// What kind of socket each descriptor is, a line for each.
fn kinds(fds: &[OwnedFd]) -> String {
    let kind = |fd: &OwnedFd| match SockRef::from(fd).r#type().expect("a socket") {
        Type::STREAM => "stream\n",
        Type::DGRAM => "dgram\n",
        _ => "seqpacket\n",
    };
    fds.iter().map(kind).collect()
}

/// Sockets of those kinds, to nobody.
fn sockets(kinds: &str) -> Vec<OwnedFd> {
    let socket = |kind| match kind {
        "stream" => UnixStream::pair().expect("a pair").0.into(),
        "dgram" => UdpSocket::bind("127.0.0.1:0").expect("a port").into(),
        _ => ringgate_io::socket::link_pair().expect("a pair").0,
    };
    kinds.lines().map(socket).collect()
}

/// A trunk with two lanes, a link at a worker, and a payload that nobody has read.
fn write() {
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let mut agent = rig.agent(AGENT);
    agent.tell(0, 7, |writer| writer.hello(&Hello::new(1, "arena-1")));
    let link = rig.accept(&mut agent, 0);
    rig.until(&mut agent, "the hello has come", |rig, _| rig.workers.heard(link).len() == 1);
    rig.workers.say(link, |writer| writer.welcome(&WELCOME));
    rig.until(&mut agent, "it is welcome", |_, agent| agent.told.len() == 1);
    agent.push(0, 7, |writer| writer.payload(session(1), b"unread"));
    let (bytes, fds) = rig.trunks.rest().take();
    fs::write(path(BYTES), bytes).expect("written");
    fs::write(path(SOCKETS), kinds(&fds)).expect("written");
}

#[test]
fn trunks_of_the_first_version_are_read() {
    if !path(BYTES).exists() && std::env::var_os("WRITE_HAND_OVER_FIXTURE").is_some() {
        write();
    }
    let Some(mut rig) = Rig::new(&["arena-1"]) else { return };
    let bytes = fs::read(path(BYTES)).expect("it was written");
    let kinds = fs::read_to_string(path(SOCKETS)).expect("it was written");
    let mut next = rig.next();
    next.inherit(&bytes, sockets(&kinds)).expect("the first version");
    let [site] = &*next.inherited.sites else { panic!("one trunk") };
    let links = [("arena-1".to_owned(), 1)].into();
    assert_eq!(site.contents(), ("host-7", Some(2), links));
    assert_eq!(next.inherited.doors.len(), 1);

    // What is of another version is refused by that, and nothing else of it is looked at.
    let mut other = bytes;
    other[0] += 1;
    let why = rig.next().inherit(&other, sockets(&kinds)).expect_err("another version");
    assert!(why.ends_with("it has an impossible version"), "{why}");
    rig.allow_nothing();
}

const BYTES: &str = "trunks";
const SOCKETS: &str = "trunks-sockets";
