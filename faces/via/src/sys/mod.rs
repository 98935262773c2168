//! The binary interface, and all else that needs `unsafe`: registered memory, descriptors that
//! threads sleep on, the lock of an interface, and calls of the program's handlers.

pub mod abi;
pub mod bell;
pub mod calls;
pub mod gate;
pub mod interfaces;
pub mod region;
mod service;
mod upcall;
