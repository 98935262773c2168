//! The system calls of the TCP link.
#![allow(unsafe_code)]

mod socket;

pub(super) use socket::{descriptors, listen, Accepted, Listener, Options, Socket};
