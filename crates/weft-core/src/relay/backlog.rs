//! Packets of the rank and of its agent that wait to be sent to a peer.

use super::share::{SHARE, TOLD};
use super::Kept;
use crate::slab::Slab;
use crate::wire::{self, status, Common, HeaderBuf, Packet, Reply};
use alloc::collections::VecDeque;

/// Most packets without numbers that wait: more than a rank ever sends at a time.
const PLAIN_MAX: usize = 64;

/// Most packets of the agent's own that wait for a peer; refused ones are made again later.
pub(super) const INJECTED_MAX: u32 = SHARE;

/// A numbered packet that waits for the window.
#[derive(Clone, Copy)]
pub(super) enum Waiting {
    /// A kept packet, by its key.
    Packet(u32),
    /// An answer, which becomes a packet when it is sent: a peer may lack many of them.
    Answer { op: u32, value: u64, ok: bool },
}

impl Waiting {
    /// Returns the key of a packet.
    pub fn key(self) -> Option<u32> {
        match self {
            Waiting::Packet(key) => Some(key),
            Waiting::Answer { .. } => None,
        }
    }

    /// Returns the header of an answer.
    fn header(op: u32, value: u64, ok: bool, session: u32) -> HeaderBuf {
        let status = if ok { status::OK } else { status::REFUSED };
        let common = Common { session, imm: op, ..Common::default() };
        wire::emit(&common, &Packet::Reply(Reply { value, status }))
    }
}

/// Packets that wait, and the count of the rank's.
pub(super) struct Backlog {
    /// Packets that wait for the window.
    pub waiting: VecDeque<Waiting>,
    /// Number of answers among them, and of packets that the agent has made.
    pub answers: u32,
    pub injected: u32,
    /// True if one of these was refused, and there has been no room since.
    pub wants_room: bool,
    /// Packets without numbers.
    pub plain: VecDeque<u32>,
    /// Numbers of the rank's packets so far, of those that no longer wait, and of those whose
    /// leaving was reported to the rank.
    given: u32,
    left: u32,
    told: u32,
}

impl Backlog {
    /// Makes the backlog of a rank that has sent so many packets before.
    pub fn new(given: u32) -> Backlog {
        Backlog {
            waiting: VecDeque::new(),
            answers: 0,
            injected: 0,
            wants_room: false,
            plain: VecDeque::new(),
            given,
            left: given,
            told: given,
        }
    }

    /// Returns true if a packet of the rank is accepted: one that counts against its share
    /// (`shared`) or one without a number. A rank that counts correctly is never refused.
    #[inline]
    pub fn takes(&self, shared: bool) -> bool {
        match shared {
            true => self.given.wrapping_sub(self.left) < SHARE,
            false => self.plain.len() < PLAIN_MAX,
        }
    }

    /// Adds a packet with a number, of the rank (`shared`) or of its agent.
    #[inline]
    pub fn push(&mut self, key: u32, shared: bool) {
        self.given = self.given.wrapping_add(shared.into());
        self.injected += u32::from(!shared);
        self.waiting.push_back(Waiting::Packet(key));
    }

    /// Returns true if the agent may add a packet of its own to a session that is `open`. False is
    /// noted: see [`Backlog::has_room_again`].
    pub fn takes_injected(&mut self, open: bool) -> bool {
        self.wants_room |= self.injected >= INJECTED_MAX || !open;
        !self.wants_room
    }

    /// Returns true, once, if there is room for a packet of the agent's own after one was refused.
    #[inline]
    pub fn has_room_again(&mut self) -> bool {
        self.injected < INJECTED_MAX && core::mem::take(&mut self.wants_room)
    }

    /// Adds an answer to a request of the peer.
    pub fn push_answer(&mut self, op: u32, value: u64, ok: bool) {
        self.answers += 1;
        self.waiting.push_back(Waiting::Answer { op, value, ok });
    }

    /// Returns the next packet to be numbered. None while there is no slot to keep an answer, or
    /// while the peer's `session` number is 0, unknown, because a request overtook its HELLO.
    #[inline]
    pub fn next(&mut self, session: u32, kept: &mut Slab<Kept>) -> Option<u32> {
        let key = match *self.waiting.front()? {
            Waiting::Packet(key) => {
                let injected = kept.get(key).is_some_and(|kept| !kept.shared);
                self.injected -= u32::from(injected);
                key
            }
            Waiting::Answer { .. } if session == 0 => return None,
            Waiting::Answer { op, value, ok } => {
                let header = Waiting::header(op, value, ok, session);
                let key = kept.insert(Kept { header, payload: 0, shared: false })?;
                self.answers -= 1;
                key
            }
        };
        self.waiting.pop_front();
        Some(key)
    }

    /// Returns true if an answer is the next.
    pub fn begins_with_answer(&self) -> bool {
        matches!(self.waiting.front(), Some(Waiting::Answer { .. }))
    }

    /// Notes that a packet of the rank no longer waits. Returns the number to report, if one is
    /// due.
    #[inline]
    pub fn note_left(&mut self) -> Option<u32> {
        self.left = self.left.wrapping_add(1);
        let due = self.left.wrapping_sub(self.told) >= TOLD;
        due.then(|| {
            self.told = self.left;
            self.left
        })
    }
}
