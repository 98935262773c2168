//! The interface of Myrinet Express (MX) over weft: `myriexpress.h` and `libmyriexpress.so`,
//! messages with 64 match bits between numbered endpoints of hosts.
//!
//! An endpoint of MX is an endpoint of weft, whose engine matches; [`key_check`] is the client of
//! its port that compares keys when endpoints connect. [`wire`] speaks MXoE with hosts of a trusted
//! network. `docs/guide/mx.md` is the guide,
//! `docs/adr/0038-mx-over-the-engines-matching.md` the record of the decisions.
//!
//! [`sys`] has the functions that C calls; each gives its arguments to a safe one. Reads and writes
//! of a program's memory are those of [`memory`].
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod address;
pub mod boards;
mod calls;
pub mod code;
mod copier;
mod enter;
pub mod errors;
pub mod handle;
pub mod key_check;
pub mod memory;
mod open;
pub mod params;
pub mod status;
#[allow(unsafe_code)]
pub mod sys;
pub mod wire;
