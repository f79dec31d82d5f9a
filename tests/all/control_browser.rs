//! The live page, as a browser shows it.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, request, wait_for};
use crate::folder::Folder;

/// What the page has become after some seconds in Chromium; `None` where there is none.
pub(crate) fn shown(url: &str) -> Option<String> {
    let profile = Folder::new();
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"].iter().find(is_there)
    else {
        let why = "Chromium is not there";
        let required = std::env::var_os("REQUIRE_CHROMIUM").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_CHROMIUM=1, but {why}");
        eprintln!("SKIPPED: {why}");
        return None;
    };
    let output = Command::new("timeout")
        .args(["120", browser, "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--no-first-run", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        // The browser's own time: what waits in the page does not wait here.
        .args(["--virtual-time-budget=6000", url])
        .output()
        .expect("coreutils are there");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(dom.contains("<body"), "{}", String::from_utf8_lossy(&output.stderr));
    Some(dom)
}

/// The text of the element with an id, without its tags.
pub(crate) fn text_of(dom: &str, id: &str) -> String {
    let start = dom.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("{id} is not there"));
    let name_start = dom[..start].rfind('<').expect("a tag") + 1;
    let name = dom[name_start..].split([' ', '>']).next().expect("a name");
    let rest = &dom[start..];
    let inside = &rest[rest.find('>').expect("the tag ends") + 1..];
    let inside = inside.split(&format!("</{name}>")).next().expect("some");
    let texts = inside.split('<').enumerate().map(|(at, part)| match part.split_once('>') {
        Some((_, text)) if at > 0 => text,
        _ => part,
    });
    texts.filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("|")
}

#[test]
fn the_live_page_shows_what_the_gateway_does() {
    let mut text = Text::new();
    text.gateway = "workers = 2\npin = false\n".to_owned();
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n");
    let daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut players: Vec<_> =
        (1..=3).map(|id| Player::connected(daemon.listener, id, KEY_HEX)).collect();
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    wait_for("a drop, and latencies in the last interval", || {
        for player in &mut players {
            player.echo(b"hello");
        }
        stranger.send_to(&[0x14; 26], daemon.listener).expect("loopback takes it");
        let status = daemon.status();
        let stages = status["stages"].as_array().expect("a list");
        let has_latencies =
            stages.iter().any(|it| it["name"] == "uplink" && it["count"].as_u64() > Some(0));
        (has_latencies && status["totals"]["drops"].as_u64() > Some(0)).then_some(())
    });
    let page = daemon.get("/");
    assert_eq!(page.status, 200);
    assert!(page.head.to_ascii_lowercase().contains("default-src 'none'; script-src 'nonce-"));
    let Some(dom) = shown(&format!("http://{}/", daemon.admin)) else { return };

    assert_eq!(text_of(&dom, "state"), "serving");
    assert!(text_of(&dom, "facts").contains(env!("CARGO_PKG_VERSION")), "{dom}");
    assert_eq!(text_of(&dom, "tile-sessions"), "3|sessions");
    assert!(text_of(&dom, "tile-in").ends_with("datagrams in /s"));
    assert!(!text_of(&dom, "tile-in").starts_with('–'), "two looks make a rate");
    let workers = text_of(&dom, "workers");
    assert!(workers.contains("worker 0|") && workers.contains("worker 1|"), "{workers}");
    assert!(
        text_of(&dom, "listeners")
            .contains(&format!("eu|netcode|{}|serving|3 of", daemon.listener))
    );
    assert!(text_of(&dom, "backends").contains("arena|bundle|up|3 of 4"), "{dom}");
    let status = daemon.status();
    let drops = status["drops"].as_object().expect("by reason").iter();
    for (why, _) in drops.filter(|(_, count)| count.as_u64() > Some(0)) {
        assert!(text_of(&dom, "drops").contains(why.as_str()), "{why}: {dom}");
    }
    assert!(text_of(&dom, "stage").contains("uplink"));
    for chart in ["chart-rates", "chart-latency", "chart-sessions", "chart-drops"] {
        assert!(text_of(&dom, chart).contains("now"), "{chart}: {}", text_of(&dom, chart));
    }
    assert!(!dom.contains("NaN") && !dom.contains("undefined<"), "{dom}");
}

#[test]
fn the_live_page_says_why_players_are_not_let_in() {
    let daemon = Daemon::start(&Text::new());
    let Some(dom) = shown(&format!("http://{}/", daemon.admin)) else { return };
    assert_eq!(text_of(&dom, "state"), "not ready");
    assert!(text_of(&dom, "trouble").contains("reaches no backend of arena"), "{dom}");
    assert!(text_of(&dom, "backends").contains("arena|bundle|down|0 of 4"), "{dom}");
    assert!(text_of(&dom, "drops").contains("nothing has been dropped"), "{dom}");
}

/// Holds a page to the width of a phone: what reaches beyond it, of what cannot be scrolled by
/// itself. A browser's window is wider than that, so the page stands in a frame of another page.
pub(crate) fn fits_a_phone(at: SocketAddr, page: &str) {
    let beside = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = beside.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in beside.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
            let secret =
                head.iter().find(|line| line.to_ascii_lowercase().starts_with("authorization"));
            let secret = secret.map(|line| format!("{line}\r\n")).unwrap_or_default();
            let path = first.split(' ').nth(1).unwrap_or("/");
            let body = match path {
                "/phone" => PHONE.to_owned(),
                // Without its head: that forbids frames.
                path => {
                    request(at, "GET", path, &secret).map_or_else(|_| String::new(), |it| it.body)
                }
            };
            let kind = if body.starts_with('{') { "application/json" } else { "text/html" };
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}; charset=utf-8\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    // Hosts have long names, and browsers take all of these for this one.
    let host = "gateway1ofthefleetinfrankfurtbehindthesecondrouterofbothofthem.localhost";
    let url = format!("http://{host}:{}/phone#{page}", address.port());
    let Some(dom) = shown(&url) else { return };
    assert_eq!(text_of(&dom, "width"), "360 of 360", "{}", text_of(&dom, "beyond"));
}

const PHONE: &str = r#"<!doctype html><body style="margin: 0">
<iframe id="phone" style="width: 360px; height: 8000px; border: 0"></iframe><p id="width"></p><p id="beyond"></p>
<script>
const frame = document.getElementById("phone");
frame.src = location.hash.slice(1);
setInterval(() => {
  const { innerWidth, document: inside } = frame.contentWindow;
  const right = it => Math.round(it.getBoundingClientRect().right);
  const beyond = [...inside.querySelectorAll("body *")].filter(it => right(it) > innerWidth && !it.closest(".scroll"));
  document.getElementById("width").textContent = inside.documentElement.scrollWidth + " of " + innerWidth;
  document.getElementById("beyond").textContent = beyond.map(it => it.outerHTML.slice(0, 200)).join("; ");
}, 100);
</script>"#;

#[test]
fn the_live_page_fits_a_phone() {
    let mut text = Text::new();
    text.bind = "\"127.0.0.1:0\", \"[::1]:0\"";
    let long = "a-backend-with-the-longest-name";
    text.listener = text.listener.replace("\"arena\"", &format!("\"{long}\""));
    text.backends = text.backends.replace("arena", long);
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n");
    let daemon = Daemon::start(&text);
    // Nobody is linked, and the page says so at length.
    fits_a_phone(daemon.admin, "/");
    assert!(daemon.get("/").body.contains("name=\"viewport\" content=\"width=device-width"));
    let _game = Game::start(&daemon, long);
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    wait_for("latencies", || {
        player.echo(b"hello");
        let status = daemon.status();
        let stages = status["stages"].as_array()?;
        stages.iter().any(|it| it["count"].as_u64() > Some(0)).then_some(())
    });
    fits_a_phone(daemon.admin, "/");
}
