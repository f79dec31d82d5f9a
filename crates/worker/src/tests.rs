//! A worker's loop and the fleet around it, a turn at a time.

use super::*;
use ringgate_gate::{Backend, Ended, Intake, Listening, Setup, Survey, Wanted};
use ringgate_io::Wait;

pub(super) fn plan() -> Plan {
    Plan {
        setup: Arc::new(Setup::new(Vec::new(), Vec::new(), 0)),
        binds: Vec::new(),
        filter: Vec::new(),
        run_dir: None,
        expects_udp: false,
        workers: 2,
        pin: false,
        io: Choice::Mmsg,
        spin: Duration::ZERO,
        narrows: false,
        card: None,
        spent: Vec::new(),
    }
}

/// A fleet whose workers have not begun to turn, and their workers.
fn asleep() -> (Fleet, Vec<Worker<impl SocketDriver>>) {
    let plan = plan();
    let start = || Start::new(&plan, Ports { players: Vec::new(), kept: Kept::default() });
    let mut starting = start();
    let mut drivers = starting.drivers().expect("sockets").into_iter();
    let worker = |at| {
        let driver = drivers.next().expect("one for each");
        let parts = starting.parts(at, driver).expect("no sockets to fail");
        let shell = Shell::new(&parts.driver, starting.clock);
        Worker::new(shell, parts, starting.clock, plan.spin)
    };
    let workers: Vec<_> = (0..plan.workers).map(worker).collect();
    let mut fleet = start().fleet(&[], None);
    fleet.posts = workers.iter().map(Worker::post).collect();
    (fleet, workers)
}

#[test]
fn the_control_thread_does_not_wait_for_a_worker_that_does_not_turn() {
    let (fleet, mut workers) = asleep();
    for post in &fleet.posts {
        while post.send(Mail::Drain { left_ms: 1 }).is_ok() {}
    }
    for incarnation in 1..=1000 {
        fleet.adopt(&Setup::new(Vec::new(), Vec::new(), incarnation), Vec::new());
    }
    fleet.tell_all(|| Mail::Stop);
    for worker in &mut workers {
        worker.turn_now();
        assert_eq!(worker.gate().setup().incarnation, 1000, "the last setup is in force");
        assert!(worker.gate().is_stopped());
    }
}

#[test]
fn a_turn_takes_some_of_the_mail_and_the_worker_does_not_sleep_over_the_rest() {
    let (fleet, mut workers) = asleep();
    let worker = &mut workers[0];
    worker.turn_now();
    assert_ne!(worker.wait_now(), Wait::No, "nothing to do");
    let sent = std::iter::repeat_with(|| fleet.posts[0].send(Mail::Drain { left_ms: 1 }));
    let sent = sent.take_while(Result::is_ok).count();
    let mut turns = 0;
    while worker.wait_now() == Wait::No && turns < sent {
        worker.turn_now();
        turns += 1;
    }
    assert!(turns > 1 && turns < sent, "{sent} messages took {turns} turns");
}

#[test]
fn sessions_that_are_to_end_are_looked_for_before_another_process_has_them() {
    let (fleet, mut workers) = asleep();
    let questions = [None, Some(Ended::ByOperator)].map(|ends| {
        let survey = Arc::new(Survey::new(Wanted::default(), ends, 0, 1));
        fleet.posts[0].send(Mail::Survey(Arc::clone(&survey))).expect("room");
        survey
    });
    workers[0].last_turn().expect("there are few places");
    assert!(questions[1].is_done());
    assert!(!workers[0].gate().is_ending_sessions());
}

#[test]
fn who_posts_beside_the_workers_does_not_keep_them_from_standing_still() {
    let ports = Ports { players: Vec::new(), kept: Kept::default() };
    let fleet = Fleet::start_on(&plan(), ports).expect("no sockets to fail");
    let (hatch, is_over) = (fleet.hatch(), AtomicBool::new(false));
    let send = || hatch.send(WorkerId(0), Mail::Undrain);
    let frozen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                send();
            }
        });
        let frozen = fleet.freeze();
        is_over.store(true, Ordering::Relaxed);
        frozen
    });
    let frozen = frozen.expect("all of them stand");
    assert!(!send(), "nothing comes to those who stand");
    frozen.resume();
    assert!(send(), "they go on");
    fleet.freeze().expect("all of them stand again").leave();
    assert!(!send(), "another process has them");
}

#[test]
fn what_workers_of_another_process_are_told_first_was_seen_behind_the_barrier() {
    let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("bound");
    let backend = Backend {
        name: "arena".to_owned(),
        link: LinkKind::Udp { address },
        slots: 4,
        grace_ns: 0,
        retired: false,
        drained: false,
        intake: Intake::Anybody,
    };
    let setup = Arc::new(Setup::new(Vec::new(), vec![backend], 0));
    let plan = Plan { setup, ..plan() };
    let mut start = Start::new(&plan, Ports { players: Vec::new(), kept: Kept::default() });
    let driver = start.drivers().expect("sockets").into_iter().next().expect("one");
    let shell = Shell::new(&driver, start.clock);
    let mut fleet = start.fleet(&[&shell], None);
    drop(server);
    fleet.set_off(Ready { workers: Vec::new(), tally: None });
    let mail: Vec<_> = shell.mailbox.take_some().collect();
    assert!(matches!(mail[..], [Mail::Listening(Listening { is_there: false, .. })]), "{mail:?}");
}
