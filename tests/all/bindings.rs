//! The libraries of `bindings/`, each in its language: its own tests, and its echo server behind a
//! running gateway.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_io::Choice;

use crate::folder::Folder;
use crate::link_whole::serve_and_crash_and_return;
use crate::token_languages::{go_cache, run_well, skip, works};

/// A folder of the bindings.
fn binding(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings").join(folder)
}

fn go(arguments: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(binding("go"));
    // Nothing is fetched: the library needs Go alone.
    command.envs([("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off"), ("GO111MODULE", "on")]);
    command.env("GOCACHE", go_cache());
    command
}

#[test]
fn a_server_in_go_serves_players_and_gets_them_back_after_a_crash() {
    if !works(go(&["version"])) {
        return skip("Go", "go is missing");
    }
    run_well(&mut go(&["vet", "./..."]));
    run_well(&mut go(&["test", "-timeout", "120s", "./..."]));
    let built = Folder::new();
    run_well(go(&["build", "-o"]).arg(built.join("")).arg("./examples/..."));
    serve_and_crash_and_return(Choice::Mmsg, || Command::new(built.join("echo")));
}
