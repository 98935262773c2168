//! The parts that the interfaces of `vipl.h` and `myriexpress.h` share: the lock of each open
//! object, waits, the thread that makes progress while the program does something else, and the way
//! from an address to an endpoint without an agent.
//!
//! An object that a program opens is an endpoint of weft and a client of its port. [`lock`]
//! has the lock of each, the waits of the program's threads, and the thread that makes progress
//! while the program does something else. [`rendezvous`] finds the endpoint that waits at an
//! address, without an agent. [`mx`] reads the variables of MX. [`handle`] and [`table`] name
//! objects by numbers that go stale. [`given`] has the types of a program's pointers, [`wall`] the
//! border to C, and [`exports`] defines the functions that C calls.
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod address;
pub mod endpoint;
pub mod given;
pub mod handle;
pub mod hosts;
pub mod lock;
pub mod mx;
pub mod rendezvous;
pub mod service;
#[allow(unsafe_code)]
pub mod sys;
pub mod table;
pub mod wall;
