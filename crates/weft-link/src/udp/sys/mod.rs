//! The system calls of the UDP link.
#![allow(unsafe_code)]

mod io;
mod socket;
#[cfg(test)]
pub(super) mod testing;

pub(super) use crate::ip::sys::{interfaces, route_to, SockAddr};
pub(super) use socket::Socket;
