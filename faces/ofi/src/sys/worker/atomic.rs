//! Atomic operations: requests to peers, execution of peers' requests, and answers.

use super::events::Touched;
use super::remote::{Report, Tally, QUEUED_MAX};
use super::state::{Direction, State};
use super::{failure_of, Worker};
use crate::atomic::{self, is_valid, Form, Memory, Refusal, Request};
use crate::sys::abi::{cap, err};
use crate::sys::Answer;
use libc::c_void;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use weft::endpoint::{Denied, Regions};
use weft::{Endpoint, OpError, PeerId, Rights};

/// Active messages with requests for atomic operations, and with answers.
const REQUEST: u32 = 0x6f_6602;
const ANSWER: u32 = 0x6f_6603;

/// Most unanswered requests to a peer.
const REQUESTS_MAX: u32 = 1024;

/// An atomic operation to start. Operands and values to compare with are whole already.
pub struct AtomicOp<'a> {
    pub to: u64,
    pub request: Request<'a>,
    /// Memory for the values before the operation.
    pub results: Vec<(*mut u8, usize)>,
    pub buf: *mut u8,
    pub context: *mut c_void,
    pub flags: u64,
    /// No completion unless it fails.
    pub injected: bool,
}

struct Pending {
    peer: PeerId,
    report: Report,
    results: Vec<(*mut u8, usize)>,
}

/// Atomic operations that are not answered yet.
#[derive(Default)]
pub struct Asked {
    pending: Vec<Option<Pending>>,
    free: Vec<u32>,
    count: Tally,
}

impl Asked {
    pub fn is_empty(&self) -> bool {
        self.pending.len() == self.free.len()
    }

    fn keep(&mut self, pending: Pending) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.pending[at as usize] = Some(pending);
                at
            }
            None => {
                self.pending.push(Some(pending));
                self.pending.len() as u32 - 1
            }
        }
    }

    /// Removes and returns the operation that was sent to this peer under this number.
    fn take(&mut self, at: u32, peer: PeerId) -> Option<Pending> {
        let slot = self.pending.get_mut(at as usize)?;
        let taken = slot.take_if(|p| p.peer == peer)?;
        self.free.push(at);
        Some(taken)
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

impl Worker {
    /// Starts an atomic operation.
    ///
    /// # Safety
    /// The results can be written until the completion.
    pub unsafe fn atomic(&self, op: AtomicOp<'_>) -> Answer {
        let _inside = self.domain.lock.enter()?;
        let r = &op.request;
        if op.flags & (cap::REMOTE_CQ_DATA | cap::TAGGED) != 0
            || !is_valid(r.form, r.datatype, r.operator)
        {
            return Err(err::EOPNOTSUPP);
        }
        let len = r.len();
        if len > atomic::LONGEST {
            return Err(err::EMSGSIZE);
        }
        let read = if r.form == Form::Write { 0 } else { len };
        let compare = if r.form == Form::Compare { len } else { 0 };
        let operands = if r.operator == atomic::Operator::Read { 0 } else { len };
        let room: usize = op.results.iter().map(|(_, len)| len).sum();
        if len == 0 || room != read || (r.operands.len(), r.compares.len()) != (operands, compare) {
            return Err(err::EINVAL);
        }
        self.fence(op.flags)?;
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, op.to)?;
        let asked = state.remote.asked.count.of(peer);
        if asked >= REQUESTS_MAX || self.endpoint.peer(peer).queued() > QUEUED_MAX {
            return Err(self.busy());
        }
        let (way, kind) = match read {
            0 => (Direction::Write, cap::WRITE),
            _ => (Direction::Read, cap::READ),
        };
        let wanted = !op.injected && state.reports(way, op.flags);
        let flags = cap::ATOMIC | kind;
        let report = Report { context: op.context, flags, way, wanted, buf: op.buf, len };
        let message = op.request.encode();
        let number = state.remote.asked.keep(Pending { peer, report, results: op.results });
        match self.endpoint.active().send(peer, REQUEST, number, &message) {
            Ok(()) => {
                if state.remote.asked.count.add(peer) {
                    self.endpoint.peer(peer).expect();
                }
                Ok(0)
            }
            Err(why) => {
                let pending = state.remote.asked.take(number, peer);
                if why == OpError::Busy {
                    return Err(self.busy());
                }
                if let Some(pending) = pending {
                    self.tell(state, pending.report, Some(why));
                }
                Ok(0)
            }
        }
    }

    /// Handles received answers, and sends waiting ones.
    pub(super) fn handle_answers(&self, state: &mut State) {
        let heard = std::mem::take(&mut *state.remote.answers.heard.borrow_mut());
        for (peer, number, answer) in heard {
            let Some(pending) = state.remote.asked.take(number, peer) else {
                log::warn!("{}: an answer to nothing", self.endpoint.peer(peer).describe());
                continue;
            };
            if state.remote.asked.count.take(peer) {
                self.endpoint.peer(peer).unexpect();
            }
            self.answered(state, pending, &answer);
        }
        state.remote.answers.owed.borrow_mut().pay(&self.endpoint);
    }

    fn answered(&self, state: &State, pending: Pending, answer: &[u8]) {
        let len = pending.results.iter().map(|(_, len)| len).sum();
        let why = match atomic::answer(answer, len) {
            Ok(mut before) => {
                for &(start, len) in &pending.results {
                    let (now, later) = before.split_at(len.min(before.len()));
                    // SAFETY: the caller gave the results until the completion, which follows.
                    unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, now.len()) };
                    before = later;
                }
                return self.tell(state, pending.report, None);
            }
            Err(why) => why,
        };
        let (error, text) = match why {
            Refusal::Key => (err::ENOKEY, "no memory is registered there under this key"),
            Refusal::Access => (err::EACCES, "beyond the memory, or not registered for this"),
            Refusal::Malformed => (err::EIO, "not understood: all ranks need the same weft"),
        };
        let what = format!("{}: {text}", self.endpoint.peer(pending.peer).describe());
        self.report_failure(state, &pending.report, error, what);
    }

    /// Fails the operations on peers that failed.
    #[cold]
    pub(super) fn give_up(&self, state: &mut State) {
        let peers: Vec<PeerId> = state.remote.asked.count.peers().collect();
        for peer in peers {
            let Some(failure) = self.endpoint.peer(peer).failure() else { continue };
            log::debug!("atomic operations given up: error {}", failure_of(failure));
            for number in 0..state.remote.asked.pending.len() as u32 {
                let Some(pending) = state.remote.asked.take(number, peer) else { continue };
                if state.remote.asked.count.take(peer) {
                    self.endpoint.peer(peer).unexpect();
                }
                self.tell(state, pending.report, Some(OpError::Peer { peer, failure }));
            }
        }
    }
}
