//! Starting jobs, and what the tools of weft share.
//!
//! | module | content |
//! | --- | --- |
//! | `run` | `weft run`: ranks on this host and on others |
//! | `mpi` | `weft mpi`: programs of an MPI under its own launcher, with weft as their network |
//! | `agent`, `lists` | agents that a command starts and asks; lists of socket programs |
//! | `meet`, `door` | checks that hosts reach each other by UDP, by TCP |
//! | `program`, `pages` | the programs of weft, the manual pages of each |
//! | `bars`, `outputs` | the form of progress bars; checks that results can be written |
//! | `out`, `misuse`, `words` | output, wrong command lines, words as a shell reads them |
//! | `interrupt`, `folder` | signals, folders that are removed at the end |
//! | `idle`, `limited` | other work on this machine, commands that may hang |
//! | `sys` | children before they become other programs, options of sockets |
//!
//! The other tools take the macros of `out` and `misuse` by `#[macro_use] extern crate`.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
pub mod out;
#[macro_use]
pub mod misuse;

pub mod agent;
pub mod bars;
pub mod folder;
pub mod idle;
pub mod interrupt;
pub mod limited;
pub mod lists;
pub mod mpi;
pub mod outputs;
pub mod pages;
pub mod program;
pub mod reachability;
pub mod run;
pub mod sys;
pub mod tcp_check;
mod threads;
pub mod words;
