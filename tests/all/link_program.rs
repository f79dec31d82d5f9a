//! Game processes written in C: compiled, run, and talked to by lines of text.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use crate::command::Ending;
use crate::folder::Folder;
use crate::link_gateway::PATIENCE;

/// Compiles a C program of this repository as strictly as it promises, and more: where the compiler
/// has sanitizers, the program runs under them. All tests that ask for the same have the same.
pub(crate) fn compile(folder: &Folder, source: &str) -> PathBuf {
    type Made = Arc<OnceLock<File>>;
    static MADE: Mutex<BTreeMap<String, Made>> = Mutex::new(BTreeMap::new());
    let program = folder.join("program");
    let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = Arc::clone(all.entry(source.to_owned()).or_default());
    drop(all);
    // It is open as long as tests run, whatever becomes of the first test's folder.
    let made = made.get_or_init(|| {
        let first = Folder::new();
        File::open(compile_anew(source, &first.join("program"))).expect("it was just compiled")
    });
    // Copied by another process: what a thread of this one writes may be open in a process that a
    // test has just forked, and cannot be run then.
    let open = format!("/proc/{}/fd/{}", std::process::id(), made.as_raw_fd());
    let copied = Command::new("cp").arg(open).arg(&program).status();
    assert!(copied.is_ok_and(|it| it.success()), "{source} is copied");
    program
}

fn compile_anew(source: &str, program: &Path) -> PathBuf {
    let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    if !run_compiler(source, program, &sanitizers) {
        println!("{source} is tested without sanitizers: the compiler has none");
        assert!(run_compiler(source, program, &[]), "{source} compiles");
    }
    program.to_owned()
}

fn run_compiler(source: &str, program: &Path, more: &[&str]) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    Command::new(compiler)
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", "-I"])
        .arg(root.join("crates/link/include"))
        .args(more)
        .arg(root.join(source))
        .arg("-o")
        .arg(program)
        .status()
        .expect("there is a C compiler: Rust links with it")
        .success()
}

/// A running game process. Ends with the test.
pub(crate) struct Game {
    process: Ending,
    lines: Receiver<String>,
}

impl Game {
    pub(crate) fn start(program: &Path, run_dir: &Path, name: &str) -> Self {
        Self::run(Command::new(program), run_dir, name)
    }

    /// The same for a program that is run by another one.
    pub(crate) fn run(mut program: Command, run_dir: &Path, name: &str) -> Self {
        let arguments: [&OsStr; 2] = [run_dir.as_ref(), name.as_ref()];
        program.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Ending(program.spawn().expect("the program was just compiled"));
        let stdout = BufReader::new(process.stdout.take().expect("piped"));
        let (printed, lines) = channel();
        thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| printed.send(line))
        });
        Self { process, lines }
    }

    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the program prints a line")
    }

    /// The next line, if there is one already.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Lets a program that waits for a line go on.
    pub(crate) fn go_on(&mut self) {
        self.say("");
    }

    /// Gives a program the line that it waits for.
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().expect("piped");
        writeln!(stdin, "{line}").expect("the program waits");
    }

    /// Waits for a program that ends by itself.
    pub(crate) fn end(mut self) {
        drop(self.process.stdin.take());
        let end = self.lines.recv_timeout(PATIENCE);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected), "the program prints no more and ends");
        assert!(self.process.wait().expect("our child").success());
    }
}
