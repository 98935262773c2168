//! Sockets of messages beside the agent's own, to which programs of all users connect.

use crate::sys::{self, passing};
use std::io;
use std::os::fd::OwnedFd;
use weft_link::LinkError;
use weft_sys::epoll::{Epoll, Interest};

/// Returns the error of a socket of this name.
pub fn failed(name: &str) -> impl Fn(io::Error) -> LinkError + Copy + '_ {
    move |source| LinkError::System {
        what: format!("listening at {name}"),
        source,
        fix: "another agent may serve there (`weftd --status`)",
    }
}

/// Returns a socket that listens at a name, and a set in which it has a number.
///
/// # Errors
/// Another process has the name, or the system has no descriptors left.
pub fn open(name: &str, number: u64) -> Result<(OwnedFd, Epoll), LinkError> {
    let fail = failed(name);
    sys::prepare_socket_path(name);
    let listener = passing::listen(name).map_err(fail)?;
    sys::let_all_connect(name);
    let set = Epoll::new().map_err(fail)?;
    set.add(&listener, number, Interest::READ).map_err(fail)?;
    Ok((listener, set))
}
