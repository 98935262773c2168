//! The core of a cluster of agents, as a state machine without I/O: which hosts there are, a copy
//! of the names of all hosts on each host, subscriptions to names, and groups.
//!
//! A [`Node`] is one agent of the cluster. It keeps who is a member (`membership`), a copy of the
//! names of all hosts (`directory`) and the subscriptions of its own host (`subscriptions`). It
//! does no I/O, reads no clock and draws no random number: a driver passes it messages and the
//! time, and takes messages, events and its next deadline from it. Agents and the simulator drive
//! the same code. A [`groups::GroupEnd`] is one program's end of a group of members.
//!
//! Messages between agents are datagrams: they may be lost, doubled, reordered or late. Each one
//! states a fact that is true for good (a numbered step of a host's history, a numbered change of a
//! host's names), so it may come in any order and more than once. `PROTOCOL.md`, section Names,
//! defines them.
//!
//! ```
//! use weft_core::Instant;
//! use weft_names::{Claim, Config, HostId, Life, Node, Owner, Pick};
//!
//! let address = "10.0.0.1:7117".parse().unwrap();
//! let life = Life { incarnation: 1, nonce: 7 };
//! let mut node = Node::new(Config::default(), HostId(1), life, address, Instant(0));
//! let owner = Owner { user: 1000, process: 4711, serial: 1 };
//! let claim = Claim::new(owner, 1000, 5..=9).alias("pump").endpoint(0xfeed);
//! node.claim(Instant(0), claim).unwrap();
//! let found = node.look_up(1000, 1000, 7, Pick::Turn).unwrap();
//! assert_eq!(found.name.endpoint, 0xfeed);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

#[macro_use]
pub mod wire;

pub mod config;
pub mod directory;
pub mod groups;
pub mod id;
pub mod membership;
pub mod node;
pub mod share;
pub mod stats;
pub mod subscriptions;

pub use config::Config;
pub use directory::{Binding, Claim, ClaimError, Pick, Policy, Rule, Scope};
pub use id::{BindingId, HostId, Life, Owner};
pub use membership::{Cause, MemberEvent, Record};
pub use node::{Event, Node, Timer, Transmit};
pub use stats::Stats;
pub use subscriptions::{Filter, Mode, NameEvent, Notice, SubscriptionId};
pub use weft_core::Instant;
