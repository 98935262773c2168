//! Requests for atomic operations: those that wait for their answers, and those of peers with the
//! answers to them.

use super::events::Touched;
use super::report::Report;
use crate::atomic::{self, Memory, Refusal, Request};
use crate::memory::Borrowed;
use crate::slab::Slab;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use weft::endpoint::{Denied, Regions};
use weft::{Endpoint, OpError, PeerId, Rights};

/// Active messages with requests for atomic operations, and with answers.
pub const REQUEST: u32 = 0x6f_6602;
const ANSWER: u32 = 0x6f_6603;

/// Most unanswered requests to a peer.
pub const REQUESTS_MAX: u32 = 1024;
/// Most queued messages and requests to a peer; later ones are refused until there is room.
pub const QUEUED_MAX: usize = 1 << 13;

/// An operation that is not answered yet.
pub struct Pending {
    pub peer: PeerId,
    pub report: Report,
    /// Memory for the values before the operation.
    pub results: Vec<Borrowed>,
}

/// Atomic operations that are not answered yet.
#[derive(Default)]
pub struct Asked {
    pending: Slab<Pending>,
    pub count: Tally,
}

impl Asked {
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Keeps an operation; returns its number, if there is one left.
    pub fn keep(&mut self, pending: Pending) -> Option<u32> {
        self.pending.keep(pending)
    }

    /// Removes and returns the operation that was sent to this peer under this number.
    pub fn take(&mut self, at: u32, peer: PeerId) -> Option<Pending> {
        self.pending.get(at).filter(|pending| pending.peer == peer)?;
        self.pending.take(at)
    }

    /// Returns the numbers of the operations that were sent to a peer.
    pub fn of(&self, peer: PeerId) -> Vec<u32> {
        self.pending.numbers(|pending| pending.peer == peer)
    }
}

/// An answer: the peer that gives or gets it, the number of the request, the message.
type Said = (PeerId, u32, Vec<u8>);

/// Answers to send to peers, and answers received.
pub struct Answers {
    heard: Rc<RefCell<Vec<Said>>>,
    owed: Rc<RefCell<PendingAnswer>>,
}

/// Answers that wait for room in the endpoint.
#[derive(Default)]
struct PendingAnswer {
    queue: VecDeque<Said>,
    count: Tally,
}

/// Makes atomic operations atomic among all endpoints of the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Memory for Regions<'_> {
    fn check(&self, at: (u64, u64), len: usize, need: Rights) -> Result<(), Refusal> {
        let found = Regions::check(self, at.0, at.1, len as u64, need);
        found.map(drop).map_err(refusal_of)
    }

    fn bytes(&mut self, at: (u64, u64), len: usize, need: Rights) -> Result<&mut [u8], Refusal> {
        Regions::bytes(self, at.0, at.1, len, need).map_err(refusal_of)
    }
}

fn refusal_of(denied: Denied) -> Refusal {
    match denied {
        Denied::Key => Refusal::Key,
        Denied::Access | Denied::Unmapped => Refusal::Access,
    }
}

impl Answers {
    pub fn new(endpoint: &Endpoint, touched: Touched) -> Answers {
        let answers = Answers { heard: Rc::default(), owed: Rc::default() };
        endpoint.active().handle_at_once(REQUEST, move |regions, _, request| {
            let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = atomic::serve(&request, regions);
            if let (Some(0), Some(done)) = (answer.first(), Request::decode(&request)) {
                let read = done.operator == atomic::Operator::Read;
                touched.add(read, done.pieces.iter().map(|piece| piece.key));
            }
            Some(answer)
        });
        let owed = answers.owed.clone();
        endpoint.active().handle(REQUEST, move |endpoint, message| {
            let answer = (message.source, message.argument, message.data);
            owed.borrow_mut().add(endpoint, answer);
        });
        let heard = answers.heard.clone();
        endpoint.active().handle(ANSWER, move |_, message| {
            heard.borrow_mut().push((message.source, message.argument, message.data));
        });
        answers
    }

    /// Takes the answers that have come.
    pub fn take(&self) -> Vec<Said> {
        std::mem::take(&mut *self.heard.borrow_mut())
    }

    /// Sends answers that wait.
    pub fn pay(&self, endpoint: &Endpoint) {
        self.owed.borrow_mut().pay(endpoint);
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.heard.borrow().is_empty() || !self.owed.borrow().queue.is_empty()
    }
}

impl PendingAnswer {
    /// Sends an answer at once if there is room, else later.
    fn add(&mut self, endpoint: &Endpoint, answer: Said) {
        let peer = answer.0;
        if say(endpoint, &answer) {
            return;
        }
        if self.count.of(peer) >= REQUESTS_MAX {
            // A peer of this version does not send so many requests before it has answers.
            log::warn!("{}: too many atomic operations at a time", endpoint.peer(peer).describe());
            return;
        }
        self.count.add(peer);
        self.queue.push_back(answer);
    }

    fn pay(&mut self, endpoint: &Endpoint) {
        for _ in 0..self.queue.len() {
            let Some(answer) = self.queue.pop_front() else { break };
            if say(endpoint, &answer) {
                self.count.take(answer.0);
            } else {
                self.queue.push_back(answer);
            }
        }
    }
}

/// Sends an answer; false if there is no room for it now.
fn say(endpoint: &Endpoint, (peer, number, answer): &Said) -> bool {
    if endpoint.peer(*peer).queued() > QUEUED_MAX {
        return false;
    }
    match endpoint.active().send(*peer, ANSWER, *number, answer) {
        Ok(()) => true,
        Err(OpError::Busy) => false,
        // The peer is gone: there is nothing left to send.
        Err(_) => true,
    }
}

/// Counts by peer; peers with count 0 have no entry.
#[derive(Default)]
pub struct Tally(HashMap<PeerId, u32>);

impl Tally {
    pub fn of(&self, peer: PeerId) -> u32 {
        self.0.get(&peer).copied().unwrap_or(0)
    }

    /// Adds one; true if it is the first.
    pub fn add(&mut self, peer: PeerId) -> bool {
        let count = self.0.entry(peer).or_default();
        *count += 1;
        *count == 1
    }

    /// Subtracts one; true if it was the last.
    pub fn take(&mut self, peer: PeerId) -> bool {
        let Some(count) = self.0.get_mut(&peer) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.0.remove(&peer);
        }
        last
    }

    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.0.keys().copied()
    }
}
