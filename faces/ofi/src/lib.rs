//! The libfabric provider of weft: `libweft-fi.so`, found by libfabric through `FI_PROVIDER_PATH`,
//! carries unmodified MPI programs over weft.
//!
//! The provider implements libfabric's provider interface (`fi_provider(7)`, `fi_prov.h`) and links
//! nothing of libfabric. It offers reliable-datagram endpoints (`FI_EP_RDM`) with tagged and
//! untagged messages, remote memory and atomic operations; see [`offer`]. The endpoint chooses the
//! link to each peer: shared memory inside a host, packet sockets or UDP between hosts.
//!
//! Modules, each above those behind it:
//!
//! - `sys`: the functions that libfabric calls, and the objects that callers hold.
//! - `worker`: the operations of an endpoint and their completions.
//! - `queue`, `counter`, `events`, `addresses`: the objects that endpoints are bound to. `reports`:
//!   the part that queues and counters share, with waits. `domain`: the endpoints and the
//!   registered memory that belong together. They see an endpoint as `members` describes it.
//! - `watchdog`: progress while no caller comes. `poller`: callers that sleep; `idle`, [`looks`],
//!   `yields`: callers that poll in vain. [`lock`]: only callers with several threads take it.
//! - [`name`]: the addresses that MPI libraries exchange; [`vector`]: the numbers of them.
//!   [`offer`], `info`: hints, and the offer made for them. [`who`], `messages`: texts for people.
//! - `memory`: callers' buffers. `call`: errors as numbers. `slab`: values under numbers.
//!   [`atomic`]: the arithmetic of atomic operations and their messages. [`collective`]: the tree
//!   of a group and its messages; `sets`: the members of groups.
//! - [`abi`]: the numbers, structures and tables of libfabric.
//!
//! Modules named `sys` alone have code that the compiler does not check.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[allow(missing_docs)]
pub mod abi;
mod addresses;
pub mod atomic;
mod call;
pub mod collective;
mod counter;
mod domain;
mod events;
mod idle;
mod info;
pub mod lock;
pub mod looks;
mod members;
mod memory;
mod messages;
mod mover;
pub mod name;
pub mod offer;
mod poller;
mod queue;
mod region;
mod reports;
mod sets;
mod slab;
#[allow(unsafe_code)]
mod sys;
pub mod vector;
mod watchdog;
pub mod who;
mod worker;
mod yields;
