//! io_uring by liburing, which makes its calls by instructions of its own: the kernel reads and
//! writes sockets there, and nobody is asked. Connections of a program that makes such a ring are
//! the kernel's alone from then on.

use super::leave::hand_over_as;
use super::process::each;
use super::programs::complain;
use crate::slot::BROKEN;
use crate::why::Why;
use crate::{rings, settings, vfork};

/// True if the program may make a ring: all connections are by TCP from now on. False if bytes of
/// one stay in memory.
pub fn may_come() -> bool {
    !settings::is_on() || vfork::is_child() || all_by_tcp()
}

#[cold]
fn all_by_tcp() -> bool {
    rings::has_come();
    let mut all = true;
    each(true, |one| {
        let handed = hand_over_as(one, Why::Ring);
        // One that has ended by an error tells that to any reader.
        if let Some(why) = handed.err().filter(|_| !one.slot.has(BROKEN)) {
            complain("io_uring was refused", one.fd, &why);
            all = false;
        }
    });
    all
}
