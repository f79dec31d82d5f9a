//! How long a datagram may be on a lane's way: found out by asking, because networks do not say.
//!
//! Datagrams are never fragmented. 1,200 bytes are taken for granted, everything above is asked for
//! with probes, which are datagrams that carry nothing else: first the sizes that networks have,
//! then what lies between. What was found is asked again now and then, and at once when the other
//! side misses something, because a way may become narrower and then swallows long datagrams
//! without a word. It may become wider too, so that everything is asked anew after ten minutes.

use ringgate_core::carry::{Broken, Carry, Reader, Writer};

use crate::protocol::datagram::{PATH_BYTES_MAX, PATH_BYTES_MIN};

/// Payloads of UDP that common paths carry: frames of 9,000 bytes, Ethernet with IPv4 and IPv6,
/// two kinds of tunnels, and the least that IPv6 asks for.
const COMMON_BYTES: [usize; 6] = [PATH_BYTES_MAX, 1472, 1452, 1420, 1380, 1232];

/// What is not worth another question.
const STEP_BYTES: usize = 16;

/// How often one size is asked for before it counts as too long.
const TRIES: u8 = 3;

/// How long an answer is waited for, at least.
const ANSWER_NS: u64 = 200_000_000;

/// How often what was found is asked again.
const VERIFY_NS: u64 = 15_000_000_000;

/// How often everything is asked anew.
const RAISE_NS: u64 = 600_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// This size is asked for.
    Searching {
        bytes: usize,
        tries: u8,
    },
    /// What is in use is asked for again.
    Verifying {
        tries: u8,
    },
    Settled,
}

impl Carry for State {
    fn write(&self, out: &mut Writer<'_>) {
        match *self {
            Self::Searching { bytes, tries } => (0_u8, (bytes, tries)).write(out),
            Self::Verifying { tries } => (1_u8, tries).write(out),
            Self::Settled => 2_u8.write(out),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => {
                let (bytes, tries) = Carry::read(from)?;
                let is_one = is_size(bytes).then_some(Self::Searching { bytes, tries });
                is_one.ok_or(Broken::Invalid("size of a datagram"))
            }
            1 => Ok(Self::Verifying { tries: Carry::read(from)? }),
            2 => Ok(Self::Settled),
            _ => Err(Broken::Invalid("state of a path")),
        }
    }
}

/// How long a datagram may be: within what any way carries.
fn is_size(bytes: usize) -> bool {
    (PATH_BYTES_MIN..=PATH_BYTES_MAX).contains(&bytes)
}

/// What is known of one lane's way to the other side.
#[derive(Debug)]
pub struct Path {
    /// What is known to pass.
    bytes: usize,
    /// The least that is known not to.
    too_long: usize,
    state: State,
    due_ns: u64,
    raise_ns: u64,
    /// How often a way that had been found became narrower.
    narrowed: u64,
}

ringgate_core::carried!(
    Path { bytes, too_long, state, due_ns as time, raise_ns as time, narrowed }
    if |it| {
        is_size(it.bytes) && (it.bytes + 1..=PATH_BYTES_MAX + 1).contains(&it.too_long)
    }, "size of a datagram"
);

impl Path {
    /// A way of which nothing is known.
    pub const fn new(now_ns: u64) -> Self {
        let state = State::Searching { bytes: PATH_BYTES_MAX, tries: 0 };
        let (bytes, too_long) = (PATH_BYTES_MIN, PATH_BYTES_MAX + 1);
        let raise_ns = now_ns + RAISE_NS;
        Self { bytes, too_long, state, due_ns: now_ns, raise_ns, narrowed: 0 }
    }

    /// The longest datagram that may carry payloads.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How often a way that had been found became narrower.
    pub const fn narrowed(&self) -> u64 {
        self.narrowed
    }

    /// When [`poll`](Self::poll) has something to do.
    pub const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// How long a probe to send now, if one is due.
    pub fn poll(&mut self, now_ns: u64, round_trip_ns: Option<u64>) -> Option<usize> {
        if now_ns < self.due_ns {
            return None;
        }
        match self.state {
            State::Searching { bytes, tries: TRIES } => {
                self.too_long = bytes;
                self.search(now_ns);
            }
            // Below the least there is nothing to fall to: whether the lane lives is for its
            // silence to say.
            State::Verifying { tries: TRIES } if self.bytes == PATH_BYTES_MIN => {
                self.settle(now_ns);
            }
            State::Verifying { tries: TRIES } => self.narrow(self.bytes, now_ns),
            State::Settled if now_ns >= self.raise_ns => {
                self.too_long = PATH_BYTES_MAX + 1;
                self.raise_ns = now_ns + RAISE_NS;
                self.search(now_ns);
            }
            State::Settled => self.state = State::Verifying { tries: 0 },
            State::Searching { .. } | State::Verifying { .. } => {}
        }
        self.ask(now_ns, round_trip_ns)
    }

    /// The other side has seen a probe.
    pub fn handle_answer(&mut self, bytes: usize, now_ns: u64) {
        if bytes == self.bytes && matches!(self.state, State::Verifying { .. }) {
            self.settle(now_ns);
        }
        if bytes > self.bytes && bytes <= PATH_BYTES_MAX {
            self.bytes = bytes;
            if self.too_long <= bytes {
                // It was given up too early.
                self.too_long = PATH_BYTES_MAX + 1;
            }
            self.search(now_ns);
        }
    }

    /// The other side misses something: perhaps the way has become narrower.
    pub const fn doubt(&mut self, now_ns: u64) {
        if matches!(self.state, State::Settled) {
            self.state = State::Verifying { tries: 0 };
            self.due_ns = now_ns;
        }
    }

    /// The kernel did not take a datagram of this length: its own interface is narrower.
    pub fn refuse(&mut self, bytes: usize, now_ns: u64) {
        if bytes <= self.bytes && self.bytes > PATH_BYTES_MIN {
            self.narrow(bytes.max(PATH_BYTES_MIN + 1), now_ns);
        } else if bytes < self.too_long && bytes > self.bytes {
            self.too_long = bytes;
            self.search(now_ns);
        }
    }

    fn narrow(&mut self, too_long: usize, now_ns: u64) {
        self.bytes = PATH_BYTES_MIN;
        self.too_long = too_long;
        self.narrowed += 1;
        self.search(now_ns);
    }

    fn search(&mut self, now_ns: u64) {
        match self.candidate() {
            Some(bytes) => {
                self.state = State::Searching { bytes, tries: 0 };
                self.due_ns = now_ns;
            }
            None => self.settle(now_ns),
        }
    }

    const fn settle(&mut self, now_ns: u64) {
        self.state = State::Settled;
        self.due_ns = now_ns + VERIFY_NS;
    }

    /// The size to ask for next.
    fn candidate(&self) -> Option<usize> {
        let fits = |bytes: &usize| *bytes > self.bytes && *bytes < self.too_long;
        let between = || {
            let open = self.too_long - self.bytes > STEP_BYTES;
            open.then(|| usize::midpoint(self.bytes, self.too_long))
        };
        COMMON_BYTES.into_iter().find(fits).or_else(between)
    }

    fn ask(&mut self, now_ns: u64, round_trip_ns: Option<u64>) -> Option<usize> {
        let (bytes, tries) = match &mut self.state {
            State::Searching { bytes, tries } => (*bytes, tries),
            State::Verifying { tries } => (self.bytes, tries),
            State::Settled => return None,
        };
        *tries += 1;
        self.due_ns = now_ns + ANSWER_NS.max(round_trip_ns.unwrap_or(0).saturating_mul(3));
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Asks until the machine has settled, on a way that carries so much. Returns when that was.
    fn settle(path: &mut Path, carries: usize, mut now_ns: u64) -> u64 {
        for _ in 0..1000 {
            match path.poll(now_ns, Some(10 * MS)) {
                Some(bytes) if bytes <= carries => path.handle_answer(bytes, now_ns + 10 * MS),
                _ => {}
            }
            if path.state == State::Settled {
                return now_ns;
            }
            now_ns = path.due_ns().max(now_ns + MS);
        }
        panic!("it goes on asking: {path:?}");
    }

    #[test]
    fn every_way_is_found_from_below_and_nearly_to_its_end() {
        for carries in (PATH_BYTES_MIN..=PATH_BYTES_MAX + 50).step_by(7).chain([1472, 1232, 8900]) {
            let mut path = Path::new(0);
            let took_ns = settle(&mut path, carries, 0);
            let most = carries.min(PATH_BYTES_MAX);
            assert!(path.bytes() <= most && most - path.bytes() <= STEP_BYTES, "{carries}");
            assert!(took_ns < 12_000 * MS, "{carries} took {} ms", took_ns / MS);
        }
    }

    #[test]
    fn common_ways_are_in_use_at_once() {
        for carries in [1472, 1452, 1420, 1380] {
            let mut path = Path::new(0);
            let (mut now_ns, mut asked) = (0, 0);
            while path.bytes() != carries {
                let bytes = path.poll(now_ns, None).expect("it is due");
                asked += 1;
                if bytes <= carries {
                    path.handle_answer(bytes, now_ns);
                }
                now_ns = path.due_ns();
            }
            assert!(asked <= 3 * COMMON_BYTES.len() as u64, "{carries}: {asked} probes");
        }
    }

    #[test]
    fn a_way_that_becomes_narrower_is_noticed_and_one_that_becomes_wider_too() {
        let mut path = Path::new(0);
        let now_ns = settle(&mut path, 8900, 0);
        path.doubt(now_ns);
        let now_ns = settle(&mut path, 1472, now_ns);
        assert_eq!((path.bytes(), path.narrowed()), (1472, 1));
        let later_ns = now_ns + RAISE_NS;
        assert!(path.poll(later_ns, None).is_some_and(|bytes| bytes > 1472));
        settle(&mut path, 8900, later_ns + ANSWER_NS);
        assert_eq!((path.bytes(), path.narrowed()), (8900, 1));
    }

    #[test]
    fn a_single_loss_does_not_narrow_the_way() {
        let mut path = Path::new(0);
        let mut now_ns = settle(&mut path, 1472, 0);
        path.doubt(now_ns);
        assert_eq!(path.poll(now_ns, None), Some(1472));
        now_ns += ANSWER_NS;
        assert_eq!(path.poll(now_ns, None), Some(1472));
        path.handle_answer(1472, now_ns + MS);
        assert_eq!((path.bytes(), path.state), (1472, State::Settled));
    }

    #[test]
    fn what_the_kernel_refuses_is_not_asked_again() {
        let mut path = Path::new(0);
        assert_eq!(path.poll(0, None), Some(8900));
        path.refuse(8900, 0);
        assert_eq!(path.poll(0, None), Some(1472));
        path.handle_answer(1472, MS);
        path.refuse(1472, 2 * MS);
        assert_eq!((path.bytes(), path.narrowed()), (PATH_BYTES_MIN, 1));
        assert_eq!(path.poll(2 * MS, None), Some(1452));
        path.refuse(PATH_BYTES_MIN, 3 * MS);
        assert_eq!(path.bytes(), PATH_BYTES_MIN, "there is nothing below");
    }

    #[test]
    fn an_answer_that_nobody_asked_for_stays_within_bounds() {
        let mut path = Path::new(0);
        for bytes in [0, 1, PATH_BYTES_MIN, PATH_BYTES_MAX + 1, usize::from(u16::MAX)] {
            path.handle_answer(bytes, 0);
            assert_eq!(path.bytes(), PATH_BYTES_MIN);
        }
    }
}
