//! The interfaces of this network namespace, events of their changes (rtnetlink), their speed,
//! their coalescing of interrupts.
#![allow(unsafe_code)]

mod parse;
mod socket;
mod speed;

pub(super) use socket::list;
pub use socket::Monitor;
pub use speed::{coalescing, speed, Coalescing};
