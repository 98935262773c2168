//! Codes of the functions, and the faults that they name.

use std::ffi::{c_int, CStr};
use weft::endpoint::ChoiceError;
use weft::OpError;

/// Success.
pub const WEFT_OK: c_int = 0;
/// No room now: try again after `weft_poll` or `weft_wait`.
pub const WEFT_BUSY: c_int = -1;
/// A rank failed; `weft_last_error` names it.
pub const WEFT_PEER: c_int = -2;
/// The other side refused: key, bounds or rights are wrong, or its memory is not there any more; or
/// a choice forbids it.
pub const WEFT_REFUSED: c_int = -3;
/// An argument is wrong: `weft_last_error` says which one.
pub const WEFT_ARGUMENT: c_int = -4;
/// Longer than a packet (see `weft_packet_max`), or than the memory of a receive.
pub const WEFT_TOO_LONG: c_int = -5;
/// Too many of them: packets kept, regions or groups; or more memory than the machine has.
pub const WEFT_TOO_MANY: c_int = -6;
/// An agent is chosen and there is none.
pub const WEFT_NO_AGENT: c_int = -7;
/// The job could not be joined.
pub const WEFT_INIT: c_int = -8;
/// A fault in weft itself: a panic was caught at the interface.
pub const WEFT_PANIC: c_int = -9;
/// Called from another thread than the one that called `weft_init`, and from no upcall.
pub const WEFT_THREAD: c_int = -10;
/// Not to be called from an upcall, as it waits.
pub const WEFT_UPCALL: c_int = -11;
/// A receive was cancelled before it matched a message.
pub const WEFT_CANCELLED: c_int = -12;
/// Called by a signal handler that interrupted another call.
pub const WEFT_SIGNAL: c_int = -13;

/// Codes and their texts for `weft_strerror`.
const CODES: &[(c_int, &CStr)] = &[
    (WEFT_OK, c"success"),
    (WEFT_BUSY, c"no room now: try again after weft_poll or weft_wait"),
    (WEFT_PEER, c"a rank failed"),
    (WEFT_REFUSED, c"refused"),
    (WEFT_ARGUMENT, c"an argument is wrong"),
    (WEFT_TOO_LONG, c"longer than a packet, or than there is room for"),
    (WEFT_TOO_MANY, c"too many, or too much"),
    (WEFT_NO_AGENT, c"an agent is chosen, and none serves this process"),
    (WEFT_INIT, c"the job could not be joined"),
    (WEFT_PANIC, c"a fault in weft itself"),
    (WEFT_THREAD, c"called from another thread than weft_init"),
    (WEFT_UPCALL, c"not to be called from an upcall, as it waits"),
    (WEFT_CANCELLED, c"the receive was cancelled before it matched a message"),
    (WEFT_SIGNAL, c"called by a signal handler that interrupted another call of weft"),
];

/// The reason why a function failed: its code, and the text for `weft_last_error`.
pub(crate) struct Fault(pub c_int, pub String);

impl Fault {
    pub fn argument(what: impl Into<String>) -> Fault {
        Fault(WEFT_ARGUMENT, what.into())
    }
}

impl From<ChoiceError> for Fault {
    fn from(error: ChoiceError) -> Fault {
        let code = match error {
            ChoiceError::Begun => WEFT_BUSY,
            _ => WEFT_REFUSED,
        };
        Fault(code, error.to_string())
    }
}

/// Returns the meaning of a code.
pub(crate) fn meaning(code: c_int) -> &'static CStr {
    CODES.iter().find(|(of, _)| *of == code).map_or(c"no such code", |(_, text)| text)
}

/// Returns the code of an error.
pub(crate) fn code_of(error: OpError) -> c_int {
    match error {
        OpError::Busy => WEFT_BUSY,
        OpError::Peer { .. } => WEFT_PEER,
        OpError::Uneven { .. } | OpError::Mismatch { .. } => WEFT_ARGUMENT,
        OpError::Truncated { .. } => WEFT_TOO_LONG,
        OpError::Cancelled => WEFT_CANCELLED,
        _ => WEFT_REFUSED,
    }
}
