//! System calls and raw memory, which know nothing of connections: the functions of the C library
//! that this library stands before, and calls of the kernel behind a safe interface.

pub mod action;
pub mod calls;
pub mod clock;
pub mod elf;
pub mod memory;
pub mod real;
pub mod socket;
