//! The screen of `top`: curves of the last minutes above, tables below, and a few keys.
//!
//! When the gateway does not answer, the last picture stays and says so; the next answer goes on
//! from there. Counters of a gateway that was restarted begin at zero, so there is no rate between
//! its last look and the next one's first.

use std::io;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Sparkline};

use super::super::Failure;
use super::super::admin::Admin;
use super::super::status::head;
use super::change::{Change, Look};
use super::view;
use ringgate_os::clock::Clock;
use ringgate_report::text::count;

/// Until `q`.
pub(super) fn watch(
    admin: &Admin,
    interval: Duration,
    clock: Clock,
    first: Look,
) -> Result<(), Failure> {
    let failed = |why: io::Error| Failure::failed(format_args!("cannot use the terminal: {why}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let ended = Screen::new(first).run(&mut terminal, admin, interval, clock);
    ratatui::restore();
    ended.map_err(failed)
}

/// What is on it.
struct Screen {
    before: Look,
    body: String,
    /// Newest last.
    curves: [Vec<u64>; CURVES.len()],
    scrolled: u16,
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

    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        admin: &Admin,
        interval: Duration,
        clock: Clock,
    ) -> io::Result<()> {
        let interval_ns = interval.as_nanos() as u64;
        let mut due_ns = clock.now_ns() + interval_ns;
        loop {
            terminal.draw(|frame| self.draw(frame))?;
            let left = Duration::from_nanos(due_ns.saturating_sub(clock.now_ns()));
            if event::poll(left)? {
                match event::read()? {
                    Event::Key(key) if self.press(key) == Next::End => return Ok(()),
                    _ => continue,
                }
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

    fn press(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::GoOn;
        }
        let is_control_c =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if is_control_c => return Next::End,
            KeyCode::Char('q') | KeyCode::Esc => return Next::End,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Down | KeyCode::Char('j') => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(PAGE_LINES),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE_LINES),
            KeyCode::Home => self.scrolled = 0,
            KeyCode::End => self.scrolled = u16::MAX,
            _ => {}
        }
        Next::GoOn
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let curves_height = if frame.area().height >= HEIGHT_WITH_CURVES { 5 } else { 0 };
        let [top, curves, body, keys] = Layout::vertical([
            Constraint::Length(3),
            Constraint::Length(curves_height),
            Constraint::Min(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), top);
        if curves_height > 0 {
            self.draw_curves(frame, curves);
        }
        let lines: Vec<Line<'_>> = self.body.lines().map(styled).collect();
        let hidden = (lines.len() as u16).saturating_sub(body.height);
        self.scrolled = self.scrolled.min(hidden);
        frame.render_widget(Paragraph::new(lines).scroll((self.scrolled, 0)), body);
        let more = if hidden > self.scrolled { "  more below" } else { "" };
        let paused = if self.is_paused { "  PAUSED" } else { "" };
        let text = format!("q quit  p pause  up, down, page up, page down scroll{more}{paused}");
        frame.render_widget(Paragraph::new(text).dim(), keys);
    }

    fn head(&self) -> Vec<Line<'_>> {
        let status = &self.before.status;
        let mut lines: Vec<Line<'_>> =
            head(status).lines().map(|line| Line::from(line.to_owned())).collect();
        let style = match (&self.missing, status.drain_left_ms, &status.not_ready_because) {
            (Some(_), ..) | (_, None, Some(_)) => Style::new().red().bold(),
            (_, Some(_), _) => Style::new().yellow().bold(),
            _ => Style::new().green().bold(),
        };
        if let Some(first) = lines.first_mut() {
            *first = match &self.missing {
                None => first.clone().style(style),
                Some(why) => Line::from(format!("NO ANSWER: {why}")).style(style),
            };
        }
        lines
    }

    fn draw_curves(&self, frame: &mut Frame<'_>, area: Rect) {
        let places: [Rect; CURVES.len()] =
            Layout::horizontal([Constraint::Fill(1); CURVES.len()]).spacing(2).areas(area);
        for ((name, values), place) in CURVES.iter().zip(&self.curves).zip(places) {
            let [title, curve] =
                Layout::vertical([Constraint::Length(1), Constraint::Length(3)]).areas(place);
            let now = values.last().map_or_else(|| "–".to_owned(), |value| count(*value));
            frame.render_widget(Paragraph::new(format!("{now} {name}")).bold(), title);
            let shown = &values[values.len().saturating_sub(usize::from(curve.width))..];
            frame.render_widget(Sparkline::default().data(shown).cyan(), curve);
        }
    }
}

/// Heads of tables stand out, and so does what is wrong.
fn styled(line: &str) -> Line<'_> {
    let is_head =
        ["worker ", "listener ", "backend ", "stage "].iter().any(|it| line.starts_with(it));
    let is_wrong = line.contains("  DOWN") || line.starts_with("NOT ");
    let style = match (is_wrong, is_head) {
        (true, _) => Style::new().red(),
        (_, true) => Style::new().bold(),
        _ => Style::new(),
    };
    Line::from(line).style(style)
}

/// A look each second, a quarter of an hour.
const POINTS_MAX: usize = 900;

const PAGE_LINES: u16 = 10;

/// Lower terminals have the tables alone.
const HEIGHT_WITH_CURVES: u16 = 24;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn look(sessions: u64, at_s: u64) -> Look {
        let status = super::super::change::tests::status(sessions);
        Look { status, at_ns: at_s * 1_000_000_000 }
    }

    fn drawn(screen: &mut Screen, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(90, height)).expect("memory");
        terminal.draw(|frame| screen.draw(frame)).expect("memory");
        terminal.backend().to_string()
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
        assert_eq!(screen.press(KeyEvent::from(KeyCode::Down)), Next::GoOn);
        assert_ne!(drawn(&mut screen, 8), first);
        screen.press(KeyEvent::from(KeyCode::End));
        assert!(!drawn(&mut screen, 8).contains("more below"));
        screen.press(KeyEvent::from(KeyCode::Home));
        assert_eq!(drawn(&mut screen, 8), first);
    }

    #[test]
    fn q_escape_and_control_c_end_it() {
        let mut screen = Screen::new(look(7, 0));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for key in [KeyEvent::from(KeyCode::Char('q')), KeyEvent::from(KeyCode::Esc), control_c] {
            assert_eq!(screen.press(key), Next::End);
        }
        assert_eq!(screen.press(KeyEvent::from(KeyCode::Char('c'))), Next::GoOn);
    }
}
