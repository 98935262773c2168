//! The weft engine: message passing as a state machine.
//!
//! It does no I/O, reads no clock and touches no payload byte. A driver feeds it packets and time and
//! asks it what to send, where to place what arrived, and which operations are complete.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

pub mod caps;
pub mod config;
pub mod error;
pub mod group;
pub mod id;
pub mod matching;
pub mod reliability;
pub mod seq;
pub mod time;

pub use caps::LinkCaps;
pub use error::{OpError, PeerFailure};
pub use id::{EndpointId, OpId, PeerId};
pub use seq::Seq;
pub use time::Instant;
