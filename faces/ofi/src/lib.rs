//! The libfabric provider of weft: `libweft-fi.so`, found by libfabric through `FI_PROVIDER_PATH`,
//! carries unmodified MPI programs over weft.
//!
//! The provider implements libfabric's provider interface (`fi_provider(7)`, `fi_prov.h`) and links
//! nothing of libfabric. It offers reliable-datagram endpoints (`FI_EP_RDM`) with tagged and
//! untagged messages, remote memory and atomic operations; see [`offer`]. The endpoint chooses the
//! link to each peer: shared memory inside a host, packet sockets or UDP between hosts.
//!
//! Layers: [`sys`] has the binary interface, its tables of functions, and the objects they work on;
//! all `unsafe` code lies there. The rest is plain: [`name`] the addresses that MPI libraries
//! exchange, [`offer`] hints and the offer made for them, [`lock`] the lock that only callers with
//! several threads take, [`looks`] the looks of a caller that waits, [`vector`] address vectors,
//! [`who`] the introductions of processes, [`atomic`] the arithmetic of atomic operations and their
//! messages.
#![warn(missing_docs)]

pub mod atomic;
pub mod lock;
pub mod looks;
pub mod name;
pub mod offer;
#[allow(unsafe_code, missing_docs)]
pub mod sys;
pub mod vector;
pub mod who;
