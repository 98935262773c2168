//! The end of a direction that sends.

use crate::count::{Call, Count};
use crate::shim::{AtomicU32, AtomicU64, Ordering};
use crate::words::{Words, RING};
use crate::Broken;

/// The last byte went by TCP.
const BY_TCP: u32 = 0;
/// The last byte went into the ring.
const RINGED: u32 = 1;
/// The last byte went by TCP, and the next is about to go into the ring.
const SWITCHING: u32 = 2;

/// The place that the next bytes go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By TCP.
    Tcp,
    /// Into the ring, once the receiver has taken bytes of it. TCP may be used instead.
    Full,
    /// Into the ring: so many bytes from this position on.
    Ring {
        /// The position, counted from the first byte ever; the ring holds it modulo its length.
        at: u64,
        /// The bytes for which there is space, at least one.
        space: usize,
        /// The switch to be stated with them, if the bytes before went by TCP.
        switch: Option<u64>,
    },
}

/// The state of the direction in the process that sends, in memory that the peer cannot reach.
/// All but `tcp` is changed by the holder of the sender's lock alone.
#[derive(Debug, Default)]
pub struct Sender {
    /// Bytes sent by TCP since the connection was made, before the upgrade too.
    pub tcp: Count,
    /// Bytes ever written to the ring.
    tail: AtomicU64,
    /// The place that the last byte went to.
    last: AtomicU32,
    /// 1 if the ring is not used any more.
    ended: AtomicU32,
}

impl Sender {
    /// Says where the next bytes go. The lock is held until they are published or sent.
    ///
    /// # Errors
    /// The peer's words cannot be.
    pub fn way(&self, words: &Words) -> Result<Way, Broken> {
        if self.ended.load(Ordering::Relaxed) != 0 || self.tcp.calls() > 0 {
            return Ok(Way::Tcp);
        }
        let position = words.position();
        if !position.is_awake() {
            return Ok(Way::Tcp);
        }
        let tail = self.tail.load(Ordering::Relaxed);
        if position.tail() != tail {
            return Err(Broken);
        }
        let unread = words.unread(tail)?;
        let in_ring = self.last.load(Ordering::Relaxed) == RINGED;
        if !in_ring && unread > 0 {
            // The receiver has to pass the former switch before it can learn of another.
            return Ok(Way::Full);
        }
        let space = RING - unread;
        if space == 0 {
            return Ok(Way::Full);
        }
        let switch = (!in_ring).then(|| self.tcp.bytes());
        if !in_ring {
            // A signal handler may send by TCP before the bytes are published.
            self.last.store(SWITCHING, Ordering::Relaxed);
        }
        Ok(Way::Ring { at: tail, space, switch })
    }

    /// Publishes bytes that were written to the ring, with the switch of [`Way::Ring`]. False if
    /// the receiver went to sleep before: then nothing was published, and the bytes go by TCP.
    ///
    /// # Errors
    /// The peer's words cannot be.
    pub fn publish(&self, words: &Words, len: usize, switch: Option<u64>) -> Result<bool, Broken> {
        let tail = self.tail.load(Ordering::Relaxed);
        let position = words.position();
        if position.tail() != tail {
            return Err(Broken);
        }
        if !position.is_awake() {
            return Ok(false);
        }
        if let Some(sent) = switch {
            words.set_after(sent);
        }
        match words.publish(position, tail + len as u64) {
            Ok(()) => {
                self.tail.store(tail + len as u64, Ordering::Relaxed);
                let (from, to) = (SWITCHING, RINGED);
                // A change by a handler stays.
                let _ = self.last.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
                Ok(true)
            }
            Err(changed) if changed.tail() == tail => Ok(false),
            Err(_) => Err(Broken),
        }
    }

    /// Bytes are about to go by TCP. The caller calls the kernel. No words: the connection did not
    /// share memory a moment ago.
    pub fn by_tcp(&self, words: Option<&Words>) -> Call<'_> {
        let call = self.tcp.call();
        words.into_iter().for_each(Words::begin_turn);
        self.last.store(BY_TCP, Ordering::Relaxed);
        call
    }

    /// True if the last byte went by TCP.
    pub fn is_by_tcp(&self) -> bool {
        self.last.load(Ordering::Relaxed) == BY_TCP
    }

    /// True if the receiver wants no more bytes in the ring, for good, and has not read all that
    /// are there.
    pub fn is_left(&self, words: &Words) -> bool {
        words.position().is_final() && self.unread(words) > 0
    }

    /// Returns the only processor that may run the receiver, as that one has told.
    pub fn core(&self, words: &Words) -> Option<u32> {
        words.core().checked_sub(1).and_then(|core| core.try_into().ok())
    }

    /// Clears the sender, which is another connection's from now on.
    pub fn renew(&self) {
        self.tcp.renew();
        self.tail.store(0, Ordering::Relaxed);
        self.last.store(BY_TCP, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
    }

    /// All further bytes go by TCP.
    pub fn end(&self) {
        self.ended.store(1, Ordering::Relaxed);
    }

    /// Tells the receiver that no byte follows those that were sent; TCP says it after that.
    pub fn say_end(&self, words: &Words) {
        self.end();
        words.set_ended();
    }

    /// Returns the bytes ever written to the ring.
    pub fn written(&self) -> u64 {
        self.tail.load(Ordering::Relaxed)
    }

    /// Returns the bytes that the receiver has not yet read from the ring.
    pub fn unread(&self, words: &Words) -> usize {
        words.unread(self.written()).unwrap_or(0)
    }
}
