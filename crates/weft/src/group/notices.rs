//! Notices between the ranks of groups: a client of the port. A rank that ends a collective
//! operation with an error tells all others, which end it with that error too: without it, those
//! that wait for this rank would do so for ever. A rank that has long waited for another asks
//! it if it takes part in the same operation. No notice is sent while all goes well.

use super::agree::{differ, text};
use super::any::WATCH_AFTER;
use super::{bits_of, COLLECTIVE, RESULT};
use crate::endpoint::Endpoint;
use crate::port::{Arrived, Client, Port};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;
use weft_core::event::Probed;
use weft_core::{Instant, PeerId};

/// The number of this client.
pub(super) const CLIENT: u8 = crate::port::WEFT + 1;
/// The argument of both messages is the number of the operation. "I am in this operation, and have
/// waited long for you": context (2 bytes), zero (2), rank (4), word (4), zero (4), bytes (8).
const ASK: u32 = 1;
/// "I have ended this operation, and tell all": context (2), 1 if a rank has failed (2), the rank
/// that the text is about (4), the text.
const ENDED: u32 = 2;
/// The text of [`ENDED`], for the rank that has asked alone.
const ANSWER: u32 = 3;
const ASK_LEN: usize = 24;
const ENDED_LEN: usize = 8;
/// Longest text of an error between ranks, in bytes.
const TEXT_MAX: usize = 1024;
/// Operations whose words are known after their ends.
const PAST: usize = 32;
/// Operations whose messages are looked for after their ends: see `Notices::done`.
const LOOKED: usize = 8;
/// Ends of operations that have not begun here.
const TOLD: usize = 64;
/// Operations for which a rank asks at a time.
const ASKED: usize = 16;
/// Operations that ended with an error and whose messages may still arrive.
const FAILED: usize = 128;
/// Times that such messages are looked for after the last error.
const SWEEPS: u32 = 16;

/// The reason why a rank has ended an operation with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// True if a rank has failed, and not: called something else.
    pub failed: bool,
    /// The rank that the text is about, if any.
    pub rank: Option<usize>,
    pub text: String,
    /// True if this rank has to tell the others.
    pub is_news: bool,
}

/// A collective operation of this rank that is under way.
pub(super) struct UnderWay {
    pub context: u16,
    pub number: u32,
    /// This rank's word and length: see `agree`.
    pub word: u32,
    pub bytes: Option<u64>,
    begun: Instant,
    /// The rank that it waits for.
    pub awaits: Cell<Option<PeerId>>,
    verdict: RefCell<Option<Verdict>>,
    waker: RefCell<Option<Waker>>,
    /// True if it has ended with an error, here or at another rank.
    failed: Cell<bool>,
}

impl UnderWay {
    /// Takes the verdict, if there is one; otherwise wakes `waker` when there is.
    pub fn verdict(&self, waker: &Waker) -> Option<Verdict> {
        let verdict = self.verdict.take();
        if verdict.is_none() && self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = Some(waker.clone());
        }
        verdict
    }

    fn give(&self, verdict: Verdict) {
        self.failed.set(true);
        *self.verdict.borrow_mut() = Some(verdict);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A group of this rank, as its notices need it.
#[derive(Clone, Copy)]
pub(super) struct Here {
    pub context: u16,
    pub rank: usize,
    pub size: usize,
    /// Hash of the members.
    pub list: u32,
}

/// The last operations of a group.
struct Past {
    here: Here,
    /// Number of the last one.
    begun: u32,
    last: VecDeque<Known>,
}

/// An operation that this rank has begun.
struct Known {
    number: u32,
    word: u32,
    bytes: Option<u64>,
    /// The error with which it has ended.
    error: Option<Verdict>,
    /// True if it has ended without an error, and has taken all messages that it needs: another one
    /// is of a rank that called something else.
    is_done: bool,
}

/// A message of an operation that has ended well here without it.
pub(super) struct Stray {
    /// Number of operations that this rank has begun since.
    pub ago: u32,
    /// This rank's word and length.
    pub ours: (u32, Option<u64>),
    pub message: Probed,
}

#[derive(Default)]
pub(super) struct Notices {
    under_way: RefCell<Vec<Rc<UnderWay>>>,
    groups: RefCell<BTreeMap<u16, Past>>,
    /// Ends of operations that have not begun here.
    told: RefCell<VecDeque<(u16, u32, Verdict)>>,
    /// Contexts and numbers of operations that ended with an error, here or elsewhere. Ranks that
    /// have not learnt of it send messages that no receive takes: they are discarded, or each such
    /// error would take room of unexpected messages for good.
    failed: RefCell<VecDeque<(u16, u32)>>,
    /// Times that messages of these operations will still be looked for without another operation.
    sweeps: Cell<u32>,
    patience: Cell<Duration>,
    /// True if the client will be called.
    armed: Cell<bool>,
}

/// Returns the client of an endpoint, and its port.
///
/// # Panics
/// A program has given the number of this client to one of its own.
pub(super) fn client(endpoint: &Endpoint) -> (Port, Rc<Notices>) {
    let patience = endpoint.reactor.borrow().first_line();
    let patience = if patience.is_zero() { WATCH_AFTER } else { patience };
    let found = endpoint.port(CLIENT, || Rc::new(Notices::new(patience)));
    found.unwrap_or_else(|taken| panic!("{taken}"))
}

/// True if operation `a` came before operation `b`, or is the same.
fn not_after(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) < 1 << 31
}

impl Notices {
    pub fn new(patience: Duration) -> Notices {
        Notices { patience: Cell::new(patience), ..Notices::default() }
    }

    /// Notes that operation `number` begins.
    pub fn begin(
        &self,
        port: &Port,
        here: Here,
        (number, word, bytes): (u32, u32, Option<u64>),
    ) -> Rc<UnderWay> {
        let Here { context, .. } = here;
        self.sweep(port);
        let mut groups = self.groups.borrow_mut();
        let past = groups.entry(context).or_insert_with(|| {
            let last = VecDeque::with_capacity(PAST);
            Past { here, begun: 0, last }
        });
        past.begun = number;
        if past.last.len() == PAST {
            past.last.pop_front();
        }
        past.last.push_back(Known { number, word, bytes, error: None, is_done: false });
        let mut told = self.told.borrow_mut();
        let ended = told.iter().position(|&(c, n, _)| (c, n) == (context, number));
        let verdict = ended.and_then(|at| told.remove(at)).map(|(_, _, verdict)| verdict);
        let begun = port.round();
        let under_way = Rc::new(UnderWay {
            context,
            number,
            word,
            bytes,
            begun,
            awaits: Cell::new(None),
            verdict: RefCell::new(verdict),
            waker: RefCell::default(),
            failed: Cell::new(false),
        });
        self.under_way.borrow_mut().push(Rc::clone(&under_way));
        self.arm(port, begun);
        under_way
    }

    fn arm(&self, port: &Port, now: Instant) {
        if !self.armed.replace(true) {
            port.call_at(now + self.patience.get());
        }
    }

    /// Notes that an operation has ended, and that its receives are gone.
    pub fn end(&self, port: &Port, ended: &Rc<UnderWay>) {
        let mut all = self.under_way.borrow_mut();
        if let Some(at) = all.iter().position(|one| Rc::ptr_eq(one, ended)) {
            all.swap_remove(at);
        }
        drop(all);
        if ended.failed.get() {
            self.discard(port, (ended.context, ended.number));
        }
    }

    /// Discards the messages of an operation that has ended, also those that are still to come.
    fn discard(&self, port: &Port, of: (u16, u32)) {
        let mut failed = self.failed.borrow_mut();
        if !failed.contains(&of) {
            failed.truncate(FAILED - 1);
            failed.push_front(of);
        }
        drop(failed);
        self.sweeps.set(SWEEPS);
        self.sweep(port);
        self.arm(port, port.round());
    }

    /// Discards what has arrived for operations that ended with an error.
    fn sweep(&self, port: &Port) {
        for &(context, number) in &*self.failed.borrow() {
            if self.find(context, number).is_none() {
                for class in [COLLECTIVE, RESULT] {
                    port.endpoint().discard_arrived(bits_of(context, class, number));
                }
            }
        }
    }

    /// Notes that an operation has ended well, and looks for a message that none of the last
    /// operations has taken. Two roots of a broadcast need nothing from each other: each gets a
    /// message of the other, later. Messages of a rank arrive in their order, so a message of a
    /// rank in one operation is there when a later one has taken something from this rank.
    pub fn done(&self, port: &Port, ended: &UnderWay) -> Option<Stray> {
        let mut groups = self.groups.borrow_mut();
        let past = groups.get_mut(&ended.context)?;
        if let Some(known) = past.last.iter_mut().rev().find(|one| one.number == ended.number) {
            known.is_done = true;
        }
        if !port.endpoint().has_arrived() {
            return None;
        }
        let last = past.last.iter().rev().take(LOOKED).filter(|known| known.is_done);
        last.into_iter().find_map(|known| {
            let bits = bits_of(ended.context, COLLECTIVE, known.number);
            let message = port.endpoint().arrived(bits)?;
            if message.data == Some(known.word.into()) {
                // The message is of the same operation: of a group that was made anew with this
                // one's context.
                return None;
            }
            let ago = ended.number.wrapping_sub(known.number);
            Some(Stray { ago, ours: (known.word, known.bytes), message })
        })
    }

    /// Notes that an operation has ended with an error, for ranks that ask. The same mistake is
    /// reported once: messages of the operations before are discarded.
    pub fn failed(&self, port: &Port, ended: &UnderWay, why: Verdict) {
        ended.failed.set(true);
        let mut groups = self.groups.borrow_mut();
        let Some(past) = groups.get_mut(&ended.context) else { return };
        if let Some(known) = past.last.iter_mut().find(|known| known.number == ended.number) {
            known.error = Some(why);
        }
        let last = past.last.iter_mut().rev().take(LOOKED).filter(|known| known.is_done);
        let before: Vec<u32> = last
            .map(|known| {
                known.is_done = false;
                known.number
            })
            .collect();
        drop(groups);
        before.into_iter().for_each(|number| self.discard(port, (ended.context, number)));
    }

    /// Forgets a group that has ended.
    pub fn forget(&self, port: &Port, context: u16) {
        self.sweep(port);
        self.failed.borrow_mut().retain(|&(of, _)| of != context);
        self.groups.borrow_mut().remove(&context);
        self.told.borrow_mut().retain(|&(of, ..)| of != context);
    }

    fn find(&self, context: u16, number: u32) -> Option<Rc<UnderWay>> {
        let all = self.under_way.borrow();
        all.iter().find(|one| (one.context, one.number) == (context, number)).cloned()
    }

    /// Compares the operation of a rank that asks with that of the same number here.
    fn on_ask(&self, port: &Port, from: PeerId, number: u32, ask: &Ask) {
        let groups = self.groups.borrow();
        let Some(past) = groups.get(&ask.context) else { return };
        // Of one that has not begun here it will ask again.
        let Some(known) = past.last.iter().find(|known| known.number == number) else { return };
        let of = (ask.context, number);
        if let Some(error) = &known.error {
            return send(port, from, (ANSWER, of), error);
        }
        if known.word == ask.word {
            return;
        }
        let Here { rank, size, list, .. } = past.here;
        let theirs = (ask.rank as usize, &*text(ask.word, ask.bytes, (size, list)));
        let text = differ(theirs, (rank, &text(known.word, known.bytes, (size, list))));
        let verdict = |rank| Verdict { failed: false, rank: Some(rank), text, is_news: true };
        match self.find(ask.context, number) {
            Some(under_way) => under_way.give(verdict(ask.rank as usize)),
            None => send(port, from, (ANSWER, of), &verdict(rank)),
        }
    }

    fn on_ended(&self, port: &Port, context: u16, number: u32, verdict: Verdict) {
        if let Some(under_way) = self.find(context, number) {
            return under_way.give(verdict);
        }
        // One that has not begun here ends when it begins, without a receive.
        self.discard(port, (context, number));
        let begun = self.groups.borrow().get(&context).map(|past| past.begun);
        if begun.is_some_and(|begun| not_after(number, begun)) {
            return;
        }
        let mut told = self.told.borrow_mut();
        if told.len() == TOLD {
            told.pop_front();
        }
        told.push_back((context, number, verdict));
    }
}

impl Client for Notices {
    fn arrived(self: Rc<Self>, port: &Port, message: Arrived) {
        let (from, number) = (message.source, message.argument);
        match message.number {
            ASK => {
                if let Some(ask) = Ask::read(&message.data) {
                    self.on_ask(port, from, number, &ask);
                }
            }
            kind @ (ENDED | ANSWER) => {
                if let Some((context, verdict)) = read_ended(&message.data) {
                    let verdict = Verdict { is_news: kind == ANSWER, ..verdict };
                    self.on_ended(port, context, number, verdict);
                }
            }
            _ => {}
        }
        port.release(message);
    }

    fn due(self: Rc<Self>, port: &Port) {
        let sweeps = self.sweeps.get().saturating_sub(1);
        if self.sweeps.replace(sweeps) > 0 {
            self.sweep(port);
        }
        let under_way = self.under_way.borrow();
        let (now, patience) = (port.now(), self.patience.get());
        self.armed.set(!under_way.is_empty() || sweeps > 0);
        if self.armed.get() {
            port.call_at(now + patience);
        }
        let groups = self.groups.borrow();
        let late = under_way.iter().filter(|one| one.begun + patience <= now).take(ASKED);
        for one in late {
            let Some((peer, past)) = one.awaits.get().zip(groups.get(&one.context)) else {
                continue;
            };
            let rank = past.here.rank as u32;
            let ask = Ask { context: one.context, rank, word: one.word, bytes: one.bytes };
            // Its failure ends the wait itself.
            let _ = port.post(peer, ASK, one.number, &ask.bytes());
        }
    }
}

/// A question to a rank.
#[derive(Debug, PartialEq, Eq)]
struct Ask {
    context: u16,
    rank: u32,
    word: u32,
    bytes: Option<u64>,
}

impl Ask {
    fn bytes(&self) -> [u8; ASK_LEN] {
        let mut out = [0; ASK_LEN];
        out[..2].copy_from_slice(&self.context.to_le_bytes());
        out[4..8].copy_from_slice(&self.rank.to_le_bytes());
        out[8..12].copy_from_slice(&self.word.to_le_bytes());
        out[16..].copy_from_slice(&self.bytes.unwrap_or(u64::MAX).to_le_bytes());
        out
    }

    fn read(data: &[u8]) -> Option<Ask> {
        let data: &[u8; ASK_LEN] = data.try_into().ok()?;
        let word = |at: usize| data[at..].first_chunk().map(|raw| u32::from_le_bytes(*raw));
        let bytes = data[16..].first_chunk().map(|raw| u64::from_le_bytes(*raw))?;
        Some(Ask {
            context: u16::from_le_bytes([data[0], data[1]]),
            rank: word(4)?,
            word: word(8)?,
            bytes: Some(bytes).filter(|&bytes| bytes != u64::MAX),
        })
    }
}

/// Tells a rank that this one has ended an operation, as it tells all.
pub(super) fn report(port: &Port, to: PeerId, ended: &UnderWay, why: &Verdict) {
    send(port, to, (ENDED, (ended.context, ended.number)), why);
}

fn send(port: &Port, to: PeerId, (kind, (context, number)): (u32, (u16, u32)), why: &Verdict) {
    let rank = why.rank.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(u32::MAX);
    let mut data = Vec::with_capacity(ENDED_LEN + why.text.len().min(TEXT_MAX));
    data.extend_from_slice(&context.to_le_bytes());
    data.extend_from_slice(&u16::from(why.failed).to_le_bytes());
    data.extend_from_slice(&rank.to_le_bytes());
    data.extend_from_slice(&why.text.as_bytes()[..why.text.len().min(TEXT_MAX)]);
    // A rank that has failed needs no notice.
    let _ = port.post(to, kind, number, &data);
}

fn read_ended(data: &[u8]) -> Option<(u16, Verdict)> {
    let (head, text) = data.split_first_chunk::<ENDED_LEN>()?;
    let text = text.get(..text.len().min(TEXT_MAX))?;
    let text: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    let rank = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let rank = Some(rank as usize).filter(|_| rank != u32::MAX);
    let verdict = Verdict { failed: head[2] == 1, rank, text, is_news: false };
    Some((u16::from_le_bytes([head[0], head[1]]), verdict))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ask__is_read_as_it_was_written_and_junk_is_none() {
        for bytes in [None, Some(0), Some(80)] {
            let ask = Ask { context: 0x0102, rank: 7, word: 0xfeed_beef, bytes };
            assert_eq!(Ask::read(&ask.bytes()), Some(ask));
        }
        assert!((0..40).filter(|&len| len != ASK_LEN).all(|n| Ask::read(&vec![1; n]).is_none()));
    }

    #[test]
    fn read_ended__of_any_bytes_is_one_line_of_bounded_length() {
        assert!((0..ENDED_LEN).all(|len| read_ended(&vec![1; len]).is_none()));
        let mut data = vec![1, 2, 1, 0, 255, 255, 255, 255];
        data.extend((0..5000_u32).map(|n| n as u8));
        let (context, verdict) = read_ended(&data).unwrap();
        assert_eq!((context, verdict.failed, verdict.rank), (0x0201, true, None));
        assert!(verdict.text.len() < 4 * TEXT_MAX && !verdict.text.contains('\n'));
    }

    #[test]
    fn not_after__goes_around() {
        assert!(not_after(1, 1) && not_after(1, 2) && !not_after(2, 1));
        assert!(not_after(u32::MAX, 3) && !not_after(3, u32::MAX));
    }
}
