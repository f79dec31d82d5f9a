//! Players of an Unreal game, at a server that judges.

use super::super::super::clients::{Library, Player};
use super::super::super::rig::{Rig, bundle_backend, home};
use super::super::super::unreal::rig::{self, BASE, Dice, unreal_setup};
use super::Plays;
use crate::setup::Setup;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::notify::Header;
use ringgate_core::proto::unreal::prefix::Framing;

/// What it says is text behind two bits.
pub(super) struct Engine {
    player: rig::Player,
    dice: Dice,
    now_ns: u64,
    due_ns: u64,
    heard_ns: Option<u64>,
}

impl Plays for Engine {
    const HEAD_BYTES: usize = 0;
    const HAS_PORTS: bool = false;
    const IS_BEHIND: bool = true;
    /// An engine asks again after a second.
    const COMING: usize = 1000;

    fn setup(_seed: u64) -> Setup {
        Setup { backends: vec![bundle_backend("arena", 50)].into(), ..unreal_setup(1) }
    }

    fn join(rig: &mut Rig, number: u16) -> Player<Self> {
        let now_ns = rig.now.mono_ns;
        let client_id = number as u8;
        let profile = Profile { framing: Framing::default(), client_id, base: BASE };
        let player = rig::Player::begun(&profile, now_ns);
        let dice = Dice(number.into());
        let library = Self { player, dice, now_ns, due_ns: now_ns, heard_ns: None };
        Player { home: home(number), library, got: Vec::new() }
    }

    /// `None` of what says nothing.
    fn said(packet: &[u8]) -> Option<Vec<u8>> {
        let (prefix, reader) = Framing::default().read(packet).ok()?;
        let header = Header::read(reader).ok().filter(|_| !prefix.is_handshake)?;
        let mut payload = header.payload();
        payload.read(2)?;
        let mut text = Vec::new();
        while let Some(byte) = payload.read(8) {
            text.push(byte as u8);
        }
        Some(text)
    }
}

impl Library for Engine {
    fn poll(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        self.now_ns = now_ns;
        let tail = self.dice.tail();
        let owed = self.player.owed_at(now_ns, &tail);
        self.player.sent.clear();
        let mut due: Vec<_> = owed.into_iter().collect();
        if self.player.peer.is_some() && now_ns >= self.due_ns {
            self.due_ns = now_ns + 100_000_000;
            let text = format!("here: {} {now_ns}", self.player.client.ids().client());
            due.push(self.payload(now_ns, text.as_bytes()));
        }
        due
    }

    fn take(&mut self, now_ns: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let before = self.player.packets;
        self.player.take_at(now_ns, bytes);
        if self.player.packets > before {
            self.heard_ns = Some(now_ns);
        }
        None
    }

    /// Empty while too many are in flight.
    fn payload(&mut self, _now_ns: u64, payload: &[u8]) -> Vec<u8> {
        let mut bits = [0; 128];
        let mut out = BitWriter::new(&mut bits);
        out.write(0, 2);
        for byte in payload {
            out.write(u64::from(*byte), 8);
        }
        let len = out.position();
        let bits = BitReader::new(&bits).take(len).expect("written");
        let mut packet = [0; 256];
        let ids = self.player.client.ids();
        let peer = self.player.peer.as_mut().expect("connected");
        let len = peer.write(&self.player.framing, ids, bits, &mut packet);
        packet[..len.unwrap_or(0)].to_vec()
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
