//! Certificates of trunks, weeks before the other side refuses them.

use super::Finding;

const DAY_S: i64 = 86_400;

/// Renewing takes an operator some days.
const SOON_S: i64 = 21 * DAY_S;

/// Whether the certificates of a file are good: from when and until when all of them are.
pub(super) fn expiry(what: &str, good_s: Option<[i64; 2]>, now_s: u64) -> Finding {
    let Some([begin_s, end_s]) = good_s else {
        return Finding::ok(what, "no certificate that says until when it is good").bites(
            "the other side cannot know whether it is good",
            "a file in PEM with a certificate of X.509",
        );
    };
    let now_s = i64::try_from(now_s).unwrap_or(i64::MAX);
    let left_s = end_s.saturating_sub(now_s);
    let finding = |found| Finding::ok(what, found);
    if begin_s > now_s {
        let minutes = (begin_s - now_s) / 60 + 1;
        return finding(format!("begins within {minutes} minutes, by this host's clock")).bites(
            "no trunk can be made with it where clocks say the same (certificate_early)",
            "this host's clock, or that of the host on which it was signed: one of them is wrong",
        );
    }
    let change = "a new one in the place of the file; a gateway reads it by `ringgate reload`";
    match left_s.div_euclid(DAY_S) {
        days if days < 0 => finding(format!("ended {} days ago", -days))
            .bites("no trunk can be made with it; those that stand go on", change),
        days if left_s < SOON_S => finding(format!("good for {days} more days"))
            .could("when it has ended, no trunk can be made with it", change),
        days => finding(format!("good for {days} more days")),
    }
}

/// Whether the first certificate of a file is for this name.
pub(super) fn name(what: &str, is_for: bool, name: &str) -> Finding {
    if is_for {
        return Finding::ok(what, format!("for {name}"));
    }
    Finding::ok(what, format!("not for {name}")).bites(
        "gateways refuse the agent (foreign_name)",
        format!("a certificate with subjectAltName=DNS:{name}, or another agent.name"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    const ENDS_S: u64 = 4_701_974_400;

    #[test]
    fn a_certificate_is_warned_of_before_it_ends() {
        for (before_s, severity) in [
            (0, Severity::Could),
            (SOON_S - 1, Severity::Could),
            (SOON_S, Severity::Ok),
            (-1, Severity::Bites),
        ] {
            let now_s = ENDS_S.checked_add_signed(-before_s).expect("a time");
            let finding = expiry("certificate", Some([0, ENDS_S as i64]), now_s);
            assert_eq!(finding.severity, severity, "{before_s} s before: {finding:?}");
        }
        let early = |now_s| expiry("certificate", Some([7_200, ENDS_S as i64]), now_s).severity;
        assert_eq!([early(7_199), early(7_200)], [Severity::Bites, Severity::Ok]);
        assert_eq!(expiry("certificate", None, 0).severity, Severity::Bites);
    }

    #[test]
    fn a_certificate_of_another_name_bites() {
        assert_eq!(name("certificate", true, "host-7").severity, Severity::Ok);
        assert_eq!(name("certificate", false, "host-8").severity, Severity::Bites);
    }
}
