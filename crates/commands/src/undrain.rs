//! `ringgate undrain`: takes a drain back.

use super::Failure;
use super::admin::{Answer, OneBackend, Place};
use super::exit::print;

/// Have a draining gateway or agent, or a gateway's backend, take players in again
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    backend: OneBackend,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let path = match args.backend.name() {
        Some(name) => format!("/undrain?backend={name}"),
        None => "/undrain".to_owned(),
    };
    let Answer { status, body } = admin.post(&path)?;
    match (status, args.backend.name()) {
        (200, Some(name)) => print(&format!("backend {name} takes players again\n")),
        (200, None) => print("players are taken in again\n"),
        (404, _) => Err(Failure::bad_input(body.trim_end())),
        (409, _) => Err(Failure::failed(body.trim_end())),
        _ => Err(admin.unexpected(status, &body)),
    }
}
