//! What a running daemon shows at its admin address.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::control_rig::{Daemon, Game, KEY_HEX, PATIENCE, Player, Text, request, wait_for};

#[test]
fn a_daemon_is_ready_once_its_backend_is_there() {
    let daemon = Daemon::start(&Text::new());
    let health = daemon.get("/healthz");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    let readiness = daemon.get("/readyz");
    assert_eq!(readiness.status, 503);
    let why = "listener eu: worker 0 reaches no backend of arena";
    assert_eq!(readiness.body, format!("{why}\n"));
    let status = daemon.status();
    assert_eq!(status["ready"], false);
    assert_eq!(status["not_ready_because"], why);
    assert_eq!(daemon.get("/readyz?listener=eu").body, format!("{why}\n"));
    assert_eq!(daemon.get("/readyz?listener=nowhere").status, 404);

    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    assert_eq!(daemon.get("/readyz?listener=eu").status, 200);
    assert_eq!(daemon.status()["backends"][0]["up"], true);
}

#[test]
fn what_players_do_shows_in_every_page_and_adds_up() {
    let mut text = Text::new();
    text.gateway = "workers = 2\npin = false\n".to_owned();
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut players: Vec<_> =
        (1..=3).map(|id| Player::connected(daemon.listener, id, KEY_HEX)).collect();
    for player in &mut players {
        player.echo(b"hello");
    }
    players[0].leave();
    // Each worker reports in its own time.
    let status = wait_for("all of it in the counters", || {
        let status = daemon.status();
        let is_there = status["sessions_closed"]["by_player"] == 1
            && status["totals"]["sessions_opened"] == 3
            && status["totals"]["payloads_up"].as_u64() >= Some(3);
        is_there.then_some(status)
    });

    assert_eq!(status["state"], "serving");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["workers"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["listeners"][0]["addresses"][0], daemon.listener.to_string());
    assert_eq!(status["listeners"][0]["sessions"], 2);
    assert_eq!(status["backends"][0]["players"], 2);
    assert_eq!(status["backends"][0]["slots"], 4);
    assert_eq!(status["conservation"]["holds"], true, "{status:#}");
    let payloads = |name| status["totals"][name].as_u64().expect("a number");
    assert_eq!(payloads("payloads_up"), payloads("payloads_to_links"));

    let metrics = daemon.get("/metrics");
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    assert_eq!(metrics.sum("ringgate_sessions", ""), Some(2));
    assert_eq!(metrics.sum("ringgate_sessions_opened_total", ""), Some(3));
    assert_eq!(metrics.sum("ringgate_conserved", ""), Some(2));
    assert_eq!(metrics.value("ringgate_backend_players{backend=\"arena\"}"), Some(2));
    assert_eq!(metrics.value("ringgate_listener_sessions{listener=\"eu\"}"), Some(2));
    assert_eq!(metrics.value("ringgate_draining"), Some(0));
}

#[test]
fn junk_is_counted_by_reason() {
    let daemon = Daemon::start(&Text::new());
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let series = "ringgate_drops_total{worker=\"0\",reason=\"unknown_source\"}";
    assert_eq!(daemon.get("/metrics").value(series), Some(0), "there before the first");
    // A keep-alive of nobody: what only the gateway itself can judge.
    stranger.send_to(&[0x14; 26], daemon.listener).expect("loopback takes it");
    wait_for("the drop", || (daemon.get("/metrics").value(series) == Some(1)).then_some(()));
    assert_eq!(daemon.status()["conservation"]["holds"], true);
}

#[test]
fn what_the_filter_refuses_is_told_from_what_finds_no_room() {
    let daemon = Daemon::start(&Text::new());
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    for _ in 0..100 {
        stranger.send_to(&[0xee; 9], daemon.listener).expect("loopback takes it");
    }
    let dropped = "ringgate_socket_drops_total{worker=\"0\"}";
    let metrics = wait_for("the refusals", || {
        let metrics = daemon.get("/metrics");
        (metrics.value(dropped) == Some(100)).then_some(metrics)
    });
    let refused = metrics.value("ringgate_filter_refusals_total").expect("Linux tells");
    let full = metrics.value("ringgate_socket_overflows_total").expect("Linux tells");
    // Other tests may fill sockets of their own meanwhile.
    assert_eq!(refused + full, 100);
    let totals = &daemon.status()["totals"];
    assert_eq!(totals["socket_drops"], 100);
    let both = ["filter_refusals", "socket_overflows"].map(|name| totals[name].as_u64());
    assert_eq!(both.into_iter().flatten().sum::<u64>(), 100);
}

#[test]
fn other_paths_and_methods_are_refused() {
    let daemon = Daemon::start(&Text::new());
    assert_eq!(daemon.get("/nothing").status, 404);
    assert_eq!(daemon.post("/metrics").status, 405);
    assert_eq!(daemon.get("/drain").status, 405);
    assert_eq!(daemon.status()["state"], "serving");
}

#[test]
fn a_web_page_cannot_press_the_buttons() {
    let daemon = Daemon::start(&Text::new());
    let origin = "Origin: https://example.com\r\nContent-Length: 0\r\n";
    for path in ["/drain", "/reload"] {
        let page = request(daemon.admin, "POST", path, origin).expect("an answer");
        assert_eq!(page.status, 403);
    }
    assert_eq!(daemon.status()["state"], "serving");
    assert_eq!(daemon.status()["config"]["reloads"], 0);
}

#[test]
fn a_head_without_end_is_cut_off_and_hurts_nobody() {
    let daemon = Daemon::start(&Text::new());
    let mut stream = TcpStream::connect(daemon.admin).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").expect("it reads");
    // Far more than the buffer, far less than it would take to hurt.
    for _ in 0..64 {
        if stream.write_all(&[b'x'; 1024]).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(daemon.get("/healthz").status, 200);
}
