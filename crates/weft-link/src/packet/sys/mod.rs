//! The system calls of the packet link.
#![allow(unsafe_code)]

mod ring;
mod socket;

pub use ring::Held;
pub(super) use ring::{Geometry, Ring, Seen};
pub(super) use socket::{offload, Carries, Socket, BURST, OFFLOAD};
pub use socket::{Keep, Value};

use std::io;

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rc)
}
