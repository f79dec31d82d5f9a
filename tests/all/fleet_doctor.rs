//! `ringgate fleet doctor` against etcd as it is packed: everything that it knows to be wrong, put
//! there, and found by name.
//!
//! Skipped aloud where `etcd` is not installed; `REQUIRE_ETCD=1` makes that a failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_os::clock;
use serde_json::{Value, json};

use crate::command::{Ends, ringgate, run};
use crate::control_rig::{Daemon, wait_for};
use crate::fleet_rig::{Fleet, in_fleet};
use crate::folder::Folder;
use crate::oncall::{Row, row};
use crate::own::own_address;

/// A fleet, and a lease that nobody lets end.
struct Ward {
    fleet: Fleet,
    lease: String,
}

impl Ward {
    fn open() -> Option<Self> {
        let fleet = Fleet::start()?;
        let granted = fleet.ctl(&["lease", "grant", "600"]);
        let lease = granted.split(' ').nth(1).expect("lease ID granted with …").to_owned();
        let ward = Self { fleet, lease };
        ward.fleet.put_key("main", 1);
        Some(ward)
    }

    /// Something stands in etcd, under the lease.
    fn put(&self, place: &str, value: &Value) {
        let lease = format!("--lease={}", self.lease);
        self.fleet.ctl(&["put", &lease, &format!("/f/truth/{place}"), &value.to_string()]);
    }

    fn put_gateway(&self, name: &str, more: &Value) {
        self.put(&format!("gateway/{name}"), &gateway(more));
    }

    /// A command of the page for those on call finds what the page says.
    #[track_caller]
    fn finds_row(&self, row: &Row) {
        let host = Folder::new();
        let file = host.file("gate.toml", self.fleet.table("nobody"), 0o600);
        row.asked(&file, &[]);
    }

    /// What it finds, and whether something of it bites.
    fn examine(&self, watch: &str) -> (Vec<Value>, bool) {
        self.examine_with(&[], watch)
    }

    /// The same with further members of etcd.
    fn examine_with(&self, endpoints: &[&str], watch: &str) -> (Vec<Value>, bool) {
        self.examine_as(&[], endpoints, watch)
    }

    /// The same as another user.
    fn examine_as(&self, user: &[&str], endpoints: &[&str], watch: &str) -> (Vec<Value>, bool) {
        let endpoint = self.fleet.endpoint();
        let mut doctor = ringgate(["fleet", "doctor", "--json", "--watch", watch]);
        doctor.args(["--endpoint", &endpoint, "--fleet", "/f"]).args(user);
        doctor.args(endpoints.iter().flat_map(|it| ["--endpoint", it]));
        let ran = run(doctor);
        let report: Value = serde_json::from_str(&ran.stdout).expect(&ran.stderr);
        let findings = report["findings"].as_array().expect("a list").clone();
        (findings, ran.code == Some(1))
    }

    /// What is found of one thing: how grave it is, and what it is.
    fn finds(&self, what: &str) -> (String, String) {
        let (findings, _) = self.examine("0s");
        of(&findings, what)
    }
}

fn of(findings: &[Value], what: &str) -> (String, String) {
    let found = findings.iter().find(|it| it["what"] == what);
    let found = found.unwrap_or_else(|| panic!("nothing is said of {what}: {findings:?}"));
    let text = |field: &str| found[field].as_str().expect("text").to_owned();
    (text("severity"), text("found"))
}

/// A gateway that is as it should be, but for some fields.
fn gateway(more: &Value) -> Value {
    let mut value = json!({
        "v": 1, "instance": "i", "region": "eu", "host": "here", "version": "0.1.0",
        "listeners": [{ "name": "main", "protocol": "netcode", "addresses": ["192.0.2.1:40000"], "epochs": [1] }],
        "capacity": 100, "sessions": 0, "draining": false, "started": 1, "written": clock::unix_seconds(),
    });
    let fields = value.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    value
}

fn service(written: u64) -> Value {
    json!({ "v": 1, "instance": "i", "host": "here", "version": "0.1.0", "started": 1, "written": written })
}

fn with_doubt(mut value: Value) -> Value {
    value["doubt"] = 3.into();
    value["held"] = json!(["backends", "gateways"]);
    value
}

fn agent(written: u64) -> Value {
    let mut value = service(written);
    value["region"] = "eu".into();
    value
}

#[test]
fn a_fleet_that_is_well_is_said_to_be() {
    let Some(fleet) = Fleet::start() else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    wait_for("its key is confirmed", || {
        let epochs = fleet.gateway("gate-1")?["listeners"][0]["epochs"].clone();
        (epochs == json!([1])).then_some(())
    });
    let ward = Ward { fleet, lease: String::new() };
    let (findings, bites) = ward.examine("0s");
    assert!(!bites, "{findings:?}");
    assert_eq!(of(&findings, "leases").0, "ok");
    assert_eq!(of(&findings, "keys of eu"), ("ok".into(), "key 1 is minted with".into()));
    drop(daemon);
}

#[test]
fn an_etcd_without_space_is_told_by_the_doctor_and_by_whoever_has_to_write() {
    let Some(fleet) = Fleet::start_with(&["--quota-backend-bytes", "1000000"]) else { return };
    fleet.put_key("eu", 1);
    let daemon = Daemon::start(&in_fleet(&fleet, "gate-1"));
    wait_for("its registration", || fleet.entry("gate-1"));
    let shown = || daemon.get("/metrics").value("ringgate_fleet_no_space");
    assert_eq!(shown(), Some(0));
    fleet.fill();
    fleet.revoke("/f/truth/gateway/gate-1");
    wait_for("the gauge", || shown().filter(|it| *it == 1));
    row("etcd-full").read_at(&daemon);
    let ward = Ward { fleet, lease: String::new() };
    let (findings, bites) = ward.examine("0s");
    assert!(bites && of(&findings, "etcd's space").1.contains("space"), "{findings:?}");
}

#[test]
fn versions_leases_and_values_that_are_amiss_are_found() {
    let Some(ward) = Ward::open() else { return };
    ward.put_gateway("g1", &json!({}));
    assert_eq!(ward.finds("versions"), ("ok".into(), "0.1.0 (1)".into()));
    ward.put_gateway("g2", &json!({ "version": "0.2.0" }));
    ward.put("service/t1", &service(clock::unix_seconds()));
    assert_eq!(ward.finds("versions"), ("could".into(), "0.1.0 (2), 0.2.0 (1)".into()));

    assert_eq!(ward.finds("leases").0, "ok");
    let backend = |host: &str| {
        json!({ "v": 1, "instance": "i", "host": host, "group": "main", "slots": 4, "used": 0,
            "reach": { "udp": "127.0.0.1:7777" }, "state": "ready" })
    };
    ward.put("backend/b1", &backend("here"));
    assert_eq!(ward.finds("reach").0, "ok");
    ward.put("backend/b2", &backend("elsewhere"));
    let unreached = "no gateway reaches 1 backends, such as b2";
    assert_eq!(ward.finds("reach"), ("bites".into(), unreached.into()));
    ward.put("backend/b2", &backend("here"));
    assert_eq!(ward.finds("reach").0, "ok");
    ward.put_gateway("g1", &json!({ "shut": ["b2"] }));
    ward.put_gateway("g2", &json!({ "version": "0.2.0", "shut": ["b2"] }));
    assert_eq!(ward.finds("reach"), ("bites".into(), unreached.into()), "nobody is linked to it");
    ward.fleet.ctl(&["put", "/f/truth/backend/b3", &backend("here").to_string()]);
    let lasting = "1 registrations have none, such as /f/truth/backend/b3";
    assert_eq!(ward.finds("leases"), ("bites".into(), lasting.into()));
    ward.put("backend/b4", &json!({ "v": 1 }));
    let (severity, found) = ward.finds("values");
    assert!(severity == "bites" && found.contains("/f/truth/backend/b4"), "{found}");
    assert!(ward.examine("0s").1, "that is exit code 1");
    ward.finds_row(&row("unreadable"));
}

#[test]
fn members_that_give_no_answer_and_clusters_that_differ_are_found() {
    let (Some(ward), Some(other)) = (Ward::open(), Fleet::start()) else { return };
    let own = ward.fleet.endpoint();
    let (severity, found) = ward.finds(&format!("etcd {own}"));
    assert!(severity == "ok" && found.starts_with("cluster "), "{severity}: {found}");
    let nobody = format!("http://{}", own_address());
    let (findings, _) = ward.examine_with(&[&nobody], "0s");
    let (severity, found) = of(&findings, &format!("etcd {nobody}"));
    assert!(severity == "could" && found.starts_with("no answer"), "{severity}: {found}");
    let (findings, bites) = ward.examine_with(&[&other.endpoint()], "0s");
    let (severity, found) = of(&findings, "etcd clusters");
    assert_eq!((severity.as_str(), found.as_str()), ("bites", "2 different ones answer"));
    assert!(bites, "that is exit code 1");
}

#[test]
fn a_user_with_the_least_rights_finds_etcd_there() {
    let Some(ward) = Ward::open() else { return };
    for command in [
        &["user", "add", "root:root"][..],
        &["user", "add", "doctor:secret-of-the-doctor"],
        &["role", "add", "fleet"],
        &["role", "grant-permission", "fleet", "--prefix=true", "readwrite", "/f/"],
        &["user", "grant-role", "doctor", "fleet"],
        &["auth", "enable"],
    ] {
        ward.fleet.ctl(command);
    }
    let folder = Folder::new();
    let password = folder.join("password");
    std::fs::write(&password, "secret-of-the-doctor").expect("it can be written");
    let only_ours = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&password, only_ours).expect("it is ours");
    let password = password.to_str().expect("text");
    let user = ["--user", "doctor", "--password", password];
    let (findings, _) = ward.examine_as(&user, &[], "0s");
    let (severity, found) = of(&findings, &format!("etcd {}", ward.fleet.endpoint()));
    assert!(severity == "ok" && found.starts_with("cluster "), "{severity}: {found}");
    assert_eq!(of(&findings, "etcd's space"), ("ok".into(), "it takes writes".into()));
}

#[test]
fn registrations_that_are_stale_or_held_back_are_found() {
    let Some(ward) = Ward::open() else { return };
    let now_s = clock::unix_seconds();
    ward.put_gateway("g1", &json!({ "written": now_s - 400 }));
    ward.put_gateway("g2", &json!({ "doubt": 12 }));
    ward.put("service/t1", &service(now_s - 400));
    ward.put("agent/a1", &agent(now_s - 400));
    for silent in ["g1", "token service t1", "agent a1"] {
        let (severity, found) = ward.finds(silent);
        assert_eq!(severity, "bites");
        assert!(found.starts_with("has written nothing for 4"), "{found}");
    }
    let held = ("bites".into(), "holds back under number 12: news".into());
    assert_eq!(ward.finds("g2"), held);
    ward.finds_row(&row("held-back"));
    ward.finds_row(&row("gateway-silent"));
    ward.put("service/t2", &with_doubt(service(now_s)));
    ward.put("agent/a2", &with_doubt(agent(now_s)));
    let held = ("bites".into(), "holds back under number 3: backends, gateways".into());
    assert_eq!(ward.finds("token service t2"), held);
    assert_eq!(ward.finds("agent a2"), held);
}

#[test]
fn gateways_of_a_cluster_that_do_not_fit_together_are_found() {
    let Some(ward) = Ward::open() else { return };
    let member = |name: &str, protocol_id: u64| {
        let listener = json!([{ "name": "main", "protocol": "netcode", "epochs": [1],
            "addresses": ["198.51.100.9:40000"], "protocol_id": protocol_id }]);
        let cluster = json!({ "name": "fra", "at": format!("{name}:4700") });
        ward.put_gateway(name, &json!({ "listeners": listener, "cluster": cluster, "host": name }));
    };
    member("g1", 7);
    let alone = ("could".into(), "g1 is alone in it".into());
    assert_eq!(ward.finds("cluster fra"), alone);
    member("g2", 7);
    assert_eq!(ward.finds("cluster fra"), ("ok".into(), "g1, g2 fit together".into()));
    member("g2", 8);
    let differs = "g1 (here) and g2 (there) do not fit: 198.51.100.9:40000 has protocol_id 7 here and 8 there";
    assert_eq!(ward.finds("cluster fra"), ("bites".into(), differs.into()));
    let keyed = |name: &str, keys: &[&str]| {
        let listener = json!([{ "name": "main", "protocol": "netcode", "keys": keys,
            "addresses": ["198.51.100.9:40000"], "protocol_id": 7 }]);
        let cluster = json!({ "name": "fra", "at": format!("{name}:4700") });
        ward.put_gateway(name, &json!({ "listeners": listener, "cluster": cluster, "host": name }));
    };
    keyed("g1", &["00112233aabbccdd"]);
    keyed("g2", &["00112233aabbccdd", "ffffffffffffffff"]);
    let differs = "g1 (here) and g2 (there) do not fit: 198.51.100.9:40000 has 1 keys here and 2 there, 1 of them in common";
    assert_eq!(ward.finds("cluster fra"), ("bites".into(), differs.into()));
    keyed("g2", &["00112233aabbccdd"]);
    assert_eq!(ward.finds("cluster fra"), ("ok".into(), "g1, g2 fit together".into()));
    member("g1", 7);
    member("g2", 7);
    let backend = |gateways: &[&str]| {
        json!({ "v": 1, "instance": "i", "host": "h", "group": "main", "slots": 4, "used": 0,
            "reach": { "agent": "h" }, "gateways": gateways, "state": "ready" })
    };
    ward.put("backend/b1", &backend(&["g2"]));
    let half = "1 backends are reached by some of its gateways alone, such as b1";
    assert_eq!(ward.finds("cluster fra"), ("could".into(), half.into()));
    ward.put("backend/b1", &backend(&["g1", "g2"]));
    assert_eq!(ward.finds("cluster fra").0, "ok");
}

#[test]
fn epochs_that_keep_tokens_from_being_minted_are_found() {
    let Some(ward) = Ward::open() else { return };
    ward.put_gateway("g1", &json!({}));
    assert_eq!(ward.finds("keys of main"), ("ok".into(), "key 1 is minted with".into()));
    ward.fleet.put_key("main", 2);
    let waits = "key 2 waits: 0 of 1 gateways have confirmed it";
    assert_eq!(ward.finds("keys of main"), ("could".into(), waits.into()));
    ward.finds_row(&row("key-waits"));
    let behind = json!([{ "name": "main", "protocol": "netcode", "addresses": [], "epochs": [9] }]);
    ward.put_gateway("g2", &json!({ "listeners": behind }));
    let none = ("bites".into(), "no token can be minted".into());
    assert_eq!(ward.finds("keys of main"), none);
    ward.finds_row(&row("no-key"));
}

#[test]
fn a_key_that_runs_out_is_found() {
    let Some(ward) = Ward::open() else { return };
    ward.put_gateway("g1", &json!({}));
    ward.fleet.put_old_key("main", 1);
    ward.finds_row(&row("key-ends"));
}

/// What is found while somebody writes again and again, on a host whose clock is so far ahead.
fn found_of_clocks(ward: &Ward, place: &str, ahead_s: i64) -> (String, String) {
    let write = || {
        let written = clock::unix_seconds().saturating_add_signed(ahead_s);
        let value = match place.split_once('/') {
            Some(("gateway", _)) => gateway(&json!({ "written": written })),
            Some(("agent", _)) => agent(written),
            _ => service(written),
        };
        ward.put(place, &value);
    };
    write();
    let is_over = AtomicBool::new(false);
    let (findings, bites) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                clock::sleep(Duration::from_millis(100));
                write();
            }
        });
        let _ends = Ends(&is_over);
        ward.examine("5m")
    });
    let found = of(&findings, "clocks");
    assert_eq!(bites, found.0 == "bites", "{findings:?}");
    found
}

#[test]
fn clocks_that_differ_between_hosts_are_found() {
    for (place, who) in
        [("gateway/g1", "g1"), ("service/t1", "token service t1"), ("agent/a1", "agent a1")]
    {
        let Some(ward) = Ward::open() else { return };
        // What is right is not said here to be so: this machine may be too slow to tell.
        let (_, found) = found_of_clocks(&ward, place, 0);
        assert!(
            found.starts_with("1 of 1 gateways, token services and agents wrote within"),
            "{found}"
        );
        let (severity, found) = found_of_clocks(&ward, place, -90);
        assert_eq!(severity, "bites", "{found}");
        assert!(found.contains(&format!("; the furthest off is {who}, by -")), "{found}");
        let (severity, found) = found_of_clocks(&ward, place, 90);
        assert_eq!(severity, "bites", "{found}");
        assert!(found.starts_with(&format!("{who} writes that it is")), "{found}");
    }
}
