//! The libraries of `bindings/`, each in its language: its own tests, and its echo server behind a
//! running gateway.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_io::Choice;

use crate::folder::Folder;
use crate::link_library::build_todays_library;
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

#[test]
fn a_server_in_python_serves_players_and_gets_them_back_after_a_crash() {
    let mut probe = Command::new("python3");
    probe.args(["-c", "import ctypes"]);
    if !works(probe) {
        return skip("Python", "python3 is missing");
    }
    let built = Folder::new();
    let library = build_todays_library(&built);
    serve_and_crash_and_return(Choice::Mmsg, || {
        let mut command = Command::new("python3");
        command.arg("-B").arg(binding("python/examples/echo.py"));
        command.env("PYTHONPATH", binding("python")).env("RINGGATE_BACKEND_LIBRARY", &library);
        command
    });
}

#[test]
fn a_server_in_csharp_serves_players_and_gets_them_back_after_a_crash() {
    let built = Folder::new();
    let program = |example: &str| built.join(&format!("{example}.exe"));
    for example in ["Echo", "Snapshots"] {
        let mut build = Command::new("mcs");
        build.args(["-unsafe", "-warnaserror", "-langversion:7"]);
        build.arg(binding("csharp/Ringgate.Backend.cs"));
        build.arg(binding(&format!("csharp/examples/{example}.cs")));
        build.arg(format!("-out:{}", program(example).display()));
        if !works(build) {
            return skip("C#", "mono and its compiler are missing, or it does not compile");
        }
    }
    build_todays_library(&built);
    serve_and_crash_and_return(Choice::Mmsg, || {
        let mut command = Command::new("mono");
        command.arg(program("Echo")).env("LD_LIBRARY_PATH", built.join(""));
        command
    });
}
