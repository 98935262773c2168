//! The agent link: a rank's way to the network through `weftd`, the agent of its host.
//!
//! A rank has no right to raw sockets, and computes instead of acknowledging; its agent has the
//! sockets and acknowledges, orders and sends again in the rank's name ([`weft_core::relay`]). The
//! two share memory as two ranks of a host do, with the same rings, doorbells and checks
//! ([`shm`](crate::shm)). On the wire nothing shows: the agent speaks the protocol as the rank
//! would, with the rank's identity and the key of its job.
//!
//! - `control.rs`: what the two say to each other besides packets.
//! - `hub.rs`: the agent's end of all rings.
//! - `client.rs`: the rank's end, a [`Link`](crate::Link).
//! - `services.rs`: what the rank asks for besides carrying packets.
//! - `proxy.rs`: what the agent keeps of one rank, but for its links, and does in its place;
//!   `payloads.rs`: the bytes; `counters.rs`, `groups.rs`: fetch-and-add and multicast.
//! - `bare.rs`: a rank's end that says anything, for tests of agents.

mod bare;
mod client;
mod control;
mod counters;
mod groups;
mod hub;
mod payloads;
mod proxy;
mod services;
#[cfg(all(test, not(loom)))]
mod tests;

pub use crate::shm::Caller;
pub use bare::{BareRank, Nonsense};
pub use client::{AgentConfig, AgentLink};
pub use control::{Attach, Control, ControlError, GroupRole, Served, VERSION};
pub use counters::InKernel;
pub use hub::{FromRank, Hub};
pub use proxy::{Limits, Proxy, ToRank};
pub use services::{GroupPacket, MemberNews, Services, ServicesHandle, PACKET_GROUPS};

use weft_core::EndpointId;

/// The identity of every agent: ranks reach it by the name of its socket.
pub(crate) const AGENT: EndpointId = EndpointId(u64::from_be_bytes(*b"weft agt"));

/// Bytes that stand before a packet in a ring between a rank and its agent: the peer as the rank
/// numbers it (u32), what follows (u8), zero (3 bytes).
pub(crate) const PREFIX: usize = 8;
/// A packet follows.
pub(crate) const PACKET: u8 = 0;
/// A [`Control`] message follows, as payload.
pub(crate) const CONTROL: u8 = 1;
/// No peer: the rank has not told of it yet.
pub(crate) const NOBODY: u32 = u32::MAX;
/// Shortest header that a ring carries.
pub(crate) const HEADER_MIN: usize = 24;

/// Where an agent is looked for, in this order, when nobody says: the system's, the user's, and one
/// without a file system.
pub fn usual_names() -> Vec<String> {
    let mut names = vec!["/run/weft/agent.sock".to_string()];
    if let Some(folder) = std::env::var("XDG_RUNTIME_DIR").ok().filter(|f| !f.is_empty()) {
        names.push(format!("{folder}/weft/agent.sock"));
    }
    names.push("@weft-agent".to_string());
    names
}
