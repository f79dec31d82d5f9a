//! What stands in the place of `membership` in a build without the feature `fleet`: a gateway is
//! alone, as its config is. Types without a value are those that nobody has.

use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use super::ControlLoop;
use super::view::Snapshot;
use crate::config::Config;
use ringgate_os::publishing::Roll;
use ringgate_report::metrics::Text;
use ringgate_state::DenyList;
use ringgate_worker::Fleet;

/// What a gateway in a fleet starts from.
#[derive(Debug)]
pub enum Joining {}

impl Joining {
    /// What it leaves in `state_dir`.
    pub const FILES: [&str; 0] = [];

    /// What a gateway starts with.
    pub const fn of(file: Config, _: u32) -> Result<(Config, Option<Self>), String> {
        Ok((file, None))
    }

    /// Who is known to be denied.
    pub const fn bans(&self) -> &DenyList {
        match *self {}
    }
}

/// What the control thread knows of its fleet.
pub(super) enum Membership {}

impl Membership {
    pub(super) const fn new(joining: Joining, _: bool) -> io::Result<Self> {
        match joining {}
    }
}

/// What pages show of it.
#[derive(Clone, Debug, Serialize)]
pub(super) enum FleetShown {}

impl FleetShown {
    /// The same for `/status`.
    pub(super) const fn on_status(&self) -> &Self {
        self
    }

    pub(super) const fn render(&self, _: &mut Text) {
        match *self {}
    }
}

/// What is known of the fleet.
pub(super) type Known = ();

/// What becomes of the registration.
pub(super) enum Order {
    Leave,
    Part,
}

impl ControlLoop {
    pub(super) const fn join(&self, _: &Fleet) {}

    pub(super) const fn known(&self) -> Option<watch::Receiver<Arc<Known>>> {
        None
    }

    pub(super) const fn leave_fleet(&self, _: Order) {}

    pub(super) const fn heirloom(&self) -> Option<()> {
        None
    }

    pub(super) const fn go_on_in_fleet(&self) {}

    pub(super) const fn inherit_fleet(&self, _: &Value) -> Result<(), String> {
        Ok(())
    }

    pub(super) fn keep_connected(&self, _: Vec<(String, Vec<String>)>) {}

    pub(super) const fn with_fleet(&self, read: Config) -> (Config, Option<Config>) {
        (read, None)
    }

    pub(super) fn is_of_file(&self, backend: &str) -> bool {
        self.config.has_backend(backend)
    }

    pub(super) fn note_file(&self, _: Option<Config>) {}

    pub(super) const fn hear_fleet(&self, _: &Fleet) {}

    pub(super) const fn end_ousted(&self, _: &Fleet) {}

    pub(super) const fn tell_fleet(&self, _: &Fleet) {}

    pub(super) const fn show_fleet(&self, _: &Fleet) {}

    pub(super) const fn ask_fleet(&self, _: &mut Roll) {}

    pub(super) const fn confirm_fleet(&self, _: u64) -> bool {
        false
    }
}

pub(super) const fn detail(_: &Snapshot<'_>) -> String {
    String::new()
}
