//! Receiving: from the ring, by TCP, or by both.

use super::{with, Use};
use crate::history::{self, Waited};
use crate::lock::Held;
use crate::parts::Parts;
use crate::signals::{self, ENDING};
use crate::slot::{BROKEN, NONBLOCKING, NOTIFIED};
use crate::sys::{calls, real, socket};
use crate::{board, settings, spin, tcp, urgent, wake};
use libc::c_int;
use weft_streams::count::Call;
use weft_streams::receiver::Next;
use weft_streams::words::RING;

/// Receives by the kernel. A confined program, which may not be allowed to call recvmsg(2), reads.
fn by_kernel(fd: c_int, parts: &Parts<'_>, skip: usize, most: usize, flags: c_int) -> isize {
    let cut = parts.cut(skip, most);
    match !settings::is_on() && flags & libc::MSG_PEEK == 0 {
        true => cut.read(fd),
        false => cut.receive(fd, flags),
    }
}

/// The result of one step of a receive.
enum Step {
    /// The receive ends with this result of the kernel.
    End(isize),
    /// There are more bytes now; or another look is needed.
    Again,
    /// Nothing comes but by TCP: sleep there, in this call.
    Sleep(Call<'static>),
    /// The bytes that are next are on their way by TCP.
    Await,
}

struct Receive<'a> {
    user: &'a Use,
    parts: Parts<'a>,
    flags: c_int,
    got: usize,
    plan: Plan,
    /// Signals that are held back since a spin.
    signals: Option<signals::Held>,
}

/// The next thing to do where nothing is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// Nobody knows it yet.
    New,
    /// To look at what TCP has.
    Tcp,
    /// To spin on the ring.
    Ring,
    /// To sleep.
    Sleep,
}

impl Use {
    /// Receives, as recvmsg(2) does without address and control messages.
    pub fn recv(&self, parts: Parts<'_>, flags: c_int) -> isize {
        let mut receive =
            Receive { user: self, parts, flags, got: 0, plan: Plan::New, signals: None };
        let result = loop {
            match receive.step() {
                Step::Again => {}
                Step::End(result) => break with(receive.got, result),
                Step::Await => {
                    if signals::end(receive.signals.take()) {
                        break with(receive.got, real::fail(libc::EINTR) as isize);
                    }
                    if let Some(result) = receive.wait() {
                        break with(receive.got, result);
                    }
                }
                Step::Sleep(call) => {
                    if let Some(result) = receive.sleep(call) {
                        break result;
                    }
                }
            }
        };
        if result < 0 && real::errno() == libc::ECONNRESET {
            // TCP tells that once.
            self.slot().set(NOTIFIED);
        }
        result
    }
}

impl Receive<'_> {
    fn is_peek(&self) -> bool {
        self.flags & libc::MSG_PEEK != 0
    }

    fn wants_all(&self) -> bool {
        self.flags & libc::MSG_WAITALL != 0 && !self.is_peek()
    }

    fn is_full(&self) -> bool {
        self.got >= self.parts.len()
    }

    fn may_block(&self) -> bool {
        self.flags & libc::MSG_DONTWAIT == 0 && !calls::is_nonblocking(self.user.connection.fd)
    }

    fn step(&mut self) -> Step {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        if slot.has(BROKEN) {
            return Step::End(real::fail(libc::ECONNRESET) as isize);
        }
        let Some(held) = slot.receiving.take() else {
            // A handler that reads the connection that it interrupted a read of.
            return Step::End(real::fail(libc::EAGAIN) as isize);
        };
        let step = match slot.receiver.next(words) {
            Err(_) => Step::End(self.user.broken()),
            Ok(Next::Ring { at, len }) => self.ring_step(at, len),
            Ok(Next::Tcp(left)) => self.tcp_step(left, true),
            Ok(Next::Open) if self.got > 0 && !self.wants_all() => match self.after_ring() {
                Some(step) => step,
                None => return self.open(held),
            },
            Ok(Next::Open) => match self.at_once() {
                Some(step) => step,
                None => return self.open(held),
            },
        };
        drop(held);
        step
    }

    /// Copies bytes of the ring to the caller's parts; returns their number. `None`: a part is not
    /// there, and no bytes count as copied.
    fn copy(&mut self, at: u64, len: usize) -> Option<usize> {
        let n = len.min(self.parts.len() - self.got);
        let is_there =
            self.flags & libc::MSG_TRUNC != 0 || self.user.memory.get(at, &self.parts, self.got, n);
        is_there.then(|| {
            self.got += n;
            n
        })
    }

    fn ring_step(&mut self, at: u64, len: usize) -> Step {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        let Some(n) = self.copy(at, len) else {
            return Step::End(real::fail(libc::EFAULT) as isize);
        };
        if !self.is_peek() {
            slot.receiver.take(words, n);
            if !slot.receiver.is_awake(words) {
                wake::wake(&self.user.connection, self.user.memory);
            }
            board::entry(self.user.connection.at).iter().for_each(|entry| entry.came(n));
            // More may have come meanwhile.
            return if self.is_full() { Step::End(0) } else { Step::Again };
        }
        match n < len || self.is_full() {
            true => Step::End(0),
            false => self.peek_beyond(at + len as u64),
        }
    }

    /// Adds bytes by TCP to those that a look has found in the ring, to this position, if they
    /// follow: the ring is not written any more.
    fn peek_beyond(&mut self, end: u64) -> Step {
        let (slot, fd) = (self.user.slot(), self.user.connection.fd);
        let words = self.user.memory.incoming();
        if self.is_at_mark() {
            return Step::End(0);
        }
        let arrived = slot.receiver.arrived(words);
        let cut = self.parts.cut(self.got, self.parts.len() - self.got);
        let n = cut.receive(fd, self.flags | libc::MSG_DONTWAIT);
        let is_end = arrived == slot.receiver.arrived(words) && arrived == end;
        match n {
            more @ 1.. if is_end => Step::End(more),
            _ => Step::End(0),
        }
    }

    /// Looks at so many bytes by TCP, those of the ring that follow, and those by TCP after these
    /// if the ring is not written any more. One call of the kernel returns both of TCP's.
    fn peek_around(&mut self, before: usize) -> Step {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        let (at, len) = (slot.receiver.taken(), slot.receiver.unread(words));
        let behind = before + len.min(self.parts.len() - before);
        let mut cut = self.parts.cut(0, before);
        cut.add(&self.parts, behind, self.parts.len() - behind);
        let flags = self.flags & !libc::MSG_WAITALL;
        let n = cut.receive(self.user.connection.fd, flags | libc::MSG_DONTWAIT);
        let Some(after) = usize::try_from(n).ok().and_then(|n| n.checked_sub(before)) else {
            return match n {
                1.. => Step::End(n),
                0 => Step::End(self.at_end()),
                _ if real::errno() == libc::EAGAIN && self.may_block() => Step::Await,
                _ => Step::End(n),
            };
        };
        self.got = before;
        if self.copy(at, len.min(RING)).is_none() {
            return Step::End(0);
        }
        // A sender that has sent by TCP since does not write to the ring before it is empty.
        let is_end = slot.receiver.arrived(words) == at + len as u64;
        Step::End(if is_end { after as isize } else { 0 })
    }

    /// True if the byte after those that were got is an urgent one: a receive ends before it.
    fn is_at_mark(&self) -> bool {
        // A program that confines itself may not be allowed to ask.
        self.got > 0 && settings::is_on() && tcp::is_at_mark(self.user.connection.fd)
    }

    fn tcp_step(&mut self, left: u64, ring_follows: bool) -> Step {
        let (slot, fd) = (self.user.slot(), self.user.connection.fd);
        // The number may be another file's by now, whose bytes do not belong to those of this one.
        let has_moved = self.got > 0 && !self.user.connection.is_here();
        if has_moved || self.is_at_mark() {
            return Step::End(0);
        }
        let space = self.parts.len() - self.got;
        let most = usize::try_from(left).map_or(space, |left| left.min(space));
        if self.is_peek() && ring_follows && most < space {
            return self.peek_around(most);
        }
        let flags = self.flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        let call = slot.receiver.tcp.call();
        let n = by_kernel(fd, &self.parts, self.got, most, flags);
        call.done(if self.is_peek() { 0 } else { n.max(0) as u64 });
        match n {
            1.. => {
                self.got += n as usize;
                if self.is_peek() {
                    return Step::End(0);
                }
                // After the last byte before the ring come those of the ring.
                let goes_on = ring_follows && n as u64 == left || self.wants_all();
                match !self.is_full() && goes_on {
                    true => Step::Again,
                    false => Step::End(0),
                }
            }
            0 if self.got > 0 => Step::End(0),
            0 => Step::End(self.at_end()),
            _ if real::errno() != libc::EAGAIN => Step::End(n),
            _ if ring_follows && self.were_taken() => Step::Again,
            _ if self.got > 0 && !self.wants_all() || !self.may_block() => {
                Step::End(real::fail(libc::EAGAIN) as isize)
            }
            _ => Step::Await,
        }
    }

    /// The bytes that are next should be there by TCP, and are not. If the program has read them
    /// past this library, by calls that it makes itself, they count as read: else it would wait for
    /// them for ever. True if there were some.
    #[cold]
    fn were_taken(&self) -> bool {
        let (tcp, was) = (&self.user.slot().receiver.tcp, real::errno());
        let taken = settings::is_on().then(|| tcp::taken_past(self.user.connection.fd, tcp));
        let taken = taken.flatten();
        taken.into_iter().for_each(|taken| tcp.call().done(taken));
        real::set_errno(was);
        taken.is_some()
    }

    /// The ring was read empty, and there is space for more. Bytes may have come by TCP before: a
    /// program that gets fewer than it asked for takes them for the last that are there (epoll(7)),
    /// and the kernel tells of those no more. One that knows that the peer has ended takes them for
    /// the last of all. `None`: they are to be read as if nothing was got.
    fn after_ring(&mut self) -> Option<Step> {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        if !settings::is_on() {
            // A program that confines itself may not be allowed to ask.
            return Some(Step::End(0));
        }
        let Some(turns) = slot.receiver.turns_to_look_at(words) else { return Some(Step::End(0)) };
        let left = tcp::unread(self.user.connection.fd);
        if !matches!(slot.receiver.next(words), Ok(Next::Open)) {
            return Some(Step::Again);
        }
        Some(match left {
            None => Step::End(0),
            Some(0) => {
                slot.receiver.has_looked(turns);
                Step::End(0)
            }
            Some(left) => self.tcp_step(left, false),
        })
    }

    /// The result of a receive that does not wait while the direction is awake: that need not sleep
    /// to know that bytes which the kernel had while the ring was empty are next. `None`: it has
    /// to, as the connection has ended.
    fn at_once(&mut self) -> Option<Step> {
        let (slot, words, fd) =
            (self.user.slot(), self.user.memory.incoming(), self.user.connection.fd);
        if self.waits() || !slot.receiver.is_awake(words) {
            return None;
        }
        let left = tcp::look(fd)?;
        if !matches!(slot.receiver.next(words), Ok(Next::Open)) {
            return Some(Step::Again);
        }
        match left {
            0 => Some(Step::End(real::fail(libc::EAGAIN) as isize)),
            left => Some(self.tcp_step(left, false)),
        }
    }

    /// True if this call waits for bytes.
    fn waits(&self) -> bool {
        self.flags & libc::MSG_DONTWAIT == 0 && !self.user.slot().has(NONBLOCKING)
    }

    /// Nothing is in the ring.
    fn open(&mut self, held: Held<'_>) -> Step {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        if self.plan == Plan::New {
            let may_spin = settings::spins()
                && self.waits()
                && wake::may_pay(&slot.history, slot, self.user.memory);
            self.plan = match may_spin {
                true if slot.receiver.is_awake(words) => Plan::Ring,
                // Bytes that came by TCP meanwhile would be looked for in the ring in vain.
                true => Plan::Tcp,
                false => Plan::Sleep,
            };
        }
        if self.plan == Plan::Tcp {
            self.plan = Plan::Ring;
            return self.look_at_tcp(held);
        }
        if self.plan == Plan::Ring {
            self.plan = Plan::Sleep;
            if wake::wake(&self.user.connection, self.user.memory) {
                drop(held);
                self.spin();
                return Step::Again;
            }
        }
        match slot.receiver.sleep(words) {
            Err(_) => Step::End(self.user.broken()),
            Ok(false) => Step::Again,
            Ok(true) => {
                // Before the lock goes: nothing wakes the direction up meanwhile.
                Step::Sleep(slot.receiver.tcp.call())
            }
        }
    }

    /// Spins on the ring.
    fn spin(&mut self) {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        let head = slot.receiver.taken();
        let has_come = || slot.receiver.arrived(words) != head;
        spin::spin(
            &slot.history,
            spin::POLLS,
            wake::times(slot),
            (ENDING, &mut self.signals),
            has_come,
        );
    }

    /// Receives what is there by TCP, where all bytes come now.
    fn look_at_tcp(&mut self, held: Held<'_>) -> Step {
        let slot = self.user.slot();
        match slot.receiver.sleep(self.user.memory.incoming()) {
            Err(_) => return Step::End(self.user.broken()),
            Ok(false) => return Step::Again,
            Ok(true) => {}
        }
        if self.is_at_mark() {
            return Step::End(0);
        }
        let call = slot.receiver.tcp.call();
        drop(held);
        let (fd, want) = (self.user.connection.fd, self.parts.len() - self.got);
        let flags = self.flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        let n = by_kernel(fd, &self.parts, self.got, want, flags);
        call.done(if self.is_peek() { 0 } else { n.max(0) as u64 });
        match n {
            1.. if !self.is_peek() => {
                if let Some(_held) = slot.receiving.take() {
                    wake::wake(&self.user.connection, self.user.memory);
                }
                if self.wants_all() && (n as usize) < want {
                    self.got += n as usize;
                    return Step::Again;
                }
                Step::End(n)
            }
            0 if want > 0 => Step::End(self.at_end()),
            0.. => Step::End(n),
            _ if real::errno() == libc::EAGAIN => Step::Again,
            _ => Step::End(n),
        }
    }

    /// Receives by TCP, where all bytes come now. `None`: there is more to be had.
    fn sleep(&mut self, call: Call<'_>) -> Option<isize> {
        if self.is_at_mark() {
            return Some(self.got as isize);
        }
        let (slot, connection) = (self.user.slot(), &self.user.connection);
        let want = self.parts.len() - self.got;
        if signals::end(self.signals.take()) {
            call.done(0);
            return Some(with(self.got, real::fail(libc::EINTR) as isize));
        }
        let rung = urgent::rung();
        let receive =
            || urgent::steady(|| by_kernel(connection.fd, &self.parts, self.got, want, self.flags));
        let (n, waited) = match self.waits() {
            true => spin::time(receive),
            false => (receive(), Waited::Long),
        };
        let was = real::errno();
        if n > 0 {
            history::learn(&slot.history, waited);
        }
        call.done(if self.is_peek() { 0 } else { n.max(0) as u64 });
        // A program that finds nothing now waits, or looks again: bytes may come by the ring.
        let is_early = n < 0 && was == libc::EAGAIN && slot.has(NONBLOCKING);
        if (n > 0 || is_early) && !self.is_peek() {
            if let Some(_held) = slot.receiving.take() {
                wake::wake(connection, self.user.memory);
            }
            let is_cut = n > 0 && self.wants_all() && (n as usize) < want;
            if is_cut && (!self.parts.fits() || urgent::has_rung(rung)) {
                self.got += n as usize;
                return None;
            }
        }
        if n == 0 && want > 0 {
            return Some(with(self.got, self.at_end()));
        }
        real::set_errno(was);
        Some(with(self.got, n))
    }

    /// TCP says that the peer sends no more. If the peer has neither said so before nor read all,
    /// its process has ended: TCP would have told that by a reset.
    fn at_end(&self) -> isize {
        let (slot, memory) = (self.user.slot(), self.user.memory);
        let was_notified =
            slot.has(NOTIFIED) || slot.receiver.is_notified_of_end(memory.incoming());
        if was_notified || slot.sender.unread(memory.out()) == 0 {
            return 0;
        }
        slot.set(NOTIFIED);
        slot.sender.end();
        // After a reset the connection is over in both directions.
        real::shutdown(self.user.connection.fd, libc::SHUT_WR);
        real::fail(libc::ECONNRESET) as isize
    }

    /// Waits for bytes by TCP without taking them. The result is that of the kernel, if there are
    /// none.
    fn wait(&self) -> Option<isize> {
        let flags = libc::MSG_PEEK | self.flags & libc::MSG_DONTWAIT;
        let look = || socket::receive(self.user.connection.fd, &mut [0; 1], flags);
        match urgent::steady(look) {
            1.. => None,
            0 => Some(self.at_end()),
            n => Some(n),
        }
    }
}
