//! rtnetlink: the interfaces of this network namespace, and word of their changes.
#![allow(unsafe_code)]

mod parse;
mod socket;

pub(super) use socket::list;
pub use socket::Monitor;
