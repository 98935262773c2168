//! The system calls of the XDP link, and the memory that it shares with the kernel.
#![allow(unsafe_code)]

mod bell;
pub(super) mod bpf;
pub(super) mod net;
mod port;
mod ring;
mod shared;
mod socket;
#[cfg(test)]
pub(super) mod testing;

pub(super) use bell::{Bell, Bells};
pub(super) use bpf::Insn;
pub(super) use port::{Flushed, Port, PortConfig};
pub(super) use shared::SharedArray;
pub(super) use socket::{Socket, Statistics};
