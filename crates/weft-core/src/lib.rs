//! The engine: message passing between endpoints as a state machine. It does no I/O, reads no clock
//! and touches no payload byte (`no_std`, no dependency, no unsafe code). A driver passes it
//! packets and the time, and gets from it packets to send, the destination of received payload, and
//! completed operations.
//!
//! `ARCHITECTURE.md` follows one message through the files.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

/// Has `Debug` of an error give its text, which is read where `main` returns it or it is unwrapped.
#[macro_export]
#[doc(hidden)]
macro_rules! readable {
    ($error:ty) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

mod budget;
pub mod caps;
pub mod choices;
pub mod config;
mod connection;
pub mod engine;
pub mod error;
pub mod event;
pub mod exception;
pub mod group;
pub mod id;
pub mod matching;
mod peer;
pub mod relay;
pub mod reliability;
pub mod seq;
pub mod slab;
pub mod stats;
pub mod time;
pub mod transfer;
pub mod wire;

pub use caps::{LinkCaps, Pulse};
pub use config::Config;
pub use engine::Engine;
pub use error::{OpError, PeerFailure};
pub use id::{EndpointId, OpId, PeerId};
pub use reliability::Reliability;
pub use seq::Seq;
pub use stats::Stats;
pub use time::Instant;
