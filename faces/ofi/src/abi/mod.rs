//! libfabric's binary interface: its numbers here, its structures and tables of functions in `sys`.

#[allow(unsafe_code)]
mod sys;

pub use sys::*;

use libc::c_int;

/// Returns the number of a version of the interface.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Declares bits by their positions.
macro_rules! bits {
    ($type:ty: $($(#[$doc:meta])* $name:ident = $at:literal,)*) => {
        $($(#[$doc])* pub const $name: $type = 1 << $at;)*
    };
}

/// Declares the numbers of an enumeration.
macro_rules! numbers {
    ($type:ty: $($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        $($(#[$doc])* pub const $name: $type = $number;)*
    };
}

/// Capabilities, operation and completion flags.
pub mod cap {
    bits! { u64:
        MSG = 1, RMA = 2, TAGGED = 3, ATOMIC = 4, COLLECTIVE = 6, READ = 8, WRITE = 9, RECV = 10,
        SEND = 11, REMOTE_READ = 12, REMOTE_WRITE = 13, MULTI_RECV = 16, REMOTE_CQ_DATA = 17,
        MORE = 18, PEEK = 19, FENCE = 21, COMPLETION = 24, INJECT = 25, INJECT_COMPLETE = 26,
        TRANSMIT_COMPLETE = 27, DELIVERY_COMPLETE = 28, MATCH_COMPLETE = 31, LOCAL_COMM = 51,
        REMOTE_COMM = 52, PROV_ATTR_ONLY = 54, RMA_EVENT = 56, SOURCE = 57, DIRECTED_RECV = 59,
        /// For a receive: take the message that a peek claimed.
        CLAIM = 59,
        /// For a peek: discard the message.
        DISCARD = 58,
        /// For binding a completion queue: only operations that ask for a completion get one.
        SELECTIVE_COMPLETION = 59,
        /// For binding an event queue to a domain: registrations of memory are reported to it.
        REG_MR = 59,
        /// For inserting addresses: report errors one by one.
        SYNC_ERR = 58,
        PEER = 43,
        /// For a query: atomic operations that return the values before.
        FETCH_ATOMIC = 58,
        /// For a query: atomic operations that compare first.
        COMPARE_ATOMIC = 59,
    }
}

/// Mode bits.
pub mod mode {
    bits! { u64:
        CONTEXT = 59, CONTEXT2 = 52,
    }
}

/// Message order.
pub mod order {
    bits! { u64:
        RAR = 0, RAW = 1, RAS = 2, WAR = 3, WAW = 4, WAS = 5, SAR = 6, SAW = 7, SAS = 8,
        RMA_RAR = 32, RMA_RAW = 33, RMA_WAR = 34, RMA_WAW = 35, ATOMIC_RAR = 36, ATOMIC_RAW = 37,
        ATOMIC_WAR = 38, ATOMIC_WAW = 39,
    }
}

/// Modes of memory registration.
pub mod mr {
    bits! { libc::c_int:
        BASIC = 0, SCALABLE = 1, LOCAL = 2, VIRT_ADDR = 4, ALLOCATED = 5, PROV_KEY = 6,
        ENDPOINT = 9,
    }
}

/// Numbers of errors, which calls return negated.
pub mod err {
    pub use libc::{
        EACCES, EAGAIN, EBUSY, ECANCELED, ECONNREFUSED, ECONNRESET, EFAULT, EHOSTUNREACH, EINVAL,
        EIO, EKEYREJECTED, EMSGSIZE, ENODATA, ENOMEM, ENOMSG, ENOSYS, EOPNOTSUPP, ETIMEDOUT,
    };

    numbers! { libc::c_int:
        EOTHER = 256, ETOOSMALL = 257, EOPBADSTATE = 258, EAVAIL = 259, EBADFLAGS = 260,
        ENOEQ = 261, ENOCQ = 263, ETRUNC = 265, ENOKEY = 266, ENOAV = 267,
    }
}

/// Classes of objects.
pub mod class {
    numbers! { usize:
        FABRIC = 1, DOMAIN = 2, EP = 3, AV = 11, MR = 12, EQ = 13, CQ = 14, CNTR = 15,
        MC = 19, AV_SET = 21,
    }
}

/// Commands of `fi_control`.
pub mod control {
    numbers! { libc::c_int:
        GETOPSFLAG = 2, SETOPSFLAG = 3, GETWAIT = 5, ENABLE = 6, GETWAITOBJ = 16,
    }
}

numbers! { c_int:
    EP_RDM = 3,
    AV_MAP = 1, AV_TABLE = 2,
    PROGRESS_UNSPEC = 0, PROGRESS_AUTO = 1, PROGRESS_MANUAL = 2, PROGRESS_CONTROL_UNIFIED = 3,
    THREAD_UNSPEC = 0, THREAD_SAFE = 1, THREAD_FID = 2, THREAD_DOMAIN = 3, THREAD_COMPLETION = 4,
    THREAD_ENDPOINT = 5,
    RM_ENABLED = 2,
    CQ_CONTEXT = 1, CQ_MSG = 2, CQ_DATA = 3, CQ_TAGGED = 4,
    CNTR_COMPLETIONS = 0,
    WAIT_NONE = 0, WAIT_UNSPEC = 1, WAIT_FD = 3, WAIT_YIELD = 5,
    OPT_ENDPOINT = 0, OPT_MIN_MULTI_RECV = 0, OPT_CM_DATA_SIZE = 1, OPT_FI_HMEM_P2P = 8,
    OPT_CUDA_API_PERMITTED = 10, OPT_SHARED_MEMORY_PERMITTED = 11,
}

numbers! { u32:
    EVENT_MR_COMPLETE = 4, EVENT_AV_COMPLETE = 5, EVENT_JOIN_COMPLETE = 6,
    /// Weft's own address format: the uppermost bit marks formats of providers.
    ADDR_WEFT = 0x8000_0077,
    /// Weft's own protocol.
    PROTO_WEFT = 0x8000_0077,
}

/// No address.
pub const ADDR_NONE: u64 = u64::MAX;
/// No key.
pub const KEY_NONE: u64 = u64::MAX;
