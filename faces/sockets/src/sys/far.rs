//! Connections to other hosts: packets by a UDP socket of the connection, which the agents have
//! joined to that of the other end. `weft_streams::far` decides what is sent and taken.
//!
//! A packet is looked for where a ring is looked at. Nothing here sleeps but the search for a
//! statement that was lost.

use super::lock::Held;
use super::parts::Parts;
use super::slot::{Slot, BROKEN, SLOTS};
use super::table::{self, Connection, Memory};
use super::{board, line, real, settings, tcp, wake};
use libc::{c_int, c_long};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use weft_streams::far::packet::{FarPacket, DATA_MAX, HEAD, PACKET_MAX};
use weft_streams::far::seal::{self, Key};
use weft_streams::far::{ByTcp, End, Heard, Pos};

/// Packets taken in one look.
const AT_ONCE: usize = 64;
/// Times of a look at a ring for which a sender waits until its packets are acknowledged.
const ANSWERED: u64 = 3;
/// Doublings of the calls until packets are tried again: a wait in 1024 calls costs a hundredth of
/// them. A loss may end soon, and most connections do not call often.
const RARER: u32 = 5;
/// Milliseconds until the statement of a phase is asked for, and between two questions.
const FIRST_MS: c_int = 1;
const AGAIN_MS: c_int = 20;
/// Descriptors that may be this library's.
const FDS: usize = 1 << 16;

/// The UDP socket of each connection, as this process has it: below 0 until it is joined.
static PATHS: [AtomicI32; SLOTS] = [const { AtomicI32::new(0) }; SLOTS];
/// The keys of packets that go, then of those that come, in halves.
static KEYS: [[AtomicU64; 4]; SLOTS] = [const { [const { AtomicU64::new(0) }; 4] }; SLOTS];
/// A bit for each descriptor that is one of these sockets.
static OWN: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];

/// Returns the UDP socket of a connection, if it is joined to one of another host.
#[inline]
pub fn path(at: usize) -> Option<RawFd> {
    let path = PATHS[at].load(Ordering::Acquire);
    (path > 0).then_some(path)
}

/// True if a descriptor is one of these sockets.
pub fn is_own(fd: c_int) -> bool {
    let word = OWN.get(fd as usize / 64);
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (fd % 64) & 1 != 0)
}

/// Returns the lowest of these sockets from this number on.
pub fn next_own(from: u32) -> Option<u32> {
    let (first, low) = (from as usize / 64, from % 64);
    OWN.iter().enumerate().skip(first).find_map(|(i, word)| {
        let mask = if i == first { u64::MAX << low } else { u64::MAX };
        let bits = word.load(Ordering::Relaxed) & mask;
        (bits != 0).then(|| i as u32 * 64 + bits.trailing_zeros())
    })
}

fn mark(fd: RawFd, is_own: bool) {
    let (word, bit) = (&OWN[fd as usize / 64], 1 << (fd % 64));
    match is_own {
        true => word.fetch_or(bit, Ordering::Relaxed),
        false => word.fetch_and(!bit, Ordering::Relaxed),
    };
}

/// Returns the same socket by a number that programs do not look at; the old number is free.
fn hide(fd: RawFd) -> Option<RawFd> {
    // SAFETY: a descriptor of this library.
    let high = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, line::HIDDEN.into()) };
    line::close(fd);
    if high >= FDS as RawFd {
        line::close(high);
    }
    (0..FDS as RawFd).contains(&high).then_some(high)
}

/// Makes the UDP socket of a connection, for the agent to see if the network leads from it to the
/// other end.
pub fn makes_path(one: &Connection) -> Option<RawFd> {
    forget(one.at);
    let path = hide(tcp::path(one.fd)?)?;
    mark(path, true);
    PATHS[one.at].store(-path, Ordering::Release);
    Some(path)
}

/// A connection has no such socket any more, in this process.
pub fn forget(at: usize) {
    let path = PATHS[at].swap(0, Ordering::AcqRel).abs();
    if path > 0 {
        mark(path, false);
        line::close(path);
    }
}

/// A connection that was to be joined is not.
pub fn is_refused(at: usize) {
    if path(at).is_none() {
        forget(at);
    }
}

/// The program is about to use the number of one of these sockets for another file.
pub fn moves(fd: c_int) {
    if !is_own(fd) {
        return;
    }
    let is_it = |path: &&AtomicI32| path.load(Ordering::Relaxed).abs() == fd;
    let Some(path) = PATHS.iter().find(is_it) else { return };
    // SAFETY: a descriptor of this library.
    let other = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, line::HIDDEN.into()) };
    mark(fd, false);
    // Without one more number the packets end, and bytes go by TCP.
    let other = if (0..FDS as RawFd).contains(&other) { other } else { 0 };
    if other > 0 {
        mark(other, true);
    }
    let sign = path.load(Ordering::Relaxed).signum();
    path.store(sign * other, Ordering::Release);
}

/// Joins the socket of a connection to that of the other end. False if it has none.
pub fn joins(at: usize, to: weft_streams::message::Place, key: &Key, first: bool) -> bool {
    let path = -PATHS[at].load(Ordering::Acquire);
    if path <= 0 || !tcp::connect_path(path, to) {
        return false;
    }
    let keys = [seal::of_direction(key, first), seal::of_direction(key, !first)].concat();
    for (to, from) in KEYS[at].iter().zip(keys.chunks_exact(8)) {
        to.store(from.try_into().map_or(0, u64::from_le_bytes), Ordering::Relaxed);
    }
    PATHS[at].store(path, Ordering::Release);
    true
}

fn key(at: usize, comes: bool) -> Key {
    let (mut key, from) = ([0; 16], if comes { 2 } else { 0 });
    for i in 0..2 {
        let half = KEYS[at][from + i].load(Ordering::Relaxed).to_le_bytes();
        key[8 * i..8 * i + 8].copy_from_slice(&half);
    }
    key
}

/// Sends a packet whose data are in `bytes`. One that the system does not take is one that was
/// lost. The call is no point where threads are cancelled.
fn transmit(at: usize, path: RawFd, packet: &FarPacket, bytes: &mut [u8; PACKET_MAX]) {
    if settings::loss() > 0 && is_lost() {
        return;
    }
    let len = packet.seal(&key(at, false), bytes);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let was = real::errno();
    // SAFETY: `len` bytes are readable.
    unsafe {
        real::syscall(
            libc::SYS_sendto,
            path.into(),
            bytes.as_ptr() as c_long,
            len as c_long,
            flags.into(),
            0,
            0,
        )
    };
    real::set_errno(was);
}

/// True for the share of packets that are lost on purpose.
fn is_lost() -> bool {
    static SENT: AtomicU64 = AtomicU64::new(0);
    let number = SENT.fetch_add(1, Ordering::Relaxed).wrapping_add(u64::from(line::process()));
    // Fibonacci hashing: the upper bits of the product look random.
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % 100 < u64::from(settings::loss())
}

/// Sends a packet without data.
fn state(at: usize, path: RawFd, end: &End) {
    transmit(at, path, &end.state(), &mut [0; PACKET_MAX]);
}

/// Takes packets that have come.
pub fn pump(at: usize, slot: &Slot, memory: Memory) {
    let Some(path) = path(at) else { return };
    let Some(held) = slot.packets.try_take() else { return };
    take(at, slot, memory, path, &held);
}

/// Takes all packets that have come, however many; waits for a thread that takes some.
fn pump_all(one: &Connection, memory: Memory) {
    let Some(path) = path(one.at) else { return };
    let Some(held) = one.slot.packets.take() else { return };
    while take(one.at, one.slot, memory, path, &held) == AT_ONCE {}
}

/// The same where bytes may come into the ring; else they are left to be refused later.
#[inline]
pub fn look(at: usize, slot: &Slot, memory: Memory) {
    if path(at).is_some() && slot.receiver.is_awake(memory.incoming()) {
        pump(at, slot, memory);
    }
}

/// Takes some packets; returns their number.
fn take(at: usize, slot: &Slot, memory: Memory, path: RawFd, _held: &Held<'_>) -> usize {
    let (end, words, was) = (memory.end(), memory.incoming(), real::errno());
    let (mut bytes, mut taken) = ([0; PACKET_MAX], 0);
    while taken < AT_ONCE {
        let (to, len) = (bytes.as_mut_ptr() as c_long, PACKET_MAX as c_long);
        let flags = libc::MSG_DONTWAIT.into();
        // SAFETY: `bytes` is writable for its length.
        let n = unsafe { real::syscall(libc::SYS_recvfrom, path.into(), to, len, flags, 0, 0) };
        if n < 0 {
            if real::errno() == libc::ECONNREFUSED {
                // Nobody has the other socket any more.
                end.is_silent();
            }
            break;
        }
        taken += 1;
        let Some(packet) = FarPacket::open(&key(at, true), &bytes[..n as usize]) else { continue };
        match end.hear(&packet, words, &slot.receiver) {
            Ok(Heard::Nothing) => {}
            Ok(Heard::Answer) => state(at, path, end),
            Ok(Heard::Take(to)) => {
                let data = &bytes[HEAD..HEAD + packet.data.len];
                // SAFETY: so many bytes, less than a ring's, which nobody reads before they are
                // put.
                unsafe { memory.fill(to, data.as_ptr(), data.len()) };
                if end.put(&packet.data, words) {
                    // The other end is in a call, and may wait for an answer.
                    wake::is_busy(&slot.send_luck);
                }
                state(at, path, end);
            }
            Err(_) => {
                slot.set(BROKEN);
                slot.sender.end();
                break;
            }
        }
    }
    real::set_errno(was);
    taken
}

/// Tells the other end that this one takes packets, or does not.
pub fn tell(at: usize, slot: &Slot, memory: Memory, is_awake: bool) {
    if !settings::packets() {
        // The other end sends by TCP what this one looks for.
        return;
    }
    let Some(path) = path(at) else { return };
    let Some(_held) = slot.packets.try_take() else { return };
    if memory.end().tells(is_awake) {
        state(at, path, memory.end());
    }
}

/// Sends what is left of a call by a packet, and waits a moment until it is acknowledged. Returns
/// the number of the next bytes that have to go by TCP, as they may have come by the packet: the
/// phase has ended then. The sender's lock is held.
pub fn send(one: &Connection, memory: Memory, parts: &Parts<'_>, sent: &mut usize) -> usize {
    let (slot, end) = (one.slot, memory.end());
    let Some(path) = path(one.at) else { return 0 };
    let len = parts.len() - *sent;
    // It may have said by now that it is awake.
    pump(one.at, slot, memory);
    if end.is_unheard() {
        // The statement of the last phase may be lost.
        state(one.at, path, end);
    }
    // More bytes than a packet has are TCP's, which has them cut by cards.
    let may = settings::packets()
        && len <= DATA_MAX
        && end.may_send(&slot.sender)
        && !board::is_off()
        && wake::is_lucky_again(&slot.send_luck, RARER)
        && tcp::takes_at_once(one.fd);
    if !may {
        return 0;
    }
    if !slot.receiver.is_awake(memory.incoming()) {
        // The answer may come at once; this packet says so.
        if let Some(_held) = slot.receiving.try_take() {
            wake::wake(one, memory);
        }
    }
    if slot.receiver.is_awake(memory.incoming()) {
        if let Some(_held) = slot.packets.try_take() {
            end.tells(true);
        }
    }
    let (first, mut bytes, mut to) = (*sent, [0; PACKET_MAX], HEAD);
    parts.each(first, len, |base, len| {
        // SAFETY: the caller's part has `len` bytes, and all are at most the most of a packet.
        unsafe { std::ptr::copy_nonoverlapping(base, bytes.as_mut_ptr().add(to), len) };
        to += len;
        true
    });
    let packet = end.give(&slot.sender, len);
    transmit(one.at, path, &packet, &mut bytes);
    *sent += len;
    wake::spin(&slot.send_luck, 1, ANSWERED, || {
        pump(one.at, slot, memory);
        end.is_acked() || !end.is_peer_awake() || slot.has(BROKEN)
    });
    let mut again = 0;
    if !end.is_acked() {
        end.is_silent();
        again = stop(one.at, memory);
    }
    *sent -= again;
    board::entry(one.at).iter().for_each(|entry| entry.went(*sent - first));
    again
}

/// Ends the phase, as bytes go by TCP. Returns the number of the next bytes that have to go, as
/// they may have come by packets. The sender's lock is held.
pub fn stop(at: usize, memory: Memory) -> usize {
    let Some(path) = path(at) else { return 0 };
    let Some(again) = memory.end().stop() else { return 0 };
    state(at, path, memory.end());
    again
}

/// Drops bytes by TCP that were taken from packets. False if none are there. The receiver's lock is
/// held.
pub fn drop_twice(one: &Connection, memory: Memory, bytes: u64) -> bool {
    let (call, was) = (one.slot.receiver.tcp.call(), real::errno());
    let flags = (libc::MSG_TRUNC | libc::MSG_DONTWAIT).into();
    let (fd, len) = (one.fd.into(), bytes as c_long);
    // SAFETY: TCP drops bytes where MSG_TRUNC is set, and writes nowhere.
    let n = unsafe { real::syscall(libc::SYS_recvfrom, fd, 0, len, flags, 0, 0) };
    real::set_errno(was);
    call.done(n.max(0) as u64);
    if n > 0 {
        memory.end().dropped(n as u64);
    }
    n > 0
}

/// Returns the bytes that TCP has now and that were taken from packets before.
pub fn twice(one: &Connection, memory: Memory) -> u64 {
    let there = tcp::unread(one.fd).unwrap_or(0);
    let end = memory.end();
    if there == 0 || end.by_tcp() == ByTcp::Unknown && !learn(one, memory) {
        return 0;
    }
    match end.by_tcp() {
        ByTcp::Twice(bytes) => bytes.min(there),
        _ => 0,
    }
}

/// Learns the length of a phase that has ended: bytes by TCP have come. False if nobody says it.
pub fn learn(one: &Connection, memory: Memory) -> bool {
    let (slot, end, was) = (one.slot, memory.end(), real::errno());
    // Times by the clock: a wait ends early where the peer's socket is gone, or others send.
    let (from, mut next) = (wake::now_ns(), FIRST_MS);
    let is_known = loop {
        pump_all(one, memory);
        if end.by_tcp() != ByTcp::Unknown {
            break true;
        }
        let waited = ((wake::now_ns() - from) / 1_000_000) as c_int;
        let is_late = waited >= settings::patience_ms() || slot.has(BROKEN);
        let Some(path) = path(one.at).filter(|_| !is_late) else { break false };
        if waited >= next {
            next = waited + AGAIN_MS;
            // A packet was lost. The peer answers if it looks; its agent has the statement, too.
            state(one.at, path, end);
            line::asks_phase(one, end.phase(), path);
        }
        line::awaits(path, next - waited);
        line::hears();
    };
    real::set_errno(was);
    is_known
}

/// The agent says how long a phase was.
pub fn has_stopped(at: usize, slot: &Slot, stop: u64, acked: u64) {
    table::with_memory(at, slot, |memory| {
        if path(at).is_some() {
            if let Some(_held) = slot.packets.take() {
                // A statement that cannot be is not the agents'.
                let _ = memory.end().hear_statement((Pos(stop), Pos(acked)));
            }
        }
    });
}

/// True if a wait of the kernel told of a connection as bytes came that were taken from packets
/// before: they are dropped.
pub fn is_false_alarm(fd: c_int) -> bool {
    let Some(one) = table::connection(fd).filter(|one| path(one.at).is_some()) else {
        return false;
    };
    let was = real::errno();
    let is_false = table::with_memory(one.at, one.slot, |memory| {
        let end = memory.end();
        if end.by_tcp() == ByTcp::Next || tcp::unread(fd).unwrap_or(0) == 0 {
            return false;
        }
        if end.by_tcp() == ByTcp::Unknown && !learn(&one, memory) {
            return false;
        }
        let Some(_held) = one.slot.receiving.take() else { return false };
        if one.slot.receiver.unread(memory.incoming()) > 0 {
            return false;
        }
        let mut is_dropped = false;
        while let ByTcp::Twice(bytes) = end.by_tcp() {
            if !drop_twice(&one, memory, bytes) {
                break;
            }
            is_dropped = true;
        }
        is_dropped && !tcp::has_input(fd)
    });
    real::set_errno(was);
    is_false == Some(true)
}

/// Has nothing of a connection be in doubt, as somebody else is to read its socket: the ring has
/// only bytes that do not come by TCP. False if the length of a phase is not known, or bytes that
/// were read come by TCP again and do not arrive. The receiver's lock is held, and nothing comes by
/// packets any more.
pub fn settles(one: &Connection, memory: Memory) -> bool {
    if path(one.at).is_none() {
        return true;
    }
    let (end, words, receiver) = (memory.end(), memory.incoming(), &one.slot.receiver);
    loop {
        match end.by_tcp() {
            ByTcp::Next => return true,
            ByTcp::Twice(_) if receiver.unread(words) > 0 => {
                let Some(_held) = one.slot.packets.take() else { return false };
                end.leave_to_tcp(words, receiver);
            }
            ByTcp::Twice(bytes) => {
                if !drop_twice(one, memory, bytes) {
                    tcp::awaits(one.fd, settings::patience_ms());
                    if !drop_twice(one, memory, bytes) {
                        return false;
                    }
                }
            }
            ByTcp::Unknown => {
                // Nothing follows where the peer has ended.
                let is_over = tcp::has_ended(one.fd) && tcp::unread(one.fd) == Some(0);
                if !is_over && !learn(one, memory) {
                    return false;
                }
                if is_over {
                    return true;
                }
            }
        }
    }
}
