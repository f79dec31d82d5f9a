//! Histogram logs, read by an implementation that is not ours: the package `hdrhistogram` for
//! Python.

use std::process::Command;

use super::command::{folder, small_run};

const READER: &str = r"
import sys
from hdrh.log import HistogramLogReader
from hdrh.histogram import HdrHistogram
reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 60_000_000_000, 3))
sums = {}
while True:
    histogram = reader.get_next_interval_histogram()
    if histogram is None:
        break
    tag = histogram.get_tag()
    count, most = sums.get(tag, (0, 0))
    sums[tag] = (count + histogram.get_total_count(), max(most, histogram.get_max_value()))
for tag, (count, most) in sorted(sums.items()):
    print(tag, count, most)
";

#[test]
fn another_implementation_reads_the_same_counts_and_maxima() {
    let has_package = Command::new("python3")
        .args(["-c", "import hdrh.log"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !has_package {
        let required = std::env::var_os("REQUIRE_HDRHISTOGRAM_PY").is_some_and(|v| v == "1");
        assert!(!required, "REQUIRE_HDRHISTOGRAM_PY=1, but python3 has no package hdrhistogram");
        eprintln!("SKIPPED: python3 has no package hdrhistogram (pip install hdrhistogram)");
        return;
    }
    let folder = folder("hlog");
    let output = small_run(&folder, &[]);
    assert!(output.status.success(), "{output:?}");
    let log = folder.join("out/run.hlog");
    let read =
        Command::new("python3").args(["-c", READER]).arg(&log).output().expect("python3 runs");
    assert!(read.status.success(), "{read:?}");
    let record = std::fs::read_to_string(folder.join("out/run.json")).expect("written");
    let record: ringgate_loadgen::report::record::Record =
        serde_json::from_str(&record).expect("a record");
    let text = String::from_utf8(read.stdout).expect("text");
    for stage in record.stages.iter().filter(|stage| stage.count > 0) {
        let line = text.lines().find(|line| line.starts_with(&format!("{}:", stage.stage)));
        let line = line.unwrap_or_else(|| panic!("{} is not in the log: {text}", stage.stage));
        let mut fields =
            line.split(' ').skip(1).map(|field| field.parse::<u64>().expect("a number"));
        assert_eq!(fields.next(), Some(stage.count), "{line}");
        let (most, ours) = (fields.next().expect("a maximum"), stage.at(100.0));
        assert!(most.abs_diff(ours) <= ours / 500 + 1, "{line}: {ours}");
    }
    std::fs::remove_dir_all(folder).expect("removed");
}
