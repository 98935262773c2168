//! Codes that functions return, and those in statuses.

use std::ffi::CStr;
use weft::{OpError, PeerFailure};

/// A code that a function returns.
pub type Return = i32;
/// A code in a status.
pub type StatusCode = i32;
/// A result of the face's functions.
pub type Answer<T = ()> = Result<T, Return>;

macro_rules! codes {
    ($table:ident: $($name:ident = $value:literal, $text:literal;)*) => {
        $(#[doc = concat!("`MX_", stringify!($name), "`: ", $text, ".")]
        pub const $name: i32 = $value;)*
        /// Texts by code.
        const $table: &[&CStr] = &[$({
            match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                Err(_) => c"",
            }
        }),*];
    };
}

codes! { RETURNS:
    SUCCESS = 0, "success";
    BAD_BAD_BAD = 1, "a fault in the library";
    FAILURE = 2, "failure";
    ALREADY_INITIALIZED = 3, "the library is initialized already";
    NOT_INITIALIZED = 4, "the library is not initialized";
    NO_DEV = 5, "no link can be opened";
    NO_DRIVER = 6, "no driver";
    NO_PERM = 7, "no permission";
    BOARD_UNKNOWN = 8, "there is no such board";
    BAD_ENDPOINT = 9, "the endpoint is not open, or the address is none of its own";
    BAD_SEG_LIST = 10, "the list of segments is null or misaligned";
    BAD_SEG_MEM = 11, "the memory of a segment is null";
    BAD_SEG_CNT = 12, "too many segments, or too many bytes";
    BAD_REQUEST = 13, "the request is none of this endpoint, or not of the right kind";
    BAD_MATCH_MASK = 14, "match bits outside of the mask";
    NO_RESOURCES = 15, "no resources are left";
    BAD_ADDR_LIST = 16, "the list of addresses is null";
    BAD_ADDR_COUNT = 17, "there is no address";
    BAD_ROOT = 18, "there is no such root";
    NOT_COMPLETED = 19, "an operation has not completed";
    BUSY = 20, "the number of the endpoint is taken, or the call came from a signal handler inside \
        another call or from a child made by fork";
    BAD_INFO_KEY = 21, "there is no such key";
    BAD_INFO_VAL = 22, "the place for the value is null or misaligned";
    BAD_NIC = 23, "the number of a network interface is wrong";
    BAD_PARAM_LIST = 24, "the list of parameters is null";
    BAD_PARAM_NAME = 25, "there is no such parameter";
    BAD_PARAM_VAL = 26, "the value of a parameter is wrong";
    BAD_HOSTNAME_ARGS = 27, "the name of the host, or the place for it, is null or too long";
    HOST_NOT_FOUND = 28, "there is no such host";
    REQUEST_PENDING = 29, "the request is pending";
    TIMEOUT = 30, "the time is over";
    NO_MATCH = 31, "no message matches";
    BAD_ENDPOINT_ID = 32, "endpoints have no such number";
    CONNECTION_FAILED = 33, "no endpoint is open there, or no way leads to it";
    BAD_CONNECTION_KEY = 34, "the endpoint has another key";
    BAD_INFO_LENGTH = 35, "the place for the value is too short";
    NIC_NOT_FOUND = 36, "there is no such network interface";
    BAD_KERNEL_VERSION = 37, "the driver has another version";
    BAD_LIB_VERSION = 38, "the program was built for another version of the interface";
    NIC_DEAD = 39, "the network interface is dead";
    CANCEL_NOT_SUPPORTED = 40, "a request of this kind cannot be cancelled";
    CLOSE_IN_HANDLER = 41, "a handler cannot close the endpoint that called it";
    BAD_MATCHING_FOR_CONTEXT_ID_MASK = 42, "the mask does not cover the bits of the context";
    NOT_SUPPORTED_WITH_CONTEXT_ID = 43, "not supported with contexts";
}

codes! { STATUSES:
    STATUS_SUCCESS = 0, "success";
    STATUS_PENDING = 1, "pending";
    STATUS_BUFFERED = 2, "buffered";
    STATUS_REJECTED = 3, "rejected";
    STATUS_TIMEOUT = 4, "the time of the request is over";
    STATUS_TRUNCATED = 5, "the message was longer than the memory of the receive";
    STATUS_CANCELLED = 6, "cancelled";
    STATUS_ENDPOINT_UNKNOWN = 7, "there is no such network interface";
    STATUS_ENDPOINT_CLOSED = 8, "the endpoint was closed, or is not open";
    STATUS_ENDPOINT_UNREACHABLE = 9, "the endpoint cannot be reached";
    STATUS_BAD_SESSION = 10, "the address is of a connection that has ended";
    STATUS_BAD_KEY = 11, "the endpoint has another key";
    STATUS_BAD_ENDPOINT = 12, "endpoints have no such number";
    STATUS_BAD_RDMAWIN = 13, "there is no such window";
    STATUS_ABORTED = 14, "aborted";
    STATUS_EVENTQ_FULL = 15, "the queue of events is full";
    STATUS_NO_RESOURCES = 16, "no resources are left";
}

/// Returns the text of a function's code.
pub fn text_of_return(code: Return) -> &'static CStr {
    find(RETURNS, code)
}

/// Returns the text of a status.
pub fn text_of_status(code: StatusCode) -> &'static CStr {
    find(STATUSES, code)
}

fn find(table: &[&'static CStr], code: i32) -> &'static CStr {
    let text = usize::try_from(code).ok().and_then(|code| table.get(code));
    text.copied().unwrap_or(c"there is no such code")
}

/// Returns the status of an operation whose peer failed.
pub fn status_of_failure(failure: PeerFailure) -> StatusCode {
    match failure {
        PeerFailure::Closed | PeerFailure::Gone => STATUS_ENDPOINT_CLOSED,
        _ => STATUS_ENDPOINT_UNREACHABLE,
    }
}

/// Returns the status of a failed operation.
pub fn status_of(error: OpError) -> StatusCode {
    match error {
        OpError::Truncated { .. } => STATUS_TRUNCATED,
        OpError::Cancelled => STATUS_CANCELLED,
        OpError::Peer { failure, .. } => status_of_failure(failure),
        _ => STATUS_ABORTED,
    }
}

/// Returns the code of a call that waits for a connection whose request ended so.
pub fn return_of(status: StatusCode) -> Answer {
    match status {
        STATUS_SUCCESS => Ok(()),
        STATUS_TIMEOUT => Err(TIMEOUT),
        STATUS_ENDPOINT_UNKNOWN => Err(NIC_NOT_FOUND),
        STATUS_BAD_KEY => Err(BAD_CONNECTION_KEY),
        STATUS_BAD_ENDPOINT => Err(BAD_ENDPOINT_ID),
        STATUS_NO_RESOURCES => Err(NO_RESOURCES),
        _ => Err(CONNECTION_FAILED),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn text__each_code_has_its_own() {
        for (text, count) in
            [(text_of_return as fn(i32) -> &'static CStr, 44), (text_of_status, 17)]
        {
            let all: std::collections::HashSet<_> = (0..count).map(text).collect();
            assert_eq!(all.len(), count as usize);
            for wrong in [-1, count, i32::MAX] {
                assert!(!all.contains(text(wrong)));
            }
        }
        assert_eq!(text_of_return(NOT_SUPPORTED_WITH_CONTEXT_ID), c"not supported with contexts");
        assert_eq!(text_of_status(STATUS_TRUNCATED).to_bytes().first(), Some(&b't'));
    }

    #[test]
    fn return_of__a_failed_connection() {
        assert_eq!(return_of(STATUS_SUCCESS), Ok(()));
        assert_eq!(return_of(STATUS_BAD_KEY), Err(BAD_CONNECTION_KEY));
        assert_eq!(return_of(STATUS_ENDPOINT_CLOSED), Err(CONNECTION_FAILED));
    }
}
