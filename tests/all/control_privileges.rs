//! A daemon that has given up what it does not need: it still does everything that it is there for.

use ringgate_os::process;
use ringgate_report::hlog;
use ringgate_report::text::Append as _;

use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::folder::{Folder, IDENTITY};
use crate::own::own_address;

/// What the kernel says of a process.
fn kernel_says(daemon: &Daemon, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
    line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
}

fn text(driver: &str, more: &str) -> Text {
    let mut text = Text::new();
    write!(text.gateway, "io = \"{driver}\"\n{more}");
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\nmax_age = \"1s\"\n");
    // The game process is this test's, whoever the daemon becomes.
    let uid = process::effective_uid();
    text.backends = text.backends.replace("slots = 4", &format!("slots = 4\nallow_uids = [{uid}]"));
    text
}

/// Players come, play and leave, a reload changes something, an interval is written, and a drain
/// ends it.
fn live(mut daemon: Daemon, text: &Text) {
    let game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    player.echo(b"confined");
    // The next one is begun as whom it has become.
    wait_for("two files with intervals", || {
        let files = std::fs::read_dir(daemon.folder.join("hist")).expect("it is there").flatten();
        let logs = files.map(|it| hlog::read(&std::fs::read(it.path()).expect("readable")));
        let logs = logs.map(|log| log.expect("whole lines only"));
        (logs.filter(|log| !log.intervals.is_empty()).count() >= 2).then_some(())
    });
    let more_slots = text.backends.replace("slots = 4", "slots = 5");
    daemon.rewrite(&Text { backends: more_slots, ..text.clone() });
    assert_eq!(daemon.post("/reload").status, 200, "{}", daemon.log());
    // What outlives a restart is written with what is left of its rights.
    let denied = daemon.post("/deny?prefix=192.0.2.0/24&client=99&for_ms=3600000");
    assert_eq!(denied.json()["kept"], true, "{}", denied.body);
    let file = daemon.folder.join("state").join("denied");
    let text = std::fs::read_to_string(file).expect("it was written");
    assert!(text.contains("\ndeny client 99 until 2"), "{text}");
    // A game process that dies and comes back needs new descriptors.
    drop(game);
    let _game = Game::start(&daemon, "arena");
    player.echo(b"again");
    player.leave();
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.log());
    let left = std::fs::read_dir(daemon.run_dir()).expect("it is there").count();
    assert_eq!(left, 0, "its sockets are removed");
}

fn confined(driver: &str) {
    let text = text(driver, "confine = true\n");
    let daemon = Daemon::start(&text);
    assert_eq!(kernel_says(&daemon, "Seccomp"), "2", "{}", daemon.log());
    assert_eq!(kernel_says(&daemon, "NoNewPrivs"), "1");
    live(daemon, &text);
}

#[test]
fn a_confined_daemon_on_mmsg_lacks_nothing() {
    confined("mmsg");
}

#[test]
fn a_confined_daemon_on_uring_lacks_nothing() {
    if crate::io_rig::Rig::uring_works() {
        confined("uring");
    }
}

#[test]
fn a_config_outside_the_confinement_is_not_read() {
    let text = text("mmsg", "confine = true\n");
    let elsewhere = Folder::new();
    let key = elsewhere.file("other.key", KEY_HEX, 0o600);
    let daemon = Daemon::start(&text);
    let listener = text.listener.replace(
        &format!("{{ hex = \"{KEY_HEX}\" }}"),
        &format!("{{ file = \"{}\" }}", key.display()),
    );
    daemon.rewrite(&Text { listener, ..text.clone() });
    let page = daemon.post("/reload");
    if daemon.log().contains("Landlock") {
        eprintln!("SKIPPED: this kernel has no Landlock");
        return;
    }
    assert_eq!(page.status, 422, "{}", page.body);
    assert!(page.body.contains("ermission denied"), "{}", page.body);
}

#[test]
fn what_etcd_wants_to_see_of_a_confined_daemon_may_lie_in_a_folder_of_its_own() {
    let elsewhere = Folder::new();
    let [ca, certificate, key] = ["agents-ca.pem", "gateway.pem", "gateway.key"].map(|name| {
        let (_, text, mode) = IDENTITY.iter().find(|(it, ..)| *it == name).expect("it is there");
        elsewhere.file(name, text, *mode)
    });
    let mut text = text("mmsg", "confine = true\n");
    write!(
        text.more,
        "[fleet]\nendpoints = [\"https://{}\"]\nprefix = \"/f\"\nname = \"gate-1\"\nca = \"{}\"\n\
         certificate = \"{}\"\ncertificate_key = \"{}\"\n",
        own_address(),
        ca.display(),
        certificate.display(),
        key.display()
    );
    let daemon = Daemon::start(&text);
    let backends = text.backends.replace("slots = 4", "slots = 5");
    daemon.rewrite(&Text { backends, ..text.clone() });
    let page = daemon.post("/reload");
    assert_eq!(page.status, 200, "{}", page.body);
}

#[test]
fn a_daemon_becomes_who_it_should_be() {
    if process::effective_uid() != 0 {
        eprintln!("SKIPPED: only root can become somebody else");
        return;
    }
    let text = text("mmsg", "user = \"nobody\"\nconfine = true\n");
    let daemon = Daemon::start_with(&text, |_, folder| {
        // Whoever it becomes reads the config again.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).expect("our folder");
        let nobody =
            ringgate_process::confine::User::named("nobody").expect("every system has one");
        let file = folder.path().join("gate.toml");
        std::os::unix::fs::chown(file, Some(nobody.uid), None).expect("we are root");
    });
    let nobody = ringgate_process::confine::User::named("nobody").expect("every system has one");
    let ids = [nobody.uid.to_string().as_str(); 4].join(" ");
    assert_eq!(kernel_says(&daemon, "Uid"), ids);
    assert_eq!(kernel_says(&daemon, "Groups"), "");
    assert_eq!(kernel_says(&daemon, "CapEff"), "0000000000000000");
    live(daemon, &text);
}

#[test]
fn an_unknown_user_is_told_before_anything_is_bound() {
    let text = text("mmsg", "user = \"nobody-has-this-name\"\n");
    let why = Daemon::refused(&text);
    assert!(why.contains("cannot become user nobody-has-this-name"), "{why}");
}
