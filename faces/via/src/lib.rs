//! The Virtual Interface Architecture of 1997 over weft: `vipl.h` and `libvipl.so`.
//!
//! A network interface (`VipOpenNic`) is an endpoint of weft, and its state is a client of the
//! endpoint's [port](weft::port). A pair of virtual interfaces is a number at each end: a send is
//! one message of the port, an RDMA write is a put, an RDMA read a get. `docs/guide/via.md` is the
//! guide, `docs/adr/0036-virtual-interfaces.md` the record of the decisions.
//!
//! [`state`] is a state machine in safe code, with queues, connections and transfers; [`wire`] has
//! the messages between two interfaces. [`sys`] has the functions that C calls; each gives its
//! arguments to a safe one. Reads and writes of a program's memory are those of [`region`]. The
//! lock, the waits and the way from a network address to an endpoint are those of `weft-ffi`.
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod calls;
pub mod code;
pub mod descriptor;
pub mod handle;
pub mod names;
mod open;
pub mod raw;
pub mod region;
pub mod state;
#[allow(unsafe_code)]
pub mod sys;
pub mod wire;

pub(crate) use weft_ffi::{address, rendezvous, table};
