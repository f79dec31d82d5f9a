//! Players whose datagrams are numbered, and nothing more.

use super::super::super::clients::{Library, Player};
use super::super::super::plain::plain_setup_with;
use super::super::super::rig::{Rig, bundle_backend, home};
use super::{PLAYERS, Plays};
use crate::ids::{BackendId, ListenerId};
use crate::setup::{Sequence, Setup};
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;

/// What it says begins with a number of two bytes.
pub(super) struct Source {
    number: u16,
    now_ns: u64,
    due_ns: u64,
    heard_ns: Option<u64>,
}

impl Plays for Source {
    const HEAD_BYTES: usize = 2;
    const HAS_PORTS: bool = false;

    fn setup(_seed: u64) -> Setup {
        let field = Field { offset: 0, width: Width::Sixteen, order: Order::Big };
        let policy = Policy::new(256, 0).expect("a window");
        let mut setup = plain_setup_with(50, |rules| {
            rules.sequence = Some(Sequence { field, policy, both: false });
        });
        setup.backends = vec![bundle_backend("arena", 50)].into();
        setup.listeners[ListenerId(0)].backends = vec![BackendId(0)];
        setup
    }

    fn join(rig: &mut Rig, number: u16) -> Player<Self> {
        let now_ns = rig.now.mono_ns;
        let library = Self { number: number * 1000, now_ns, due_ns: now_ns, heard_ns: None };
        Player { home: home(number), library, got: Vec::new() }
    }
}

impl Library for Source {
    fn poll(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        self.now_ns = now_ns;
        if now_ns < self.due_ns {
            return Vec::new();
        }
        self.due_ns = now_ns + 100_000_000;
        let text = format!("here: {} {}", self.number, now_ns);
        vec![self.payload(now_ns, text.as_bytes())]
    }

    fn take(&mut self, now_ns: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        self.heard_ns = Some(now_ns);
        Some(bytes.to_vec())
    }

    fn payload(&mut self, _now_ns: u64, payload: &[u8]) -> Vec<u8> {
        self.number = self.number.wrapping_add(1);
        [&self.number.to_be_bytes()[..], payload].concat()
    }

    /// It has heard something of late.
    fn is_connected(&self) -> bool {
        self.heard_ns.is_some_and(|heard_ns| self.now_ns < heard_ns + 2_000_000_000)
    }

    fn is_over(&self) -> bool {
        false
    }

    fn leave(&mut self, _now_ns: u64) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

const _: () = assert!((PLAYERS as usize) < 60);
