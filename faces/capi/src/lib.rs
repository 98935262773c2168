//! The C interface of weft: messages, groups, packets and remote memory of a job's rank, as
//! `weft.h` declares them, and `crl.h` of CRL 1.0 over the regions of `weft-models`.
//!
//! `fault` has the codes, `entry` the way into every function, `object` the heads of objects, `job`
//! a rank, `watchdog` the thread that makes progress for it. [`functions`] has a module for each
//! kind of functions: they take references, values and places for results. Modules named `sys` hold
//! the `unsafe` code: those of `functions` and `crl` have the functions that programs call, which
//! check their pointers and go on in the module of the kind. The header is `include/weft.h`; a test
//! compares it with these functions. [`crl`] is a second interface, `crl.h` of CRL 1.0, over the
//! regions of `weft-models`.
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod crl;
mod entry;
mod fault;
pub mod functions;
mod job;
mod object;
#[allow(unsafe_code)]
mod sys;
mod watchdog;

pub use fault::{
    WEFT_ARGUMENT, WEFT_BUSY, WEFT_CANCELLED, WEFT_INIT, WEFT_NO_AGENT, WEFT_OK, WEFT_PANIC,
    WEFT_PEER, WEFT_REFUSED, WEFT_SIGNAL, WEFT_THREAD, WEFT_TOO_LONG, WEFT_TOO_MANY, WEFT_UPCALL,
};
pub use job::{WeftJob, WEFT_ANY};
