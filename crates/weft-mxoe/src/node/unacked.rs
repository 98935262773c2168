//! The messages to a peer that it has not acknowledged, and those that wait behind them.

use super::seq::{step, steps};
use super::{Lent, NotSent, Settings, Time, WAITING_MAX, WINDOW};
use crate::packet::Window;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The content of something sent with a sequence number.
pub enum Body {
    /// A message that goes in the packet, or in fragments.
    Data(Vec<u8>),
    /// A message that is to be announced, once a window is free.
    Long(Lent),
    /// The announcement of a message, in the window with this number.
    Window(u8),
    /// The end of a pull.
    Taken { total: u32, window: Window },
}

/// Something sent that is not acknowledged, or waits for its turn.
pub struct Kept {
    pub match_bits: u64,
    pub body: Body,
    pub context: u64,
    at: Time,
    tries: u32,
}

/// The messages of a connection.
pub struct Unacked {
    /// The messages that were sent from `acked` on, and behind `sent` those that wait.
    kept: VecDeque<Kept>,
    sent: usize,
    acked: u16,
    /// Number of the last acknowledgement that came by itself.
    acks: u32,
}

impl Unacked {
    /// Makes it for a connection whose first message has a sequence number.
    pub fn from(first: u16) -> Unacked {
        Unacked { kept: VecDeque::new(), sent: 0, acked: first, acks: 0 }
    }

    /// Takes the sequence number that the peer expects for the first message.
    pub fn start_at(&mut self, first: u16) {
        self.acked = first;
    }

    /// True if all was sent and acknowledged.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// True if a sequence number is of this connection.
    pub fn is_of(&self, seq: u16) -> bool {
        steps(self.acked, seq).is_some()
    }

    /// Keeps something until it is acknowledged.
    pub fn keep(&mut self, match_bits: u64, body: Body, context: u64) -> Result<(), NotSent> {
        let is_message = !matches!(body, Body::Taken { .. });
        if is_message && self.kept.len() >= WAITING_MAX {
            return Err(NotSent::Busy);
        }
        self.kept.push_back(Kept { match_bits, body, context, at: 0, tries: 0 });
        Ok(())
    }

    /// Copies the bytes of a message that waits.
    pub fn own(&mut self, context: u64) {
        for kept in self.kept.iter_mut().filter(|kept| kept.context == context) {
            if let Body::Long(data) = &mut kept.body {
                *data = copy_of(data);
            }
        }
    }

    /// Returns what is to be sent next, if the window has room.
    pub fn next_unsent(&mut self) -> Option<&mut Kept> {
        match self.sent < usize::from(WINDOW) {
            true => self.kept.get_mut(self.sent),
            false => None,
        }
    }

    /// Notes that it is sent now; returns its sequence number.
    pub fn mark_sent(&mut self, again: Time) -> u16 {
        if let Some(kept) = self.kept.get_mut(self.sent) {
            kept.at = again;
        }
        let seq = step(self.acked, self.sent as u16);
        self.sent += 1;
        seq
    }

    /// True if a sequence number is of something that was sent and not acknowledged, or the next.
    pub fn is_expected(&self, seq: u16) -> bool {
        steps(self.acked, seq).is_some_and(|ahead| usize::from(ahead) <= self.sent)
    }

    /// Returns the sequence number of the first message that is not acknowledged.
    #[cfg(test)]
    pub fn first_unacked(&self) -> u16 {
        self.acked
    }

    /// Returns what was sent with a sequence number and is not acknowledged.
    pub fn sent(&self, seq: u16) -> Option<&Kept> {
        let ahead = usize::from(steps(self.acked, seq)?);
        self.kept.get(ahead).filter(|_| ahead < self.sent)
    }

    /// Takes the number of an acknowledgement that came by itself. False if a later one has come.
    pub fn take_ack(&mut self, number: u32) -> bool {
        let is_news = number > self.acks;
        self.acks = self.acks.max(number);
        is_news
    }

    /// Removes what was sent before a sequence number; returns context and length of messages.
    pub fn acknowledged(&mut self, before: u16) -> Vec<(u64, u32)> {
        let new = steps(self.acked, before).map_or(0, usize::from);
        if new > self.sent {
            return Vec::new();
        }
        self.acked = step(self.acked, new as u16);
        self.sent -= new;
        let done = self.kept.drain(..new).filter_map(|kept| match kept.body {
            Body::Data(data) => Some((kept.context, data.len() as u32)),
            _ => None,
        });
        done.collect()
    }

    /// Returns the time at which something is sent again.
    pub fn next_timeout(&self) -> Option<Time> {
        self.kept.iter().take(self.sent).map(|kept| kept.at).min()
    }

    /// Returns the sequence numbers of what is to be sent again now, and the most times that one
    /// of these was sent again.
    pub fn due(&mut self, now: Time, settings: &Settings) -> (Vec<u16>, u32) {
        let (mut due, mut tries) = (Vec::new(), 0);
        for (kept, ahead) in self.kept.iter_mut().take(self.sent).zip(0..) {
            if kept.at <= now {
                (kept.at, kept.tries) = (now + settings.resend, kept.tries + 1);
                tries = tries.max(kept.tries);
                due.push(step(self.acked, ahead));
            }
        }
        (due, tries)
    }
}

/// Returns a copy of bytes that the caller has lent.
pub fn copy_of(data: &Lent) -> Lent {
    Box::new((**data).as_ref().to_vec())
}
