//! The real gateway with a game process behind it, each in a process of its own, for tests of whole
//! commands.
//!
//! The processes are this test binary, started again: a test that does nothing as long as the
//! environment does not tell it to be one. So they are always built from the same sources as the
//! tests.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use ringgate_core::secret::Key;
use ringgate_loadgen::measure::gateway::{self, Admin};

use super::command::folder;
use super::own::{own_ip, own_port};

/// How the game process is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Bundle,
    Udp,
}

/// What the game process is.
#[derive(Clone, Copy)]
pub(crate) enum Game<'a> {
    /// Answers with what it hears.
    Echo,
    /// The generator's own stand-in, with these arguments.
    Serve(&'a [&'a str]),
}

/// Gateway and game process; both end with it.
pub(crate) struct Gateway {
    process: Option<Child>,
    game: Option<Child>,
    config: String,
    pub(crate) folder: PathBuf,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
}

pub(crate) const PROTOCOL_ID: u64 = 7;

impl Gateway {
    /// On loopback, at an address of its own.
    pub(crate) fn start(name: &str, link: Link, game: Game<'_>) -> Self {
        Self::start_at(name, &own_ip().to_string(), &[], link, game)
    }

    /// With more in its listener, and an echo on a bundle link.
    pub(crate) fn start_with(name: &str, listener: &str) -> Self {
        Self::start_as(name, &own_ip().to_string(), &[], (Link::Bundle, listener), Game::Echo)
    }

    /// At an address, with a command before the gateway's own.
    pub(crate) fn start_at(
        name: &str,
        ip: &str,
        before: &[&str],
        link: Link,
        game: Game<'_>,
    ) -> Self {
        Self::start_as(name, ip, before, (link, ""), game)
    }

    fn start_as(
        name: &str,
        ip: &str,
        before: &[&str],
        (link, listener): (Link, &str),
        game: Game<'_>,
    ) -> Self {
        let mut this = Self {
            process: None,
            game: None,
            config: String::new(),
            folder: folder(name),
            address: SocketAddr::from(([0; 4], 0)),
            admin: SocketAddr::from(([0; 4], 0)),
        };
        let key = Key::generate().expect("random bytes");
        let key_file = this.folder.join("key");
        std::fs::write(&key_file, key.to_hex()).expect("written");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key_file, private).expect("ours");
        let backend = match link {
            Link::Bundle => "link = \"bundle\"".to_owned(),
            Link::Udp => format!("link = \"udp\"\naddress = \"{}\"", this.play_udp(game)),
        };
        this.config = format!(
            "[gateway]\nworkers = 1\npin = false\nrun_dir = \"{}\"\n\
             [[listener]]\nname = \"n\"\nprotocol = \"netcode\"\nbind = [\"LISTENER\"]\n\
             protocol_id = {PROTOCOL_ID}\nkeys = [{{ file = \"key\" }}]\nbackends = [\"game\"]\n\
             {listener}\n[[backend]]\nname = \"game\"\nslots = 1000\n{backend}\n[admin]\nbind = \"ADMIN\"\n",
            this.folder.display()
        );
        // It may have to take them again.
        let [listener, admin] = [(); 2].map(|()| format!("{ip}:{}", own_port()));
        assert!(this.try_to_start(before, &listener, &admin), "the gateway did not start");
        if link == Link::Bundle {
            this.play_bundle(game);
        }
        this
    }

    /// Starts the gateway's process. False where it ends before it is ready.
    fn try_to_start(&mut self, before: &[&str], listener: &str, admin: &str) -> bool {
        let file = self.folder.join("gate.toml");
        let config = self.config.replace("LISTENER", listener).replace("ADMIN", admin);
        std::fs::write(&file, config).expect("written");
        let (mut gateway, stdout) = ringgate(before, &["run", "--config", text(&file)]);
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let at = |text: &str| text.parse().expect("an address");
            if let Some(address) = line.strip_prefix("listener n on ") {
                self.address = at(address);
            } else if let Some(address) = line.strip_prefix("admin on ") {
                self.admin = at(address);
            } else if line.starts_with("ready:") {
                self.process = Some(gateway);
                return self.address.port() != 0 && self.admin.port() != 0;
            }
        }
        let _ = gateway.wait();
        false
    }

    /// Kills the gateway and starts another in its place.
    pub(crate) fn restart(&mut self) {
        end(&mut self.process);
        let (listener, admin) = (self.address.to_string(), self.admin.to_string());
        // Sockets of a process that was killed can outlive it for a moment.
        let has_started = (0..100).any(|_| {
            ringgate_os::clock::sleep(std::time::Duration::from_millis(50));
            self.try_to_start(&[], &listener, &admin)
        });
        assert!(has_started, "the gateway did not start again");
    }

    /// Kills the game process of a bundle link and starts another in its place.
    pub(crate) fn restart_game(&mut self, game: Game<'_>) {
        end(&mut self.game);
        self.play_bundle(game);
    }

    /// Kills the gateway.
    pub(crate) fn end(&mut self) {
        end(&mut self.process);
    }

    /// Kills the game process.
    pub(crate) fn end_game(&mut self) {
        end(&mut self.game);
    }

    fn play_udp(&mut self, game: Game<'_>) -> SocketAddr {
        let (child, line) = match game {
            Game::Echo => first_line(ringgate(&[], &["echo", "--udp", "127.0.0.1:0"]), "echo:"),
            Game::Serve(more) => {
                let start = spawn(own_binary().args(["serve", "--udp", "127.0.0.1:0"]).args(more));
                first_line(start, "serve:")
            }
        };
        self.game = Some(child);
        line.split(' ').find_map(|word| word.parse().ok()).expect("it says where it listens")
    }

    fn play_bundle(&mut self, game: Game<'_>) {
        let folder = text(&self.folder).to_owned();
        let link = ["--socket", &folder, "--name", "game"];
        let (child, _) = match game {
            Game::Echo => first_line(ringgate(&[], &[&["echo"][..], &link].concat()), "echo:"),
            Game::Serve(more) => {
                first_line(spawn(own_binary().arg("serve").args(link).args(more)), "serve:")
            }
        };
        self.game = Some(child);
    }

    /// The game process.
    pub(crate) fn game_pid(&self) -> u32 {
        self.game.as_ref().expect("it runs").id()
    }

    /// Runs a command of the generator against it.
    pub(crate) fn load(&self, command: &str, more: &[&str]) -> Output {
        self.command(command, more).output().expect("the binary runs")
    }

    /// A command of the generator against it, not yet run.
    pub(crate) fn command(&self, command: &str, more: &[&str]) -> Command {
        let (server, admin) = (self.address.to_string(), self.control().display().to_string());
        let key = self.folder.join("key");
        let common = [command, "--server", &server, "--key", text(&key), "--admin", &admin];
        let mut words = own_binary();
        words.args(common).args(["--protocol-id", "7"]).args(more);
        if !more.contains(&"--timeout") {
            words.args(["--timeout", "10"]);
        }
        words
    }

    /// Its control socket.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// One of the gateway's metrics, as the generator reads them.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let gateway = gateway::Gateway { pid: None, admin: Some(Admin::Control(self.control())) };
        gateway.look().metrics.get(name).copied().unwrap_or_default() as u64
    }

    /// Waits until a metric is at least this, as long as the run goes on that brings it about.
    #[track_caller]
    pub(crate) fn until(&self, run: &mut Child, name: &str, least: u64) {
        while self.metric(name) < least {
            let ended = run.try_wait().expect("our child");
            assert!(ended.is_none(), "it ended before {name} was {least}");
            ringgate_os::clock::sleep(std::time::Duration::from_millis(20));
        }
    }
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        end(&mut self.process);
        end(&mut self.game);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn own_binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ringgate-loadgen"))
}

fn spawn(command: &mut Command) -> (Child, ChildStdout) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let stdout = child.stdout.take().expect("piped");
    (child, stdout)
}

/// The gateway's binary, behind another command where there is one.
pub(crate) fn ringgate(before: &[&str], arguments: &[&str]) -> (Child, ChildStdout) {
    let own = std::env::current_exe().expect("this binary");
    let mut words: Vec<OsString> = before.iter().map(OsString::from).collect();
    words.push(own.into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["--exact", "gateway::the_process_itself", "--nocapture"]);
    spawn(command.env(ARGUMENTS, arguments.join(SEPARATOR)))
}

/// Reads until the line that says that a process is there.
fn first_line((child, stdout): (Child, ChildStdout), prefix: &str) -> (Child, String) {
    let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with(prefix));
    (child, line.expect("it starts"))
}

/// No test: what the processes above run.
#[test]
fn the_process_itself() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let words = std::iter::once("ringgate").chain(arguments.split(SEPARATOR)).map(OsString::from);
    println!();
    let _ = ringgate::cli::run(words);
}

const ARGUMENTS: &str = "RINGGATE_TEST_PROCESS";

const SEPARATOR: &str = "\u{1f}";
