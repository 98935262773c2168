//! The words of one direction in shared memory.
//!
//! Both processes write there, so a value read from them is a claim: each end keeps its own
//! place privately, and checks the other's against it.

use crate::shim::{AtomicU64, Ordering};
use crate::Broken;

/// Bytes of a segment, whole pages: the words of both directions, then both rings. With all that a
/// connection takes beside it, in both of its processes, this is less than 64 KiB.
pub const SEGMENT: usize = 60 << 10;
/// Bytes from the start of the segment to the first ring.
pub const HEAD: usize = 2 * STRIDE;
/// Bytes of the ring of one direction.
#[cfg(not(all(loom, test)))]
pub const RING: usize = (SEGMENT - HEAD) / 2;
/// Small, so that the model checker sees it full.
#[cfg(all(loom, test))]
pub const RING: usize = 2;
/// Bytes between the words of the two directions.
pub const STRIDE: usize = 512;

/// The mark that the receiver is awake.
const AWAKE: u64 = 1;
/// The mark that the receiver will never be awake again.
const FINAL: u64 = 2;
const SHIFT: u32 = 2;

/// A line of the cache with one word.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Line(AtomicU64);

/// A line of the cache with two words of the receiver.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Taken {
    /// Bytes ever read from the ring.
    head: AtomicU64,
    /// The only processor that may run the receiver, plus 1; 0: there are several.
    core: AtomicU64,
}

/// A line of the cache with two words of the sender.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Said {
    /// 1 if the sender has said that it sends no more.
    ended: AtomicU64,
    /// Calls by which the sender has sent by TCP, or is about to.
    turns: AtomicU64,
}

/// The words of one direction.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Words {
    /// Bytes ever written to the ring, and the marks of the receiver. Both ends write it.
    position: Line,
    /// Bytes that the sender had sent by TCP when it began to write to the ring. The sender's.
    after: Line,
    /// The receiver's.
    taken: Taken,
    /// The sender's.
    said: Said,
}

// Processes of different builds share this layout.
#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Words>() <= STRIDE && RING.is_multiple_of(64));

/// The position at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position(u64);

impl Position {
    /// Bytes ever written to the ring.
    pub(crate) fn tail(self) -> u64 {
        self.0 >> SHIFT
    }

    /// True if the receiver takes bytes from the ring.
    pub(crate) fn is_awake(self) -> bool {
        self.0 & (AWAKE | FINAL) == AWAKE
    }

    /// True if the receiver never takes bytes from the ring again, but those that are there.
    pub(crate) fn is_final(self) -> bool {
        self.0 & FINAL != 0
    }

    fn moved_to(self, tail: u64) -> Position {
        Position(tail << SHIFT | self.0 & (AWAKE | FINAL))
    }
}

impl Words {
    pub(crate) fn position(&self) -> Position {
        Position(self.position.0.load(Ordering::Acquire))
    }

    /// Moves the tail, unless the position has changed. The error is the changed position.
    pub(crate) fn publish(&self, seen: Position, tail: u64) -> Result<(), Position> {
        self.exchange(seen, seen.moved_to(tail))
    }

    /// Takes the mark of the receiver away, unless the position has changed.
    pub(crate) fn to_sleep(&self, seen: Position) -> Result<(), Position> {
        self.exchange(seen, Position(seen.0 & !AWAKE))
    }

    /// Takes the mark of the receiver away, whatever is in the ring.
    pub(crate) fn to_inactive(&self) {
        self.position.0.fetch_and(!AWAKE, Ordering::AcqRel);
    }

    /// Sets the mark of the receiver.
    pub(crate) fn to_wake(&self) {
        self.position.0.fetch_or(AWAKE, Ordering::AcqRel);
    }

    /// Takes the mark of the receiver away for good.
    pub(crate) fn to_end(&self) {
        self.position.0.fetch_or(FINAL, Ordering::AcqRel);
    }

    /// Makes the words of a direction that has ended with so many bytes in its ring, which come
    /// after this many by TCP.
    pub fn leave(&self, bytes: usize, after: u64) {
        self.position.0.store((bytes as u64) << SHIFT | FINAL, Ordering::Release);
        self.set_after(after);
        // The end of TCP is that of the direction, as no process is at its other end.
        self.set_ended();
    }

    /// Writes what a hostile peer may: any words.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn scribble(&self, words: [u64; 3]) {
        let of = [&self.position.0, &self.after.0, &self.taken.head];
        of.into_iter().zip(words).for_each(|(at, word)| at.store(word, Ordering::Relaxed));
    }

    fn exchange(&self, from: Position, to: Position) -> Result<(), Position> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let position = &self.position.0;
        position.compare_exchange(from.0, to.0, success, failure).map(|_| ()).map_err(Position)
    }

    pub(crate) fn after(&self) -> u64 {
        // Read after the position, whose publication makes it visible.
        self.after.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set_after(&self, sent: u64) {
        self.after.0.store(sent, Ordering::Relaxed);
    }

    /// Returns the bytes in the ring as the receiver's word says, checked against the sender's own
    /// position.
    pub(crate) fn unread(&self, tail: u64) -> Result<usize, Broken> {
        span(self.taken.head.load(Ordering::Acquire), tail)
    }

    /// The sender sends no more, and says so to TCP after that.
    pub(crate) fn set_ended(&self) {
        self.said.ended.store(1, Ordering::Release);
    }

    /// True if the sender has said that it sends no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.said.ended.load(Ordering::Acquire) != 0
    }

    /// The sender is about to send by TCP.
    pub(crate) fn begin_turn(&self) {
        self.said.turns.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that has changed before anything more comes by TCP.
    pub(crate) fn turns(&self) -> u64 {
        self.said.turns.load(Ordering::Acquire)
    }

    pub(crate) fn core(&self) -> u64 {
        self.taken.core.load(Ordering::Relaxed)
    }

    pub(crate) fn set_core(&self, core: u64) {
        if self.core() != core {
            self.taken.core.store(core, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_head(&self, head: u64) {
        self.taken.head.store(head, Ordering::Release);
    }
}

/// Returns the bytes from `head` to `tail` if a ring can hold them.
pub(crate) fn span(head: u64, tail: u64) -> Result<usize, Broken> {
    match tail.checked_sub(head) {
        Some(n) if n <= RING as u64 => Ok(n as usize),
        _ => Err(Broken),
    }
}
