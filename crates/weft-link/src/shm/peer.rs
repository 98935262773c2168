//! One connection of the link.

use super::direct::Direct;
use super::process::Process;
use super::rendezvous::{self, Shared, BELL};
use super::ring::{Area as _, Consumer, FrameLengths, Producer, Sizes, Violation};
use super::sys::block::{Block, Window};
use super::sys::map::Half;
use super::sys::socket;
use super::DirectCopy;
use crate::sync::{fence, Ordering};
use crate::{Bytes, Frame, Sink};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use weft_core::{EndpointId, PeerId, Pulse};
use weft_sys::Foreign;

/// Highest number of mapped blocks of one peer; further blocks are reached through the kernel.
const WINDOWS_MAX: usize = 256;
/// Polls of a copy that the peer is making, before this side sleeps between two polls.
const COPY_POLLS: u32 = 1000;
/// A copy takes less than a millisecond. After the first time, the link warns the user that the
/// peer was stopped during a copy. After the second, this process ends, since its memory may be
/// overwritten at any time.
const COPY_WARN: Duration = Duration::from_secs(5);
const COPY_MAX: Duration = Duration::from_secs(60);

/// A connected socket and its token in the epoll set.
#[derive(Debug)]
pub(super) struct Socket {
    pub fd: Foreign,
    pub token: u64,
    /// The user at the other end.
    pub user: u32,
    /// The agent joined the two.
    pub joined: bool,
}

impl Socket {
    /// Refuses the connection. If the message cannot be sent, the end of the socket tells the peer.
    pub(super) fn refuse(&self, why: &str) {
        let _ = socket::send(&self.fd, &rendezvous::refusal(why), None);
    }
}

impl Drop for Socket {
    /// Lets the peer see the end now, also while a child process that was just started still has a
    /// copy of the descriptor.
    fn drop(&mut self) {
        socket::shutdown(&self.fd);
    }
}

/// The direction to the peer: a ring, and the memory that it lies in.
#[derive(Debug)]
pub(super) struct Outlet {
    ring: Producer,
    pub(super) area: Half,
}

impl Outlet {
    pub(super) fn new(sizes: Sizes, area: Half) -> Outlet {
        Outlet { ring: Producer::new(sizes), area }
    }

    /// Lets the peer run a barrier before it sleeps, so that this side needs no fence.
    pub(super) fn set_light(&mut self, light: bool) {
        self.ring.light = light;
    }

    /// Publishes a packet. False if there is no room.
    #[inline]
    pub(super) fn push(&mut self, header: &[u8], payload: &[u8]) -> Result<bool, Violation> {
        self.ring.push(&self.area, header, payload)
    }

    /// True if the peer sleeps and has to be woken.
    #[inline]
    pub(super) fn must_ring(&self) -> bool {
        self.ring.must_ring(&self.area)
    }

    /// True if there is room, or will be in some microseconds.
    pub(super) fn room_soon(&mut self) -> Result<bool, Violation> {
        self.ring.room_soon(&self.area)
    }

    /// Prepares a sleep until there is room. False if there is.
    pub(super) fn prepare_wait(&mut self) -> Result<bool, Violation> {
        self.ring.prepare_wait(&self.area)
    }

    /// Returns the time at which the peer polled in vain, of its clock; 0: it does not poll.
    pub(super) fn polled_at(&self) -> u64 {
        self.area.hint().polled_at.load(Ordering::Relaxed)
    }

    /// True if the peer sleeps until a packet comes.
    pub(super) fn is_awaited(&self) -> bool {
        self.area.consumer().sleeping.load(Ordering::Relaxed) != 0
    }
}

/// The direction from the peer: a ring, and the memory that it lies in.
#[derive(Debug)]
pub(super) struct Inlet {
    ring: Consumer,
    pub(super) area: Half,
}

impl Inlet {
    pub(super) fn new(sizes: Sizes, area: Half) -> Inlet {
        Inlet { ring: Consumer::new(sizes), area }
    }

    /// Returns the lengths of the next packet, if there is one.
    #[inline]
    pub(super) fn peek(&self) -> Result<Option<FrameLengths>, Violation> {
        self.ring.peek(&self.area)
    }

    /// Takes the next packet, whose lengths are these.
    #[inline]
    pub(super) fn pop(&mut self, len: FrameLengths, take: impl FnOnce(&[u8], Bytes<'_>)) {
        self.ring.pop(&self.area, len, take);
    }

    /// True if the peer waits for room and has to be woken.
    #[inline]
    pub(super) fn must_ring(&mut self) -> bool {
        self.ring.must_ring(&self.area)
    }

    /// True if no packet was taken.
    pub(super) fn untouched(&self) -> bool {
        self.ring.untouched()
    }

    /// Tells the peer that this side sleeps, or is about to.
    pub(super) fn announce_sleep(&self) {
        self.ring.announce_sleep(&self.area);
        self.set_polled_at(0);
    }

    /// Tells the peer that this side is awake.
    pub(super) fn awake(&self) {
        self.ring.awake(&self.area);
    }

    /// Tells the peer that this side polls in vain at this time of its clock; 0: it does not poll.
    pub(super) fn set_polled_at(&self, at: u64) {
        self.area.hint().polled_at.store(at, Ordering::Relaxed);
    }
}

/// The causes for which a connection ends.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The process at the other end ended; its packets in the ring are still delivered.
    pub hung_up: bool,
    /// The reason of the other end, if it refused the connection.
    pub refused: Option<String>,
    /// The other end broke the protocol of the rings: drop it.
    pub violation: Option<Violation>,
}

impl End {
    /// True if the connection ends, at the latest when all packets are delivered.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.hung_up || self.violation.is_some()
    }
}

/// A peer, or a caller: an endpoint that connected and that the driver has not numbered yet.
#[derive(Debug)]
pub(super) struct Peer {
    pub tx: Outlet,
    pub rx: Inlet,
    /// The driver's number; `None` for a caller.
    pub id: Option<PeerId>,
    pub end: End,
    pub endpoint: EndpointId,
    /// This side made the connection.
    pub dialed: bool,
    pub socket: Socket,
    /// The peer's own connection, if both sides connected at the same time.
    pub crossing: Option<Socket>,
    pub direct: Direct,
    /// Its blocks that are mapped here.
    windows: Vec<Window>,
    pub process: Process,
    /// Longest packet to this peer.
    pub mtu: u32,
    /// Its packets are left in the ring for now.
    pub muted: bool,
    /// The nonce that its answer has to repeat, until it has proven that it knows the job's key.
    pub unproven: Option<u64>,
    /// The peer may know addresses of this process, and copy from and to them.
    pub copies: bool,
}

/// A copy from or to the memory of a peer, which lasts until this is dropped.
pub(super) struct Copying<'a>(&'a Peer);

impl std::ops::Deref for Copying<'_> {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        self.0
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.tx.area.producer().copying.store(0, Ordering::Release);
    }
}

impl Drop for Peer {
    /// Revokes access, because memory whose address the peer knows may be freed next.
    fn drop(&mut self) {
        self.take_back();
    }
}

impl Peer {
    /// Makes the state of a connection whose segment has these sizes; it sends in `tx` and receives
    /// in `rx`.
    pub(super) fn new(
        endpoint: EndpointId,
        socket: Socket,
        sizes: Sizes,
        [tx, rx]: [Half; 2],
        direct: Direct,
    ) -> Peer {
        Peer {
            tx: Outlet::new(sizes, tx),
            rx: Inlet::new(sizes, rx),
            id: None,
            end: End::default(),
            endpoint,
            dialed: false,
            socket,
            crossing: None,
            process: Process::met(direct.process()),
            copies: direct.usable(),
            direct,
            windows: Vec::new(),
            mtu: sizes.mtu,
            muted: false,
            unproven: None,
        }
    }

    /// Publishes one packet; returns true if it rang the doorbell. `None`: not published.
    #[inline]
    pub(super) fn push_one(&mut self, frame: &Frame<'_>) -> Option<bool> {
        match self.tx.push(frame.header, frame.payload) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(violation) => {
                self.end.violation = Some(violation);
                return None;
            }
        }
        let ring = self.tx.must_ring();
        if ring {
            self.ring();
        }
        Some(ring)
    }

    /// Publishes the first frames; returns their number, and true if it rang the doorbell.
    #[inline]
    pub(super) fn push(&mut self, frames: &[Frame<'_>]) -> (usize, bool) {
        let mut pushed = 0;
        for frame in frames {
            match self.tx.push(frame.header, frame.payload) {
                Ok(true) => pushed += 1,
                Ok(false) => break,
                Err(violation) => {
                    self.end.violation = Some(violation);
                    break;
                }
            }
        }
        let ring = pushed > 0 && self.tx.must_ring();
        if ring {
            self.ring();
        }
        (pushed, ring)
    }

    /// Delivers up to `budget` packets; returns their number.
    #[inline]
    pub(super) fn pop(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        if budget == 0 {
            return 0;
        }
        let mut left = budget;
        self.pop_while(|from, header, payload| {
            sink.frame(from, header, payload);
            left -= 1;
            left > 0
        })
    }

    /// Delivers packets while `take` returns true; returns their number.
    #[inline]
    pub(super) fn pop_while(
        &mut self,
        mut take: impl FnMut(Option<PeerId>, &[u8], Bytes<'_>) -> bool,
    ) -> usize {
        let (mut popped, mut more) = (0, !self.muted);
        while more {
            match self.rx.peek() {
                Ok(Some(len)) => {
                    let from = self.id;
                    self.rx.pop(len, |header, payload| {
                        more = take(from, header, payload);
                    });
                    popped += 1;
                }
                Ok(None) => break,
                Err(violation) => {
                    self.end.violation = Some(violation);
                    break;
                }
            }
        }
        if popped > 0 && self.rx.must_ring() {
            self.ring();
        }
        popped
    }

    /// True if no packet is to be taken from the receive ring.
    pub(super) fn idle(&self) -> bool {
        self.muted || matches!(self.rx.peek(), Ok(None))
    }

    /// True if the connection is to be removed: the peer broke the protocol of the rings, or its
    /// process ended and all its packets are delivered.
    pub(super) fn finished(&self) -> bool {
        let read = self.unproven.is_some() || (!self.muted && self.idle());
        self.end.violation.is_some() || (self.end.hung_up && read)
    }

    /// True if a connection by way of the agent ended before a packet came: this side does not see
    /// if the agent, or the peer, did not want it.
    pub(super) fn ended_unheard(&self) -> bool {
        self.socket.joined && self.rx.untouched()
    }

    /// Wakes the peer. If the socket buffer is full, it contains unread doorbells already; epoll
    /// reports a closed socket.
    #[cold]
    fn ring(&self) {
        let _ = socket::send(&self.socket.fd, &BELL, None);
    }

    /// Uses the receive ring of a second connection, which the peer made.
    pub(super) fn cross(&mut self, socket: Socket, sizes: Sizes, rx: Half) {
        self.crossing = Some(socket);
        let before = std::mem::replace(&mut self.rx, Inlet::new(sizes, rx));
        if before.area.hint().taken_back.load(Ordering::Relaxed) != 0 {
            self.take_back();
        }
    }

    /// Begins a copy from or to the peer's memory. `None`: the peer has revoked access to it.
    pub(super) fn begin_copy(&self) -> Option<Copying<'_>> {
        self.tx.area.producer().copying.store(1, Ordering::SeqCst);
        let copying = Copying(self);
        // Either this side sees that access was revoked, or the peer sees this copy.
        fence(Ordering::SeqCst);
        let mine = self.tx.area.hint().taken_back.load(Ordering::SeqCst) == 0;
        mine.then_some(copying)
    }

    /// Revokes access to the memory of this process. After this call the peer copies nothing from
    /// or to this memory, for the rest of this connection.
    pub(super) fn take_back(&self) {
        if !self.copies {
            return;
        }
        self.rx.area.hint().taken_back.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_copying = || self.rx.area.producer().copying.load(Ordering::Acquire) != 0;
        if (0..COPY_POLLS).all(|_| {
            std::hint::spin_loop();
            is_copying()
        }) {
            self.await_copy(is_copying);
        }
    }

    /// Waits until the peer copies no more: its copy has ended, or its process has.
    #[cold]
    fn await_copy(&self, is_copying: impl Fn() -> bool) {
        let (start, process) = (Instant::now(), self.direct.process());
        let mut warned = false;
        while is_copying() && !self.closed() && self.process.pulse() != Pulse::Ended {
            let waited = start.elapsed();
            if waited >= COPY_WARN && !std::mem::replace(&mut warned, true) {
                crate::warn!(
                    "process {process} was stopped during a copy to memory of this process, which \
                     waits until that process continues (kill -CONT {process}) or ends"
                );
            }
            if waited >= COPY_MAX {
                crate::error!(
                    "process {process} is stopped during a copy to memory that this process has \
                     to free: this process ends, before its memory is overwritten"
                );
                std::process::abort();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// True if the peer's own connection may still be added.
    pub(super) fn may_cross(&self) -> bool {
        self.dialed && self.crossing.is_none() && self.rx.untouched() && self.idle()
    }

    /// Returns the socket with this token.
    pub(super) fn socket(&self, token: u64) -> Option<&Foreign> {
        let crossing = self.crossing.as_ref();
        [Some(&self.socket), crossing]
            .into_iter()
            .flatten()
            .find(|s| s.token == token)
            .map(|s| &s.fd)
    }

    /// True if the process at the other end closed a connection.
    pub(super) fn closed(&self) -> bool {
        let crossing = self.crossing.as_ref();
        socket::hung_up(&self.socket.fd) || crossing.is_some_and(|s| socket::hung_up(&s.fd))
    }

    /// Shares memory of this process, which the peer can map. False: not possible now.
    pub(super) fn share(&self, key: u64, block: &Block) -> bool {
        let (addr, len) = (block.start().addr() as u64, block.len() as u64);
        let message = Shared { key, addr, len }.encode();
        socket::send(&self.socket.fd, &message, Some(block.file())).is_ok()
    }

    /// Maps memory that the peer shares. Memory that cannot be mapped is reached through the
    /// kernel.
    pub(super) fn map(&mut self, &Shared { key, addr, len }: &Shared, file: &OwnedFd) {
        self.unmap(key);
        match Window::open(file, key, addr, len) {
            Ok(window) if self.windows.len() < WINDOWS_MAX => self.windows.push(window),
            Ok(_) => {}
            Err(e) => log::debug!("memory of endpoint {} is not mapped: {e}", self.endpoint),
        }
    }

    /// Removes memory that the peer shared.
    pub(super) fn unmap(&mut self, key: u64) {
        self.windows.retain(|window| window.key != key);
    }

    /// Writes to memory of the peer that is mapped here. False if it is not mapped.
    pub(super) fn write_mapped(&self, addr: u64, from: &[u8]) -> bool {
        !self.end.hung_up && self.windows.iter().any(|window| window.write(addr, from))
    }

    /// Reads memory of the peer that is mapped here. False if it is not mapped.
    pub(super) fn read_mapped(&self, addr: u64, into: &mut [u8]) -> bool {
        !self.end.hung_up && self.windows.iter().any(|window| window.read(addr, into))
    }

    /// Adds to a word of the peer that is mapped here. `None` if it is not mapped.
    pub(super) fn add_mapped(&self, addr: u64, n: u64) -> Option<u64> {
        let mut windows = self.windows.iter().filter(|_| !self.end.hung_up);
        windows.find_map(|window| window.add(addr, n))
    }

    /// Takes the values of the peer's hello; returns a warning, if any.
    pub(super) fn on_hello(&mut self, barrier: bool, addr: u64, word: u64) -> Option<String> {
        self.tx.set_light(barrier);
        if self.direct.verify(addr, word) {
            return None;
        }
        let endpoint = self.endpoint;
        Some(format!("direct copies with endpoint {endpoint} are off: its memory cannot be read"))
    }

    /// Returns the state of direct access before any hello.
    pub(super) fn direct_to(socket: &OwnedFd, choice: DirectCopy) -> Direct {
        let pid = weft_sys::Peer::of(socket).map_or(0, |peer| peer.pid);
        Direct::probe(pid, choice)
    }
}
