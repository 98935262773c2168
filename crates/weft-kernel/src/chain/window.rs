//! The packets that the root has sent and a member may lack: go-back-N over a chain, without a
//! clock or a socket.

use super::frame::{Answer, ACK, FULL, MISSING};
use super::node::RING;
use std::collections::VecDeque;
use std::time::Duration;
use weft_core::reliability::Rtt;

/// Retransmission timeout: before the first round trip is measured, at least, and at most.
const AGAIN_FIRST: Duration = Duration::from_millis(4);
const AGAIN_LEAST: Duration = Duration::from_millis(1);
const AGAIN_MOST: Duration = Duration::from_millis(64);

/// Interval after which a limit that blocks all packets is tested by a probe (doubled each time),
/// and its maximum.
const PROBE: Duration = Duration::from_micros(100);
const PROBE_MOST: Duration = Duration::from_millis(4);

/// A packet that a member may lack.
#[derive(Debug)]
struct Packet {
    frame: Vec<u8>,
    /// Time of sending; `None` after a retransmission.
    sent: Option<Duration>,
    /// The packet was sent at least once.
    old: bool,
}

/// The packets of one root.
#[derive(Debug)]
pub(super) struct Window {
    /// The packets from number `acked` on.
    packets: VecDeque<Packet>,
    /// All members have the packets before this number.
    acked: u64,
    /// Number of the next packet to send.
    at: u64,
    /// First number for which a member has no room, as far as is known.
    limit: u64,
    /// Time at which one packet may exceed the limit as a probe, and the present interval of
    /// probes.
    probe: Option<Duration>,
    probe_after: Duration,
    /// Time of the next retransmission of all packets.
    due: Duration,
    rtt: Rtt,
    /// The last packet that was reported as missing and retransmitted.
    repaired: Option<u64>,
    /// The member that last had no room; `None` after an acknowledgement.
    slow: Option<u16>,
    /// Time of the last progress.
    moved_at: Duration,
}

impl Window {
    pub fn new() -> Window {
        Window {
            packets: VecDeque::new(),
            acked: 0,
            at: 0,
            limit: RING,
            probe: None,
            probe_after: PROBE,
            due: Duration::ZERO,
            rtt: Rtt::new(AGAIN_FIRST, AGAIN_LEAST, AGAIN_MOST),
            repaired: None,
            slow: None,
            moved_at: Duration::ZERO,
        }
    }

    /// Returns the number of the next packet; `None` while the window is full.
    pub fn next(&self) -> Option<u64> {
        let waiting = self.packets.len() as u64;
        (waiting < RING).then_some(self.acked + waiting)
    }

    /// True if all members have all packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the member that had no room for a packet and has not taken one since.
    pub fn slow(&self) -> Option<u16> {
        self.slow
    }

    /// Returns the time without progress; zero if no packet is in flight.
    pub fn silent(&self, now: Duration) -> Duration {
        if self.packets.is_empty() {
            return Duration::ZERO;
        }
        now.saturating_sub(self.moved_at)
    }

    /// Appends the frame of the packet with the number from [`next`](Self::next).
    pub fn push(&mut self, frame: Vec<u8>, now: Duration) {
        if self.packets.is_empty() {
            self.moved_at = now;
            self.due = now + self.rtt.rto();
        }
        self.packets.push_back(Packet { frame, sent: None, old: false });
    }

    /// Returns the next frame to send.
    pub fn poll(&mut self, now: Duration) -> Option<&[u8]> {
        if now >= self.due && !self.packets.is_empty() {
            (self.at, self.repaired) = (self.acked, None);
            self.rtt.backoff();
            self.due = now + self.rtt.rto();
        }
        let at = (self.at - self.acked) as usize;
        if self.at >= self.limit && !(at < self.packets.len() && self.probes(now)) {
            return None;
        }
        let packet = self.packets.get_mut(at)?;
        self.at += 1;
        // Of a packet that was sent twice, it is unknown which of the two was answered (Karn).
        packet.sent = (!packet.old).then_some(now);
        packet.old = true;
        Some(&packet.frame)
    }

    /// True if the packet at the limit is sent now as a probe, although a member has no room for
    /// it. A member sends no message when it has room again. A probe that finds no room has the
    /// effect of a loss.
    fn probes(&mut self, now: Duration) -> bool {
        let due = *self.probe.get_or_insert(now + self.probe_after);
        if now < due || self.at > self.acked {
            return false;
        }
        self.probe_after = (2 * self.probe_after).min(PROBE_MOST);
        self.probe = None;
        true
    }

    /// Handles an answer of a member.
    pub fn answer(&mut self, answer: Answer, now: Duration) {
        let next = self.acked + self.packets.len() as u64;
        match answer.kind {
            ACK if answer.number <= next => self.acknowledged(answer, now),
            // Each packet after the missing one causes such an answer: retransmit once.
            MISSING
                if (self.acked..self.at).contains(&answer.number)
                    && self.repaired.is_none_or(|number| number < answer.number) =>
            {
                (self.at, self.repaired) = (answer.number, Some(answer.number));
            }
            FULL => {
                self.slow = Some(answer.hop);
                // The probe is answered, so its packet may be sent again.
                self.at = self.at.min(answer.number.max(self.acked));
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, answer: Answer, now: Duration) {
        let count = answer.number.saturating_sub(self.acked);
        if count == 0 && answer.limit <= self.limit {
            return;
        }
        if let Some(last) = self.packets.drain(..count as usize).next_back() {
            if let Some(sent) = last.sent {
                self.rtt.sample(now.saturating_sub(sent));
            }
        }
        self.acked += count;
        self.at = self.at.max(self.acked);
        self.limit = self.limit.max(answer.limit);
        (self.slow, self.moved_at, self.due) = (None, now, now + self.rtt.rto());
        (self.probe, self.probe_after) = (None, PROBE);
    }

    /// True if the state is valid, which it must be whatever members answer.
    pub fn is_sound(&self) -> bool {
        let kept = self.packets.len() as u64;
        kept <= RING && (self.acked..=self.acked + kept).contains(&self.at)
    }
}
