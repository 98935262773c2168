//! The path of a rank through `weftd`, the agent of its host: the rank's link, the agent's end of
//! the shared memory between them, and the state by which the agent acknowledges, orders and
//! retransmits in the rank's place.
//!
//! A rank has no right to raw sockets, and computes instead of acknowledging. Its agent has the
//! sockets, and acknowledges, orders and retransmits on behalf of the rank ([`weft_core::relay`]).
//! The two share memory like two ranks of a host, with the same rings, doorbells and checks
//! ([`shm`](weft_link::shm)). The packets on the wire are the same as without an agent: the agent
//! uses the rank's identity and the key of its job.
//!
//! - `control.rs`: the messages between the two, beside packets.
//! - `hub.rs`: the agent's end of all rings.
//! - `client.rs`: the rank's end, a [`Link`](weft_link::Link).
//! - `services.rs`: the services of the agent beside carrying packets.
//! - `proxy.rs`: the agent's state for one rank, without its links;
//!   `payloads.rs`: the bytes; `counters.rs`, `groups.rs`: fetch-and-add and multicast.
//! - `bare.rs`: a rank's end that sends any bytes, for tests of agents.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bare;
mod client;
mod control;
mod counters;
mod groups;
mod hub;
mod inbox;
mod outbox;
mod payloads;
mod proxy;
mod services;
#[cfg(all(test, not(loom)))]
mod tests;

pub use bare::{BareRank, Nonsense};
pub use client::{AgentConfig, AgentLink};
pub use control::{version_text, Attach, Control, ControlError, GroupRole, Served, VERSION};
pub use counters::InKernel;
pub use hub::{FromRank, Hub};
pub use proxy::{Limits, Proxy, ToRank};
pub use services::{GroupPacket, MemberNews, Services, ServicesHandle, PACKET_GROUPS};
pub use weft_link::shm::broker::{Broker, BrokerLimits};
pub use weft_link::shm::Caller;

use weft_core::EndpointId;

/// The identity of every agent: ranks reach it by the name of its socket.
pub(crate) const AGENT: EndpointId = EndpointId(u64::from_be_bytes(*b"weft agt"));

/// Length of the prefix of a packet in a ring between rank and agent: the rank's number of the peer
/// (u32), `PACKET` or `CONTROL` (u8), zero (3 bytes).
pub(crate) const PREFIX: usize = 8;
/// A packet follows.
pub(crate) const PACKET: u8 = 0;
/// A [`Control`] message follows, as payload.
pub(crate) const CONTROL: u8 = 1;
/// No peer: the rank has not named this one yet.
pub(crate) const NOBODY: u32 = u32::MAX;
/// Length of the shortest header in a ring.
pub(crate) const HEADER_MIN: usize = 24;

/// Returns the default addresses of agents, in order: the agent of the system, of the user, and one
/// without a file system.
pub fn usual_names() -> Vec<String> {
    let mut names = vec!["/run/weft/agent.sock".to_string()];
    if let Some(folder) = std::env::var("XDG_RUNTIME_DIR").ok().filter(|f| !f.is_empty()) {
        names.push(format!("{folder}/weft/agent.sock"));
    }
    names.push("@weft-agent".to_string());
    names
}
