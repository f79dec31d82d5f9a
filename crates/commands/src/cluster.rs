//! `ringgate cluster`: how a running gateway stands with those that share addresses with it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Failure;
use super::admin::Place;
use super::exit::print;
use ringgate_os::utc;
use ringgate_report::text::{Append as _, Table, count};

/// Show the other members of a running gateway's cluster
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what the gateway says, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cluster {
    name: String,
    address: Option<String>,
    members: Vec<Member>,
    refused: BTreeMap<String, u64>,
    not_connected: u64,
    /// None from a gateway whose sessions end with it.
    incarnation: Option<u16>,
    sessions: Sessions,
}

/// Sessions that outlive their gateway.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sessions {
    owned: u64,
    standing_by: u64,
    taken_over: u64,
    moved: u64,
    fenced: u64,
    second: u64,
    alone: u64,
    ends_untold: u64,
    not_taken_over: BTreeMap<String, u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Member {
    name: String,
    state: String,
    registered: bool,
    peer: String,
    up_s: u64,
    connections: u64,
    round_trip_us: Option<u64>,
    forwards: bool,
    players: u64,
    can_stand_by: bool,
    stands_by: u64,
    forwarded_in: u64,
    forwarded_out: u64,
    dropped: BTreeMap<String, u64>,
    last_end: String,
    misfits: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.place.find()?;
    let answer = gateway.fetch("/status")?;
    let mut status: serde_json::Value = gateway.read(&answer, &[])?;
    let cluster = status["cluster"].take();
    if cluster.is_null() {
        return Err(Failure::failed("the gateway's config has no [cluster]"));
    }
    if args.json {
        return print(&format!("{cluster:#}\n"));
    }
    let cluster = serde_json::from_value(cluster);
    print(&render(&cluster.map_err(Failure::failed)?))
}

fn render(cluster: &Cluster) -> String {
    let address = cluster.address.as_deref().unwrap_or("no address: it does not serve yet");
    let mut text = format!("cluster {}, at {address}\n\n", cluster.name);
    let mut table = Table::new(
        "member, state, at, for:, round trip:, connections:, players:, stands by:, from it:, to it:",
    );
    for member in &cluster.members {
        let is_up = member.state == "up";
        let round_trip = member.round_trip_us.map_or(String::new(), |us| format!("{us} us"));
        table.row([
            member.name.clone(),
            member.state.clone(),
            member.peer.clone(),
            if is_up { utc::span(member.up_s) } else { String::new() },
            round_trip,
            count(member.connections),
            count(member.players),
            count(member.stands_by),
            count(member.forwarded_in),
            count(member.forwarded_out),
        ]);
    }
    if cluster.members.is_empty() {
        text.push_str("no other member is known\n");
    } else {
        write!(text, "{table}");
    }
    for member in &cluster.members {
        let Member { name, state, registered, last_end, misfits, forwards, dropped, .. } = member;
        let Member { can_stand_by, .. } = member;
        if !registered {
            writeln!(text, "note: {name} is not registered in the fleet");
        }
        if state == "up" && !forwards {
            writeln!(
                text,
                "note: {name} does not say which players it has: nothing is forwarded to it"
            );
        }
        if state == "up" && *forwards && !can_stand_by {
            writeln!(text, "note: {name} cannot go on with sessions of this gateway");
        }
        for (reason, times) in dropped {
            writeln!(text, "note: {name}: {} as {reason}", count(*times));
        }
        if state != "up" && !last_end.is_empty() {
            writeln!(text, "note: {name}: its last connection ended: {last_end}");
        }
        for misfit in misfits {
            writeln!(text, "note: {name} does not fit: {misfit}");
        }
    }
    let Sessions { owned, standing_by, taken_over, moved, fenced, .. } = &cluster.sessions;
    let Sessions { second, alone, ends_untold, not_taken_over, .. } = &cluster.sessions;
    if cluster.incarnation.is_some() {
        writeln!(
            text,
            "\nsessions: {} that others could go on with, standing by for {}, taken over {} \
                 ({} given), taken by others {}",
            count(*owned),
            count(*standing_by),
            count(*taken_over),
            count(*moved),
            count(*fenced)
        );
        let stood_for: u64 = cluster.members.iter().map(|it| it.stands_by).sum();
        let unguarded = owned.saturating_sub(stood_for);
        if unguarded > 0 {
            writeln!(
                text,
                "note: {} sessions have no standby: they end with this gateway",
                count(unguarded)
            );
        }
    } else {
        text.push_str(
            "note: the fleet has not said which process this is: its sessions end with it\n",
        );
    }
    for (what, times) in [
        ("sessions whose players had one at another member", *second),
        ("sessions that an agent had no room for", *alone),
        ("ends of sessions that no agent was told", *ends_untold),
        ("datagrams for members that were gone", cluster.not_connected),
    ] {
        if times > 0 {
            writeln!(text, "note: {what}: {}", count(times));
        }
    }
    for (reason, times) in not_taken_over {
        writeln!(text, "note: not taken over: {} as {reason}", count(*times));
    }
    for (reason, times) in &cluster.refused {
        writeln!(text, "note: connections refused: {} as {reason}", count(*times));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_a_table_and_what_is_wrong_with_them_is_said_behind() {
        let page = serde_json::json!({
            "name": "fra", "address": "10.0.7.21:4700", "refused": { "foreign_name": 2 },
            "not_connected": 5, "incarnation": 3,
            "sessions": { "owned": 11, "standing_by": 12, "taken_over": 13, "moved": 9, "fenced": 14,
                          "second": 18, "alone": 16, "ends_untold": 17,
                          "not_taken_over": { "ended": 15 } },
            "members": [
                { "name": "gate-2", "state": "up", "registered": true, "peer": "10.0.7.22:4700",
                  "up_s": 90, "connections": 1, "round_trip_us": 210, "last_end": "an older one",
                  "forwards": true, "players": 7, "stands_by": 9, "forwarded_in": 41, "forwarded_out": 3,
                  "dropped": { "mailbox_full": 6 },
                  "misfits": ["198.51.100.9:40000 has no key in common here and there"] },
                { "name": "gate-3", "state": "awaited", "registered": false, "up_s": 0,
                  "connections": 0, "last_end": "it shuts down", "misfits": [] },
                { "name": "gate-4", "state": "up", "registered": true, "up_s": 1,
                  "connections": 1 },
            ],
        });
        let text = render(&serde_json::from_value(page).expect("a page"));
        assert!(text.starts_with("cluster fra, at 10.0.7.21:4700\n"), "{text}");
        for line in [
            "note: gate-2 does not fit: 198.51.100.9:40000 has no key in common here and there\n",
            "note: gate-3 is not registered in the fleet\n",
            "note: gate-3: its last connection ended: it shuts down\n",
            "note: connections refused: 2 as foreign_name\n",
            "note: gate-2: 6 as mailbox_full\n",
            "note: datagrams for members that were gone: 5\n",
            "note: gate-4 does not say which players it has: nothing is forwarded to it\n",
            "note: gate-2 cannot go on with sessions of this gateway\n",
            "note: not taken over: 15 as ended\n",
            "note: sessions that an agent had no room for: 16\n",
            "note: ends of sessions that no agent was told: 17\n",
            "note: 2 sessions have no standby: they end with this gateway\n",
            "sessions: 11 that others could go on with, standing by for 12, \
             taken over 13 (9 given), taken by others 14\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.contains("210 us") && !text.contains("an older one"), "{text}");
    }
}
