//! The system calls of the TCP link.
#![allow(unsafe_code)]

mod poll;
mod socket;

pub(super) use poll::{Event, Poll};
pub(super) use socket::{descriptors, listen, Accepted, Listener, Options, Socket};
