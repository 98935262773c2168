//! The libfabric provider of weft: `libweft-fi.so`, found by libfabric through `FI_PROVIDER_PATH`,
//! carries unmodified MPI programs over weft.
//!
//! It implements libfabric's provider interface (`fi_provider(7)`, `fi_prov.h`) and links nothing
//! of libfabric. What it offers: reliable-datagram endpoints (`FI_EP_RDM`) with tagged and untagged
//! messages, remote memory and atomic operations; see [`offer`]. Which link carries a message to a
//! peer is the endpoint's choice: shared memory inside a host, packet sockets or UDP between hosts.
//!
//! Layers: [`sys`] has the binary interface, its tables of functions, and the objects they work on;
//! everything with an `unsafe` in it lies there. The rest is plain: [`name`] the addresses that MPI
//! libraries exchange, [`offer`] what is asked and offered, [`gate`] the lock that is there only
//! for callers that need one, [`vector`] address vectors, [`who`] how processes introduce
//! themselves, [`atomic`] the arithmetic of atomic operations and their messages.
#![warn(missing_docs)]

pub mod atomic;
pub mod gate;
pub mod name;
pub mod offer;
#[allow(unsafe_code, missing_docs)]
pub mod sys;
pub mod vector;
pub mod who;
