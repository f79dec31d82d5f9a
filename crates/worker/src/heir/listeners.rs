//! What becomes of the predecessor's listeners: each is the one of this config that has its name
//! and its addresses, or drains here as well.

use std::net::SocketAddr;

use super::TOO_FEW;
use crate::Plan;
use crate::handover::{Facts, LeavingRow};
use ringgate_core::limits::LISTENERS_MAX;
use ringgate_gate::handover::{Format, Kept};

/// The predecessor's listeners, as this process finds them.
pub(super) struct Found {
    /// Where those of this config are bound, in its order.
    pub(super) addresses: Vec<Vec<SocketAddr>>,
    /// Those that drain, and that this config has again.
    pub(super) kept: Kept,
    /// Those that drain, and that this config does not have, with their addresses.
    pub(super) leaving: Vec<(LeavingRow, Vec<SocketAddr>)>,
}

/// One that is there.
struct There<'f> {
    number: u16,
    name: &'f str,
    bound: &'f [SocketAddr],
    /// It drains.
    row: Option<&'f LeavingRow>,
}

impl Found {
    /// All of them, if they are what this config asks for.
    pub(super) fn of(plan: &Plan, facts: &Facts, predecessor: &Format) -> Result<Self, String> {
        let there = there(facts, predecessor)?;
        let own = plan.setup.listeners.len();
        let mut found = Self { addresses: Vec::new(), kept: Kept::new(), leaving: Vec::new() };
        for ((at, listener), binds) in (0..).zip(&plan.setup.listeners).zip(&plan.binds) {
            let name = &listener.name;
            let of_it = || there.iter().filter(|it| it.name == *name);
            let serving = of_it().find(|it| it.row.is_none());
            let returning = of_it().find(|it| it.row.is_some() && is_bound(binds, it.bound));
            match (serving, returning) {
                (Some(it), _) if is_bound(binds, it.bound) => {
                    found.addresses.push(it.bound.to_vec());
                }
                (Some(_), _) => {
                    return Err(format!(
                        "listener {name}: bind has changed; change it by a reload first"
                    ));
                }
                (None, Some(it)) => {
                    found.kept.insert(it.number, at);
                    found.addresses.push(it.bound.to_vec());
                }
                (None, None) => {
                    return Err(format!(
                        "listener {name} is new; add it by a reload, before or after"
                    ));
                }
            }
        }
        for it in there {
            let is_in_config = || plan.setup.listeners.iter().any(|own| own.name == it.name);
            match it.row {
                Some(row) if !found.kept.contains_key(&it.number) => {
                    found.leaving.push((row.clone(), it.bound.to_vec()));
                }
                None if !is_in_config() => return Err(gone(it.name, facts)),
                _ => {}
            }
        }
        if own + found.leaving.len() > LISTENERS_MAX {
            return Err(format!(
                "the config has {own} listeners, and {} more drain: {LISTENERS_MAX} are the most",
                found.leaving.len()
            ));
        }
        if plan.run_dir.is_some() && !facts.has_links {
            return Err("the first bundle backend needs a restart".to_owned());
        }
        Ok(found)
    }
}

fn there<'f>(facts: &'f Facts, predecessor: &Format) -> Result<Vec<There<'f>>, String> {
    let numbers: Vec<_> = predecessor.listeners().map(|(number, _)| number).collect();
    let rows = facts.leaving.as_deref().unwrap_or_default();
    if numbers.len() != facts.listeners.len() {
        return Err(TOO_FEW.to_owned());
    }
    let there = numbers.into_iter().zip(&facts.listeners).map(|(number, (name, bound))| {
        let row = rows.iter().find(|row| row.number == number);
        There { number, name, bound, row }
    });
    Ok(there.collect())
}

/// Why there is no going on with a listener that this config does not have.
fn gone(name: &str, facts: &Facts) -> String {
    if facts.leaving.is_some() {
        return format!("listener {name} is not in this config; remove it by a reload first");
    }
    format!(
        "listener {name} is not in this config; remove it by a reload first, and try again when it has drained: release {} \
         does not hand over what drains",
        facts.release
    )
}

fn is_bound(binds: &[SocketAddr], bound: &[SocketAddr]) -> bool {
    let is_same = |(wanted, bound): (&SocketAddr, &SocketAddr)| {
        wanted.ip() == bound.ip() && (wanted.port() == 0 || wanted.port() == bound.port())
    };
    binds.len() == bound.len() && binds.iter().zip(bound).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::MadeWith;
    use crate::tests::plan;
    use ringgate_gate::{BackendId, Limits, Listener, Phase, Plain, Protocol, Route, Setup};
    use std::sync::Arc;

    fn listener(name: &str, phase: Phase) -> Listener {
        Listener {
            name: name.to_owned(),
            protocol: Protocol::Plain(Plain::default()),
            public: Vec::new(),
            backends: vec![BackendId(0)],
            route: Route::LeastPlayers,
            sessions_max: 10,
            follow_port_switch: false,
            limits: Limits::PLAIN,
            phase,
        }
    }

    fn at(port: u16) -> Vec<SocketAddr> {
        vec![([127, 0, 0, 1], port).into()]
    }

    /// A config with these listeners.
    fn config(listeners: &[(&str, u16)]) -> Plan {
        let all = listeners.iter().map(|(name, _)| listener(name, Phase::Serving)).collect();
        Plan {
            setup: Arc::new(Setup::new(all, Vec::new(), 1)),
            binds: listeners.iter().map(|(_, port)| at(*port)).collect(),
            ..plan()
        }
    }

    /// A process with these listeners, each in its phase and at its port.
    fn process(listeners: &[(&str, Phase, u16)]) -> (Facts, Format) {
        let row = |number: usize| LeavingRow {
            number: number as u16,
            until_ns: 7,
            by_card: false,
            made_with: MadeWith { binds: Vec::new(), filter: true, card: None },
        };
        let open = listeners.iter().filter(|(_, phase, _)| *phase != Phase::Closed);
        let draining = listeners.iter().enumerate().filter(|(_, it)| it.1 == Phase::Draining);
        let leaving: Vec<_> = draining.map(|(number, _)| row(number)).collect();
        let facts = serde_json::json!({
            "release": "0.1.0", "pid": 1, "generation": 1, "workers": 2, "epoch_ns": 0,
            "started_unix_s": 0, "run_dir": "/run", "has_links": false, "layout_bytes": 0,
            "retired": [], "leaving": leaving,
            "listeners": open.map(|(name, _, port)| (*name, at(*port))).collect::<Vec<_>>(),
        });
        let all = listeners.iter().map(|(name, phase, _)| match phase {
            Phase::Closed => listener(name, *phase).closed(),
            phase => listener(name, *phase),
        });
        let format = Format::of(&Setup::new(all.collect(), Vec::new(), 1), 2, [1; 16]);
        (serde_json::from_value(facts).expect("facts"), format)
    }

    use Phase::{Closed, Draining, Serving};

    #[test]
    fn listeners_that_drain_are_those_of_the_config_again_or_go_on_draining() {
        let (facts, format) = process(&[
            ("gone", Closed, 0),
            ("eu", Draining, 1),
            ("eu", Serving, 2),
            ("us", Draining, 3),
            ("asia", Draining, 4),
        ]);
        let found = Found::of(&config(&[("asia", 4), ("eu", 2)]), &facts, &format);
        let Found { addresses, kept, leaving } = found.expect("all of them are known");
        assert_eq!(addresses, [at(4), at(2)]);
        assert_eq!(kept, Kept::from([(4, 0)]));
        let leaving: Vec<_> = leaving.into_iter().map(|(row, bound)| (row.number, bound)).collect();
        assert_eq!(leaving, [(1, at(1)), (3, at(3))]);
        // A port that the kernel has chosen is the one that is asked for.
        let found = Found::of(&config(&[("us", 0), ("eu", 2)]), &facts, &format).expect("it is");
        assert_eq!(found.kept, Kept::from([(3, 0)]));
    }

    #[test]
    fn what_a_reload_has_to_do_is_said() {
        let (mut facts, format) =
            process(&[("eu", Serving, 1), ("us", Draining, 2), ("asia", Serving, 3)]);
        let said = |listeners: &[(&str, u16)], facts: &Facts| {
            Found::of(&config(listeners), facts, &format).err().expect("it does not fit")
        };
        let gone = "listener asia is not in this config; remove it by a reload first";
        assert_eq!(said(&[("eu", 1)], &facts), gone);
        let moved = "listener asia: bind has changed; change it by a reload first";
        assert_eq!(said(&[("eu", 1), ("asia", 9)], &facts), moved);
        let new = "listener us is new; add it by a reload, before or after";
        assert_eq!(said(&[("eu", 1), ("asia", 3), ("us", 9)], &facts), new);
        // A process of an earlier release does not say what drains.
        facts.leaving = None;
        let said = said(&[("eu", 1), ("asia", 3)], &facts);
        assert!(said.contains("us is not in this config"), "{said}");
        assert!(said.ends_with("release 0.1.0 does not hand over what drains"), "{said}");
        let all = config(&[("eu", 1), ("us", 2), ("asia", 3)]);
        assert!(Found::of(&all, &facts, &format).is_ok(), "it takes players again");
    }

    #[test]
    fn more_than_there_may_be_are_refused() {
        let many: Vec<_> = (0..LISTENERS_MAX).map(|at| (format!("l{at}"), at as u16)).collect();
        let there = many.iter().map(|(name, port)| (name.as_str(), Draining, *port + 1));
        let (facts, format) = process(&there.collect::<Vec<_>>());
        assert!(Found::of(&config(&[]), &facts, &format).is_ok());
        let mut facts = facts;
        facts.listeners.push(("new".to_owned(), at(9)));
        assert_eq!(Found::of(&config(&[]), &facts, &format).err().as_deref(), Some(TOO_FEW));
    }
}
