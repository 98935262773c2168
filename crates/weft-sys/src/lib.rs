//! Other processes, as the operating system shows them: their users, the descriptors that they
//! pass, the memory that they share.
//!
//! Any process of a host may connect to a listener, and any may take an abstract name first. So
//! each part of weft that talks to another process asks here:
//!
//! - [`user`]: users by number, and the cases in which a number proves an identity.
//! - [`peer`]: the process at the other end of a socket.
//! - [`agent`]: the way of every client to a socket of an agent, which checks the agent's user.
//! - [`passing`]: messages with descriptors.
//! - [`foreign`]: descriptors of strangers, and the threads that close them.
//! - [`epoll`]: descriptors that are waited for together.
//! - [`forks`]: copies of this process.
//! - [`threads`]: threads that take no signals from the program.
//! - [`lock`]: a lock whose holder learns that other threads wait for it.
//! - [`memory`]: memory of another process that can be mapped without a risk.
//!
//! Unsafe code stands in the `sys` module only.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
mod bulk;
pub mod foreign;
pub mod lock;
pub mod memory;
pub mod passing;
pub mod peer;
#[allow(unsafe_code)]
mod sys;
pub mod user;

pub use foreign::Foreign;
pub use peer::Peer;
pub use sys::{epoll, forks, threads};
