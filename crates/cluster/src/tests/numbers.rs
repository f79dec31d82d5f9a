//! The numbers that an owner gives its packets, each once.

use crate::number::{Incarnation, PacketNumber, Tenure, Term};

/// The numbers of one tenure, each given once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbers {
    tenure: Tenure,
    /// Invariant: at most [`PacketNumber::COUNTS`].
    given: u64,
}

impl Numbers {
    /// All of a tenure.
    pub(crate) const fn new(tenure: Tenure) -> Self {
        Self { tenure, given: 0 }
    }

    /// Whose they are.
    pub(crate) const fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// The next, as long as there is one.
    pub(crate) const fn take(&mut self) -> Option<PacketNumber> {
        if self.given == PacketNumber::COUNTS {
            return None;
        }
        self.given += 1;
        Some(PacketNumber::of(self.tenure, self.given - 1))
    }
}

fn tenure(incarnation: u16) -> Tenure {
    Tenure { term: Term::new(3).expect("it is one"), incarnation: Incarnation(incarnation) }
}

#[test]
fn the_last_number_of_a_tenure_is_followed_by_none() {
    let mut numbers = Numbers { tenure: tenure(9), given: PacketNumber::COUNTS - 1 };
    let last = numbers.take().expect("one is left").get();
    assert_eq!(PacketNumber::new(last + 1).map(PacketNumber::tenure), Some(tenure(10)));
    assert_eq!((numbers.take(), numbers.take()), (None, None));
}
