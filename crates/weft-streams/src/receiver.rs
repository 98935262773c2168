//! The end of a direction that receives.

use crate::count::Count;
use crate::shim::{AtomicU32, AtomicU64, Ordering};
use crate::words::{span, Words};
use crate::Broken;

/// The place that the next bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// From the ring: so many bytes from this position on.
    Ring {
        /// The position, counted from the first byte ever; the ring holds it modulo its length.
        at: u64,
        /// The bytes that are there, at least one.
        len: usize,
    },
    /// From TCP, and after this many bytes from the ring.
    Tcp(u64),
    /// From TCP or from the ring: nothing is in the ring.
    Open,
}

/// The state of the direction in the process that receives, in memory that the peer cannot
/// reach.
#[derive(Debug, Default)]
pub struct Receiver {
    /// Bytes read from TCP since the connection was made, before the upgrade too.
    pub tcp: Count,
    /// Bytes ever read from the ring.
    head: AtomicU64,
    /// Threads that sleep in a call that waits for this connection among others.
    waiting: AtomicU32,
    /// The sender's calls by TCP of which all bytes that had come were read.
    turns: AtomicU64,
}

impl Receiver {
    /// Says where the next bytes come from. The holder of the receiver's lock calls it.
    ///
    /// # Errors
    /// The peer's words cannot be.
    pub fn next(&self, words: &Words) -> Result<Next, Broken> {
        let (head, position) = (self.head.load(Ordering::Relaxed), words.position());
        let len = span(head, position.tail())?;
        if len == 0 {
            return Ok(Next::Open);
        }
        match words.after().checked_sub(self.tcp.bytes()) {
            None => Err(Broken),
            Some(0) => Ok(Next::Ring { at: head, len }),
            Some(left) => Ok(Next::Tcp(left)),
        }
    }

    /// True if the ring has bytes that are next; what a wait asks, without the lock.
    #[inline]
    pub fn is_readable(&self, words: &Words) -> bool {
        // A peer that broke the rules is readable: the read says so.
        self.head.load(Ordering::Relaxed) != words.position().tail()
            && !matches!(self.next(words), Ok(Next::Tcp(_) | Next::Open))
    }

    /// True if the ring has bytes, next ones or ones behind bytes of TCP; what a wait for edges
    /// asks, without the lock.
    #[inline]
    pub fn has_bytes(&self, words: &Words) -> bool {
        self.head.load(Ordering::Relaxed) != words.position().tail()
    }

    /// Returns a number that changes with all that arrives in the ring.
    pub fn arrived(&self, words: &Words) -> u64 {
        words.position().tail()
    }

    /// Takes bytes that were read from the ring.
    pub fn take(&self, words: &Words, len: usize) {
        let head = self.head.load(Ordering::Relaxed) + len as u64;
        self.head.store(head, Ordering::Relaxed);
        words.set_head(head);
    }

    /// Gives bytes back to the ring that were taken last, after which the direction has not been
    /// awake: they are still there.
    pub fn untake(&self, words: &Words, len: usize) {
        let head = self.head.load(Ordering::Relaxed).saturating_sub(len as u64);
        self.head.store(head, Ordering::Relaxed);
        words.set_head(head);
    }

    /// Returns the sender's calls by TCP if TCP may have bytes of them. A read that ends at the
    /// last byte of the ring has to look there: a program that gets fewer bytes than it asked for
    /// takes them for the last that are there (epoll(7)).
    pub fn turns_to_look_at(&self, words: &Words) -> Option<u64> {
        let turns = words.turns();
        (turns != self.turns.load(Ordering::Relaxed)).then_some(turns)
    }

    /// TCP had no more bytes, once the sender had made so many calls.
    pub fn has_looked(&self, turns: u64) {
        self.turns.store(turns, Ordering::Relaxed);
    }

    /// Lets the sender use the ring, unless a thread is in a call that would not see it. The holder
    /// of the receiver's lock calls it. False if it did not.
    pub fn wake(&self, words: &Words) -> bool {
        if self.tcp.calls() > 0 || self.waiting.load(Ordering::Acquire) > 0 {
            return false;
        }
        let position = words.position();
        if !position.is_final() && !position.is_awake() {
            words.to_wake();
        }
        !position.is_final()
    }

    /// Tells the peer the only processor that may run this receiver.
    pub fn set_core(&self, words: &Words, core: Option<u32>) {
        words.set_core(core.map_or(0, |core| u64::from(core) + 1));
    }

    /// Has all further bytes come by TCP, which may be read without a bound then. False if there
    /// are bytes in the ring to be read before. The holder of the receiver's lock calls it.
    ///
    /// # Errors
    /// The peer's words cannot be.
    pub fn sleep(&self, words: &Words) -> Result<bool, Broken> {
        let head = self.head.load(Ordering::Relaxed);
        let position = words.position();
        if span(head, position.tail())? > 0 {
            return Ok(false);
        }
        if !position.is_awake() {
            return Ok(true);
        }
        match words.to_sleep(position) {
            Ok(()) => Ok(true),
            Err(changed) if changed.is_final() && changed.tail() == head => Ok(true),
            // The sender changes nothing but the tail, so that a caller that tries again has bytes.
            Err(changed) => match span(head, changed.tail())? {
                0 => Err(Broken),
                _ => Ok(false),
            },
        }
    }

    /// Has all further bytes come by TCP, after those in the ring: a wait has told of these, and is
    /// to be ended by new ones. The holder of the receiver's lock calls it.
    pub fn make_inactive(&self, words: &Words) {
        words.to_inactive();
    }

    /// True if bytes may come into the ring.
    pub fn is_awake(&self, words: &Words) -> bool {
        words.position().is_awake()
    }

    /// Clears the receiver, which is another connection's from now on.
    pub fn renew(&self) {
        self.tcp.renew();
        self.head.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
        self.turns.store(0, Ordering::Relaxed);
    }

    /// True if the sender has said that it sends no more. An end of TCP without that is the end of
    /// the sender's process.
    pub fn is_notified_of_end(&self, words: &Words) -> bool {
        words.has_ended()
    }

    /// Has all further bytes come by TCP for good. Those in the ring stay readable.
    pub fn end(&self, words: &Words) {
        words.to_end();
    }

    /// A thread begins, or ends, to sleep in a call that waits for this connection among others.
    /// Between the two nothing wakes the direction up. `sleep` is called after the begin.
    pub fn wait_begins(&self) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// See [`Receiver::wait_begins`].
    pub fn wait_ends(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the bytes ever read from the ring.
    pub fn taken(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    /// Returns the bytes in the ring that can be read at once, where so many bytes by TCP can be.
    /// Those of the ring may come after bytes that TCP has still on the way.
    pub fn unread_behind(&self, words: &Words, by_tcp: u64) -> usize {
        match self.next(words) {
            Ok(Next::Tcp(left)) if left > by_tcp => 0,
            _ => self.unread(words),
        }
    }

    /// Returns the bytes in the ring.
    pub fn unread(&self, words: &Words) -> usize {
        span(self.taken(), words.position().tail()).unwrap_or(0)
    }
}
