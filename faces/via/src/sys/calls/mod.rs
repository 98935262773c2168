//! The functions of `vipl.h`.
//!
//! Each checks its pointers as far as possible, and its handles completely; the program promises
//! the rest, as `vipl.h` says.

pub mod connect;
pub mod data;
pub mod memory;
pub mod names;
pub mod nic;
pub mod queue;
pub mod vi;
