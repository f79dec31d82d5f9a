//! A mirror whose etcd answers whatever it likes: it never holds what is not below its prefix, and
//! its changes add up to what it holds.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ringgate_fleet::etcd::Error;
use ringgate_fleet::etcd::kv::Ranged;
use ringgate_fleet::etcd::watch::Watched;
use ringgate_fleet::mirror::{Ask, Machine, Options, Reads, Truth};

const PREFIX: &str = "/f/truth/";

fuzz_target!(|data: &[u8]| {
    let mut machine = Machine::new(Options::new(PREFIX, Reads::default(), 1), Truth::default());
    let (mut now_ms, mut question, mut stream) = (0_u64, 0, 0);
    let mut heard = BTreeMap::new();
    let mut left = data;
    while let Some((&[kind, wait, len], rest)) = left.split_first_chunk() {
        let (message, rest) = rest.split_at(rest.len().min(usize::from(len)));
        left = rest;
        now_ms += u64::from(wait) * 50;
        for _ in 0..16 {
            match machine.poll(now_ms) {
                Some(Ask::Range { question: asked, .. }) => question = asked,
                Some(Ask::Watch { stream: opened, .. }) => stream = opened,
                Some(_) => {}
                None => break,
            }
        }
        let message = message.to_vec().into();
        match kind % 4 {
            0 => machine.handle_ranged(now_ms, question, Ranged::decode(&message)),
            1 => match Watched::decode(&message) {
                Ok(watched) => machine.handle_watched(now_ms, stream, watched),
                Err(why) => machine.handle_watch_end(now_ms, stream, &why),
            },
            2 => machine.handle_watch_end(now_ms, stream, &Error::Timeout),
            _ => {
                if let Some((number, _)) = machine.status().doubt {
                    machine.confirm(now_ms, number);
                }
            }
        }
        for change in machine.take_changes() {
            match change.value {
                Some(value) => drop(heard.insert(change.key, value)),
                None => drop(heard.remove(&change.key)),
            }
        }
        let entries = &machine.truth().entries;
        assert!(entries.keys().all(|key| key.starts_with(PREFIX.as_bytes())));
        assert!(heard.iter().eq(entries.iter().map(|(key, entry)| (key, &entry.value))));
    }
});
