//! Services in the kernel: XDP programs that serve peers past every process of a host. Counters
//! that peers add to ([`counters`]), and chains of hosts that forward packets ([`chain`]).
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod chain;
pub mod counters;
mod sip;
#[allow(unsafe_code)]
mod sys;
#[cfg(test)]
mod testing;
