//! The parts around the core of a cluster, for agents and for programs: the key of the cluster,
//! authenticated datagrams between agents, messages between an agent and the programs of its host,
//! and a program's connection to its agent.
//!
//! The crate `weft-names` decides, without an operating system. This crate has what agents and
//! programs need around it:
//!
//! - `key`: the key of a cluster and its file.
//! - `session`: datagrams between agents, each authenticated under keys of a session.
//! - `local`: the messages between an agent and the programs of its host; `desk`: its status, for
//!   those who ask.
//! - `mail`: messages to names, from agent to agent.
//! - `taken`: messages whose programs have not read them.
//! - `tree`: those to all owners of a name, over trees of agents.
//! - `group`: memberships of groups, as agents keep them.
//! - `counters`: the page of a rank's counters; `ranks`: the ranks of a host, as told by agents.
//! - `client`: [`Names`], a program's connection to its agent; `watch`: its subscriptions;
//!   `member`: its memberships of groups.
//! - `name`: names as people write them; `hostlist`: hosts as Slurm writes them.
//!
//! ```no_run
//! use std::time::Duration;
//! use weft_cluster::{Name, Names, Spec};
//!
//! # fn main() -> Result<(), weft_cluster::NamesError> {
//! let mut names = Names::connect()?;
//! let pump: Name = "pump:7".parse()?;
//! names.claim(&Spec::new(&pump).address("10.0.0.1:4000".parse().unwrap()))?;
//! let found = names.wait(&pump, 1, Duration::from_secs(10))?;
//! println!("pump 7 is at {:?}", found[0].name.address);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod client;
pub mod counters;
pub mod desk;
pub mod group;
pub mod hostlist;
pub mod key;
pub mod local;
pub mod mail;
pub mod member;
pub mod name;
pub mod ranks;
pub mod session;
pub mod share;
pub mod taken;
pub mod tree;
pub mod watch;

pub use client::{Names, NamesError, Spec};
pub use group::{GroupNotice, To};
pub use key::{ClusterKeys, KeyError, KeyFile};
pub use member::{GroupMember, GroupOptions};
pub use name::Name;
pub use watch::Watch;
pub use weft_names as names;

/// The UDP port of agents, unless the user gives another.
pub const PORT: u16 = 7117;

/// Returns the address of the socket for names of the agent at `agent`.
pub fn socket_name(agent: &str) -> String {
    format!("{agent}-names")
}
