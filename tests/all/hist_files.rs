//! The histogram file of a daemon that serves players: its lines, our commands on it, and another
//! implementation's reader.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_report::hlog;
use ringgate_report::text::Append as _;

use crate::command::{ringgate, run};
use crate::control_rig::{Daemon, Game, KEY_HEX, Player, Text, wait_for};
use crate::folder::Folder;
use crate::hold::Hold;
use crate::oncall::row;
use crate::upgrade_rig;

/// A daemon that has written at least two intervals while a player played, and has ended.
fn recorded() -> (Folder, PathBuf) {
    let mut text = Text::new();
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n");
    let mut daemon = Daemon::start(&text);
    let _game = Game::start(&daemon, "arena");
    daemon.ready();
    let mut player = Player::connected(daemon.listener, 1, KEY_HEX);
    let file = daemon.histogram_file();
    wait_for("two intervals with traffic in them", || {
        player.echo(b"measure me");
        let log = hlog::read(&std::fs::read(&file).expect("readable")).expect("whole lines only");
        let turns = log.intervals.iter().filter(|it| it.tag == "turn" && !it.histogram.is_empty());
        (turns.count() >= 2).then_some(())
    });
    player.leave();
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0));
    (daemon.into_folder(), file)
}

fn intervals(file: &Path) -> Vec<hlog::Interval> {
    let log = hlog::read(&std::fs::read(file).expect("readable")).expect("valid");
    assert!(!log.is_cut_off);
    log.intervals
}

#[test]
fn every_stage_is_recorded_and_intervals_follow_each_other() {
    let (_folder, file) = recorded();
    let intervals = intervals(&file);
    let count = |tag: &str| -> u64 {
        intervals.iter().filter(|it| it.tag == tag).map(|it| it.histogram.len()).sum()
    };
    assert_eq!(count("handshake"), 1);
    assert!(count("uplink") >= 2 && count("downlink") >= 2);
    assert!(count("turn") > count("uplink"), "a turn has at least one datagram");
    let turns: Vec<_> = intervals.iter().filter(|it| it.tag == "turn").collect();
    for pair in turns.windows(2) {
        let gap = pair[1].start.abs_diff(pair[0].start + pair[0].length);
        assert!(gap.as_millis() <= 2, "the log is written in milliseconds: {gap:?}");
    }
    let now_s = ringgate_os::clock::unix_seconds();
    assert!(turns[0].start.as_secs().abs_diff(now_s) < 600, "times are since 1970");
}

#[test]
fn the_commands_read_what_the_daemon_wrote() {
    let (folder, file) = recorded();
    let file = file.as_os_str();
    let table = run(ringgate(["hist".as_ref(), "show".as_ref(), file])).succeeded();
    for tag in ["handshake", "uplink", "queue", "turn", "downlink", "gather"] {
        assert!(table.lines().any(|line| line.starts_with(tag)), "{table}");
    }
    let svg = folder.join("x.svg");
    let arguments = ["hist".as_ref(), "plot".as_ref(), file, "--out".as_ref(), svg.as_os_str()];
    assert_eq!(run(ringgate(arguments)).succeeded(), "");
    let svg = std::fs::read_to_string(svg).expect("written");
    assert!(svg.starts_with("<svg ") && svg.contains("prefers-color-scheme"));
    assert!(svg.contains(&format!("on {}, ", ringgate_os::host::name())), "{svg}");
    let over_time = ["hist".as_ref(), "plot".as_ref(), file, "--over-time".as_ref()];
    let svg = run(ringgate(over_time)).succeeded();
    for tag in ["handshake", "uplink", "turn"] {
        assert!(svg.contains(&format!(">{tag}</text>")), "{tag} is missing");
    }
    let diff = run(ringgate(["hist".as_ref(), "diff".as_ref(), file, file])).succeeded();
    assert!(diff.lines().any(|line| line.starts_with("turn") && line.contains("count")), "{diff}");
    assert!(!diff.contains("  significant\n"), "a file does not differ from itself: {diff}");
    let table = |option: &str, time: &str| {
        let arguments = ["hist".as_ref(), "show".as_ref(), file, option.as_ref(), time.as_ref()];
        run(ringgate(arguments))
    };
    assert_eq!(table("--from", "1h").succeeded(), table("--to", "2099-12-31").succeeded());
    let refusal = table("--to", "1h").refused();
    assert_eq!(refusal, "no file has an interval in the time that is asked for");

    let twice = folder.join("twice.hlog");
    let arguments =
        ["hist".as_ref(), "merge".as_ref(), file, file, "--out".as_ref(), twice.as_os_str()];
    run(ringgate(arguments)).succeeded();
    let sum = |file: &Path| -> u64 { intervals(file).iter().map(|it| it.histogram.len()).sum() };
    assert_eq!(sum(&twice), 2 * sum(Path::new(file)));
}

#[test]
fn what_is_no_histogram_file_is_one_sentence() {
    let folder = Folder::new();
    let file = folder.file("x.hlog", "hello\n", 0o644);
    let show = |file: &Path| run(ringgate(["hist".as_ref(), "show".as_ref(), file.as_os_str()]));
    assert!(show(&file).refused().ends_with("expected an interval of an HdrHistogram log"));
    let empty = folder.file("y.hlog", "#[StartTime: 1.000 (seconds since epoch)]\n", 0o644);
    assert!(show(&empty).refused().ends_with("y.hlog has no interval"));
    assert!(show(&folder.join("missing")).refused().starts_with("cannot read "));
    let others = [empty.as_os_str(), empty.as_os_str()];
    let both = run(ringgate([&["hist".as_ref(), "show".as_ref()][..], &others].concat()));
    assert!(both.refused().starts_with("no file has an interval"));
}

/// And its folder is closed: the one of what is kept is made first, whose part this one is.
#[test]
fn a_file_is_begun_with_its_first_interval() {
    let mut text = Text::new();
    text.more.push_str("[histograms]\ndir = \"state/hist\"\ninterval = \"1h\"\n");
    let mut daemon = Daemon::start(&text);
    let state = daemon.folder.join("state");
    let mode = std::fs::metadata(&state).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let count = || std::fs::read_dir(state.join("hist")).expect("it is there").count();
    assert_eq!(count(), 0, "who dies now leaves no empty file");
    daemon.signal("TERM");
    assert_eq!((daemon.ended(), count()), (Some(0), 1));
}

/// A volume that does not answer: nobody else has to wait for it.
#[test]
fn a_disk_that_stalls_keeps_no_daemon_from_its_end() {
    let mut text = upgrade_rig::text("mmsg");
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n");
    let mut hold = None;
    let mut daemon = Daemon::start_with(&text, |command, _| {
        hold = Some(Hold::at(command, "histograms Write"));
    });
    let mut hold = hold.expect("it was begun");
    hold.reached();
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("the last intervals are missing"));
    hold.release();
}

/// All histogram files of a daemon, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder.join("hist")).expect("the daemon has made it");
    let mut files: Vec<_> = list.map(|entry| entry.expect("readable").path()).collect();
    files.sort_unstable();
    files
}

#[test]
fn files_are_left_for_new_ones_and_the_oldest_removed() {
    let mut text = Text::new();
    text.more
        .push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\nmax_age = \"1s\"\nkeep = 3\n");
    let mut daemon = Daemon::start(&text);
    let first = daemon.histogram_file();
    wait_for("the first file's end", || (!first.exists()).then_some(()));
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0));
    let folder = daemon.into_folder();
    let files = files(folder.path());
    assert_eq!(files.len(), 3);
    let whole: Vec<_> = files.iter().flat_map(|file| intervals(file)).collect();
    let turns: Vec<_> = whole.iter().filter(|it| it.tag == "turn").collect();
    assert!(turns.len() >= 2);
    for pair in turns.windows(2) {
        let gap = pair[1].start.abs_diff(pair[0].start + pair[0].length);
        assert!(gap.as_millis() <= 50, "intervals follow each other over files: {gap:?}");
    }
    // The commands take them together.
    let empty = folder.file("empty.hlog", "", 0o644);
    let files = files.iter().chain([&empty]);
    let names: Vec<&std::ffi::OsStr> = files.map(|file| file.as_os_str()).collect();
    let table = run(ringgate([&["hist".as_ref(), "show".as_ref()][..], &names].concat()));
    assert!(table.succeeded().lines().any(|line| line.starts_with("turn")));
    let (merged, svg) = (folder.join("merged.hlog"), folder.join("all.svg"));
    for (command, out) in [("merge", &merged), ("plot", &svg)] {
        let arguments = [&["hist".as_ref(), command.as_ref()][..], &names].concat();
        let arguments = [&arguments[..], &["--out".as_ref(), out.as_os_str()]].concat();
        run(ringgate(arguments)).succeeded();
    }
    let sum = |list: &[hlog::Interval]| -> u64 { list.iter().map(|it| it.histogram.len()).sum() };
    assert_eq!(sum(&intervals(&merged)), sum(&whole));
    assert!(std::fs::read_to_string(svg).expect("written").starts_with("<svg "));
}

/// Lets no file of a process grow beyond some bytes: writes are taken in part and then refused, as
/// on a disk that is full.
fn limit_files(daemon: &Daemon, bytes: &str) {
    let pid = daemon.id().to_string();
    let limit = format!("--fsize={bytes}:");
    let limited = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
    assert!(limited.expect("util-linux is there").success());
}

fn on_a_full_disk(driver: &str) {
    const FAILURES: &str = "ringgate_interval_write_failures_total";
    let mut text = Text::new();
    writeln!(text.gateway, "io = \"{driver}\"");
    text.more.push_str("[histograms]\ndir = \"hist\"\ninterval = \"1s\"\n");
    let mut daemon = Daemon::start(&text);
    let file = daemon.histogram_file();
    let length = || std::fs::metadata(&file).expect("it is there").len();
    let before = length();
    wait_for("an interval", || (length() > before).then_some(()));
    // The next interval fits in part only, in the middle of its second line or so.
    let whole = length();
    limit_files(&daemon, &(whole + 150).to_string());
    let failures = || daemon.get("/metrics").value(FAILURES).expect("a series");
    wait_for("intervals that are refused", || (failures() >= 2).then_some(()));
    row("disk-full").read_at(&daemon);
    let log = hlog::read(&std::fs::read(&file).expect("readable")).expect("valid");
    assert_eq!((log.is_cut_off, log.broken_count), (false, 0), "what was there can be read");
    limit_files(&daemon, "unlimited");
    let full = length();
    wait_for("an interval after it", || (length() > full).then_some(()));
    wait_for("a word on it", || daemon.log().contains("is written to again").then_some(()));
    assert!(daemon.log().contains("intervals may be missing"), "{}", daemon.log());
    daemon.signal("TERM");
    assert_eq!(daemon.ended(), Some(0));
    let after = intervals(&file);
    assert!(after.len() > log.intervals.len());
    let turns: Vec<_> = after.iter().filter(|it| it.tag == "turn").collect();
    let gap = |pair: &[&hlog::Interval]| pair[1].start.abs_diff(pair[0].start + pair[0].length);
    assert!(turns.windows(2).any(|pair| gap(pair).as_secs() >= 1), "the gap shows");
}

#[test]
fn a_full_disk_leaves_whole_lines_on_mmsg() {
    on_a_full_disk("mmsg");
}

#[test]
fn a_full_disk_leaves_whole_lines_on_uring() {
    if crate::io_rig::Rig::uring_works() {
        on_a_full_disk("uring");
    }
}

#[test]
fn broken_lines_are_left_out_and_said() {
    let (folder, file) = recorded();
    let text = std::fs::read_to_string(&file).expect("text");
    let sum = |file: &Path| -> u64 { intervals(file).iter().map(|it| it.histogram.len()).sum() };
    // A head that claims 4 GiB, and the rest of a line.
    let broken = format!("{text}0.000,1.000,0.000,HISTEwAAAA\nTag=turn,1.0\n{}", "Tag=turn,2");
    let broken = folder.file("broken.hlog", broken, 0o644);
    for (command, out) in [("show", None), ("merge", Some("m.hlog")), ("plot", Some("p.svg"))] {
        let mut arguments = vec!["hist".into(), command.into(), broken.clone().into_os_string()];
        if let Some(out) = out {
            arguments.extend(["--out".into(), folder.join(out).into_os_string()]);
        }
        let ran = run(ringgate(arguments));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(ran.stderr.contains("broken.hlog: 2 broken lines are left out, first line "));
        assert!(ran.stderr.contains("broken.hlog: its last line has no end and is left out"));
    }
    assert_eq!(sum(&folder.join("m.hlog")), sum(&file));
}

/// Reads a log with the Python implementation and prints a line for each interval, with everything
/// that was recorded in it.
const READER: &str = r"
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 60 * 1000 * 1000 * 1000, 3))
while True:
    histogram = reader.get_next_interval_histogram()
    if histogram is None:
        break
    start_ms = round(histogram.get_start_time_stamp())
    recorded = [
        f'{item.value_iterated_to}x{item.count_added_in_this_iter_step}'
        for item in histogram.get_recorded_iterator()
    ]
    print(histogram.get_tag(), start_ms, histogram.get_total_count(), *recorded)
";

#[test]
fn another_implementation_reads_the_same_numbers() {
    let has_package = Command::new("python3").args(["-c", "import hdrh.log"]).output();
    if !has_package.is_ok_and(|output| output.status.success()) {
        let why = "python3 with the package hdrhistogram is not there (pip install hdrhistogram)";
        let required = std::env::var_os("REQUIRE_HDRHISTOGRAM_PY").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_HDRHISTOGRAM_PY=1, but {why}");
        eprintln!("SKIPPED: {why}");
        return;
    }
    let (_folder, file) = recorded();
    let output = Command::new("python3").args(["-c", READER]).arg(&file).output();
    let output = output.expect("python3 is there");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let theirs = String::from_utf8(output.stdout).expect("text");
    let mut ours = String::new();
    for hlog::Interval { tag, start, histogram, .. } in intervals(&file) {
        write!(ours, "{tag} {} {}", start.as_millis(), histogram.len());
        for at in histogram.iter_recorded() {
            let (value, count) = (at.value_iterated_to(), at.count_since_last_iteration());
            write!(ours, " {value}x{count}");
        }
        ours.push('\n');
    }
    assert_eq!(theirs, ours);
}
