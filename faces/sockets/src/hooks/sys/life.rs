//! Functions that make, copy, change and close descriptors.

use crate::guard::Caller;
use crate::hooks::{life, options};
use crate::sys::real;
use crate::sys::socket::SIOCATMARK;
use crate::tipc;
use libc::{c_char, c_int, c_long, c_uint, c_ulong, c_void, sockaddr, socklen_t, FILE};

hooks! {
    /// connect(2).
    fn connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
        life::connect(fd, Caller::new(to), len, || real::connect(fd, to, len))
    }

    /// accept(2).
    fn accept(fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
        accept4(fd, from, len, 0)
    }

    /// accept4(2).
    fn accept4(fd: c_int, from: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        if tipc::is(fd) {
            return tipc::accept(fd, (Caller::new(from), Caller::new(len)), flags);
        }
        let new = match flags {
            0 => real::accept(fd, from, len),
            _ => real::accept4(fd, from, len, flags),
        };
        life::accepted(fd, new)
    }

    /// close(2).
    fn close(fd: c_int) -> c_int {
        life::close(fd)
    }

    /// close(2) under its other name.
    fn __close(fd: c_int) -> c_int {
        life::close(fd)
    }

    /// close_range(2).
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        life::close_range(first, last, flags)
    }

    /// closefrom(3).
    fn closefrom(first: c_int) {
        life::close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }

    /// connect(2) under its other name.
    fn __connect(fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
        connect(fd, to, len)
    }

    /// dup(2).
    fn dup(fd: c_int) -> c_int {
        life::copied(fd, real::dup(fd))
    }

    /// dup2(2).
    fn dup2(from: c_int, to: c_int) -> c_int {
        life::dup2(from, to)
    }

    /// dup2(2) under its other name.
    fn __dup2(from: c_int, to: c_int) -> c_int {
        life::dup2(from, to)
    }

    /// dup3(2).
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        life::dup3(from, to, flags)
    }

    /// fcntl(2).
    fn fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int {
        options::has_controlled(fd, command, arg, real::fcntl(fd, command, arg))
    }

    /// fcntl(2), as programs with large files call it.
    fn fcntl64(fd: c_int, command: c_int, arg: c_long) -> c_int {
        fcntl(fd, command, arg)
    }

    /// fcntl(2) under its other name.
    fn __fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int {
        fcntl(fd, command, arg)
    }

    /// ioctl(2).
    fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
        options::ioctl(fd, request, Caller::new(arg), || real::ioctl(fd, request, arg))
    }

    /// sockatmark(3), for which the C library asks the kernel past this library.
    fn sockatmark(fd: c_int) -> c_int {
        let mut mark: c_int = 0;
        match ioctl(fd, SIOCATMARK, (&raw mut mark).cast()) {
            0 => mark,
            failed => failed,
        }
    }

    /// shutdown(2).
    fn shutdown(fd: c_int, how: c_int) -> c_int {
        options::shutdown(fd, how)
    }

    /// setsockopt(2).
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t,
    ) -> c_int {
        let call = || real::setsockopt(fd, level, name, value, len);
        options::set(fd, (level, name), (Caller::new(value), len), call)
    }

    /// getsockopt(2).
    fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t,
    ) -> c_int {
        let call = || real::getsockopt(fd, level, name, value, len);
        options::get(fd, (level, name), (Caller::new(value), Caller::new(len)), call)
    }

    /// fdopen(3): the C library reads and writes its streams past this library.
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if !life::has_stream(fd) {
            return std::ptr::null_mut();
        }
        let file = real::fdopen(fd, mode);
        if !file.is_null() {
            life::is_stream(fd);
        }
        file
    }
}
