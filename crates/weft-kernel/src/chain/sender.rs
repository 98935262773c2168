//! A root without its socket: makes frames and handles answers, however they are received.

use super::frame::{data, Answer, Route, ACK, FULL, KIND, MISSING, TAG, TAGGED};
use super::node;
use super::window::Window;
use super::{KernelChains, FRAME};
use crate::sip::SipKey;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weft_link::ether::{EtherType, Mac};

/// The root of one group. All times are from one clock that begins at zero.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    pub window: Window,
    group: u16,
    key: SipKey,
    /// EtherType and own interface.
    me: (EtherType, Mac),
    /// The program that takes the answers.
    filter: Option<&'a KernelChains>,
    /// The last packet that the program's word reported as missing.
    seen: u64,
}

impl<'a> Sender<'a> {
    pub fn new(
        (group, key): (u16, SipKey),
        me: (EtherType, Mac),
        filter: Option<&'a KernelChains>,
    ) -> Sender<'a> {
        Sender { window: Window::new(), group, key, me, filter, seen: 0 }
    }

    /// Queues a packet for the chain that begins at member `first`. False while the window is full.
    pub fn push(&mut self, first: Mac, payload: &[u8], now: Duration) -> bool {
        let Some(number) = self.window.next() else { return false };
        let frame = self.frame((first, 1), number, payload);
        self.window.push(frame, now);
        true
    }

    /// Makes a frame that asks a member if it is alive: the number is so far ahead that the member
    /// answers with the number of the packet that it misses.
    pub fn question(&mut self, member: Mac, position: u16) -> Vec<u8> {
        if let Some(word) = self.word(node::MISSED) {
            word.store(0, Relaxed);
        }
        self.frame((member, position), u64::MAX >> 16, &[0])
    }

    /// True if the program received this member's answer to the question.
    pub fn has_answered(&self, position: u16) -> bool {
        self.word(node::MISSED).is_some_and(|word| word.load(Relaxed) as u16 == position)
    }

    /// Handles the fields that the program stored.
    pub fn on_time(&mut self, now: Duration) {
        let word = |at| self.word(at).map_or(0, |word| word.load(Relaxed));
        let (number, limit) = (word(node::NEXT), word(node::TAKEN));
        let (missed, slow) = (word(node::MISSED), word(node::SLOW));
        self.window.answer(Answer { kind: ACK, hop: 0, number, limit }, now);
        if missed != self.seen {
            self.seen = missed;
            let (number, hop) = (missed >> 16, missed as u16);
            self.window.answer(Answer { kind: MISSING, hop, number, limit }, now);
        }
        if slow != 0 && slow >> 16 >= number {
            let (number, hop) = (slow >> 16, slow as u16);
            self.window.answer(Answer { kind: FULL, hop, number, limit }, now);
        }
    }

    /// Handles a frame, if it is an answer.
    pub fn on_answer(&mut self, frame: &[u8], now: Duration) -> Option<Answer> {
        let answer = Answer::read(frame, self.me, self.group, &self.key)?;
        self.window.answer(answer, now);
        Some(answer)
    }

    fn frame(&self, (dst, position): (Mac, u16), number: u64, payload: &[u8]) -> Vec<u8> {
        let (kind, src) = self.me;
        let route: Route = (kind, dst, src);
        data(route, (self.group, position), &self.key, number, payload)
    }

    fn word(&self, at: usize) -> Option<&std::sync::atomic::AtomicU64> {
        self.filter.map(|chains| chains.nodes.word(u32::from(self.group), at))
    }

    /// Returns the number of answers that the program took.
    pub fn answers(&self) -> Option<u64> {
        self.word(node::ANSWERS).map(|word| word.load(Relaxed))
    }
}

impl Drop for Sender<'_> {
    fn drop(&mut self) {
        if let Some(chains) = self.filter {
            node::leave(&chains.nodes, u32::from(self.group));
        }
    }
}

/// Gives frames to a root, unchanged and with the tag of a member that has the key, for fuzzing.
///
/// # Panics
/// The frames bring its window into an invalid state.
pub fn check_answers(data: &[u8]) {
    let (key, me) = (SipKey([7; 16]), Mac([2, 0, 0, 0, 0, 1]));
    let mut sender = Sender::new((3, key), (EtherType::default(), me), None);
    let mut now = Duration::ZERO;
    for chunk in data.chunks(FRAME) {
        let pushes = chunk[0] % 4;
        for _ in 0..pushes {
            let _ = sender.push(me, chunk, now);
        }
        now += Duration::from_micros(u64::from(chunk[0]) << 4);
        while sender.window.poll(now).is_some() {}
        let answered = sender.on_answer(chunk, now);
        let mut frame = [0; FRAME];
        frame[..chunk.len()].copy_from_slice(chunk);
        let tag = key.hash(&[&frame[TAGGED..TAG]]);
        frame[TAG..TAG + 8].copy_from_slice(&tag.to_le_bytes());
        assert!(sender.on_answer(&frame, now).is_some() || answered.is_none());
        assert!(sender.window.is_sound(), "{sender:?}");
    }
}

/// Returns an answer that a root accepts, for fuzzing.
pub fn example_answer() -> Vec<u8> {
    let (key, me) = (SipKey([7; 16]), Mac([2, 0, 0, 0, 0, 1]));
    let sender = Sender::new((3, key), (EtherType::default(), Mac::default()), None);
    let mut frame = sender.frame((me, 1), 1, &[1]);
    frame[KIND] = ACK;
    frame
}
