//! Functions that move bytes.

use super::chk_fail;
use crate::guard::Caller;
use crate::hooks::{data, messages};
use crate::sys::real;
use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off64_t, off_t, size_t, sockaddr, socklen_t,
    ssize_t, timespec,
};

hooks! {
    /// read(2).
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
        data::read(fd, Caller::new(buf.cast()), len, move || real::read(fd, buf, len))
    }

    /// readv(2).
    fn readv(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
        data::readv(fd, Caller::new(parts), n, move || real::readv(fd, parts, n))
    }

    /// preadv2(2).
    fn preadv2(fd: c_int, parts: *const iovec, n: c_int, at: off64_t, flags: c_int) -> ssize_t {
        let call = || real::preadv2(fd, parts, n, at, flags);
        data::readv_at(fd, Caller::new(parts), n, (at, flags), call)
    }

    /// preadv2(2), as programs with large files call it.
    fn preadv64v2(fd: c_int, parts: *const iovec, n: c_int, at: off64_t, flags: c_int) -> ssize_t {
        preadv2(fd, parts, n, at, flags)
    }

    /// recv(2).
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        let call = move || real::recv(fd, buf, len, flags);
        data::recv(fd, Caller::new(buf.cast()), len, flags, call)
    }

    /// recvfrom(2).
    fn recvfrom(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t {
        let call = move || real::recvfrom(fd, buf, len, flags, from, from_len);
        let to = Caller::new(buf.cast());
        match from.is_null() {
            true => data::recv(fd, to, len, flags, call),
            false => {
                let from = (Caller::new(from), Caller::new(from_len));
                data::recv_from(fd, (to, len), flags, from, call)
            }
        }
    }

    /// recvmsg(2).
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        let call = || real::recvmsg(fd, message, flags);
        messages::recvmsg(fd, Caller::new(message), flags, call)
    }

    /// recvmmsg(2).
    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec,
    ) -> c_int {
        let one = |one: Caller<mmsghdr>, flags| recvmsg(fd, one.at().cast(), flags);
        let call = || real::recvmmsg(fd, messages, n, flags, timeout);
        let timeout = Caller::new(timeout);
        messages::recvmmsg(fd, Caller::new(messages), n, flags, timeout, one, call)
    }

    /// write(2).
    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
        data::send(fd, Caller::new(buf.cast()), len, 0, move || real::write(fd, buf, len))
    }

    /// writev(2).
    fn writev(fd: c_int, parts: *const iovec, n: c_int) -> ssize_t {
        data::writev(fd, Caller::new(parts), n, move || real::writev(fd, parts, n))
    }

    /// pwritev2(2).
    fn pwritev2(fd: c_int, parts: *const iovec, n: c_int, at: off64_t, flags: c_int) -> ssize_t {
        let call = || real::pwritev2(fd, parts, n, at, flags);
        data::writev_at(fd, Caller::new(parts), n, (at, flags), call)
    }

    /// pwritev2(2), as programs with large files call it.
    fn pwritev64v2(fd: c_int, parts: *const iovec, n: c_int, at: off64_t, flags: c_int) -> ssize_t {
        pwritev2(fd, parts, n, at, flags)
    }

    /// send(2).
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        let call = move || real::send(fd, buf, len, flags);
        data::send(fd, Caller::new(buf.cast()), len, flags, call)
    }

    /// sendto(2).
    fn sendto(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, to: *const sockaddr,
        to_len: socklen_t,
    ) -> ssize_t {
        let call = move || real::sendto(fd, buf, len, flags, to, to_len);
        let to = (Caller::new(to), to_len);
        data::send_to(fd, (Caller::new(buf.cast()), len), flags, to, call)
    }

    /// sendmsg(2).
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        let call = || real::sendmsg(fd, message, flags);
        messages::sendmsg(fd, Caller::new(message), flags, call)
    }

    /// sendmmsg(2).
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int {
        let one = |one: Caller<mmsghdr>| sendmsg(fd, one.at().cast(), flags);
        let call = || real::sendmmsg(fd, messages, n, flags);
        messages::sendmmsg(fd, Caller::new(messages), n, one, call)
    }

    /// sendfile(2).
    fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        data::send_file(to, || real::sendfile(to, from, at, len))
    }

    /// sendfile(2), as programs with large files call it.
    fn sendfile64(to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t {
        data::send_file(to, || real::sendfile64(to, from, at, len))
    }

    /// splice(2).
    fn splice(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        let call = |len| real::splice(from, from_at, to, to_at, len, flags);
        data::splice(from, to, len, flags, call)
    }

    /// read(2) of programs built with checks.
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, space: size_t) -> ssize_t {
        chk_fail(len > space);
        read(fd, buf, len)
    }

    /// recv(2) of programs built with checks.
    fn __recv_chk(
        fd: c_int, buf: *mut c_void, len: size_t, space: size_t, flags: c_int,
    ) -> ssize_t {
        chk_fail(len > space);
        recv(fd, buf, len, flags)
    }

    /// recvfrom(2) of programs built with checks.
    fn __recvfrom_chk(
        fd: c_int, buf: *mut c_void, len: size_t, space: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t {
        chk_fail(len > space);
        recvfrom(fd, buf, len, flags, from, from_len)
    }

    /// read(2) under its other name.
    fn __read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
        read(fd, buf, len)
    }

    /// write(2) under its other name.
    fn __write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
        write(fd, buf, len)
    }

    /// send(2) under its other name.
    fn __send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        send(fd, buf, len, flags)
    }
}
