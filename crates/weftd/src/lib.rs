//! weftd: the agent of a host.
//!
//! It owns what takes rights (raw sockets), serves ranks that have none over shared memory, and
//! acknowledges, orders, sends again, forwards multicast and serves fetch-and-add in their names,
//! whatever they do meanwhile. Paper 004 put this into the network interface's processor.
//!
//! - `agent.rs`: the loop. One thread, no lock; it hands its core over before it sleeps.
//! - `room.rs`: who is served: callers, seats and what each user may have of them.
//! - `seat.rs`: all that concerns one rank: its links, and a [`weft_link::agent::Proxy`], which
//!   acts in its place.
//! - `links.rs`: sockets that were opened while there was a right to.
//! - `options.rs`: settings, quotas; `status.rs`: what it tells about itself.
//! - `limit.rs`: how much the log takes.
//! - `rights.rs`: giving them up; `sys/`: the system calls.
//!
//! A crate of its own since it is what an administrator gives a capability: it links nothing but
//! the links.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod agent;
pub mod limit;
mod links;
pub mod options;
pub mod rights;
mod room;
mod seat;
pub mod status;
#[allow(unsafe_code)]
pub mod sys;

pub use agent::Agent;
