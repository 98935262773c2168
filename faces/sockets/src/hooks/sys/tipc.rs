//! Functions that matter for sockets of TIPC alone.

use crate::guard::Caller;
use crate::hooks::life;
use crate::sys::real;
use crate::{settings, tipc};
use libc::{c_int, sockaddr, socklen_t};

hooks! {
    /// socket(2).
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        tipc::socket(domain, kind, protocol).unwrap_or_else(|| {
            let fd = real::socket(domain, kind, protocol);
            if fd >= 0 && settings::is_on() {
                life::made(fd, domain, kind, protocol);
            }
            fd
        })
    }

    /// bind(2).
    fn bind(fd: c_int, at: *const sockaddr, len: socklen_t) -> c_int {
        match tipc::is(fd) {
            true => tipc::bind(fd, Caller::new(at), len),
            false => real::bind(fd, at, len),
        }
    }

    /// listen(2).
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        match tipc::is(fd) {
            true => tipc::listen(fd, backlog),
            false => real::listen(fd, backlog),
        }
    }

    /// getsockname(2).
    fn getsockname(fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int {
        match tipc::is(fd) {
            true => tipc::getsockname(fd, (Caller::new(to), Caller::new(len))),
            false => real::getsockname(fd, to, len),
        }
    }

    /// getpeername(2).
    fn getpeername(fd: c_int, to: *mut sockaddr, len: *mut socklen_t) -> c_int {
        match tipc::is(fd) {
            true => tipc::getpeername(fd, (Caller::new(to), Caller::new(len))),
            false => real::getpeername(fd, to, len),
        }
    }
}
