//! The agent of a host: it serves ranks without rights, lets ranks of different containers and
//! unmodified socket programs share memory, and keeps the names of a cluster of hosts.
//!
//! The agent owns resources that need rights (raw sockets) and serves ranks without rights over
//! shared memory. For them it acknowledges, orders, retransmits, forwards multicast and serves
//! fetch-and-add, even while they compute. Paper 004 has these functions in the network interface's
//! processor.
//!
//! - `agent.rs`: the main loop. One thread, no lock; it yields its core before it sleeps.
//! - `admission.rs`: callers and sessions, and the quotas of each user.
//! - `session.rs`: the state of one rank: its links, and a [`weft_agent::Proxy`], which
//!   acts for it.
//! - `links.rs`: sockets that were opened before rights were dropped.
//! - `cluster/`: the agent's part in a cluster: hosts and names.
//! - `sockets.rs`: connections of socket programs that are to share memory; `handback.rs`: bytes
//!   that go back to TCP; `paths.rs`: if the network leads from one to the other.
//! - `options.rs`: settings, quotas; `status.rs`: the status socket.
//! - `limit.rs`: limits on the log.
//! - `places.rs`: the names of its sockets, and their removal.
//! - `rights.rs`: dropping rights; `sys/`: the system calls.
//!
//! This is a crate of its own because an administrator gives it a capability: it links nothing but
//! the links.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod admission;
mod agent;
pub mod cluster;
mod handback;
pub mod limit;
mod links;
mod listening;
pub mod options;
mod paths;
pub mod places;
mod questions;
pub mod rights;
mod session;
pub mod sockets;
pub mod status;
#[allow(unsafe_code)]
pub mod sys;

pub use agent::Agent;

/// Returns the versions of the protocols that this agent speaks, as its status has them.
pub fn protocol() -> String {
    weft_agent::version_text(weft_agent::VERSION)
}

/// Returns the version of the agent, and the commit where the builder named it by
/// `WEFT_COMMIT`: `0.1.0 (abc1234)`.
pub fn version() -> String {
    weft_cluster::desk::version(env!("CARGO_PKG_VERSION"), option_env!("WEFT_COMMIT"))
}
