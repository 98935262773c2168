//! Deterministic simulation: the same endpoint, engine and programs in virtual time, on hosts and a
//! network whose faults follow from a seed.
//!
//! Everything follows from a [`SimConfig`] and its seed: hosts with NICs and processor costs,
//! wires, store-and-forward switches, and faults as data. No wall clock, no threads, no hash maps.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod busy;
pub mod checker;
mod clock;
mod computing;
mod config;
pub mod congestion;
mod events;
mod fault;
mod flood;
mod link;
pub mod mxoe;
pub mod names;
mod network;
pub mod plan;
mod remote;
pub mod runner;
pub mod scenarios;
mod served;
mod services;
mod shared;
mod sim;
mod story;
pub mod swarm;
mod tables;
pub mod tasks;
mod trace;

pub use clock::SimClock;
pub use config::{HostModel, LinkKind, SimConfig, Topology, Wire};
pub use fault::{Fault, Span};
pub use link::SimLink;
pub use network::{Counters, Network, SharedNetwork, Step};
pub use sim::{address_of, Env, Failure, Sim};
pub use trace::{Fate, Trace, TraceEvent};
pub use weft_link::rng::Rng;
