//! The system calls of the UDP link.
#![allow(unsafe_code)]

mod addr;
mod io;
mod net;
mod socket;
#[cfg(test)]
pub(super) mod testing;

pub(super) use addr::SockAddr;
pub(super) use net::{interfaces, name_of, route_to, Interface};
pub(super) use socket::Socket;
