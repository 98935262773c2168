//! What the root has sent and not everybody has: go-back-N over a chain, without a clock or a socket.

use super::frame::{Answer, ACK, FULL, MISSING};
use super::node::RING;
use std::collections::VecDeque;
use std::time::Duration;

/// Without news for so long, everything is sent again: at first, and doubled each time to at most.
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MOST: Duration = Duration::from_millis(64);

/// Packets of one root.
#[derive(Debug)]
pub(super) struct Window {
    /// Frames from number `acked` on.
    frames: VecDeque<Vec<u8>>,
    /// All members have what is before this number.
    acked: u64,
    /// The next one to send.
    at: u64,
    /// The first that some member has no room for, as far as is known.
    limit: u64,
    /// One packet may pass the limit, to ask whether it still holds.
    probe: bool,
    /// When everything is sent again, and how long that waits.
    due: Duration,
    again: Duration,
    /// What was said to be missing and has been sent again.
    repaired: Option<u64>,
    /// Who had no room last, since it had.
    slow: Option<u16>,
    /// When the last news came.
    news: Duration,
}

impl Window {
    pub fn new(now: Duration) -> Window {
        Window {
            frames: VecDeque::new(),
            acked: 0,
            at: 0,
            limit: RING,
            probe: false,
            due: now,
            again: AGAIN,
            repaired: None,
            slow: None,
            news: now,
        }
    }

    /// The number that the next packet gets; `None` while the window is full.
    pub fn next(&self) -> Option<u64> {
        let waiting = self.frames.len() as u64;
        (waiting < RING).then_some(self.acked + waiting)
    }

    /// Whether all members have everything.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Who had no room for a packet, and has not taken one since.
    pub fn slow(&self) -> Option<u16> {
        self.slow
    }

    /// How long nothing new has been heard, while something is under way.
    pub fn silent(&self, now: Duration) -> Duration {
        if self.frames.is_empty() {
            return Duration::ZERO;
        }
        now.saturating_sub(self.news)
    }

    /// Takes the frame of the packet that [`next`](Self::next) numbered.
    pub fn push(&mut self, frame: Vec<u8>, now: Duration) {
        if self.frames.is_empty() {
            (self.news, self.again) = (now, AGAIN);
            self.due = now + AGAIN;
        }
        self.frames.push_back(frame);
    }

    /// The next frame to send.
    pub fn poll(&mut self, now: Duration) -> Option<&[u8]> {
        if now >= self.due && !self.frames.is_empty() {
            (self.at, self.probe, self.repaired) = (self.acked, true, None);
            self.again = (2 * self.again).min(AGAIN_MOST);
            self.due = now + self.again;
        }
        let frame = self.frames.get((self.at - self.acked) as usize)?;
        if self.at >= self.limit && !std::mem::take(&mut self.probe) {
            return None;
        }
        self.at += 1;
        Some(frame)
    }

    /// What a member says.
    pub fn answer(&mut self, answer: Answer, now: Duration) {
        let next = self.acked + self.frames.len() as u64;
        match answer.kind {
            ACK if answer.number <= next => self.acknowledged(answer, now),
            MISSING if (self.acked..self.at).contains(&answer.number) => {
                // Each packet behind the missing one says so: it is sent again once.
                if self.repaired.is_none_or(|number| number < answer.number) {
                    (self.at, self.repaired) = (answer.number, Some(answer.number));
                }
            }
            FULL => self.slow = Some(answer.hop),
            _ => {}
        }
    }

    fn acknowledged(&mut self, answer: Answer, now: Duration) {
        let more = answer.number > self.acked || answer.limit > self.limit;
        if !more {
            return;
        }
        let count = answer.number.saturating_sub(self.acked);
        self.frames.drain(..count as usize);
        self.acked += count;
        self.at = self.at.max(self.acked);
        self.limit = self.limit.max(answer.limit);
        (self.slow, self.news, self.again) = (None, now, AGAIN);
        self.due = now + AGAIN;
    }
}
