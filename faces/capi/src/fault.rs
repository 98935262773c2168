//! Codes of the functions, and the faults that they name.

use std::ffi::{c_int, CStr};
use weft::endpoint::ChoiceError;
use weft::OpError;

/// Defines the codes, each with its text for `weft_strerror`.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        $($(#[$doc])* pub const $name: c_int = $code;)*

        /// Returns the meaning of a code.
        pub(crate) fn meaning(code: c_int) -> &'static CStr {
            match code {
                $($name => $text,)*
                _ => c"no such code",
            }
        }
    };
}

codes! {
    /// Success.
    WEFT_OK = 0, c"success";
    /// No room now: try again after `weft_poll` or `weft_wait`.
    WEFT_BUSY = -1, c"no room now: try again after weft_poll or weft_wait";
    /// A rank failed; `weft_last_error` names it.
    WEFT_PEER = -2, c"a rank failed";
    /// The other side refused: key, bounds or rights are wrong, or its memory is not there any
    /// more; or a choice forbids it.
    WEFT_REFUSED = -3, c"refused";
    /// An argument is wrong: `weft_last_error` says which one.
    WEFT_ARGUMENT = -4, c"an argument is wrong";
    /// Longer than a packet (see `weft_packet_max`), or than the memory of a receive.
    WEFT_TOO_LONG = -5, c"longer than a packet, or than there is room for";
    /// Too many of them: packets kept, regions or groups; or more memory than the machine has.
    WEFT_TOO_MANY = -6, c"too many, or too much";
    /// An agent is chosen and there is none.
    WEFT_NO_AGENT = -7, c"an agent is chosen, and none serves this process";
    /// The job could not be joined.
    WEFT_INIT = -8, c"the job could not be joined";
    /// A fault in weft itself: a panic was caught at the interface.
    WEFT_PANIC = -9, c"a fault in weft itself";
    /// Called from another thread than the one that called `weft_init`, and from no upcall.
    WEFT_THREAD = -10, c"called from another thread than weft_init";
    /// Not to be called from an upcall, as it waits.
    WEFT_UPCALL = -11, c"not to be called from an upcall, as it waits";
    /// A receive was cancelled before it matched a message.
    WEFT_CANCELLED = -12, c"the receive was cancelled before it matched a message";
    /// Called by a signal handler that interrupted another call.
    WEFT_SIGNAL = -13, c"called by a signal handler that interrupted another call of weft";
}

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
