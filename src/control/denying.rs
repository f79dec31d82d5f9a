//! Who is denied: what operators say, how workers hear of it, and when it is over.
//!
//! A rule with a time ends by the fleet's own clock, which nobody sets: a wall clock that jumps
//! lets nobody in early and keeps nobody out for longer. Files have moments of the wall clock,
//! because the next process has another clock of its own. So when the wall clock has jumped, the
//! file is written anew, and a restart finds what was meant.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::draining::survey;
use super::keeper::{Done, Keeper, Ticket, Wanted};
use super::{ControlLoop, Joining};
use ringgate_gate::{self as gate, Denied, Ended, Setup, Survey};
use ringgate_os::clock;
use ringgate_state::{
    Change, Counts, DenyList, Effect, Folder, Kept, Refusal, SpentFiles, Whom, text,
};
use ringgate_worker::Fleet;

/// What a gateway finds at its start.
#[derive(Debug)]
pub struct State {
    /// Where it writes, or why it cannot.
    pub folder: Result<Folder, String>,
    /// What was there.
    pub kept: Kept,
    /// The folder has to have it yet.
    pub is_unwritten: bool,
    /// Where spent tokens are written.
    pub spent: Option<SpentFiles>,
}

impl State {
    /// Where spent tokens are written, or why they cannot be.
    pub(super) fn spent_files(&mut self) -> Result<SpentFiles, String> {
        let why_not = self.folder.as_ref().err().cloned();
        let why_not = why_not.unwrap_or_else(|| "the names in state_dir cannot be read".to_owned());
        self.spent.take().ok_or(why_not)
    }

    /// What workers start with.
    pub fn denied(&self, fleet: Option<&Joining>) -> Denied {
        match fleet {
            Some(joining) => self.kept.list.with(joining.bans()).to_denied(),
            None => self.kept.list.to_denied(),
        }
    }
}

/// What an operator wants.
pub(super) struct Wish {
    pub(super) whom: Vec<Whom>,
    pub(super) is_denied: bool,
    pub(super) lasts: Option<Duration>,
    pub(super) is_whole: bool,
}

/// What came of it.
pub(super) struct Changed {
    pub(super) effect: Effect,
    /// The sessions that end for it, where some may.
    pub(super) survey: Option<Arc<Survey>>,
    /// When it outlives a restart, or why it does not.
    pub(super) ticket: Result<Ticket, Arc<str>>,
}

/// What pages show of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    /// Moments are the fleet's.
    pub(super) list: Arc<DenyList>,
    pub(super) counts: Counts,
    /// What of it the fleet says.
    pub(super) fleet: Arc<DenyList>,
    why_never_kept: Option<Arc<str>>,
    done: Option<watch::Receiver<Done>>,
}

impl Shown {
    /// Why a restart would forget some of it, if it would.
    pub(super) fn why_not_kept(&self) -> Option<Arc<str>> {
        let failure = || self.done.as_ref().and_then(|done| done.borrow().failure.clone());
        self.why_never_kept.clone().or_else(failure)
    }
}

/// The control thread's part.
pub(super) struct Denials {
    list: Arc<DenyList>,
    next_end_ns: u64,
    /// Where the file is written from.
    wanted: Option<watch::Sender<Wanted>>,
    done: watch::Receiver<Done>,
    why_never_kept: Option<Arc<str>>,
    /// From the fleet's clock to the wall clock, when the file was last written.
    offset_ns: u64,
    /// What the fleet says besides. It has its own keeper, and ends by the wall clock.
    fleet: Arc<DenyList>,
    /// The folder, for the process after this one.
    folder: Option<(PathBuf, OwnedFd)>,
}

impl Denials {
    /// What the start has found, and who writes what comes.
    pub(super) fn start(state: State, now_ns: u64) -> (Self, Option<Keeper>) {
        let State { folder, kept, is_unwritten, spent: _ } = state;
        let unix_ns = clock::unix_ns();
        // A clock that was set back, or that nobody has set yet, must not make a ban longer.
        let from_ns = unix_ns.max(kept.saved_unix_s.saturating_mul(NS_PER_S));
        let to_fleet = |until_s: u64| {
            now_ns.saturating_add(until_s.saturating_mul(NS_PER_S).saturating_sub(from_ns))
        };
        let list = Arc::new(kept.list.on_clock(to_fleet));
        let (wanted, wishes) = watch::channel(Wanted::default());
        let failure = is_unwritten.then(|| "it is not written yet".into());
        let (tell, done) = watch::channel(Done { failure, ..Done::default() });
        let share =
            |it: &Folder| Some((it.path().to_owned(), it.descriptor().try_clone_to_owned().ok()?));
        let shared = folder.as_ref().ok().and_then(share);
        let (keeper, why_never_kept) = match folder {
            Ok(folder) => (Some(Keeper::new(folder, wishes, tell)), None),
            Err(why) => (None, Some(why.into())),
        };
        let mut denials = Self {
            next_end_ns: list.next_end().unwrap_or(u64::MAX),
            list,
            wanted: keeper.is_some().then_some(wanted),
            done,
            why_never_kept,
            offset_ns: unix_ns.saturating_sub(now_ns),
            fleet: Arc::default(),
            folder: shared,
        };
        if is_unwritten {
            denials.write(now_ns);
        }
        (denials, keeper)
    }

    /// What pages show.
    pub(super) fn shown(&self) -> Shown {
        let list = self.all();
        Shown {
            counts: list.counts(),
            list,
            fleet: Arc::clone(&self.fleet),
            why_never_kept: self.why_never_kept.clone(),
            done: Some(self.done.clone()),
        }
    }

    /// Everybody who is denied, by whomever.
    fn all(&self) -> Arc<DenyList> {
        if self.fleet.is_empty() {
            return Arc::clone(&self.list);
        }
        Arc::new(self.list.with(&self.fleet))
    }

    /// What the fleet says; moments are seconds since 1970.
    pub(super) fn set_fleet(&mut self, bans: &DenyList, now_ns: u64) {
        let unix_ns = clock::unix_ns();
        let to_fleet = |until_s: u64| {
            now_ns.saturating_add(until_s.saturating_mul(NS_PER_S).saturating_sub(unix_ns))
        };
        self.fleet = Arc::new(bans.on_clock(to_fleet));
    }

    /// Where the file is, and the folder's lock.
    pub(super) fn folder(&self) -> Option<(&Path, &OwnedFd)> {
        self.folder.as_ref().map(|(path, fd)| (path.as_path(), fd))
    }

    /// The list for the process after this one, which has the file from then on: so nothing of ours
    /// may be on its way there. And whether it has to be written, because that could not be done.
    pub(super) fn give(&self, now_ns: u64) -> Result<(String, bool), String> {
        let done = self.done.borrow();
        let is_unwritten = done.failure.is_some();
        if let Some(wanted) = &self.wanted {
            if done.number != wanted.borrow().number || done.is_trying {
                return Err("the file of who is denied is not written yet; try again".to_owned());
            }
            if is_unwritten {
                wanted.send_modify(|wanted| wanted.rests = true);
            }
        }
        Ok((text::write(&self.kept(now_ns)), is_unwritten))
    }

    /// The file stays this process's.
    pub(super) fn go_on(&self) {
        if let Some(wanted) = &self.wanted {
            wanted.send_if_modified(|wanted| std::mem::take(&mut wanted.rests));
        }
    }

    /// As it would be in the file.
    fn kept(&self, now_ns: u64) -> Kept {
        let unix_ns = clock::unix_ns();
        let to_wall = |until_ns: u64| {
            unix_ns.saturating_add(until_ns.saturating_sub(now_ns)).div_ceil(NS_PER_S)
        };
        Kept { list: self.list.on_clock(to_wall), saved_unix_s: unix_ns / NS_PER_S }
    }

    /// Nothing is changed any more: the keeper ends with its last write.
    pub(super) fn close(&mut self) {
        self.wanted = None;
    }

    fn replace(&mut self, list: DenyList, now_ns: u64) {
        self.next_end_ns = list.next_end().unwrap_or(u64::MAX);
        self.list = Arc::new(list);
        self.write(now_ns);
    }

    /// Has the keeper write the list as it is.
    fn write(&mut self, now_ns: u64) {
        self.offset_ns = clock::unix_ns().saturating_sub(now_ns);
        let Some(wanted) = &self.wanted else { return };
        let kept = Arc::new(self.kept(now_ns));
        wanted.send_modify(|wanted| (wanted.number, wanted.kept) = (wanted.number + 1, kept));
    }

    /// Whether the file names moments that the wall clock does not mean any more.
    fn is_off(&self, now_ns: u64) -> bool {
        let offset_ns = clock::unix_ns().saturating_sub(now_ns);
        self.next_end_ns < u64::MAX && offset_ns.abs_diff(self.offset_ns) > OFFSET_NS_MAX
    }

    fn ticket(&self) -> Result<Ticket, Arc<str>> {
        match (&self.wanted, &self.why_never_kept) {
            (_, Some(why)) => Err(Arc::clone(why)),
            (Some(wanted), None) => Ok(Ticket::new(wanted.borrow().number, self.done.clone())),
            (None, None) => Err("the gateway stops".into()),
        }
    }
}

impl ControlLoop {
    /// Denies or allows, and ends the sessions of those who may not play any more.
    pub(super) fn change_denied(&mut self, fleet: &Fleet, wish: Wish) -> Result<Changed, Refusal> {
        let Wish { whom, is_denied, lasts, is_whole } = wish;
        let now_ns = self.view.now_ns();
        let until = lasts.map(|lasts| now_ns.saturating_add(lasts.as_nanos() as u64));
        let change = Change { whom, is_denied, until, is_whole };
        let (list, effect) = self.denials.list.changed(&change)?;
        if effect.changed > 0 {
            self.adopt_denied(fleet, list, now_ns);
        }
        let wanted = gate::Wanted { is_denied: true, ..gate::Wanted::default() };
        let survey = is_denied.then(|| survey(fleet, wanted, Some(Ended::Denied), 0));
        Ok(Changed { effect, survey, ticket: self.denials.ticket() })
    }

    /// Ends what is over, and looks after the file.
    pub(super) fn watch_denied(&mut self, fleet: &Fleet) {
        let now_ns = self.view.now_ns();
        if now_ns >= self.denials.next_end_ns {
            let mut list = DenyList::clone(&self.denials.list);
            let rules = list.expire(now_ns);
            tracing::info!(
                event = "denial_over",
                rules,
                "{rules} rules about who is denied are over"
            );
            self.adopt_denied(fleet, list, now_ns);
        }
        if self.denials.is_off(now_ns) {
            self.denials.write(now_ns);
        }
    }

    fn adopt_denied(&mut self, fleet: &Fleet, list: DenyList, now_ns: u64) {
        self.denials.replace(list, now_ns);
        self.show_denied(fleet);
    }

    /// The fleet says something else about who is denied.
    pub(super) fn adopt_bans(&mut self, fleet: &Fleet, bans: &DenyList) {
        self.denials.set_fleet(bans, self.view.now_ns());
        self.show_denied(fleet);
        // Only sessions that may not be here end.
        let wanted = gate::Wanted { is_denied: true, ..gate::Wanted::default() };
        drop(survey(fleet, wanted, Some(Ended::Denied), 0));
    }

    /// Tells the workers who is denied now.
    fn show_denied(&mut self, fleet: &Fleet) {
        let mut setup = Setup::clone(&self.setup);
        setup.denied = Arc::new(self.denials.all().to_denied());
        self.revise(fleet, setup);
        self.view.live().denied = self.denials.shown();
    }
}

const NS_PER_S: u64 = 1_000_000_000;

/// Clocks drift apart by less between two writes, or it does not matter.
const OFFSET_NS_MAX: u64 = 2 * NS_PER_S;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: u64 = 3600;

    fn state(until_s: u64, saved_unix_s: u64) -> State {
        let whom = vec![Whom::Client(7)];
        let change = Change { whom, is_denied: true, until: Some(until_s), is_whole: false };
        let list = DenyList::default().changed(&change).expect("room").0;
        let (folder, kept) = (Err("none".to_owned()), Kept { list, saved_unix_s });
        State { folder, kept, is_unwritten: false, spent: None }
    }

    #[test]
    fn a_restart_goes_on_with_what_is_left() {
        let unix_s = clock::unix_seconds();
        let (denials, keeper) = Denials::start(state(unix_s + HOUR_S, unix_s - 10), 5 * NS_PER_S);
        let left_s = denials.next_end_ns / NS_PER_S - 5;
        assert!((HOUR_S - 5..=HOUR_S).contains(&left_s), "{left_s}");
        assert!(keeper.is_none() && denials.ticket().is_err());
        assert_eq!(denials.shown().why_not_kept().as_deref(), Some("none"));
    }

    #[test]
    fn a_clock_behind_the_files_makes_no_ban_longer() {
        let saved = clock::unix_seconds() + 1000 * HOUR_S;
        let (denials, _) = Denials::start(state(saved + HOUR_S, saved), 0);
        assert_eq!(denials.next_end_ns / NS_PER_S, HOUR_S);
    }

    #[test]
    fn a_wall_clock_that_jumps_makes_the_file_wrong() {
        let (mut denials, _) = Denials::start(state(clock::unix_seconds() + HOUR_S, 0), NS_PER_S);
        assert!(!denials.is_off(NS_PER_S));
        denials.offset_ns += 3 * NS_PER_S;
        assert!(denials.is_off(NS_PER_S));
        denials.write(NS_PER_S);
        assert!(!denials.is_off(NS_PER_S));
        // Without a time there is nothing that could be wrong.
        denials.replace(DenyList::default(), NS_PER_S);
        denials.offset_ns += HOUR_S * NS_PER_S;
        assert!(!denials.is_off(NS_PER_S));
    }
}
