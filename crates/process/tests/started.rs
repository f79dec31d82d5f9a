//! A successor that was started. Alone in its program: while a process is started it has a copy of
//! every socket, and tests beside it wait for sockets to close.

use ringgate_process::handover::{Channel, Giving};

#[test]
fn a_program_that_does_not_become_the_owner_ends() {
    let (ours, _its) = Channel::pair().expect("a pair");
    let mut sleep = std::process::Command::new("sleep");
    let child = sleep.arg("1000").spawn().expect("it is there");
    let pid = child.id();
    let mut giving = Giving::new("number", ours, Some(child));
    giving.explain("it is not to be".to_owned());
    assert_eq!(giving.part(), "it is not to be");
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
