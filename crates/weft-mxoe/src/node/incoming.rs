//! The messages from a peer that have come, in part or before their turn.

use super::seq::{step, steps, SEQ_BITS};
use super::{Time, WINDOW};
use crate::packet::{Window, MEDIUM_MAX};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// A message of which parts have come.
struct Parts {
    match_bits: u64,
    data: Vec<u8>,
    /// The fragments that have come, a bit each.
    have: u64,
    missing: usize,
}

/// The content of a packet with a sequence number.
pub enum Arrival<'a> {
    /// A part of a message, or all of it.
    Part { match_bits: u64, len: u32, at: usize, part: &'a [u8] },
    /// Something that one packet brings.
    Whole(Whole),
}

/// Something whose turn has come.
#[derive(Clone, Debug)]
pub enum Whole {
    /// A message.
    Message { match_bits: u64, data: Vec<u8> },
    /// The announcement of a message that is to be pulled.
    Announced { match_bits: u64, len: u32, window: Window },
    /// The end of a pull from a window.
    Taken { total: u32, window: u8, seq: u8 },
}

/// Something that has come before its turn, or not whole.
enum Slot {
    Parts(Parts),
    Whole(Whole),
}

/// The result of placing a part of a message.
pub enum Placed {
    /// The part belongs to no message of the window, or does not fit its message.
    Nothing,
    /// The part came before.
    Again,
    /// The part is in its place.
    Part,
}

/// The messages of a connection.
pub struct Incoming {
    /// The messages that have come from `received` on.
    slots: VecDeque<Option<Slot>>,
    received: u16,
    /// Number of messages that were taken and not acknowledged, and the time by which they are.
    unacked: u32,
    ack_at: Option<Time>,
    /// Number of acknowledgements sent by themselves.
    acks: u32,
}

impl Incoming {
    /// Makes it for a connection whose first message has a sequence number.
    pub fn from(first: u16) -> Incoming {
        Incoming { slots: VecDeque::new(), received: first, unacked: 0, ack_at: None, acks: 0 }
    }

    /// Returns the sequence number of the next message.
    pub fn next(&self) -> u16 {
        self.received
    }

    /// Returns the number of messages that were taken and not acknowledged.
    pub fn unacked(&self) -> u32 {
        self.unacked
    }

    /// Returns the time by which an acknowledgement is due.
    pub fn ack_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// Returns the acknowledgement of what has come; none is due then.
    pub fn acknowledge(&mut self) -> u16 {
        (self.unacked, self.ack_at) = (0, None);
        self.received
    }

    /// Returns the number of the next acknowledgement that is sent by itself.
    pub fn next_ack(&mut self) -> u32 {
        self.acks = self.acks.wrapping_add(1);
        self.acks
    }

    /// Places the content of a packet.
    pub fn place(&mut self, seq: u16, arrival: Arrival<'_>, fragment: u16) -> Placed {
        let Some(ahead) = steps(self.received, seq) else { return Placed::Nothing };
        if ahead >= WINDOW {
            return if ahead > SEQ_BITS / 2 { Placed::Again } else { Placed::Nothing };
        }
        if !fits(&arrival, fragment) {
            return Placed::Nothing;
        }
        while self.slots.len() <= usize::from(ahead) {
            self.slots.push_back(None);
        }
        let slot = &mut self.slots[usize::from(ahead)];
        match (arrival, slot) {
            (Arrival::Whole(whole), slot @ None) => {
                *slot = Some(Slot::Whole(whole));
                Placed::Part
            }
            (Arrival::Whole(_), Some(Slot::Whole(_))) => Placed::Part,
            (Arrival::Part { match_bits, len, at, part }, slot) => {
                let each = usize::from(fragment);
                let new = || Slot::Parts(Parts::new(match_bits, len as usize, each));
                match slot.get_or_insert_with(new) {
                    Slot::Parts(parts) => parts.place(match_bits, (len as usize, at), part, each),
                    Slot::Whole(_) => Placed::Nothing,
                }
            }
            (Arrival::Whole(_), Some(Slot::Parts(_))) => Placed::Nothing,
        }
    }

    /// Takes the next one, if it is whole; its acknowledgement is due at a time.
    pub fn next_whole(&mut self, ack_at: Time) -> Option<Whole> {
        let is_whole = |slot: &Slot| match slot {
            Slot::Parts(parts) => parts.missing == 0,
            Slot::Whole(_) => true,
        };
        self.slots.front()?.as_ref().filter(|slot| is_whole(slot))?;
        let slot = self.slots.pop_front().flatten()?;
        self.received = step(self.received, 1);
        self.unacked += 1;
        self.ack_at.get_or_insert(ack_at);
        Some(match slot {
            Slot::Parts(Parts { match_bits, data, .. }) => Whole::Message { match_bits, data },
            Slot::Whole(whole) => whole,
        })
    }
}

/// True if a part can be one of its message.
fn fits(arrival: &Arrival<'_>, fragment: u16) -> bool {
    let Arrival::Part { len, at, part, .. } = arrival else { return true };
    let (len, each) = (*len as usize, usize::from(fragment));
    let whole = len.saturating_sub(*at).min(each.max(128));
    part.len() == whole && len <= MEDIUM_MAX as usize && at / each.max(1) < 64 && *at <= len
}

impl Parts {
    fn new(match_bits: u64, len: usize, each: usize) -> Parts {
        let missing = len.div_ceil(each.max(1)).max(1);
        Parts { match_bits, data: vec![0; len], have: 0, missing }
    }

    fn place(
        &mut self,
        match_bits: u64,
        (len, at): (usize, usize),
        part: &[u8],
        each: usize,
    ) -> Placed {
        let fits = self.data.len() == len && self.match_bits == match_bits;
        let bit = 1 << (at / each.max(1));
        if !fits || self.have & bit != 0 {
            return if fits { Placed::Part } else { Placed::Nothing };
        }
        let Some(place) = self.data.get_mut(at..at + part.len()) else { return Placed::Nothing };
        place.copy_from_slice(part);
        self.have |= bit;
        self.missing -= 1;
        Placed::Part
    }
}
