//! Gateways of a fleet that are one cluster: they find each other by etcd, and say what does not
//! fit.
//!
//! Skipped aloud where `etcd` or openssl is not installed.

use std::collections::BTreeSet;

use ringgate_report::text::Append as _;

use crate::agent::certificates;
use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Text, wait_for};
use crate::fleet_rig::{Fleet, in_fleet};
use crate::folder::Folder;
use crate::own::{own_ip, own_port};
use crate::upgrade_rig::Line;

/// A gateway of the cluster `fra`.
pub(crate) fn in_cluster(fleet: &Fleet, folder: &Folder, name: &str) -> Text {
    let mut text = in_fleet(fleet, name);
    let (path, ip, port) = (folder.path().display(), own_ip(), own_port());
    writeln!(
        text.more,
        "[cluster]\nname = \"fra\"\nbind = \"{ip}:{port}\"\nca = \"{path}/ca.pem\"\n\
             certificate = \"{path}/{name}.pem\"\nkey = \"{path}/{name}.key\""
    );
    text
}

const MEMBERS: &[(&str, &str)] = &[
    ("gate-1", "DNS:gate-1.fra.ringgate-cluster"),
    ("gate-2", "DNS:gate-2.fra.ringgate-cluster"),
    ("gate-3", "DNS:gate-3.fra.ringgate-cluster"),
];

fn is_up(daemon: &Daemon, member: &str) -> Option<()> {
    let status = daemon.status();
    let members = status["cluster"]["members"].as_array()?;
    members.iter().any(|it| it["name"] == member && it["state"] == "up").then_some(())
}

/// Which of the cluster's processes a gateway is, once it knows.
fn incarnation(daemon: &Daemon) -> u64 {
    wait_for("an incarnation", || daemon.status()["cluster"]["incarnation"].as_u64())
}

#[test]
fn no_two_processes_of_a_cluster_are_the_same_one() {
    let (Some(mut fleet), folder) = (Fleet::start(), Folder::new()) else { return };
    if !certificates(&folder, MEMBERS) {
        return;
    }
    let backup = fleet.back_up();
    let mut texts = ["gate-1", "gate-2", "gate-3"].map(|it| in_cluster(&fleet, &folder, it));
    let states = folder.join("states");
    writeln!(texts[2].gateway, "state_dir = \"{}\"", states.display());
    let start = |text: &Text| Line::of(Daemon::start(text));
    let key = "/f/claim/cluster/fra";
    let mut lines = texts.iter().map(start).collect::<Vec<_>>();
    // One that could not be sure of its number has left that out.
    let mut seen: BTreeSet<_> = lines.iter().map(|line| incarnation(&line.daemon)).collect();
    assert_eq!(seen.len(), 3);

    // An upgrade is the same process to others; one that begins anew is another.
    let before = incarnation(&lines[2].daemon);
    assert_eq!(lines[2].upgrade().0, Some(0));
    assert_eq!(incarnation(&lines[2].daemon), before);
    wait_for("its number on disk", || {
        let left = std::fs::read_to_string(states.join("leases")).ok()?;
        let latest = left.lines().find_map(|it| it.strip_prefix("incarnation "));
        let (number, of) = latest?.split_once(' ')?;
        (of == key && number.parse::<u64>().ok()? >= before).then_some(())
    });
    // Also where etcd has forgotten it, and nobody has noticed.
    drop(lines.pop());
    fleet.ctl(&["put", key, "{\"v\":1,\"last\":0}"]);
    lines.push(start(&texts[2]));
    assert!(seen.insert(incarnation(&lines[2].daemon)));
    let highest = *seen.last().expect("four");

    // A restored etcd that has never had any hears of them again, and of one that has died.
    let series = "ringgate_cluster_member_can_stand_by{member=\"gate-3\"}";
    let knows = || lines[0].daemon.get("/metrics").value(series).filter(|it| *it == 1);
    wait_for("it to be known", knows);
    drop(lines.pop());
    fleet.go_back(&backup);
    let last = || fleet.value(key).and_then(|it| it["last"].as_u64());
    wait_for("the count", || last().filter(|it| *it >= highest));

    // Nobody guesses where the count is none, or at its end.
    texts[2] = in_cluster(&fleet, &folder, "gate-3");
    for (text, why) in [("{}", "missing"), ("{\"v\":1,\"last\":65535}", "its last process")] {
        fleet.ctl(&["put", key, text]);
        let line = start(&texts[2]);
        let daemon = &line.daemon;
        wait_for("why not", || daemon.log().contains("no other gateway can go on").then_some(()));
        assert!(daemon.log().contains(why), "{}", daemon.log());
        assert!(daemon.status()["cluster"]["incarnation"].is_null());
    }
}

#[test]
fn a_member_that_begins_with_a_copy_of_the_fleet_finds_the_others() {
    let (Some(fleet), folder) = (Fleet::start(), Folder::new()) else { return };
    if !certificates(&folder, MEMBERS) {
        return;
    }
    let second = Daemon::start(&in_cluster(&fleet, &folder, "gate-2"));
    let mut text = in_cluster(&fleet, &folder, "gate-1");
    let states = folder.join("states");
    writeln!(text.gateway, "state_dir = \"{}\"", states.display());
    let first = Daemon::start(&text);
    is_there(&first);
    wait_for("a copy with the other member in it", || {
        let copy = std::fs::read(states.join("fleet")).ok()?;
        copy.windows(15).any(|it| it == b"/gateway/gate-2").then_some(())
    });
    drop(first);
    // It is the one that connects, and nothing has changed in etcd since.
    let again = Daemon::start(&text);
    assert!(again.log().contains("fleet_copy_read"), "{}", again.log());
    is_there(&again);
    wait_for("the other one's word", || is_up(&second, "gate-1"));
}

fn is_there(daemon: &Daemon) {
    wait_for("the other member", || is_up(daemon, "gate-2"));
}

#[test]
fn members_find_each_other_and_say_what_does_not_fit() {
    let (Some(fleet), folder) = (Fleet::start(), Folder::new()) else { return };
    if !certificates(&folder, MEMBERS) {
        return;
    }
    let start = |name| (name, Daemon::start(&in_cluster(&fleet, &folder, name)));
    let mut daemons = ["gate-1", "gate-2", "gate-3"].map(start).into_iter().collect::<Vec<_>>();
    for (name, daemon) in &daemons {
        for (other, _) in daemons.iter().filter(|(other, _)| other != name) {
            wait_for("the other member", || is_up(daemon, other));
        }
    }
    let (_, first) = &daemons[0];
    let series = "ringgate_cluster_member_up{member=\"gate-2\"}";
    assert_eq!(first.get("/metrics").value(series), Some(1));
    let control = first.run_dir().display().to_string();
    let said = run(ringgate(["cluster", "--control", &control])).succeeded();
    assert!(said.contains("cluster fra") && said.contains("gate-3"), "{said}");

    // Somebody registers with the same address, who speaks another protocol there.
    let mut other = fleet.gateway("gate-1").expect("it is registered");
    other["listeners"][0]["protocol_id"] = 99.into();
    other["cluster"]["at"] = format!("{}:{}", own_ip(), own_port()).into();
    fleet.ctl(&["put", "/f/truth/gateway/gate-4", &other.to_string()]);
    let said = wait_for("what does not fit", || {
        let said = run(ringgate(["cluster", "--control", &control])).succeeded();
        said.contains("gate-4 does not fit").then_some(said)
    });
    assert!(said.contains("gate-4 does not fit: ") && said.contains(" there"), "{said}");

    // One is killed, and comes again.
    drop(daemons.pop());
    fleet.revoke("/f/truth/gateway/gate-3");
    let (_, first) = &daemons[0];
    wait_for("it is gone", || is_up(first, "gate-3").is_none().then_some(()));
    wait_for("its registration is gone", || {
        let said = run(ringgate(["cluster", "--control", &control])).succeeded();
        said.contains("gate-3 is not registered").then_some(())
    });
    let series = "ringgate_cluster_member_up{member=\"gate-3\"}";
    assert_eq!(first.get("/metrics").value(series), Some(0), "it has died");
    let third = Daemon::start(&in_cluster(&fleet, &folder, "gate-3"));
    wait_for("it is back", || is_up(first, "gate-3").and_then(|()| is_up(&third, "gate-2")));
}
