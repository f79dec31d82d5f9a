//! What a gateway makes of backends that it cannot take as they are.

use std::cell::Cell;
use std::path::Path;

use super::*;
use crate::config::keys::KeySources;
use crate::config::parse;
use crate::membership::{self, merged};
use ringgate_fleet::values::Reach;
use ringgate_gate::Intake;

const TEXT: &str = r#"
[fleet]
endpoints = ["http://127.0.0.1:2379"]
prefix = "/f"
key = { hex = "0909090909090909090909090909090909090909090909090909090909090909" }
[[listener]]
name = "any"
protocol = "plain"
bind = ["127.0.0.1:7100"]
group = "worlds"
route = "hash"
[[listener]]
name = "main"
protocol = "netcode"
bind = ["127.0.0.1:40000"]
protocol_id = 1
group = "arena"
route = "hash"
"#;

/// Workers that have nobody.
struct Idle;

impl Crew for Idle {
    fn has_adopted(&self, _: u64) -> bool {
        true
    }
    fn players(&self, _: BackendId) -> u32 {
        0
    }
    fn sessions(&self, _: ListenerId) -> u32 {
        0
    }
    fn linked(&self, _: BackendId) -> [usize; 2] {
        [1, 1]
    }
    fn is_closed(&self, _: BackendId) -> bool {
        false
    }
}

fn backend(name: &str, group: &str) -> membership::Backend {
    let reach = Reach::Udp("127.0.0.1:7001".parse().expect("an address"));
    let (name, group) = (name.to_owned(), group.to_owned());
    membership::Backend { name, group, reach, slots: 8, intake: Intake::Anybody }
}

/// A game process may change its group, from the players of one protocol to those of another.
#[test]
fn a_backend_of_another_protocol_waits_for_its_players_and_no_other_waits_for_it() {
    let keys = KeySources::new(&|_| None, None);
    let file = parse(TEXT, Path::new("gate.toml"), &keys).expect("a sound config");
    let known = |backends| Known { backends, ..Known::default() };
    let first = known(vec![backend("x", "worlds")]);
    let config = merged(&file, &first).config;
    let links = plan::links(&config);
    let setup = Setup::clone(&plan::plan(&config).expect("a plan").setup);
    let mut following = Following::new(file, first);
    let (mut config, mut setup) = (config, setup);
    let spoken = Cell::new(None);
    let mut round = |following: &mut Following| {
        let running = Running {
            config: &config,
            setup: &setup,
            crew: &Idle,
            workers: 1,
            is_free: &|_| false,
        };
        let fronts = [Front::Plain, Front::Netcode];
        let speak = |it: BackendId| spoken.get().filter(|_| running.setup.backends[it].name == "x");
        let listeners = KnownListeners {
            fronts: &fronts,
            made_with: &|_| None,
            is_vacant: &|_| false,
            spoken: &speak,
            links,
            holder_of: &|_| None,
        };
        let (next, with) =
            following.next(&running, |_| None, &listeners).expect("all others are taken");
        let file = following.file().clone();
        let read = following.with_known(&file, &running, |_| None, speak);
        let names = |config: &Config| config.backends.iter().map(|it| it.name.clone()).collect();
        let taken: Vec<_> = names(&with);
        assert_eq!(names(&read), taken, "a file that is read again leaves out the same");
        (config, setup) = (with, next.setup);
        taken
    };
    let mut other = backend("y", "arena");
    other.reach = Reach::Udp("127.0.0.1:7002".parse().expect("an address"));
    following.hear(Arc::new(known(vec![backend("x", "arena"), other])));
    assert_eq!(round(&mut following), ["y"], "its listener may have sent somebody there");
    assert!(following.waits());
    spoken.set(Some(Front::Plain));
    assert_eq!(round(&mut following), ["y"], "somebody is there");
    let refused: Vec<_> = following.refused().iter().map(|it| (&*it.backend, it.why)).collect();
    assert_eq!(refused, [("x", CLASH)]);
    spoken.set(None);
    assert_eq!(round(&mut following), ["x", "y"]);
    assert!(!following.waits());
}
