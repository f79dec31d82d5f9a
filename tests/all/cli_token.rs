//! `ringgate token` at the shell: what it writes, what it explains, and how it refuses.

use std::fs;
use std::path::Path;
use std::process::Command;

use ringgate_core::netcode::{self, ConnectToken, ServerAddresses, TokenSpec};
use ringgate_core::secret::Key;
use ringgate_os::clock;

use crate::command::{ringgate, run};
use crate::config_mistakes::KEY;
use crate::folder::{Folder, mode};

const SERVERS: &str = "203.0.113.9:40000,[2001:db8::2]:40001";

/// A mint that works, into `token` in the folder.
fn mint(folder: &Folder) -> Command {
    let mut command = ringgate(["token", "mint", "--key", KEY, "--protocol-id", "0x11223344"]);
    command.args(["--client-id", "42", "--server", SERVERS, "--out"]).arg(folder.join("token"));
    command
}

/// The same with one argument's value replaced, or one more argument.
fn mint_with(folder: &Folder, argument: &str, value: &str) -> Command {
    let good = mint(folder);
    let mut command = ringgate::<&str>([]);
    let mut args = good.get_args().peekable();
    let mut replaced = false;
    while let Some(arg) = args.next() {
        command.arg(arg);
        if arg == argument {
            args.next();
            command.arg(value);
            replaced = true;
        }
    }
    if !replaced {
        command.args([argument, value]);
    }
    command
}

fn inspect(token: &Path) -> Command {
    let mut command = ringgate(["token", "inspect"]);
    command.arg(token);
    command
}

fn key() -> Key {
    Key::from_hex(KEY).expect("the test's key is one")
}

fn written(folder: &Folder) -> ConnectToken {
    let bytes = fs::read(folder.join("token")).expect("the token was written");
    ConnectToken::decode(&bytes).expect("and is one")
}

/// A token that was made so many seconds ago.
fn aged(folder: &Folder, seconds: u64) -> std::path::PathBuf {
    let servers: ServerAddresses = SERVERS.parse().expect("literal");
    let now_unix_s = clock::unix_seconds() - seconds;
    let token = netcode::mint(&TokenSpec::new(7, 42, servers), &key(), now_unix_s);
    folder.file("token", token.expect("random bytes").to_bytes(), 0o600)
}

#[test]
fn a_minted_token_says_what_it_was_told() {
    let folder = Folder::new();
    let said = run(mint_with(&folder, "--user-data", "arena-1")).succeeded();
    let token = written(&folder);
    assert_eq!(token.protocol_id, 0x1122_3344);
    assert_eq!(token.addresses.to_string(), SERVERS);
    assert_eq!((token.expire_unix_s - token.create_unix_s, token.timeout_seconds), (300, 15));
    let private = netcode::open_private(&token, &key()).expect("it was sealed under this key");
    assert_eq!(private.client_id, 42);
    assert_eq!(Some(private.user_data), netcode::user_data(b"arena-1"));

    let name = folder.join("token");
    let start = format!("{}: client 42 may connect to {SERVERS} until ", name.display());
    assert!(said.starts_with(&start) && said.ends_with(" (for 300 s), timeout 15 s\n"), "{said}");
    assert_eq!(fs::metadata(&name).expect("it is there").len(), 2048);
    assert_eq!(mode(&name), 0o600);
    assert_eq!(folder.names(), ["token"]);
}

#[test]
fn the_key_may_be_in_a_file_and_numbers_decimal() {
    let folder = Folder::new();
    let file = folder.file("key", KEY, 0o600);
    let file = file.to_str().expect("a plain path");
    run(mint_with(&folder, "--key", file)).succeeded();
    netcode::open_private(&written(&folder), &key()).expect("it was sealed under this key");
    run(mint_with(&folder, "--protocol-id", "18446744073709551615")).succeeded();
    assert_eq!(written(&folder).protocol_id, u64::MAX);
}

#[test]
fn negative_times_mean_without_end() {
    let folder = Folder::new();
    let said = run(mint_with(&folder, "--expire", "-1")).succeeded();
    assert!(said.contains(" at any time, timeout 15 s"), "{said}");
    assert_eq!(written(&folder).expire_unix_s, u64::MAX);
    let said = run(mint_with(&folder, "--timeout", "-1")).succeeded();
    assert!(said.ends_with(", timeout none\n"), "{said}");
    assert_eq!(written(&folder).timeout_seconds, -1);
}

#[test]
fn a_refused_mint_says_why_and_leaves_no_file() {
    let folder = Folder::new();
    let open = folder.file("open-key", KEY, 0o644);
    let too_many = vec!["192.0.2.1:1"; 33].join(",");
    let long = "x".repeat(257);
    for (argument, value, sentence) in [
        (
            "--key",
            "0123",
            "--key: found 4 hex digits, expected 64 hex digits or the path of a key file",
        ),
        (
            "--key",
            "/nonexistent/key",
            "--key: found a file that cannot be read (No such file or directory (os error 2)), expected a key file",
        ),
        (
            "--key",
            open.to_str().expect("a plain path"),
            "--key: found a key file that others may use (mode 0644), expected one that is closed to group and others \
             (chmod 600)",
        ),
        ("--protocol-id", "0x", "--protocol-id: found \"0x\", expected a number of 64 bits"),
        ("--client-id", "me", "--client-id: found \"me\", expected a number of 64 bits"),
        (
            "--server",
            "192.0.2.1:1,example.org:1",
            "--server: found \"example.org:1\", but a server address is written 203.0.113.9:40000 or [2001:db8::2]:40000",
        ),
        (
            "--server",
            "192.0.2.1:0",
            "--server: found \"192.0.2.1:0\", but a server address needs a port other than 0",
        ),
        ("--server", "[::]:1", "--server: found \"[::]:1\", but nobody can connect to a wildcard"),
        (
            "--server",
            &too_many,
            "--server: found 33 addresses, but a token names at most 32 server addresses",
        ),
        ("--user-data", &long, "--user-data: found 257 bytes, expected at most 256"),
        ("--expire", "0", "--expire: found 0, but a token that expires at once is of no use"),
        ("--expire", "5x", "--expire: found \"5x\", expected a time such as 30s or 5m"),
        (
            "--timeout",
            "0",
            "--timeout: found 0, but servers give up at once then (negative: never)",
        ),
        (
            "--timeout",
            "3000000000",
            "--timeout: found \"3000000000\", expected a time such as 5s or 1m",
        ),
        (
            "--out",
            "/nonexistent/token",
            "cannot write /nonexistent/token: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(run(mint_with(&folder, argument, value)).refused(), sentence);
    }
    assert_eq!(folder.names(), ["open-key"]);
}

#[test]
fn a_token_file_may_be_replaced_but_a_refusal_keeps_it() {
    let folder = Folder::new();
    run(mint(&folder)).succeeded();
    let first = written(&folder);
    run(mint_with(&folder, "--key", "0123")).refused();
    assert_eq!(written(&folder), first);
    run(mint(&folder)).succeeded();
    assert_ne!(written(&folder).nonce, first.nonce);
    assert_eq!(folder.names(), ["token"]);
}

#[test]
fn every_field_is_explained_and_no_key_is_shown() {
    let folder = Folder::new();
    run(mint_with(&folder, "--user-data", "arena-1\tü")).succeeded();
    let mut command = inspect(&folder.join("token"));
    command.args(["--key", KEY]);
    let text = run(command).succeeded();
    for line in [
        "protocol id     0x0000000011223344 (287454020)",
        "timeout         15 s",
        "servers         203.0.113.9:40000",
        "                [2001:db8::2]:40001",
        "session keys    two, not shown",
        "private part    opens under this key",
        "  client id     42",
        "  session keys  those of the public part",
        "  user data     \"arena-1\\t\\xc3\\xbc\" and 246 zero bytes",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    for start in ["created         2", "expires         2"] {
        assert!(text.lines().any(|found| found.starts_with(start)), "{start} in\n{text}");
    }
    let token = written(&folder);
    for key in [&token.client_to_server, &token.server_to_client, &key()] {
        assert!(!text.contains(&key.to_hex()[..16]), "{text}");
    }
}

#[test]
fn without_a_key_the_private_part_stays_closed() {
    let folder = Folder::new();
    run(mint(&folder)).succeeded();
    let text = run(inspect(&folder.join("token"))).succeeded();
    assert!(text.ends_with("private part    sealed (--key K opens it)\n"), "{text}");
    assert!(!text.contains("client id"), "{text}");
}

#[test]
fn a_wrong_key_is_reported_after_the_public_part() {
    let folder = Folder::new();
    let token = aged(&folder, 0);
    let mut command = inspect(&token);
    command.args(["--key", &KEY.replace('0', "1")]);
    let ran = run(command);
    assert!(ran.stdout.contains("protocol id     0x0000000000000007 (7)\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("client id"), "{}", ran.stdout);
    assert_eq!(
        ran.refused(),
        format!(
            "{}: the connect token was made under another key, or was changed",
            token.display()
        )
    );
}

#[test]
fn an_expired_token_is_explained_and_then_refused() {
    let folder = Folder::new();
    let token = aged(&folder, 3630);
    let ran = run(inspect(&token));
    assert!(ran.stdout.contains(" (60 min ago)\n"), "{}", ran.stdout);
    assert_eq!(ran.refused(), format!("{}: the token expired 60 min ago", token.display()));
}

#[test]
fn what_is_not_a_token_is_refused() {
    let folder = Folder::new();
    let good = fs::read(aged(&folder, 0)).expect("it was written");
    let mut other_version = good.clone();
    other_version[11] = b'3';
    let mut no_servers = good.clone();
    let count = 13 + 8 + 8 + 8 + 24 + 1024 + 4;
    no_servers[count..count + 4].fill(0);
    let mut backwards = good.clone();
    backwards[29..37].fill(0);
    for (bytes, sentence) in [
        (&good[..2047], "a connect token has exactly 2048 bytes"),
        (&[good.as_slice(), &[0]].concat(), "a connect token has exactly 2048 bytes"),
        (&[], "a connect token has exactly 2048 bytes"),
        (&other_version, "this is not a netcode 1.02 connect token"),
        (&no_servers, "the connect token's list of server addresses is damaged"),
        (&backwards, "the connect token expires before it was created"),
    ] {
        let file = folder.file("bad", bytes, 0o600);
        let refused = run(inspect(&file)).refused();
        assert_eq!(refused, format!("{}: {sentence}", file.display()));
    }
    let missing = folder.join("missing");
    assert_eq!(
        run(inspect(&missing)).refused(),
        format!("{}: No such file or directory (os error 2)", missing.display())
    );
}
