//! The receiver's side: it finds new, ordered and missing packets, and times acknowledgements.

use super::{Reliability, SackMap, MAX_SELECTIVE};
use crate::{Instant, Seq};
use core::time::Duration;

/// Words of the ring of held packets: one bit for each packet of the largest window.
const WORDS: usize = (MAX_SELECTIVE / 64) as usize;

/// The receiver's judgement of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In order: deliver now, then everything [`RecvWindow::next_held`] names.
    Deliver,
    /// New but ahead of a gap (only [`Reliability::Selective`]): keep it, or place it at once where
    /// its type allows that, until [`RecvWindow::next_held`] names it.
    Hold,
    /// Received before: drop it.
    Duplicate,
    /// Ahead of a gap (only [`Reliability::GoBackN`]): drop it; a NACK is due.
    Gap,
    /// Beyond the window: drop it.
    Outside,
}

/// Limits for delayed acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckPolicy {
    /// Acknowledge at the latest after this many packets.
    pub every: u32,
    /// Acknowledge at the latest after this time; at most about 4 s.
    pub delay: Duration,
    /// The sender's window in packets: half of it is acknowledged at the latest, so that it never
    /// stalls.
    pub peer_window: u32,
}

impl Default for AckPolicy {
    fn default() -> AckPolicy {
        AckPolicy { every: 16, delay: Duration::from_micros(100), peer_window: u32::MAX }
    }
}

/// Sequence numbers received from one peer. Owns no heap memory.
///
/// After an in-order packet the caller drains [`RecvWindow::next_held`] before it judges the next.
#[derive(Clone, Debug)]
pub struct RecvWindow {
    /// Bit `s mod 1024` says that packet `s`, after the gap, was received.
    held: [u64; WORDS],
    /// Arrival time of the first packet not yet acknowledged.
    first: Instant,
    expected: Seq,
    limit: u32,
    held_count: u32,
    pending: u32,
    /// Packets after which an acknowledgement is due.
    ack_at: u32,
    delay_ns: u32,
    /// True if an out-of-order packet was dropped since the last acknowledgement (go-back-N).
    dropped: bool,
    ack_now: bool,
    mode: Reliability,
}

impl RecvWindow {
    /// Makes a window that expects packet `initial` first and holds packets less than `limit` ahead
    /// of the next expected one; the limit is held to 1..=[`MAX_SELECTIVE`] under
    /// [`Reliability::Selective`].
    pub fn new(mode: Reliability, initial: Seq, limit: u32) -> RecvWindow {
        let max = if mode == Reliability::Selective { MAX_SELECTIVE } else { u32::MAX / 4 };
        let mut window = RecvWindow {
            held: [0; WORDS],
            first: Instant(0),
            expected: initial,
            limit: limit.clamp(1, max),
            held_count: 0,
            pending: 0,
            ack_at: 1,
            delay_ns: 0,
            dropped: false,
            ack_now: false,
            mode,
        };
        window.set_ack_policy(AckPolicy::default());
        window
    }

    /// Changes the limits for acknowledgements; [`AckPolicy::default`] until then.
    pub fn set_ack_policy(&mut self, policy: AckPolicy) {
        let half = self.limit.min(policy.peer_window) / 2;
        self.ack_at = policy.every.min(half).max(1);
        self.delay_ns = u32::try_from(policy.delay.as_nanos()).unwrap_or(u32::MAX);
    }

    /// Judges an arriving packet and records it. Any verdict but [`Verdict::Deliver`] without a gap
    /// makes an acknowledgement due at once, so the sender learns the missing packets;
    /// [`RecvWindow::ack_due`], called once a batch, then yields one acknowledgement for the whole
    /// batch.
    #[inline]
    pub fn on_packet(&mut self, seq: Seq) -> Verdict {
        if seq == self.expected {
            self.expected = seq.next();
            self.ack_now |= self.held_count > 0;
            return Verdict::Deliver;
        }
        self.on_disorder(seq)
    }

    fn on_disorder(&mut self, seq: Seq) -> Verdict {
        if self.mode == Reliability::None {
            self.expected = seq.next();
            return Verdict::Deliver;
        }
        if seq.before(self.expected) {
            self.ack_now = true;
            return Verdict::Duplicate;
        }
        if seq.distance_from(self.expected) >= self.limit {
            return Verdict::Outside;
        }
        self.ack_now = true;
        if self.mode == Reliability::GoBackN {
            self.dropped = true;
            return Verdict::Gap;
        }
        let (word, bit) = place(seq);
        if self.held[word] & bit != 0 {
            return Verdict::Duplicate;
        }
        self.held[word] |= bit;
        self.held_count += 1;
        Verdict::Hold
    }

    /// Returns the next held packet that is now in order, after [`Verdict::Deliver`]; then None.
    #[inline]
    pub fn next_held(&mut self) -> Option<Seq> {
        if self.held_count == 0 {
            return None;
        }
        let seq = self.expected;
        let (word, bit) = place(seq);
        if self.held[word] & bit == 0 {
            return None;
        }
        self.held[word] &= !bit;
        self.held_count -= 1;
        self.expected = seq.next();
        Some(seq)
    }

    /// Returns true if this packet has not arrived yet and would be accepted.
    pub fn lacks(&self, seq: Seq) -> bool {
        let ahead = seq.distance_from(self.expected);
        seq == self.expected || ahead < self.limit && self.can_hold(seq, 1)
    }

    /// Returns the next number expected in order: the cumulative acknowledgement to send.
    pub fn next_expected(&self) -> Seq {
        self.expected
    }

    /// Returns the packets held after the gap, relative to [`RecvWindow::next_expected`]: the first
    /// [`SACK_BITS`](super::SACK_BITS) of them.
    pub fn sack(&self) -> SackMap {
        let mut map = [0; 4];
        if self.held_count > 0 {
            let start = self.expected.next().0;
            let (word, shift) = ((start / 64) as usize % WORDS, start % 64);
            for (i, out) in map.iter_mut().enumerate() {
                let low = self.held[(word + i) % WORDS] >> shift;
                let high = self.held[(word + i + 1) % WORDS].checked_shl(64 - shift).unwrap_or(0);
                *out = low | high;
            }
        }
        SackMap(map)
    }

    /// Returns true if packets are missing: the acknowledgement must be a packet of its own, with
    /// the [`RecvWindow::sack`] map or, under [`Reliability::GoBackN`], marked as NACK.
    pub fn has_gap(&self) -> bool {
        self.held_count > 0 || self.dropped
    }

    /// Returns true if this is the next packet and no later one is held.
    pub fn expects(&self, seq: Seq) -> bool {
        seq == self.expected && self.held_count == 0
    }

    /// Handles `count` packets that arrived in order, after [`RecvWindow::expects`] was true for
    /// the first.
    pub fn on_run(&mut self, now: Instant, count: u32, must_ack_now: bool) {
        self.expected = self.expected.plus(count);
        self.note_many(now, count, must_ack_now);
    }

    /// Returns true if `count` packets from `seq` on, after a gap, are new and may be held.
    pub fn can_hold(&self, seq: Seq, count: u32) -> bool {
        let ahead = seq.distance_from(self.expected);
        let fits = ahead > 0 && ahead < self.limit && count <= self.limit - ahead;
        let is_new = |i| {
            let (word, bit) = place(seq.plus(i));
            self.held[word] & bit == 0
        };
        self.mode == Reliability::Selective && fits && (0..count).all(is_new)
    }

    /// Handles `count` packets after a gap, after [`RecvWindow::can_hold`] was true. Only the first
    /// after a gap justifies an acknowledgement: packets that continue held ones tell the sender
    /// nothing that it has to act on at once.
    pub fn hold_run(&mut self, now: Instant, seq: Seq, count: u32, must_ack_now: bool) {
        let (word, bit) = place(Seq(seq.0.wrapping_sub(1)));
        let goes_on = self.held[word] & bit != 0;
        for i in 0..count {
            let (word, bit) = place(seq.plus(i));
            self.held[word] |= bit;
        }
        self.held_count += count;
        self.note_many(now, count, must_ack_now || !goes_on);
    }

    /// Counts a received packet towards the next acknowledgement. `must_ack_now`: the sender asked
    /// for it.
    #[inline]
    pub fn note_received(&mut self, now: Instant, must_ack_now: bool) {
        self.note_many(now, 1, must_ack_now);
    }

    #[inline]
    fn note_many(&mut self, now: Instant, count: u32, must_ack_now: bool) {
        if self.mode == Reliability::None {
            return;
        }
        if self.pending == 0 {
            self.first = now;
        }
        self.pending = self.pending.saturating_add(count);
        self.ack_now |= must_ack_now;
    }

    /// Notes that an acknowledgement packet, with map or NACK mark as due, was sent.
    pub fn ack_sent(&mut self) {
        self.pending = 0;
        self.ack_now = false;
        self.dropped = false;
    }

    /// Notes that a data packet carried [`RecvWindow::next_expected`]: an acknowledgement, unless
    /// there is a gap to report.
    #[inline]
    pub fn ack_piggybacked(&mut self) {
        if !self.has_gap() {
            self.pending = 0;
            self.ack_now = false;
        }
    }

    /// Returns true if an acknowledgement should be sent now.
    #[inline]
    pub fn ack_due(&self, now: Instant) -> bool {
        self.ack_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns the time at which an acknowledgement becomes due without other events; in the past
    /// if it is due now.
    #[inline]
    pub fn ack_deadline(&self) -> Option<Instant> {
        if self.ack_now || self.pending >= self.ack_at {
            return Some(Instant(0));
        }
        let delay = Duration::from_nanos(self.delay_ns.into());
        (self.pending > 0).then(|| self.first + delay)
    }
}

/// Returns the word and mask of a packet in the ring of held ones.
fn place(seq: Seq) -> (usize, u64) {
    ((seq.0 / 64) as usize % WORDS, 1 << (seq.0 % 64))
}
