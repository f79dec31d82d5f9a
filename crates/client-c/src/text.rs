//! Words for numbers, as C wants them: with a zero at their end.

use std::ffi::{CStr, c_int};

use ringgate_client::{Fault, Reason, State};

use crate::types::{
    ERROR_CLOSED, ERROR_EMPTY, ERROR_FULL, ERROR_KIND, ERROR_NULL, ERROR_OPTION, ERROR_SIZE,
    ERROR_SYSTEM, ERROR_TOKEN, ERROR_TOO_LONG, OK, reason,
};

/// The library's version.
pub(crate) const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => c"unknown",
    };

pub(crate) const fn of_error(code: c_int) -> &'static CStr {
    match code {
        OK => c"no error",
        ERROR_NULL => c"a pointer is NULL",
        ERROR_SIZE => c"a structure's size is not set, or shorter than it ever was",
        ERROR_TOKEN => c"not a connect token",
        ERROR_OPTION => c"an option is out of its bounds",
        ERROR_SYSTEM => c"the system refused a socket, or memory, or random bytes",
        ERROR_CLOSED => c"there is no connection",
        ERROR_EMPTY => c"a message has a byte at least",
        ERROR_FULL => c"the queue is full until messages have been acknowledged",
        ERROR_TOO_LONG => c"the message is longer than its channel takes",
        ERROR_KIND => c"no such kind of channel",
        _ => c"no such error",
    }
}

pub(crate) fn of_reason(number: u32) -> &'static CStr {
    match reason(number) {
        None => c"another reason",
        Some(Reason::Left) => c"left",
        Some(Reason::Ended(state)) => of_state(state),
        Some(Reason::Fault(fault)) => of_fault(fault),
    }
}

const fn of_state(state: State) -> &'static CStr {
    match state {
        State::TokenExpired => c"connect token expired",
        State::InvalidToken => c"invalid connect token",
        State::ConnectionTimedOut => c"connection timed out",
        State::ResponseTimedOut => c"response timed out",
        State::RequestTimedOut => c"request timed out",
        State::Denied => c"denied",
        _ => c"the server said goodbye",
    }
}

const fn of_fault(fault: Fault) -> &'static CStr {
    match fault {
        Fault::Malformed => c"delivery_malformed",
        Fault::Sequence => c"delivery_sequence",
        Fault::Acknowledgement => c"delivery_acknowledgement",
        Fault::Window => c"delivery_window",
        Fault::Marks => c"delivery_marks",
        Fault::MessageLength => c"delivery_message_length",
        Fault::Memory => c"delivery_memory",
        Fault::Oversize => c"delivery_oversize",
        Fault::Silence => c"delivery_silence",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{REASON_FAULT, number_of};

    #[test]
    fn reasons_have_the_words_that_rust_has_for_them() {
        let numbers = (1..=8).chain((REASON_FAULT..).take(Fault::ALL.len()));
        for number in numbers {
            let reason = reason(number).expect("there are no holes");
            assert_eq!(number_of(reason), number);
            assert_eq!(of_reason(number).to_str(), Ok(reason.name()));
        }
        assert_eq!(of_reason(0), c"another reason");
        assert!((-10..=0).all(|code| of_error(code) != of_error(1)));
    }
}
