//! Messages in parts, with control messages beside.

mod sys;

use crate::guard::{self, Caller};
use crate::hooks::data::{parts_of, receive, receive_none, send_by_kernel, send_parts, KERNEL};
use crate::hooks::leave::hand_over;
use crate::hooks::life;
use crate::hooks::programs::complain;
use crate::hooks::waits::time_of;
use crate::hooks::whole::sends_all;
use crate::parts::Parts;
use crate::slot::INQ;
use crate::sys::{clock, real};
use crate::table::{self, Connection};
use crate::{stream, tipc};
use libc::{c_int, c_uint, mmsghdr, msghdr, ssize_t, timespec};
use sys::{each_passed, put_left};

/// Most messages of one call.
const MOST: c_uint = 1024;

/// recvmsg(2).
pub fn recvmsg(
    fd: c_int,
    message: Caller<msghdr>,
    flags: c_int,
    call: impl Fn() -> ssize_t,
) -> ssize_t {
    let one = table::connection(fd).and_then(|one| Some((one, message.get()?)));
    let Some((one, to)) = one else {
        if tipc::is(fd) && !message.is_null() {
            return tipc::receive_message(fd, message, flags);
        }
        let n = call();
        if n >= 0 {
            message.get().iter().for_each(|message| each_passed(message, life::came));
        }
        return n;
    };
    let Some(parts) = parts_of(sys::parts(to), to.msg_iovlen) else { return call() };
    let shared = one.slot.is_shared() && flags & KERNEL == 0;
    let n = match parts.iter().all(|part| part.iov_len == 0) {
        true => receive_none(one, flags, call),
        false => receive(one, parts, flags, call),
    };
    if n >= 0 && shared {
        let mut answer = *to;
        (answer.msg_namelen, answer.msg_controllen, answer.msg_flags) = (0, 0, 0);
        if one.slot.has(INQ) && to.msg_controllen > 0 && !to.msg_control.is_null() {
            tells_left(&one, to.msg_controllen, &mut answer);
        }
        if !message.put(answer) {
            return real::fail(libc::EFAULT) as ssize_t;
        }
    }
    n
}

/// Tells the number of bytes that are left to read, as a socket does with TCP_INQ, in so much space
/// for control messages.
fn tells_left(one: &Connection, space: usize, message: &mut msghdr) {
    let left = stream::enter(*one).map(|user| user.left());
    left.iter().for_each(|&left| put_left(left, space, message));
}

/// recvmmsg(2). `one` receives one message, `call` is the call of the kernel.
pub fn recvmmsg(
    fd: c_int,
    messages: Caller<mmsghdr>,
    n: c_uint,
    flags: c_int,
    timeout: Caller<timespec>,
    one: impl Fn(Caller<mmsghdr>, c_int) -> ssize_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let is_ours = table::connection(fd).is_some() || tipc::is(fd);
    let is_usual = is_ours && n > 0 && !messages.is_null();
    let Some(time) = is_usual.then(|| time_of(timeout)).flatten() else { return call() };
    let from = clock::now_ns();
    let most = time.map(|t| (t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_nsec as u64);
    let left = || most.map(|most| most.saturating_sub(clock::now_ns().saturating_sub(from)));
    let (mut done, mut flags) = (0, flags);
    while done < n.min(MOST) && (done == 0 || left() != Some(0)) {
        let message = messages.skip(done as usize);
        let got = one(message, flags & !libc::MSG_WAITFORONE);
        if got < 0 || !sys::len_of(message).put(got as c_uint) {
            break;
        }
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags |= libc::MSG_DONTWAIT;
        }
    }
    if let Some(left) = left().filter(|_| done > 0) {
        let (seconds, rest) = (left / 1_000_000_000, left % 1_000_000_000);
        // The kernel writes to it too.
        timeout.put(timespec { tv_sec: seconds as _, tv_nsec: rest as _ });
    }
    if done > 0 {
        done as c_int
    } else {
        -1
    }
}

/// sendmsg(2).
pub fn sendmsg(
    fd: c_int,
    message: Caller<msghdr>,
    flags: c_int,
    call: impl Fn() -> ssize_t + Copy,
) -> ssize_t {
    // Without a connection none is handed over.
    let of = (guard::is_on() || tipc::is(fd)).then(|| message.get()).flatten();
    let Some(of) = of else { return call() };
    let Some(one) = table::connection(fd) else {
        if tipc::is(fd) {
            return tipc::send_message(fd, of, flags);
        }
        return match hands_over(of) {
            true => call(),
            false => real::fail(libc::EAGAIN) as ssize_t,
        };
    };
    if of.msg_controllen > 0 {
        return send_by_kernel(one, call);
    }
    match parts_of(sys::parts(of), of.msg_iovlen) {
        Some(parts) => sends_all(fd, parts, flags, || send_parts(one, parts, flags, call)),
        None => call(),
    }
}

/// sendmmsg(2). `one` sends one message, `call` is the call of the kernel.
pub fn sendmmsg(
    fd: c_int,
    messages: Caller<mmsghdr>,
    n: c_uint,
    one: impl Fn(Caller<mmsghdr>) -> ssize_t,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if table::connection(fd).is_none() && !tipc::is(fd) || messages.is_null() {
        let list = guard::is_on().then(|| messages.list(n.min(MOST) as usize)).flatten();
        let mut list = list.unwrap_or(&[]).iter();
        return match list.all(|one| hands_over(&one.msg_hdr)) {
            true => call(),
            false => real::fail(libc::EAGAIN),
        };
    }
    let mut done = 0;
    while done < n.min(MOST) {
        let message = messages.skip(done as usize);
        let sent = one(message);
        if sent < 0 || !sys::len_of(message).put(sent as c_uint) {
            break;
        }
        done += 1;
        let parts = message
            .get()
            .and_then(|message| parts_of(sys::parts(&message.msg_hdr), message.msg_hdr.msg_iovlen));
        if parts.and_then(Parts::new).is_some_and(|parts| (sent as usize) < parts.len()) {
            break;
        }
    }
    if done > 0 || n == 0 {
        done as c_int
    } else {
        -1
    }
}

/// Ends the rings of connections whose descriptors a message carries to another process. False: a
/// reader there would miss bytes.
fn hands_over(message: &msghdr) -> bool {
    let mut is_over = true;
    each_passed(message, |fd| {
        let Some(one) = table::connection(fd) else { return };
        // A close here is no end of the connection from now on.
        one.slot.holders.has_strangers();
        if let Err(why) = hand_over(&one) {
            complain("a descriptor was not passed on", fd, &why);
            is_over = false;
        }
    });
    is_over
}
