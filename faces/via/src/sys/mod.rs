//! The binary interface. A handle is a number and no address: a wrong or freed one is refused.
//!
//! Each function gives its arguments to one of the module `calls`.

pub mod connect;
pub mod data;
pub mod memory;
pub mod names;
pub mod nic;
pub mod queue;
pub mod vi;
