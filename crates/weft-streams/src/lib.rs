//! The protocol of the sockets adapter, without I/O: the byte stream of a TCP connection whose
//! bytes travel over TCP or through a ring in shared memory, and the messages between a program and
//! its agent that set this up.
//!
//! No I/O, no clock, no descriptor: the caller moves bytes, and asks here where the next ones go or
//! come from. `docs/adr/0033-sockets-that-sleep-in-the-kernel.md` says why it is so.
//!
//! - [`words`]: the words of one direction in shared memory, and their layout.
//! - [`sender`], [`receiver`]: the two ends of a direction. [`count`]: what TCP has carried of it.
//! - [`board`]: the list of a program's connections that commands read.
//! - [`policy`]: the connections that may share memory, by their addresses and ports.
//! - [`program`]: the programs that take the library, by their files.
//! - [`leaving`]: the end of joins, before another program gets the connections.
//! - [`holding`]: the places of the processes that hold a connection.
//! - [`message`]: the messages between a process and its agent; [`pairing`]: the agent's part.
//! - [`tipc`]: another kind of sockets, whose state is the agent's: its messages.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod board;
pub mod count;
pub mod holding;
pub mod leaving;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod message;
#[cfg(all(test, not(loom)))]
mod model_tests;
pub mod pairing;
pub mod policy;
pub mod program;
pub mod receiver;
pub mod sender;
mod shim;
#[cfg(all(test, not(loom)))]
mod testing;
pub mod tipc;
pub mod words;

/// The end of a connection whose peer wrote into shared memory what no peer of this protocol can
/// have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Returns the name of the socket for socket programs of the agent at `name`.
pub fn socket_name(name: &str) -> String {
    format!("{name}-sockets")
}
