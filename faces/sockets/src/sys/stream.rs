//! Reads and writes of a connection that shares memory.

use super::lock::Held;
use super::parts::Parts;
use super::slot::{Slot, BROKEN, CORKED, HELD, NONBLOCKING, TOLD};
use super::table::{Connection, Memory};
use super::{board, far, giving, real, settings, tcp, wake};
use libc::{c_int, c_uint};
use std::sync::atomic::Ordering;
use weft_streams::far::ByTcp;
use weft_streams::receiver::Next;
use weft_streams::sender::{Call, Way};
use weft_streams::words::RING;

/// Bytes published at a time: the receiver copies one piece while the sender copies the next.
const PIECE: usize = 8 << 10;
/// Looks at a ring that the receiver does not empty, before the kernel is asked if it has ended.
const STUCK: u64 = 16;
/// Times of a look at an empty ring for which a sender looks at a full one.
const LONG: u64 = 50;
/// Flags of a send that need nothing of the kernel.
const PLAIN_SEND: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;

/// A call that uses the shared memory of a connection.
pub struct Use {
    connection: Connection,
    memory: Memory,
}

impl Drop for Use {
    fn drop(&mut self) {
        self.connection.slot.users.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Begins a call. `None`: the connection does not share memory.
#[inline]
pub fn enter(connection: Connection) -> Option<Use> {
    let slot = connection.slot;
    if !slot.is_shared() {
        return None;
    }
    slot.users.fetch_add(1, Ordering::SeqCst);
    let memory = connection.is_here().then(|| connection.memory()).flatten();
    if memory.is_none() {
        slot.users.fetch_sub(1, Ordering::SeqCst);
    }
    Some(Use { connection, memory: memory? })
}

/// Adds bytes to a result of the kernel: an error counts only if nothing was moved before it.
fn with(before: usize, result: isize) -> isize {
    match result {
        0.. => before as isize + result,
        _ if before > 0 => before as isize,
        _ => result,
    }
}

/// Receives by the kernel.
fn by_kernel(fd: c_int, parts: &Parts<'_>, skip: usize, most: usize, flags: c_int) -> isize {
    let mut cut = parts.cut(skip, most);
    let mut message = cut.as_message();
    // SAFETY: the parts are the caller's.
    unsafe { real::recvmsg(fd, &mut message, flags) }
}

/// The result of one step of a receive.
enum Step {
    /// It ends with this result of the kernel.
    End(isize),
    /// There are more bytes now; or another look is needed.
    Again,
    /// Nothing comes but by TCP: sleep there, in this call.
    Sleep(Call<'static>),
    /// The bytes that are next are on their way by TCP.
    Await,
    /// Nothing comes but by TCP, where bytes may come twice: wait for them without taking them.
    Peek(Call<'static>),
}

struct Receive<'a> {
    user: &'a Use,
    parts: Parts<'a>,
    flags: c_int,
    got: usize,
    plan: Plan,
}

/// The next thing to do where nothing is in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// It is not known yet.
    New,
    /// To look at what TCP has.
    Tcp,
    /// To look at the ring for a while.
    Ring,
    /// To sleep.
    Sleep,
}

impl Use {
    /// Receives, as recvmsg(2) does without address and control messages.
    pub fn recv(&self, parts: Parts<'_>, flags: c_int) -> isize {
        let mut receive = Receive { user: self, parts, flags, got: 0, plan: Plan::New };
        loop {
            if !self.connection.is_here() && self.is_far() {
                // The number is another file's, of which nothing is known.
                let (got, all) = (receive.got, parts.len());
                return with(got, by_kernel(self.connection.fd, &parts, got, all - got, flags));
            }
            match receive.step() {
                Step::Again => {}
                Step::End(result) => return with(receive.got, result),
                Step::Await => {
                    if let Some(result) = receive.wait() {
                        return with(receive.got, result);
                    }
                }
                Step::Sleep(call) => {
                    if let Some(result) = receive.sleep(call) {
                        return result;
                    }
                }
                Step::Peek(_call) => {
                    if let Some(result) = receive.wait() {
                        return with(receive.got, result);
                    }
                }
            }
        }
    }

    fn slot(&self) -> &'static Slot {
        self.connection.slot
    }

    /// True if the other end is on another host.
    fn is_far(&self) -> bool {
        far::path(self.connection.at).is_some()
    }

    /// The end of a connection whose peer broke the rules.
    fn broken(&self) -> isize {
        self.slot().set(BROKEN);
        self.slot().sender.end();
        real::fail(libc::ECONNRESET) as isize
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
        self.flags & libc::MSG_DONTWAIT == 0 && !tcp::is_nonblocking(self.user.connection.fd)
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
        far::look(self.user.connection.at, slot, self.user.memory);
        let step = match slot.receiver.next(words) {
            Err(_) => Step::End(self.user.broken()),
            Ok(Next::Ring { at, len }) => self.ring_step(at, len),
            Ok(Next::Tcp(_) | Next::Open) if self.got > 0 && !self.wants_all() => Step::End(0),
            Ok(Next::Tcp(left)) => self.tcp_step(left),
            Ok(Next::Open) => match self.at_once() {
                Some(step) => step,
                None => return self.open(held),
            },
        };
        drop(held);
        step
    }

    fn copy(&mut self, at: u64, len: usize) -> usize {
        let n = len.min(self.parts.len() - self.got);
        if self.flags & libc::MSG_TRUNC == 0 {
            let (memory, mut from) = (self.user.memory, at);
            self.parts.each(self.got, n, |base, len| {
                // SAFETY: the caller's part has room for `len` bytes, and `n` is at most a ring.
                unsafe { memory.get(from, base, len) };
                from += len as u64;
                true
            });
        }
        self.got += n;
        n
    }

    fn ring_step(&mut self, at: u64, len: usize) -> Step {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        let n = self.copy(at, len);
        if !self.is_peek() {
            slot.receiver.take(words, n);
            if !slot.receiver.is_awake(words) {
                wake::wake(&self.user.connection, self.user.memory);
            }
            board::entry(self.user.connection.at).iter().for_each(|entry| entry.came(n));
            // More may have come meanwhile.
            return if self.is_full() { Step::End(0) } else { Step::Again };
        }
        if n < len || self.is_full() || self.user.is_far() {
            return Step::End(0);
        }
        // Bytes by TCP follow if the ring is not written any more.
        let arrived = slot.receiver.arrived(words);
        let (fd, left) = (self.user.connection.fd, self.parts.len() - self.got);
        let more = by_kernel(fd, &self.parts, self.got, left, self.flags | libc::MSG_DONTWAIT);
        match more {
            1.. if arrived == slot.receiver.arrived(words) && arrived == at + len as u64 => {
                Step::End(more)
            }
            _ => Step::End(0),
        }
    }

    fn tcp_step(&mut self, left: u64) -> Step {
        let (slot, fd) = (self.user.slot(), self.user.connection.fd);
        let room = self.parts.len() - self.got;
        let most = usize::try_from(left).map_or(room, |left| left.min(room));
        let flags = self.flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        let call = slot.receiver.tcp.call();
        let n = by_kernel(fd, &self.parts, self.got, most, flags);
        call.done(if self.is_peek() { 0 } else { n.max(0) as u64 });
        match n {
            1.. => {
                self.got += n as usize;
                let (at, len) =
                    (slot.receiver.taken(), slot.receiver.unread(self.user.memory.incoming()));
                if self.is_peek() {
                    if n as u64 == left && !self.is_full() {
                        self.copy(at, len.min(RING));
                    }
                    return Step::End(0);
                }
                if self.wants_all() && !self.is_full() {
                    Step::Again
                } else {
                    Step::End(0)
                }
            }
            0 => Step::End(self.at_end()),
            _ if real::errno() != libc::EAGAIN => Step::End(n),
            _ if self.got > 0 && !self.wants_all() || !self.may_block() => {
                Step::End(real::fail(libc::EAGAIN) as isize)
            }
            _ => Step::Await,
        }
    }

    /// The result of a receive that does not wait while the direction is awake: that need not sleep
    /// to know that bytes which the kernel had while the ring was empty are next. `None`: it has
    /// to, as the connection has ended.
    fn at_once(&mut self) -> Option<Step> {
        let (slot, words, fd) =
            (self.user.slot(), self.user.memory.incoming(), self.user.connection.fd);
        let waits = self.flags & libc::MSG_DONTWAIT == 0 && !slot.has(NONBLOCKING);
        if waits || !slot.receiver.is_awake(words) || self.user.is_far() {
            return None;
        }
        let left = tcp::look(fd)?;
        if !matches!(slot.receiver.next(words), Ok(Next::Open)) {
            return Some(Step::Again);
        }
        match left {
            0 => Some(Step::End(real::fail(libc::EAGAIN) as isize)),
            left => Some(self.tcp_step(left)),
        }
    }

    /// Nothing is in the ring.
    fn open(&mut self, held: Held<'_>) -> Step {
        let (slot, words) = (self.user.slot(), self.user.memory.incoming());
        if self.plan == Plan::New {
            let may_spin = settings::spins()
                && self.flags & libc::MSG_DONTWAIT == 0
                && !slot.has(NONBLOCKING)
                && wake::is_lucky(&slot.luck);
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
            Ok(true) if self.user.is_far() => self.asleep(held),
            Ok(true) => {
                // Before the lock goes: nothing wakes the direction up meanwhile.
                Step::Sleep(slot.receiver.tcp.call())
            }
        }
    }

    /// Looks at the ring for a while.
    fn spin(&self) {
        let (slot, memory) = (self.user.slot(), self.user.memory);
        let (words, head, at) = (memory.incoming(), slot.receiver.taken(), self.user.connection.at);
        if !self.user.is_far() {
            wake::spin(&slot.luck, wake::LOOKS, 1, || slot.receiver.arrived(words) != head);
            return;
        }
        far::tell(at, slot, memory, true);
        let fd = self.user.connection.fd;
        // Long sends come by TCP while this end is awake, too.
        wake::spin(&slot.luck, 1, 1, || {
            far::look(at, slot, memory);
            slot.receiver.arrived(words) != head || tcp::has_input(fd)
        });
    }

    /// Nothing comes by packets any more. Bytes by TCP may have come by packets before.
    fn asleep(&mut self, held: Held<'_>) -> Step {
        let (slot, one, memory) = (self.user.slot(), &self.user.connection, self.user.memory);
        if memory.end().has_told() && !tcp::has_input(one.fd) {
            // A program that finds bytes looks for packets again soon.
            far::tell(one.at, slot, memory, false);
        }
        if memory.end().by_tcp() == ByTcp::Unknown {
            far::pump(one.at, slot, memory);
        }
        match memory.end().by_tcp() {
            ByTcp::Next => return Step::Sleep(slot.receiver.tcp.call()),
            ByTcp::Twice(bytes) if far::drop_twice(one, memory, bytes) => return Step::Again,
            ByTcp::Unknown if tcp::unread(one.fd).is_some_and(|bytes| bytes > 0) => {
                drop(held);
                return match far::learn(one, memory) {
                    true => Step::Again,
                    false => Step::End(self.user.broken()),
                };
            }
            ByTcp::Unknown | ByTcp::Twice(_) => {}
        }
        match self.got > 0 && !self.wants_all() {
            true => Step::End(0),
            false => Step::Peek(slot.receiver.tcp.call()),
        }
    }

    /// Receives what is there by TCP, where all bytes come now.
    fn look_at_tcp(&mut self, held: Held<'_>) -> Step {
        let slot = self.user.slot();
        match slot.receiver.sleep(self.user.memory.incoming()) {
            Err(_) => return Step::End(self.user.broken()),
            Ok(false) => return Step::Again,
            Ok(true) => {}
        }
        if self.user.is_far() && self.user.memory.end().by_tcp() != ByTcp::Next {
            return Step::Again;
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
        let (slot, connection) = (self.user.slot(), &self.user.connection);
        let want = self.parts.len() - self.got;
        let receive = || by_kernel(connection.fd, &self.parts, self.got, want, self.flags);
        let n = far::timed(connection, receive);
        let was = real::errno();
        call.done(if self.is_peek() { 0 } else { n.max(0) as u64 });
        // A program that finds nothing now waits, or looks again: bytes may come by the ring.
        let is_early = n < 0 && was == libc::EAGAIN && slot.has(NONBLOCKING);
        if (n > 0 || is_early) && !self.is_peek() {
            if let Some(_held) = slot.receiving.take() {
                wake::wake(connection, self.user.memory);
            }
            if n > 0 && self.wants_all() && !self.parts.fits() && (n as usize) < want {
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
        let was_told = slot.has(TOLD) || slot.receiver.is_told_of_end(memory.incoming());
        if was_told || slot.sender.unread(memory.out()) == 0 {
            return 0;
        }
        slot.set(TOLD);
        slot.sender.end();
        real::fail(libc::ECONNRESET) as isize
    }

    /// Waits for bytes by TCP without taking them. The result is that of the kernel, if there are
    /// none.
    fn wait(&self) -> Option<isize> {
        let mut byte = 0u8;
        let at = (&raw mut byte).cast();
        let flags = libc::MSG_PEEK | self.flags & libc::MSG_DONTWAIT;
        // SAFETY: room for one byte.
        match unsafe { real::recv(self.user.connection.fd, at, 1, flags) } {
            1.. => None,
            0 => Some(self.at_end()),
            n => Some(n),
        }
    }
}

impl Use {
    /// Sends, as sendmsg(2) does without address and control messages.
    pub fn send(&self, parts: Parts<'_>, flags: c_int) -> isize {
        let slot = self.slot();
        if slot.has(BROKEN) {
            return real::fail(libc::ECONNRESET) as isize;
        }
        if flags & libc::MSG_OOB != 0 {
            // The peer's count of bytes by TCP may leave the urgent one out.
            slot.sender.end();
        }
        let (mut sent, mut is_stuck) = (0, false);
        let is_far = self.is_far();
        loop {
            let held = slot.sending.take();
            if is_far {
                match self.send_far(&parts, &mut sent, flags, held.is_some()) {
                    None if sent == parts.len() => return sent as isize,
                    None => {}
                    Some(result) => return with(sent, result),
                }
            } else if held.is_some() && flags & !PLAIN_SEND == 0 && !slot.has(CORKED) {
                match self.fill_ring(&parts, &mut sent) {
                    Ok(Ring::Done) => return sent as isize,
                    Ok(Ring::Full) if sent > 0 && slot.has(NONBLOCKING) => return sent as isize,
                    Ok(Ring::Full) if !is_stuck && settings::spins() => {
                        drop(held);
                        is_stuck = !self.gets_room();
                        continue;
                    }
                    Ok(Ring::Full | Ring::Tcp) => {}
                    Err(_) => return with(sent, self.broken()),
                }
            }
            let free = (!slot.has(HELD)).then(|| slot.sender.by_tcp());
            drop(held);
            let Some(call) = free.or_else(|| self.begins_tcp(flags)) else {
                return with(sent, -1);
            };
            let quiet = if sent > 0 { libc::MSG_NOSIGNAL } else { 0 };
            // Bytes that the kernel held back would hold up those that follow in the ring.
            let flags = flags & !libc::MSG_MORE | quiet;
            let mut cut = parts.cut(sent, parts.len() - sent);
            let message = cut.as_message();
            // SAFETY: the parts are the caller's.
            let n = unsafe { real::sendmsg(self.connection.fd, &message, flags) };
            call.done(n.max(0) as u64);
            giving::has_sent(&self.connection);
            let more = n > 0 && !parts.fits() && sent + (n as usize) < parts.len();
            if !more {
                return with(sent, n);
            }
            sent += n as usize;
        }
    }

    /// Sends to another host as much as goes by packets. The rest goes by TCP: then no packet is
    /// in doubt any more. A result ends the call. The sender's lock is held, or was by a frame that
    /// a signal interrupted.
    fn send_far(
        &self,
        parts: &Parts<'_>,
        sent: &mut usize,
        flags: c_int,
        is_held: bool,
    ) -> Option<isize> {
        let (slot, one) = (self.slot(), &self.connection);
        if !is_held {
            // Packets of the other frame are in doubt.
            return Some(real::fail(libc::EAGAIN) as isize);
        }
        let is_plain = flags & !PLAIN_SEND == 0 && !slot.has(CORKED | HELD);
        let again = if is_plain { far::send(one, self.memory, parts, sent) } else { 0 };
        if *sent == parts.len() {
            return None;
        }
        if far::stop(one.at, self.memory) > 0 {
            // The bytes of a thread that has ended in its call.
            return Some(self.broken());
        }
        let until = *sent + again;
        while *sent < until {
            let call = slot.sender.by_tcp();
            let mut cut = parts.cut(*sent, until - *sent);
            let message = cut.as_message();
            let flags = flags & libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            // SAFETY: the parts are the caller's.
            let n = unsafe { real::sendmsg(one.fd, &message, flags) };
            call.done(n.max(0) as u64);
            *sent += n.max(0) as usize;
            match n {
                0.. => {}
                _ if real::errno() == libc::EAGAIN => tcp::awaits_room(one.fd),
                _ if real::errno() == libc::EINTR => {}
                n => return Some(n),
            }
        }
        None
    }

    /// Looks at a full ring until the receiver takes bytes out. False if it takes none for a long
    /// while, or if that does not pay. A receiver takes first what came by TCP before, and bytes
    /// that went by TCP now would be the next to be taken first.
    fn gets_room(&self) -> bool {
        let (slot, words) = (self.slot(), self.memory.out());
        let unread = slot.sender.unread(words).max(1);
        let has_room = || slot.sender.unread(words) < unread;
        wake::is_lucky(&slot.send_luck) && wake::spin(&slot.send_luck, wake::LOOKS, LONG, has_room)
    }

    /// Begins a call that sends by the kernel. `None`: the agent has the socket, and the call is
    /// not to wait.
    pub fn begins_tcp(&self, flags: c_int) -> Option<Call<'static>> {
        let (one, slot) = (&self.connection, self.slot());
        loop {
            let held = slot.sending.take();
            if self.is_far() && (held.is_none() || far::stop(one.at, self.memory) > 0) {
                self.broken();
                return None;
            }
            if !slot.has(HELD) {
                return Some(slot.sender.by_tcp());
            }
            drop(held);
            let may_wait = flags & libc::MSG_DONTWAIT == 0 && !tcp::is_nonblocking(one.fd);
            if !giving::is_back(one, may_wait) {
                real::set_errno(libc::EAGAIN);
                return None;
            }
            if slot.has(BROKEN) {
                real::set_errno(libc::ECONNRESET);
                return None;
            }
        }
    }

    /// Writes as much as the ring takes.
    fn fill_ring(&self, parts: &Parts<'_>, sent: &mut usize) -> Result<Ring, weft_streams::Broken> {
        let (slot, words) = (self.slot(), self.memory.out());
        loop {
            let (at, room, switch) = match slot.sender.way(words)? {
                Way::Tcp => return Ok(Ring::Tcp),
                Way::Full if self.is_deserted() => return Ok(Ring::Tcp),
                Way::Full => return Ok(Ring::Full),
                Way::Ring { at, room, switch } => (at, room, switch),
            };
            if room < RING && self.is_deserted() {
                return Ok(Ring::Tcp);
            }
            let n = room.min(parts.len() - *sent).min(PIECE);
            let (memory, mut to) = (self.memory, at);
            parts.each(*sent, n, |base, len| {
                // SAFETY: the caller's part has `len` bytes, and `n` is at most a ring.
                unsafe { memory.put(to, base, len) };
                to += len as u64;
                true
            });
            if !slot.sender.publish(words, n, switch)? {
                return Ok(Ring::Tcp);
            }
            *sent += n;
            board::entry(self.connection.at).iter().for_each(|entry| entry.went(n));
            if *sent == parts.len() {
                return Ok(Ring::Done);
            }
        }
    }

    /// Looks now and then if a peer that does not empty the ring has ended: nobody else says so.
    fn is_deserted(&self) -> bool {
        let slot = self.slot();
        let read = slot.sender.written() - slot.sender.unread(self.memory.out()) as u64;
        let (last, looks) =
            (slot.stuck.load(Ordering::Relaxed) >> 8, slot.stuck.load(Ordering::Relaxed) & 0xff);
        let (looks, ask) = match last == read & (u64::MAX >> 8) {
            true => ((looks + 1) % STUCK, looks + 1 == STUCK),
            false => (0, false),
        };
        slot.stuck.store(read << 8 | looks, Ordering::Relaxed);
        if ask && tcp::has_ended(self.connection.fd) {
            slot.sender.end();
            return true;
        }
        false
    }

    /// Splices bytes to a pipe. `call` is the call of the kernel, for so many bytes.
    pub fn splice(
        &self,
        to: c_int,
        len: usize,
        flags: c_uint,
        call: impl Fn(usize) -> isize,
    ) -> isize {
        let (slot, words) = (self.slot(), self.memory.incoming());
        loop {
            let Some(held) = slot.receiving.take() else {
                return real::fail(libc::EAGAIN) as isize;
            };
            let most = match slot.receiver.next(words) {
                Err(_) => return self.broken(),
                Ok(Next::Ring { at, len: there }) => {
                    let n = self.pipe(to, at, there.min(len));
                    slot.receiver.take(words, n.max(0) as usize);
                    drop(held);
                    let is_full = n < 0 && real::errno() == libc::EAGAIN;
                    if !is_full || flags & libc::SPLICE_F_NONBLOCK != 0 || !tcp::drains(to) {
                        return n;
                    }
                    continue;
                }
                Ok(Next::Tcp(left)) => usize::try_from(left).map_or(len, |left| left.min(len)),
                Ok(Next::Open) => match slot.receiver.sleep(words) {
                    Ok(true) if !self.is_clear() => {
                        drop(held);
                        tcp::awaits(self.connection.fd, -1);
                        if !far::learn(&self.connection, self.memory) {
                            return self.broken();
                        }
                        continue;
                    }
                    Ok(true) => len,
                    Ok(false) => continue,
                    Err(_) => return self.broken(),
                },
            };
            let under_way = slot.receiver.tcp.call();
            drop(held);
            let n = call(most);
            under_way.done(n.max(0) as u64);
            return n;
        }
    }

    /// Writes as many bytes of the ring to a pipe as it takes at once: the receiver's lock is held.
    fn pipe(&self, to: c_int, at: u64, len: usize) -> isize {
        let mut done = 0;
        while done < len && tcp::has_room(to) {
            // A pipe with room takes so many bytes without a wait.
            let n = (len - done).min(libc::PIPE_BUF);
            let parts = self.memory.parts(at + done as u64, n);
            // SAFETY: parts of the ring.
            match unsafe { real::writev(to, parts.as_ptr(), 2) } {
                n @ 1.. => done += n as usize,
                n => return with(done, n),
            }
        }
        match done {
            0 => real::fail(libc::EAGAIN) as isize,
            done => done as isize,
        }
    }

    /// True if the next byte by TCP has not come by packets. Drops those that have, unless bytes in
    /// the ring come before them.
    pub fn is_clear(&self) -> bool {
        let (one, memory) = (&self.connection, self.memory);
        if !self.is_far() {
            return true;
        }
        far::pump(one.at, one.slot, memory);
        if self.in_ring() > 0 {
            return memory.end().by_tcp() == ByTcp::Next;
        }
        while let ByTcp::Twice(bytes) = memory.end().by_tcp() {
            if !far::drop_twice(one, memory, bytes) {
                return false;
            }
        }
        let is_over = || tcp::has_ended(one.fd) && tcp::unread(one.fd) == Some(0);
        memory.end().by_tcp() == ByTcp::Next || is_over()
    }

    /// True once nothing by TCP is in doubt, as somebody else is to read it.
    pub fn settles(&self) -> bool {
        let Some(_held) = self.slot().receiving.take() else { return false };
        self.slot().receiver.doze(self.memory.incoming());
        far::settles(&self.connection, self.memory)
    }

    /// No further byte comes by the ring. Those that are there stay.
    pub fn end_receiving(&self) {
        self.slot().receiver.end(self.memory.incoming());
    }

    /// No further byte goes by the ring.
    pub fn end_sending(&self) {
        self.slot().sender.end();
        let _held = self.slot().sending.take();
        far::stop(self.connection.at, self.memory);
    }

    /// The program ends its sending direction.
    pub fn say_end(&self) {
        self.slot().sender.say_end(self.memory.out());
    }

    /// Returns the bytes that wait in the ring: the number of those by TCP that come before them,
    /// their parts, and their number. The holder of the receiver's lock calls it.
    pub fn waiting(&self) -> Option<(u64, [libc::iovec; 2], usize)> {
        let (slot, words) = (self.slot(), self.memory.incoming());
        let (before, at, len) = match slot.receiver.next(words) {
            Ok(Next::Ring { at, len }) => (0, at, len),
            Ok(Next::Tcp(left)) => (left, slot.receiver.taken(), slot.receiver.unread(words)),
            Ok(Next::Open) | Err(_) => return None,
        };
        Some((before, self.memory.parts(at, len), len))
    }

    /// Bytes that waited come by TCP. The holder of the receiver's lock calls it.
    pub fn give(&self, len: usize) {
        self.slot().receiver.take(self.memory.incoming(), len);
    }

    /// The bytes in the ring that comes in.
    pub fn in_ring(&self) -> usize {
        self.slot().receiver.unread(self.memory.incoming())
    }

    /// Bytes that can be read beyond those that TCP has, and bytes in the ring that goes out. Less
    /// than none: TCP has bytes that came by packets before.
    pub fn unread(&self) -> (isize, usize) {
        let (slot, memory) = (self.slot(), self.memory);
        far::look(self.connection.at, slot, memory);
        let twice = if self.is_far() { far::twice(&self.connection, memory) } else { 0 };
        (self.in_ring() as isize - twice as isize, slot.sender.unread(memory.out()))
    }
}

enum Ring {
    /// All is written.
    Done,
    /// The ring is full.
    Full,
    /// The rest goes by TCP.
    Tcp,
}
