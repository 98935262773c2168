//! The binary interface, and all else that needs `unsafe`: registered memory, the open interfaces,
//! and calls of the program's handlers.

pub mod abi;
pub mod calls;
pub mod lock;
pub mod region;
mod upcall;
