//! Processes that come to a gateway's announce socket and mean no good, or are somebody else's: as
//! processes of their own, because quotas and names go by what the kernel says of them.
//!
//! Skipped aloud where `etcd` is not installed (`REQUIRE_ETCD=1` makes that a failure), and where
//! only root could become another user.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ringgate_link::announce::{ANNOUNCE_SOCKET, Announcement, Standing};
use ringgate_os::{clock, process};
use ringgate_report::text::Append as _;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::agent::Agent;
use crate::agent_reload::reload;
use crate::command::Ending;
use crate::control_rig::{Daemon, Player, Text, wait_for};
use crate::fleet_agent::Rig;
use crate::fleet_announce::{Process, has, is_gone, value};
use crate::fleet_page::Service;
use crate::fleet_rig::{Fleet, in_fleet};
use crate::folder::Folder;

const STRANGER: u32 = 65_534;

/// What a process of this program is to do, and where.
const TASK: &str = "RINGGATE_TEST_GUEST";
const RUN_DIR: &str = "RINGGATE_TEST_RUN_DIR";

/// A process of this program that is a guest of a gateway, until it is dropped.
struct Guest {
    child: Ending,
    lines: Receiver<String>,
}

impl Guest {
    /// One that does this, as that user where it is another one.
    fn start(daemon: &Daemon, task: &str, uid: Option<u32>) -> Self {
        Self::start_in(&daemon.run_dir(), task, uid)
    }

    fn start_in(run_dir: &Path, task: &str, uid: Option<u32>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(["--exact", "fleet_guests::a_guest_does_as_it_is_told", "--nocapture"]);
        command.env(TASK, task).env(RUN_DIR, run_dir).current_dir("/");
        uid.map(|uid| command.uid(uid));
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = Ending(child.spawn().expect("this program runs"));
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (said, lines) = channel();
        // It ends with the guest, or once nobody listens.
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Self { child, lines }
    }

    /// Waits until it says this.
    fn says(&self, wanted: &str) {
        wait_for(wanted, || self.lines.try_iter().find(|line| line.ends_with(wanted)));
    }

    fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

/// Nothing but what another test starts this program for.
#[test]
fn a_guest_does_as_it_is_told() {
    let (Ok(task), Ok(run_dir)) = (std::env::var(TASK), std::env::var(RUN_DIR)) else { return };
    if task == "flood" {
        let held = flood(Path::new(&run_dir));
        println!("\n{} are held", if held.is_empty() { "none" } else { "all" });
        loop {
            std::thread::park();
        }
    }
    let process = Process::start_at(run_dir.into(), &task, Announcement::new("arena", 4));
    loop {
        process.heard().iter().for_each(|standing| println!("\nstands {standing:?}"));
        clock::sleep(Duration::from_millis(1));
    }
}

/// As many connections as a process may have descriptors for, and 200 names that nothing links.
fn flood(run_dir: &Path) -> Vec<Socket> {
    let at = SockAddr::unix(run_dir.join(ANNOUNCE_SOCKET)).expect("a path");
    let connect = |number: usize| {
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).ok()?;
        socket.connect(&at).ok()?;
        if number < 200 {
            let what = Announcement::new("arena", 1000);
            let record = what.encode(&format!("flood-{number}"), 9).expect("it can be said");
            let _ = socket.send(&record);
        }
        Some(socket)
    };
    (0..1090).map_while(connect).collect()
}

/// A gateway at which these users may announce themselves.
fn text(fleet: &Fleet, uids: &[u32]) -> Text {
    text_with(fleet, uids, "10m")
}

/// The same with this grace.
fn text_with(fleet: &Fleet, uids: &[u32], grace: &str) -> Text {
    let mut text = in_fleet(fleet, "gate-1");
    "group = \"arena\"\nroute = \"user-data\"\n".clone_into(&mut text.listener);
    let more = format!("allow_uids = {uids:?}\ngrace = \"{grace}\"\n");
    text.backends.push_str(&more);
    text
}

/// The same for this user and another one; `None` where nobody can become another one.
fn two_users(fleet: &Fleet) -> Option<(Daemon, u32)> {
    let own = own_beside_another()?;
    let daemon = Daemon::start(&text(fleet, &[own, STRANGER]));
    open(&daemon);
    Some((daemon, own))
}

fn own_beside_another() -> Option<u32> {
    let own = process::effective_uid();
    if own != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return None;
    }
    Some(own)
}

/// Lets others find the way to the socket.
fn open(daemon: &Daemon) {
    for folder in [daemon.folder.path(), &daemon.run_dir()] {
        let open = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder, open).expect("our folder");
    }
}

#[test]
fn a_process_that_announces_200_names_keeps_nobody_from_playing() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&text(&fleet, &[process::effective_uid()]));
    let service = Service::start(&fleet, &["tokens"]);
    let flood = Guest::start(&daemon, "flood", None);
    flood.says("all are held");
    let _arena = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 64));
    has(&fleet, "arena-1", "state", "ready");
    wait_for("the quota", || {
        let refused = "ringgate_fleet_announcements_refused_total{reason=\"process_quota\"}";
        daemon.get("/metrics").value(refused).filter(|count| *count > 1000)
    });
    for client_id in 1..=40 {
        let token = wait_for("a token", || service.token_in("arena", client_id).ok());
        let mut player = Player::holding([127, 0, 0, 1], &token);
        wait_for("the session", || {
            player.turn();
            assert!(!player.is_denied(), "{client_id}: {}", daemon.log());
            player.is_connected().then_some(())
        });
        player.echo(b"hello");
    }
    // It is let in, and stands there without players.
    let standing = value(&fleet, "flood-0").expect("it is one of the first");
    assert_eq!((&standing["state"], &standing["used"]), (&"starting".into(), &0.into()));
}

#[test]
fn a_reload_changes_who_may_announce_itself() {
    let Some(fleet) = Fleet::start() else { return };
    let Some((daemon, own)) = two_users(&fleet) else { return };
    let reload = |uids: &[u32]| {
        daemon.rewrite(&text(&fleet, uids));
        let page = daemon.post("/reload");
        assert_eq!(page.status, 200, "{}", page.body);
    };
    let stranger = Guest::start(&daemon, "arena-1", Some(STRANGER));
    stranger.says("stands Registered");
    reload(&[own]);
    stranger.says("stands Unauthorised");
    is_gone(&fleet, "arena-1");
    let late = Guest::start(&daemon, "arena-2", Some(STRANGER));
    late.says("stands Unauthorised");
    reload(&[own, STRANGER]);
    stranger.says("stands Registered");
    late.says("stands Registered");
}

#[test]
fn a_name_is_its_users_while_its_process_is_there_and_through_grace() {
    let Some(fleet) = Fleet::start() else { return };
    let Some((daemon, own)) = two_users(&fleet) else { return };
    let first = Guest::start(&daemon, "arena-1", Some(STRANGER));
    first.says("stands Registered");
    // A name that was never linked is nobody's.
    has(&fleet, "arena-1", "state", "ready");
    let thief = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 99));
    thief.stands(Standing::NameTaken);
    // It waits for the name, and does not get it when its process starts anew.
    first.kill();
    is_gone(&fleet, "arena-1");
    let next = Guest::start(&daemon, "arena-1", Some(STRANGER));
    next.says("stands Registered");
    assert!(!thief.heard().contains(&Standing::Registered));
    has(&fleet, "arena-1", "slots", 4);
    // It does once nobody of that user wants it any more, and that for no longer than this.
    daemon.rewrite(&text_with(&fleet, &[own, STRANGER], "100ms"));
    let page = daemon.post("/reload");
    assert_eq!(page.status, 200, "{}", page.body);
    next.kill();
    thief.stands(Standing::Registered);
    has(&fleet, "arena-1", "slots", 99);
}

/// Waits until a gateway refuses somebody because the name is another user's at its host.
fn knows_an_owner(daemon: &Daemon) {
    let refused = "ringgate_fleet_announcements_refused_total{reason=\"name_taken\"}";
    wait_for("whose name it is", || {
        daemon.get("/metrics").value(refused).filter(|count: &u64| *count > 0)
    });
}

/// The same at another gateway of that host, whose users are the same.
#[test]
fn a_name_is_its_users_at_all_gateways_of_a_host() {
    let Some(fleet) = Fleet::start() else { return };
    let Some(own) = own_beside_another() else { return };
    let start = |name: &str, grace: &str| {
        let mut text = text_with(&fleet, &[own, STRANGER], grace);
        text.backends = text.backends.replace("\"gate-1\"", &format!("{name:?}"));
        let daemon = Daemon::start(&text);
        open(&daemon);
        daemon
    };
    let (one, two) = (start("gate-1", "10m"), start("gate-2", "10m"));
    let first = Guest::start(&one, "arena-1", Some(STRANGER));
    first.says("stands Registered");
    has(&fleet, "arena-1", "state", "ready");
    let owner = || fleet.text("/f/claim/name/here/arena-1");
    let thief = Process::start_at(two.run_dir(), "arena-1", Announcement::new("arena", 99));
    thief.stands(Standing::NameTaken);
    wait_for("whose name it is", || owner().contains(&STRANGER.to_string()).then_some(()));
    knows_an_owner(&two);
    // Its user may come to the other gateway, too.
    first.kill();
    is_gone(&fleet, "arena-1");
    let next = Guest::start(&two, "arena-1", Some(STRANGER));
    next.says("stands Registered");
    has(&fleet, "arena-1", "slots", 4);
    let late = Process::start_at(one.run_dir(), "arena-1", Announcement::new("arena", 98));
    late.stands(Standing::NameTaken);
    for stranger in [&thief, &late] {
        assert!(!stranger.heard().contains(&Standing::Registered));
    }
    drop((thief, late));
    // Once grace is over it is nobody's.
    let three = start("gate-3", "1s");
    let short = Guest::start(&three, "arena-3", Some(STRANGER));
    short.says("stands Registered");
    has(&fleet, "arena-3", "state", "ready");
    let heir = Process::start_at(two.run_dir(), "arena-3", Announcement::new("arena", 97));
    heir.stands(Standing::NameTaken);
    short.kill();
    heir.stands(Standing::Registered);
    has(&fleet, "arena-3", "slots", 97);
}

/// Whoever connects first after a crash is not whose the name is.
#[test]
fn a_name_is_its_users_over_a_crash_of_the_gateway() {
    let Some(fleet) = Fleet::start() else { return };
    let Some(own) = own_beside_another() else { return };
    let state = Folder::new();
    let mut text = text(&fleet, &[own, STRANGER]);
    writeln!(text.gateway, "state_dir = \"{}\"", state.path().display());
    let mut daemon = Daemon::start(&text);
    open(&daemon);
    text.run_dir = Some(daemon.run_dir());
    let first = Guest::start(&daemon, "arena-1", Some(STRANGER));
    first.says("stands Registered");
    let left = || std::fs::read_to_string(state.join("leases")).ok();
    let line = format!("owned {STRANGER} arena-1");
    wait_for("its owner on disk", || left()?.contains(&line).then_some(()));
    daemon.signal("KILL");
    daemon.ended();
    first.kill();
    let again = Daemon::start(&text);
    open(&again);
    let thief = Process::start_at(daemon.run_dir(), "arena-1", Announcement::new("arena", 99));
    thief.stands(Standing::NameTaken);
    let next = Guest::start(&daemon, "arena-1", Some(STRANGER));
    next.says("stands Registered");
    has(&fleet, "arena-1", "slots", 4);
    assert!(!thief.heard().contains(&Standing::Registered));
}

/// The same at an agent, whose reload has the last word of who may come.
#[test]
fn an_agent_knows_whose_names_are_whose_over_a_crash_and_goes_by_its_file() {
    let Some(rig) = Rig::new() else { return };
    let Some(own) = own_beside_another() else { return };
    let file = |uids: &[u32]| {
        rig.file_of_agent("2m", "");
        let path = rig.folder.join("agent.toml");
        let more = format!("allow_uids = {uids:?}\ngrace = \"10m\"\n");
        let text = std::fs::read_to_string(&path).expect("it was written") + &more;
        std::fs::write(&path, text).expect("our file");
    };
    file(&[own, STRANGER]);
    let start = || {
        let agent = Agent::start(&rig.folder);
        for folder in [rig.folder.path(), &rig.folder.join("host")] {
            let open = PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(folder, open).expect("our folder");
        }
        agent
    };
    let guest = || Guest::start_in(&rig.folder.join("host"), "arena-1", Some(STRANGER));
    let mut agent = start();
    let first = guest();
    first.says("stands Registered");
    let left = || std::fs::read_to_string(rig.folder.join("state/leases")).ok();
    let line = format!("owned {STRANGER} arena-1");
    wait_for("its owner on disk", || left()?.contains(&line).then_some(()));
    agent.signal(libc::SIGKILL);
    agent.ended();
    first.kill();
    let _agent = start();
    let what = Announcement::new("arena", 99);
    let thief = Process::start_at(rig.folder.join("host"), "arena-1", what);
    thief.stands(Standing::NameTaken);
    let next = guest();
    next.says("stands Registered");
    assert!(!thief.heard().contains(&Standing::Registered));
    has(&rig.fleet, "arena-1", "state", "ready");
    // It is that user's at a gateway beside the agent, too.
    let mut text = text_with(&rig.fleet, &[own, STRANGER], "10m");
    text.backends = text.backends.replace("host = \"here\"", "host = \"there\"");
    let gateway = Daemon::start(&text);
    let beside = Process::start_at(gateway.run_dir(), "arena-1", Announcement::new("arena", 98));
    beside.stands(Standing::NameTaken);
    knows_an_owner(&gateway);
    // Who may not come any more is told so, and nothing of it stays but whose the name is.
    file(&[own]);
    reload(&rig.folder, &[]).succeeded();
    next.says("stands Unauthorised");
    is_gone(&rig.fleet, "arena-1");
    let owner = rig.fleet.text("/f/claim/name/there/arena-1");
    assert!(owner.contains(&STRANGER.to_string()), "{owner}");
    assert!(!beside.heard().contains(&Standing::Registered));
}
