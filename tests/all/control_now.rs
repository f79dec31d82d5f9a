//! Pages as of now: what they show, who may ask for them, and that other pages are as they were.

use std::net::UdpSocket;

use crate::agent::{Agent, NAMES, agent_file, certificates, gateway};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, request, wait_for};
use crate::folder::Folder;
use crate::own::own_port;

const DROPS: &str = "ringgate_drops_total{worker=\"0\",reason=\"unknown_source\"}";

/// What publishes so seldom does not do it again while the test runs.
const NEVER: (&str, &str) = ("RINGGATE_PAGES_SLOWER", "1000000");

#[test]
fn a_page_as_of_now_shows_what_no_worker_has_published_by_itself() {
    let daemon = Daemon::start_with(&Text::new(), |command, _| _ = command.env(NEVER.0, NEVER.1));
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let seen = || {
        let page = request(daemon.admin, "GET", "/metrics", "").expect("an answer");
        page.value(DROPS)
    };
    assert_eq!(daemon.get("/metrics").value(DROPS), Some(0));
    for count in 1..=3 {
        // A keep-alive of nobody: what only the gateway itself can judge.
        stranger.send_to(&[0x14; 26], daemon.listener).expect("loopback takes it");
        assert_eq!(seen(), Some(count - 1), "as it was published last");
        wait_for("its count", || (daemon.get("/metrics").value(DROPS)? == count).then_some(()));
        assert_eq!(seen(), Some(count), "everybody sees it from then on");
    }
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    Player::connected(daemon.listener, 1, KEY_HEX).echo(b"hello");
    assert_eq!(daemon.status()["totals"]["sessions"], 1, "without another look");
}

#[test]
fn what_an_agent_and_its_trunk_have_counted_is_shown_as_of_now() {
    let (folder, port) = (Folder::new(), own_port());
    if !certificates(&folder, NAMES) {
        return;
    }
    agent_file(&folder, "host-7", port, "link = \"bundle\"\n");
    let gateway = gateway(&folder, port);
    let mut agent = Agent::start_with(&folder, |command| _ = command.env(NEVER.0, NEVER.1));
    wait_for("the trunk at the gateway", || {
        (gateway.status()["agents"][0]["up"] == true).then_some(())
    });
    wait_for("the trunk at the agent", || {
        (agent.get("/status").json()["gateways"][0]["state"] == "up").then_some(())
    });
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn only_who_is_entitled_has_everything_published() {
    const TOKEN: &str = "a-token-of-the-operators";
    let mut text = Text::new();
    text.admin.push_str("token = { file = \"admin.token\" }\n");
    let daemon = Daemon::start_with(&text, |_, folder| {
        folder.file("admin.token", format!("{TOKEN}\n"), 0o600);
    });
    let header = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/status", "/metrics", "/readyz", "/"] {
        let now = format!("{path}?as_of=now");
        let get = |headers: &str| request(daemon.admin, "GET", &now, headers).expect("an answer");
        let plain = get("");
        assert_eq!(plain.status, 403, "{path}");
        assert!(plain.body.contains("control.sock"), "{}", plain.body);
        assert_eq!(get("Authorization: Bearer another\r\n").status, 401, "{path}");
        assert_ne!(get(&header).status, 403, "{path}");
        assert_eq!(get(&format!("{header}Origin: https://example.com\r\n")).status, 403, "{path}");
    }
    let listed = request(daemon.admin, "GET", "/sessions?as_of=now&limit=1", &header);
    assert_eq!(listed.expect("an answer").status, 200);
    let later = request(daemon.admin, "GET", "/status?as_of=tomorrow", &header).expect("an answer");
    assert_eq!((later.status, later.body.contains("expected now")), (400, true), "{}", later.body);
}
