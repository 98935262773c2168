//! The system calls of the XDP link, and the memory that it shares with the kernel.
#![allow(unsafe_code)]

pub mod bpf;
pub(super) mod net;
mod port;
mod ring;
mod socket;
#[cfg(test)]
pub(super) mod testing;

pub(super) use bpf::Insn;
pub(super) use port::{Flushed, Port, PortConfig};
pub use ring::Mapping;
pub(super) use socket::{Socket, Statistics};
