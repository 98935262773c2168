//! What the root has sent and not everybody has: go-back-N over a chain, without a clock or a
//! socket.

use super::frame::{Answer, ACK, FULL, MISSING};
use super::node::RING;
use std::collections::VecDeque;
use std::time::Duration;
use weft_core::reliability::Rtt;

/// Without news for so long everything is sent again: before the first round trip is measured, at
/// least, and at most.
const AGAIN_FIRST: Duration = Duration::from_millis(4);
const AGAIN_LEAST: Duration = Duration::from_millis(1);
const AGAIN_MOST: Duration = Duration::from_millis(64);

/// A limit that holds everything up is asked about after so long, doubled each time to at most.
const PROBE: Duration = Duration::from_micros(100);
const PROBE_MOST: Duration = Duration::from_millis(4);

/// A packet that not all have.
#[derive(Debug)]
struct Packet {
    frame: Vec<u8>,
    /// When it was sent, if it was sent once.
    sent: Option<Duration>,
    /// It was sent.
    old: bool,
}

/// Packets of one root.
#[derive(Debug)]
pub(super) struct Window {
    /// From number `acked` on.
    packets: VecDeque<Packet>,
    /// All members have what is before this number.
    acked: u64,
    /// The next one to send.
    at: u64,
    /// The first that some member has no room for, as far as is known.
    limit: u64,
    /// When one packet may pass the limit, to ask whether it still holds, and how long that waits.
    probe: Option<Duration>,
    patience: Duration,
    /// When everything is sent again.
    due: Duration,
    rtt: Rtt,
    /// What was said to be missing and has been sent again.
    repaired: Option<u64>,
    /// Who had no room last, since it had.
    slow: Option<u16>,
    /// When the last news came.
    news: Duration,
}

impl Window {
    pub fn new() -> Window {
        Window {
            packets: VecDeque::new(),
            acked: 0,
            at: 0,
            limit: RING,
            probe: None,
            patience: PROBE,
            due: Duration::ZERO,
            rtt: Rtt::new(AGAIN_FIRST, AGAIN_LEAST, AGAIN_MOST),
            repaired: None,
            slow: None,
            news: Duration::ZERO,
        }
    }

    /// The number that the next packet gets; `None` while the window is full.
    pub fn next(&self) -> Option<u64> {
        let waiting = self.packets.len() as u64;
        (waiting < RING).then_some(self.acked + waiting)
    }

    /// Whether all members have everything.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Who had no room for a packet, and has not taken one since.
    pub fn slow(&self) -> Option<u16> {
        self.slow
    }

    /// How long nothing new has been heard, while something is under way.
    pub fn silent(&self, now: Duration) -> Duration {
        if self.packets.is_empty() {
            return Duration::ZERO;
        }
        now.saturating_sub(self.news)
    }

    /// Takes the frame of the packet that [`next`](Self::next) numbered.
    pub fn push(&mut self, frame: Vec<u8>, now: Duration) {
        if self.packets.is_empty() {
            self.news = now;
            self.due = now + self.rtt.rto();
        }
        self.packets.push_back(Packet { frame, sent: None, old: false });
    }

    /// The next frame to send.
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
        // Of one that was sent twice nobody knows which of the two was answered (Karn).
        packet.sent = (!packet.old).then_some(now);
        packet.old = true;
        Some(&packet.frame)
    }

    /// Whether the packet at the limit is sent now although a member has no room for it: nobody
    /// says so when it has again. It is as if it were lost.
    fn probes(&mut self, now: Duration) -> bool {
        let due = *self.probe.get_or_insert(now + self.patience);
        if now < due || self.at > self.acked {
            return false;
        }
        self.patience = (2 * self.patience).min(PROBE_MOST);
        self.probe = None;
        true
    }

    /// What a member says.
    pub fn answer(&mut self, answer: Answer, now: Duration) {
        let next = self.acked + self.packets.len() as u64;
        match answer.kind {
            ACK if answer.number <= next => self.acknowledged(answer, now),
            // Each packet behind the missing one says so: it is sent again once.
            MISSING
                if (self.acked..self.at).contains(&answer.number)
                    && self.repaired.is_none_or(|number| number < answer.number) =>
            {
                (self.at, self.repaired) = (answer.number, Some(answer.number));
            }
            FULL => {
                self.slow = Some(answer.hop);
                // The probe is answered: it may be sent again.
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
        (self.slow, self.news, self.due) = (None, now, now + self.rtt.rto());
        (self.probe, self.patience) = (None, PROBE);
    }

    /// Whether what must hold, whatever members say, does.
    pub fn is_sound(&self) -> bool {
        let kept = self.packets.len() as u64;
        kept <= RING && (self.acked..=self.acked + kept).contains(&self.at)
    }
}
