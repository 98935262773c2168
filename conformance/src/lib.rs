//! One suite for every link, tests of whole endpoints over several links, and the bodies of the
//! fuzz targets.
//!
//! A link is correct if [`link_suite!`] passes for it; its capabilities name the features that it
//! lacks.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod built;
pub mod cable;
pub mod capture;
pub mod commands;
mod engine;
pub mod exposition;
pub mod hostile;
pub mod hosts;
pub mod links;
mod mac;
pub mod programs;
mod skip;
pub mod slurm;
mod started;
mod sys;

pub use built::are_built;
pub use skip::skip;
pub use started::Started;
pub use sys::{be_user, in_a_fork, LatePage};
