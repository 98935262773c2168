//! The C interface of weft: messages, groups, packets and remote memory of a job's rank, as
//! `weft.h` declares them, and `crl.h` of CRL 1.0 over the regions of `weft-models`.
//!
//! `fault` has the codes, `entry` the way into every function, `job` a rank, `watchdog` the thread
//! that makes progress for it. All `unsafe` code lies in [`sys`]: a file each for jobs, packets,
//! messages, requests, and operations on other ranks (multicast, fetch-and-add, remote-memory
//! copy). The header is
//! `include/weft.h`; a test compares it with the functions here. `sys/crl.rs` is a second
//! interface, `crl.h` of CRL 1.0, over the regions of `weft-models`.
#![warn(missing_docs)]

mod calls;
mod entry;
mod fault;
mod job;
mod regions;
mod watchdog;

#[allow(unsafe_code)]
pub mod sys;
