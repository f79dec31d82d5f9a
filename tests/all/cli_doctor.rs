//! `ringgate doctor` on whatever host this is.

use std::fs;

use crate::command::{ringgate, run};
use crate::folder::Folder;

#[test]
fn what_bites_decides_the_exit_code() {
    let ran = run(ringgate(["doctor", "--json"]));
    let findings: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let findings = findings.as_array().expect("a list");
    let severities: Vec<_> = findings.iter().map(|it| it["severity"].as_str()).collect();
    let bites = severities.iter().filter(|it| **it == Some("bites")).count();
    assert_eq!(ran.code, Some(i32::from(bites > 0)), "{severities:?}");
    assert_eq!(ran.stderr.is_empty(), bites == 0, "{}", ran.stderr);
    let names: Vec<_> = findings.iter().filter_map(|it| it["what"].as_str()).collect();
    for expected in ["kernel", "io_uring", "cipher", "net.core.rmem_max"] {
        assert!(names.contains(&expected), "{names:?}");
    }
}

#[test]
fn more_workers_than_processors_bite() {
    let folder = Folder::new();
    let file = folder.path().join("gate.toml");
    let key = "11".repeat(32);
    let config = format!(
        "[gateway]\nworkers = 128\n[[listener]]\nname = \"a\"\nprotocol = \"netcode\"\n\
         bind = [\"127.0.0.1:40000\"]\nprotocol_id = \"0x1\"\nkeys = [{{ hex = \"{key}\" }}]\n\
         backends = [\"b\"]\nmax_sessions = 1000\n\
         [[backend]]\nname = \"b\"\nlink = \"udp\"\naddress = \"127.0.0.1:7777\"\nslots = 64\n"
    );
    fs::write(&file, config).expect("temporary files");
    let ran = run(ringgate(["doctor".as_ref(), "--config".as_ref(), file.as_os_str()]));
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(ran.stdout.contains("BITES  workers"), "{}", ran.stdout);
    assert!(ran.stderr.starts_with("ringgate: "), "{}", ran.stderr);
}
