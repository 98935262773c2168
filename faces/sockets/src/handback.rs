//! Bytes that wait in a ring go back to TCP, where a program without this library is to read them.
//!
//! TCP takes bytes at the other end only, and in order. So the agent gets both sockets for a
//! moment: this end's, with the bytes of the ring, and the other end's, which its process gives on
//! loan ([`crate::loan`]). The agent takes bytes by TCP that came after those of the ring out, and
//! retransmits all.
//!
//! The bytes are one record of a pair of sockets, whose other end the agent has too. So bytes that
//! cannot go back, or not in time, are taken back here, and stay in the ring.

use crate::agent::{self, NotGiven};
use crate::failure::Failure;
use crate::slot::{BROKEN, HELD, WANTED};
use crate::sys::{calls, socket};
use crate::table::{Connection, Span};
use crate::{board, loan, stream};
use std::os::fd::RawFd;

/// Time for which the start of another program waits for a socket that is on loan, in milliseconds.
const PATIENCE_MS: u32 = 5_000;

/// Has the bytes that wait in the ring of a connection come by TCP.
///
/// # Errors
/// The bytes stay in the ring; or the connection has ended by an error, which its reads tell.
pub fn give_back(one: &Connection) -> Result<(), Failure> {
    let Some(user) = stream::enter(*one) else { return Ok(()) };
    comes_back(one)?;
    let Some(_held) = one.slot.receiving.take() else {
        return Err(Failure::new("a signal handler has interrupted a read of them"));
    };
    user.make_inactive();
    let Some((before, bytes, len)) = user.waiting() else { return Ok(()) };
    if agent::is_over() {
        return Err(Failure::new(
            "the program has confined itself, or shares descriptors with a child",
        ));
    }
    let [own, record] = record_of(&bytes, len)
        .ok_or_else(|| Failure::new("the system has no descriptors for it"))?;
    let given = agent::give_back(one, before, record, || has_taken(record));
    [own, record].into_iter().for_each(calls::close);
    given.map_err(|not| match not {
        NotGiven::Kept(why) => why,
        NotGiven::Lost(why) => {
            reset(one);
            why
        }
    })?;
    user.give(len);
    // The peer's bytes may have gone back meanwhile.
    comes_back(one)
}

/// Waits for the socket, if it is on loan: the next program sends behind what the agent sends.
///
/// # Errors
/// The agent keeps it.
pub fn comes_back(one: &Connection) -> Result<(), Failure> {
    let is_here = !one.slot.has(HELD | WANTED) || loan::is_back(one, PATIENCE_MS);
    is_here.then_some(()).ok_or_else(|| Failure::new("the agent still sends by the socket"))
}

/// Returns a pair of sockets, of which the second one has a record with these bytes.
fn record_of(bytes: &Span, len: usize) -> Option<[RawFd; 2]> {
    let ends = socket::pair()?;
    if bytes.write_to(ends[0]) == len as isize {
        return Some(ends);
    }
    ends.into_iter().for_each(calls::close);
    None
}

/// Takes the record back. False: the agent has it.
fn has_taken(record: RawFd) -> bool {
    // The rest of a record is thrown away.
    socket::receive(record, &mut [0; 1], libc::MSG_DONTWAIT) > 0
}

/// A connection ends whose bytes would be lost: an error tells it to both ends.
pub fn reset(one: &Connection) {
    board::stays(one.at, "bytes of its ring could not go back to TCP");
    one.slot.set(BROKEN);
    socket::reset(one.fd);
}
