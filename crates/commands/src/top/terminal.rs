//! The screen of `top`: curves of the last minutes above, tables below, and a few keys.
//!
//! When the gateway does not answer, the last picture stays and says so; the next answer goes on
//! from there. Counters of a gateway that was restarted begin at zero, so there is no rate between
//! its last look and the next one's first.

use std::io::{self, Read as _, Write as _};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::super::Failure;
use super::super::admin::Admin;
use super::super::status::head;
use super::change::{Change, Look};
use super::keyboard::{Key, keys};
use super::picture::{Line, Style, curve, shown};
use super::view;
use ringgate_os::clock::Clock;
use ringgate_report::text::{Append as _, count};

/// Until `q`.
pub(super) fn watch(
    admin: &Admin,
    interval: Duration,
    clock: Clock,
    first: Look,
) -> Result<(), Failure> {
    let failed = |why: io::Error| Failure::failed(format_args!("cannot use the terminal: {why}"));
    let terminal = Terminal::take().map_err(failed)?;
    let ended = Screen::new(first).run(admin, interval, clock);
    drop(terminal);
    ended.map_err(failed)
}

/// A terminal that tells each key as it is pressed and shows a screen of its own, until it is
/// dropped or the process panics.
struct Terminal {
    before: Termios,
}

/// How many lines and columns there are.
#[derive(Clone, Copy, Debug)]
struct Size {
    columns: usize,
    lines: usize,
}

impl Terminal {
    fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        let terminal = Self { before };
        let kept = terminal.before.clone();
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back(&kept);
            report(panic);
        }));
        Self::show(OTHER_SCREEN)?;
        Ok(terminal)
    }

    fn show(bytes: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes.as_bytes())?;
        out.flush()
    }

    fn size() -> io::Result<Size> {
        let size = tcgetwinsize(io::stdout())?;
        Ok(Size { columns: usize::from(size.ws_col), lines: usize::from(size.ws_row) })
    }

    /// The keys that were pressed within that time, as soon as there is one.
    fn keys_within(time: Duration) -> io::Result<Vec<Key>> {
        let mut stdin = io::stdin();
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let heard = match poll(&mut waiting, Some(&time)) {
            Err(rustix::io::Errno::INTR) => 0,
            heard => heard?,
        };
        if heard == 0 {
            return Ok(Vec::new());
        }
        let mut sent = [0; 8192];
        match stdin.read(&mut sent)? {
            0 => Ok(vec![Key::ControlC]),
            length => Ok(keys(&sent[..length])),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back(&self.before);
    }
}

/// The screen and the settings that were there before.
fn give_back(before: &Termios) {
    let mut out = io::stdout();
    let _ = out.write_all(FIRST_SCREEN.as_bytes()).and_then(|()| out.flush());
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
}

/// The screen that does not scroll, without a cursor; and back.
const OTHER_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const FIRST_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

/// What is on it.
struct Screen {
    before: Look,
    body: String,
    /// Newest last.
    curves: [Vec<u64>; CURVES.len()],
    scrolled: usize,
    is_paused: bool,
    /// Why the gateway does not answer, if it does not.
    missing: Option<String>,
}

/// What follows a key.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

const CURVES: [&str; 4] = ["sessions", "datagrams in/s", "packets out/s", "drops/s"];

impl Screen {
    fn new(first: Look) -> Self {
        Self {
            before: first,
            body: "the first rates come with the second look".to_owned(),
            curves: Default::default(),
            scrolled: 0,
            is_paused: false,
            missing: None,
        }
    }

    fn run(&mut self, admin: &Admin, interval: Duration, clock: Clock) -> io::Result<()> {
        let interval_ns = interval.as_nanos() as u64;
        let mut due_ns = clock.now_ns() + interval_ns;
        loop {
            let size = Terminal::size()?;
            Terminal::show(&shown(&self.draw(size), size.columns))?;
            let left = Duration::from_nanos(due_ns.saturating_sub(clock.now_ns()));
            let keys = Terminal::keys_within(left)?;
            if keys.into_iter().any(|key| self.press(key) == Next::End) {
                return Ok(());
            }
            if clock.now_ns() < due_ns {
                continue;
            }
            due_ns = clock.now_ns() + interval_ns;
            if !self.is_paused {
                self.look(Look::take(admin, clock));
            }
        }
    }

    fn look(&mut self, taken: Result<Look, Failure>) {
        let now = match taken {
            Ok(now) => now,
            Err(why) => {
                self.missing = Some(why.to_string());
                return;
            }
        };
        let change = Change { before: &self.before, now: &now };
        self.body = view::body(&change);
        let values = [
            now.status.totals.sessions,
            change.rate(|status| status.totals.datagrams_in),
            change.rate(|status| status.totals.packets_out),
            change.rate(|status| status.totals.drops + status.totals.socket_drops),
        ];
        for (curve, value) in self.curves.iter_mut().zip(values) {
            if curve.len() == POINTS_MAX {
                curve.remove(0);
            }
            curve.push(value);
        }
        self.missing = None;
        self.before = now;
    }

    fn press(&mut self, key: Key) -> Next {
        match key {
            Key::ControlC | Key::Escape | Key::Character('q') => return Next::End,
            Key::Character('p' | ' ') => self.is_paused = !self.is_paused,
            Key::Down | Key::Character('j') => self.scrolled = self.scrolled.saturating_add(1),
            Key::Up | Key::Character('k') => self.scrolled = self.scrolled.saturating_sub(1),
            Key::PageDown => self.scrolled = self.scrolled.saturating_add(PAGE_LINES),
            Key::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE_LINES),
            Key::Home => self.scrolled = 0,
            Key::End => self.scrolled = usize::MAX,
            Key::Character(_) => {}
        }
        Next::GoOn
    }

    /// The head, the curves where there is room, as much of the tables as fits, and the keys.
    fn draw(&mut self, size: Size) -> Vec<Line> {
        let mut lines = self.head();
        lines.resize_with(HEAD_LINES, Line::default);
        if size.lines >= LINES_WITH_CURVES {
            lines.extend(self.curves(size.columns));
            lines.push(Line::default());
        }
        let room = size.lines.saturating_sub(lines.len() + 1).max(1);
        let body: Vec<&str> = self.body.lines().collect();
        let hidden = body.len().saturating_sub(room);
        self.scrolled = self.scrolled.min(hidden);
        let last = (self.scrolled + room).min(body.len());
        lines.extend(body[self.scrolled..last].iter().map(|line| styled(line)));
        lines.resize_with(lines.len() + room - (last - self.scrolled), Line::default);
        let more = if hidden > self.scrolled { "  more below" } else { "" };
        let paused = if self.is_paused { "  PAUSED" } else { "" };
        let text = format!("q quit  p pause  up, down, page up, page down scroll{more}{paused}");
        lines.push(Line::new(text, Style::Dim));
        lines
    }

    fn head(&self) -> Vec<Line> {
        let status = &self.before.status;
        let style = match (&self.missing, status.drain_left_ms, &status.not_ready_because) {
            (Some(_), ..) | (_, None, Some(_)) => Style::Alarm,
            (_, Some(_), _) => Style::Warning,
            _ => Style::Good,
        };
        let head = head(status);
        let mut lines: Vec<_> = head.lines().map(|line| Line::new(line, Style::Plain)).collect();
        if let Some(first) = lines.first_mut() {
            *first = match &self.missing {
                None => Line::new(head.lines().next().unwrap_or_default(), style),
                Some(why) => Line::new(format!("NO ANSWER: {why}"), style),
            };
        }
        lines
    }

    /// All curves side by side, each below its newest value and its name.
    fn curves(&self, columns: usize) -> Vec<Line> {
        let width = (columns + GAP) / CURVES.len() - GAP.min(columns / CURVES.len());
        let mut titles = String::new();
        let mut rows = vec![String::new(); CURVE_LINES];
        for (name, values) in CURVES.iter().zip(&self.curves) {
            let now = values.last().map_or_else(|| "–".to_owned(), |value| count(*value));
            let title: String = format!("{now} {name}").chars().take(width).collect();
            write!(titles, "{title:<0$}", width + GAP);
            for (row, blocks) in rows.iter_mut().zip(curve(values, width, CURVE_LINES)) {
                write!(row, "{blocks:<0$}", width + GAP);
            }
        }
        let rows = rows.into_iter().map(|row| Line::new(row, Style::Curve));
        std::iter::once(Line::new(titles, Style::Bold)).chain(rows).collect()
    }
}

/// Heads of tables stand out, and so does what is wrong.
fn styled(line: &str) -> Line {
    let is_head =
        ["worker ", "listener ", "backend ", "stage "].iter().any(|it| line.starts_with(it));
    let is_wrong = line.contains("  DOWN") || line.starts_with("NOT ");
    let style = match (is_wrong, is_head) {
        (true, _) => Style::Wrong,
        (_, true) => Style::Bold,
        _ => Style::Plain,
    };
    Line::new(line, style)
}

/// A look each second, a quarter of an hour.
const POINTS_MAX: usize = 900;

const PAGE_LINES: usize = 10;
const HEAD_LINES: usize = 3;
const CURVE_LINES: usize = 3;

/// Columns between two curves.
const GAP: usize = 2;

/// Lower terminals have the tables alone.
const LINES_WITH_CURVES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn look(sessions: u64, at_s: u64) -> Look {
        let status = super::super::change::tests::status(sessions);
        Look { status, at_ns: at_s * 1_000_000_000 }
    }

    fn drawn(screen: &mut Screen, lines: usize) -> String {
        let drawn = screen.draw(Size { columns: 90, lines });
        assert_eq!(drawn.len(), lines);
        drawn.iter().flat_map(|line| [line.text(), "\n"]).collect()
    }

    #[test]
    fn the_screen_has_curves_tables_and_keys() {
        let mut screen = Screen::new(look(7, 0));
        screen.look(Ok(look(9, 1)));
        let text = drawn(&mut screen, 40);
        for part in ["serving", "9 sessions", "worker", "backend", "q quit"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_gateway_that_does_not_answer_is_said_and_waited_for() {
        let mut screen = Screen::new(look(7, 0));
        screen.look(Err(Failure::failed("it is gone")));
        assert!(drawn(&mut screen, 40).contains("NO ANSWER: it is gone"));
        screen.look(Ok(look(1, 2)));
        let text = drawn(&mut screen, 40);
        assert!(!text.contains("NO ANSWER") && text.contains("1 sessions"), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_scrolled_to_and_not_beyond() {
        let mut screen = Screen::new(look(7, 0));
        screen.look(Ok(look(9, 1)));
        assert!(drawn(&mut screen, 8).contains("more below"));
        let first = drawn(&mut screen, 8);
        assert_eq!(screen.press(Key::Down), Next::GoOn);
        assert_ne!(drawn(&mut screen, 8), first);
        screen.press(Key::End);
        assert!(!drawn(&mut screen, 8).contains("more below"));
        screen.press(Key::Home);
        assert_eq!(drawn(&mut screen, 8), first);
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let mut screen = Screen::new(look(7, 0));
        for key in [Key::Character('q'), Key::Escape, Key::ControlC] {
            assert_eq!(screen.press(key), Next::End);
        }
        assert_eq!(screen.press(Key::Character('c')), Next::GoOn);
    }
}
