//! A whole book for the process that goes on with an agent: who has come stays, with the connection
//! that it has come over, and what stands in etcd stands on as it is.

use std::collections::BTreeSet;

use ringgate_fleet::joins::Joins;
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::lease::run::Command;
use ringgate_fleet::values::{self, Stored};
use ringgate_link::announce::{Announced, Standing};
use serde::{Deserialize, Serialize};

use super::{Book, OwnedName, Refusal, Row, Speaker, Wish};

/// All that a book knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handed {
    rows: Vec<HandedRow>,
    /// What was refused: over which connection, and what was said there.
    refused: Vec<(u64, Vec<u8>)>,
    /// Names whose keys are to go.
    gone: Vec<String>,
    /// Those that the first releases with a fleet knew.
    refusals: Vec<u64>,
    #[serde(default)]
    later_refusals: Vec<u64>,
    /// Whose names are whose.
    #[serde(default)]
    owned: Vec<OwnedName>,
}

/// A game process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HandedRow {
    /// What was said of it.
    record: Vec<u8>,
    /// Who has said it; nobody for a process of the config file.
    connection: Option<u64>,
    /// What the registration was told last.
    written: Option<values::Backend>,
    standing: u8,
    /// Whose players have come lately.
    #[serde(default)]
    joined: Vec<u64>,
}

impl Book {
    /// All of it. Those whose processes were to come again are left out: they have not.
    pub(crate) fn hand_over(&self) -> Handed {
        let record = |what: &Announced| what.what.encode(&what.name, what.instance);
        let row = |row: &Row| {
            let connection = match row.by {
                Speaker::Process(connection) => Some(connection),
                Speaker::File => None,
                Speaker::Before { .. } => return None,
            };
            let written = row.written.as_ref().map(|(value, _)| value.clone());
            let (record, standing) = (record(&row.what)?, row.standing as u8);
            Some(HandedRow { record, connection, written, standing, joined: row.joins.all() })
        };
        Handed {
            rows: self.rows.values().filter_map(row).collect(),
            refused: self.refused.iter().filter_map(|(at, it)| Some((*at, record(it)?))).collect(),
            gone: self.gone.keys().cloned().collect(),
            refusals: self.refusals[..FIRST_REFUSALS].to_vec(),
            later_refusals: self.refusals[FIRST_REFUSALS..].to_vec(),
            owned: self.owned(),
        }
    }

    /// Goes on with all of it. `connections` are there, and `filed` are the config's own game
    /// processes. An error names what cannot be.
    pub(crate) fn go_on_with(
        &mut self,
        handed: Handed,
        connections: &BTreeSet<u64>,
        filed: &[&str],
    ) -> Result<(), &'static str> {
        let Handed { rows, refused, gone, refusals, later_refusals, owned } = handed;
        let mut speakers = BTreeSet::new();
        // Whoever has a name may have asked for another one, in vain.
        let mut speaks = |is_refused: bool, connection: u64| {
            let is_first = speakers.insert((is_refused, connection));
            let is_one = connections.contains(&connection) && is_first;
            is_one.then_some(()).ok_or("connection")
        };
        for HandedRow { record, connection, written, standing, joined } in rows {
            let mut joins = Joins::default();
            joins.go_on(&joined);
            joins.show_next();
            let what = Announced::decode(&record).ok_or("announcement")?;
            if let Some(value) = &written {
                value.check().map_err(|_| "value")?;
            }
            let by = match connection {
                Some(connection) => {
                    speaks(false, connection)?;
                    Speaker::Process(connection)
                }
                None => Speaker::File,
            };
            let standing = Standing::from_u8(standing);
            // Whose another name is may have been asked in vain so far.
            let is_looked = written.is_some() || by == Speaker::File;
            self.go_on_with_row(
                Row {
                    what,
                    by,
                    written: written.map(|it| (it, 0)),
                    standing,
                    uid: None,
                    has_linked: true,
                    is_looked,
                    joins,
                },
                filed,
            )?;
        }
        for (connection, record) in refused {
            speaks(true, connection)?;
            let what = Announced::decode(&record).ok_or("announcement")?;
            self.refused.insert(connection, what);
        }
        let gone = gone.into_iter().filter(|name| !self.rows.contains_key(name));
        self.gone.extend(gone.map(|name| (name, None)));
        if refusals.len() != FIRST_REFUSALS {
            return Err("refusals");
        }
        // More than we know are of a later release.
        let refusals = refusals.into_iter().chain(later_refusals);
        self.refusals.iter_mut().zip(refusals).for_each(|(own, before)| *own = before);
        self.inherit_owned(&owned);
        Ok(())
    }

    /// Tells a registration that goes on with another's what stands there, as it stands.
    pub(crate) fn tell_again(&self, keyspace: &Keyspace, mut say: impl FnMut(Command)) {
        for (name, row) in &self.rows {
            if let (Some(name), Some((value, _))) = (Name::new(name), &row.written) {
                Wish::Set(name, value.clone()).command(keyspace).into_iter().for_each(&mut say);
            }
        }
    }

    fn go_on_with_row(&mut self, row: Row, filed: &[&str]) -> Result<(), &'static str> {
        let name = row.what.name.clone();
        let is_filed = filed.contains(&name.as_str());
        match row.by {
            // The config has it no more.
            Speaker::File if !is_filed => self.goes(name, &row),
            // Or has it now, for another one.
            Speaker::Process(connection) if self.file.contains(&name) => {
                self.refuse(Refusal::NameInConfig);
                if !is_filed {
                    self.goes(name, &row);
                }
                self.refused.insert(connection, row.what);
            }
            _ => {
                let before = self.rows.insert(name, row);
                before.is_none().then_some(()).ok_or("name")?;
            }
        }
        Ok(())
    }
}

const FIRST_REFUSALS: usize = 6;

#[cfg(test)]
mod tests {
    use ringgate_fleet::lease::Standing as Held;
    use ringgate_fleet::values::Reach;
    use ringgate_link::announce::Announcement;

    use super::super::{Counted, Rules};
    use super::*;

    fn book(file: &[&str]) -> Book {
        let host = Name::new("here").expect("a name");
        let file = file.iter().map(|&name| name.to_owned()).collect();
        let rules = Rules { max: 9, per_user: 9, grace_ms: 5_000, ..Rules::default() };
        Book::new(host, Reach::Agent("host-7".into()), rules, file)
    }

    fn said(name: &str) -> Announced {
        Announced { name: name.to_owned(), instance: 9, what: Announcement::new("arena", 8) }
    }

    fn counted() -> Counted {
        let (players, linked) = ([("come".to_owned(), 3)].into(), ["come".to_owned()].into());
        Counted { players, linked, ..Counted::default() }
    }

    /// One of the file, one that has come over connection 4, one that is refused over 5, and one
    /// that has gone.
    fn before() -> Book {
        let mut book = book(&["filed"]);
        book.file(said("filed"));
        book.announce(4, said("come")).expect("nothing is in its way");
        assert_eq!(book.announce(5, said("come")), Err(Refusal::NameTaken));
        book.announce(6, said("gone")).expect("nothing is in its way");
        let counted = counted();
        for wish in book.wishes(7, &counted) {
            book.told(&wish, 7);
        }
        book.see(|_| Some(Held::Written));
        book.leave(6);
        book
    }

    fn go_on(book: &mut Book, handed: Handed) -> Result<(), &'static str> {
        book.go_on_with(handed, &[4, 5].into(), &["filed"])
    }

    #[test]
    fn nothing_has_to_be_told_again_and_a_connections_end_is_a_processs_end() {
        let json = serde_json::to_vec(&before().hand_over()).expect("no maps");
        let handed: Handed = serde_json::from_slice(&json).expect("as it was written");
        let mut book = book(&["filed"]);
        assert_eq!(go_on(&mut book, handed), Ok(()));
        let counted = counted();
        let wishes = book.wishes(10_000, &counted);
        let goes = Name::new("gone").map(|name| Wish::Remove(name, None));
        assert_eq!(Vec::from_iter(goes), wishes, "only what was to go is left to do");
        assert_eq!(book.standing(4), Some(Standing::Registered));
        assert_eq!(book.standing(5), Some(Standing::NameTaken));
        assert_eq!(book.refusals(), before().refusals());
        book.leave(4);
        assert!(book.admit_refused(), "who was refused has the name now");
        assert_eq!(book.standing(5), Some(Standing::Waiting));
    }

    #[test]
    fn a_process_that_has_asked_for_another_name_in_vain_keeps_its_own() {
        let mut before = before();
        assert_eq!(before.announce(4, said("filed")), Err(Refusal::NameInConfig));
        let mut book = book(&["filed"]);
        assert_eq!(go_on(&mut book, before.hand_over()), Ok(()));
        assert_eq!(book.standing(4), Some(Standing::NameInConfig));
        assert_eq!(book.standing_of("come"), Some(Standing::Registered));
    }

    #[test]
    fn a_name_that_nobody_has_looked_at_is_looked_at_by_the_next_process() {
        let mut before = book(&["filed"]);
        before.look_first();
        before.file(said("filed"));
        before.announce(4, said("come")).expect("nothing is in its way");
        let mut book = book(&["filed"]);
        assert_eq!(go_on(&mut book, before.hand_over()), Ok(()));
        book.look_first();
        assert_eq!(book.to_look(false), ["come".to_owned()].into());
        let told = |book: &mut Book| book.wishes(10_000, &counted()).len();
        assert_eq!(told(&mut book), 1, "only the file's own");
        assert!(!book.looked("come", None));
        assert_eq!(told(&mut book), 2);
    }

    /// A process that is of an agent before its names were somebody's is taken as it is.
    #[test]
    fn what_an_older_agent_hands_over_is_read() {
        let mut json = serde_json::to_value(before().hand_over()).expect("no maps");
        let fields = json.as_object_mut().expect("it has fields");
        assert!(fields.remove("owned").is_some() && fields.remove("later_refusals").is_some());
        let mut book = book(&["filed"]);
        let handed = serde_json::from_value(json).expect("as it was written");
        assert_eq!(go_on(&mut book, handed), Ok(()));
        let wishes = book.wishes(10_000, &counted());
        assert_eq!(wishes.len(), 1, "it is ready as it was: {wishes:?}");
    }

    #[test]
    fn a_config_that_has_changed_has_the_last_word() {
        let handed = before().hand_over();
        let mut book = book(&["come"]);
        assert_eq!(book.go_on_with(handed, &[4, 5].into(), &["come"]), Ok(()));
        assert_eq!(book.slots().count(), 0, "the file's is told with the next look");
        assert_eq!(book.standing(4), Some(Standing::NameInConfig));
        assert!(book.gone.keys().eq(["filed", "gone"]));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let refused = |spoil: fn(&mut Handed)| {
            let mut handed = before().hand_over();
            spoil(&mut handed);
            go_on(&mut book(&["filed"]), handed).expect_err("it cannot be")
        };
        // In order of their names: "come", "filed".
        assert_eq!(refused(|it| it.rows[0].record.truncate(9)), "announcement");
        assert_eq!(refused(|it| it.rows[0].connection = Some(7)), "connection");
        assert_eq!(refused(|it| it.refused[0].0 = 7), "connection");
        assert_eq!(refused(|it| it.refused.push(it.refused[0].clone())), "connection");
        assert_eq!(refused(|it| it.rows.push(it.rows[1].clone())), "name");
        assert_eq!(refused(|it| it.refused[0].1.clear()), "announcement");
        assert_eq!(refused(|it| it.refusals.truncate(1)), "refusals");
        let spoil = |it: &mut Handed| {
            let value = it.rows[1].written.as_mut().expect("it was written");
            value.host = "two words".into();
        };
        assert_eq!(refused(spoil), "value");
    }
}
