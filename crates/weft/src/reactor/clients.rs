//! The clients above: messages that arrived for them, and due calls of each.

use super::message::{Arrived, Buffer};
use super::regions::AtOnce;
use super::Handle;
use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;
use weft_core::engine::types::AtomicRequest;
use weft_core::{Instant, PeerFailure, PeerId};

/// Spare buffers kept.
const BUFFERS_SPARE: usize = 1024;
/// Atomic operations that wait for the client that serves them.
const REQUESTS_MAX: usize = 256;

/// A client, as it is called from progress: the port makes one of each of its clients.
pub(crate) trait Upcalls: Any {
    /// Calls the client that has this number.
    fn upcall(self: Rc<Self>, reactor: &Handle, number: u8, call: Call);

    /// True if a call to poll is due.
    fn wants_poll(&self) -> bool;
}

/// One call of a client.
pub(crate) enum Call {
    Arrived(Arrived),
    Failed(PeerId, PeerFailure),
    Asked(AtomicRequest),
    Due,
    Poll,
}

/// A client of the port, or messages for one that is not registered yet.
pub(crate) struct Slot {
    number: u8,
    pub client: Option<Rc<dyn Upcalls>>,
    /// Bounded by the senders' credit.
    pub arrived: VecDeque<Arrived>,
    /// Bounded by the number of peers.
    failures: VecDeque<(PeerId, PeerFailure)>,
    requests: VecDeque<AtomicRequest>,
    /// Time of the client's next call.
    due: Instant,
    /// True if that time has come.
    is_due: bool,
    /// True while the client handles a message; others wait.
    busy: bool,
}

impl Slot {
    fn next(&mut self, owed: &mut usize) -> Option<Call> {
        let client = self.client.as_ref()?;
        if client.wants_poll() {
            return Some(Call::Poll);
        }
        if !self.busy {
            if let Some(arrived) = self.arrived.pop_front() {
                *owed -= 1;
                self.busy = true;
                return Some(Call::Arrived(arrived));
            }
        }
        if *owed > 0 {
            let failed = self.next_failure().map(|(peer, why)| Call::Failed(peer, why));
            let call = failed.or_else(|| self.requests.pop_front().map(Call::Asked));
            if call.is_some() {
                *owed -= 1;
                return call;
            }
        }
        if std::mem::take(&mut self.is_due) {
            *owed -= 1;
            return Some(Call::Due);
        }
        None
    }

    /// Takes the next failure. The messages of a peer come before its failure: they may wait for
    /// the end of the call in which progress is made.
    fn next_failure(&mut self) -> Option<(PeerId, PeerFailure)> {
        let &(peer, _) = self.failures.front()?;
        match self.arrived.iter().any(|message| message.source == peer) {
            true => None,
            false => self.failures.pop_front(),
        }
    }
}

/// The clients of an endpoint.
#[derive(Default)]
pub(crate) struct Ports {
    slots: Vec<Slot>,
    /// Number of messages, failures, requests and times for which clients are to be called.
    /// Messages for a number without a client do not count.
    pub owed: usize,
    /// True if a client is polled in each round.
    pub polled: bool,
    buffers: Vec<Buffer>,
    /// Work on active messages as they arrive, before later packets, by number.
    pub at_once: HashMap<u32, AtOnce>,
    /// Panics of such work, which are resumed when the reactor is consistent.
    pub panics: VecDeque<Box<dyn Any + Send>>,
    /// Keys of words that a client serves, with its number.
    pub served: BTreeMap<u64, u8>,
}

impl Ports {
    /// Returns the slot of a number, and makes it if there is none.
    #[inline]
    pub fn slot(&mut self, number: u8) -> &mut Slot {
        let at = self.slots.iter().position(|slot| slot.number == number);
        let at = at.unwrap_or_else(|| self.add(number));
        &mut self.slots[at]
    }

    #[cold]
    fn add(&mut self, number: u8) -> usize {
        self.slots.push(Slot {
            number,
            client: None,
            arrived: VecDeque::new(),
            failures: VecDeque::new(),
            requests: VecDeque::new(),
            due: Instant::FAR,
            is_due: false,
            busy: false,
        });
        self.slots.len() - 1
    }

    /// Returns the client of a number.
    pub fn client(&self, number: u8) -> Option<&Rc<dyn Upcalls>> {
        self.slots.iter().find(|slot| slot.number == number)?.client.as_ref()
    }

    /// Gives a number to a client, which has none so far.
    pub fn register(&mut self, number: u8, client: Rc<dyn Upcalls>) {
        let slot = self.slot(number);
        slot.client = Some(client);
        let waiting = slot.arrived.len();
        self.owed += waiting;
    }

    /// Sets the time of a client's next call.
    pub fn set_due(&mut self, number: u8, at: Instant) {
        self.slot(number).due = at;
    }

    /// Sets the time of a client's next call, unless a sooner one is set.
    pub fn due_by(&mut self, number: u8, at: Instant) {
        let slot = self.slot(number);
        slot.due = slot.due.min(at);
    }

    /// Returns the time of the next call of any client.
    pub fn next_due(&self) -> Option<Instant> {
        self.slots.iter().map(|slot| slot.due).min().filter(|&at| at != Instant::FAR)
    }

    /// Notes the calls whose time has come. True if there was any.
    #[inline]
    pub fn note_due(&mut self, now: Instant) -> bool {
        let before = self.owed;
        for slot in self.slots.iter_mut().filter(|slot| slot.due <= now) {
            slot.due = Instant::FAR;
            self.owed += usize::from(!std::mem::replace(&mut slot.is_due, true));
        }
        self.owed > before
    }

    /// True if no call is due, as far as is known without polling each client.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.owed == 0
    }

    /// True if a message waits for a client.
    #[inline]
    pub fn has_arrived(&self, number: u8) -> bool {
        self.owed > 0 && self.slots.iter().any(|s| s.number == number && !s.arrived.is_empty())
    }

    /// True while a client handles a message.
    pub fn is_handling(&self) -> bool {
        self.slots.iter().any(|slot| slot.busy)
    }

    /// Returns the next call of a client: its index, its number, the client, and the call.
    #[inline]
    pub fn next_call(&mut self) -> Option<(usize, u8, Rc<dyn Upcalls>, Call)> {
        for (at, slot) in self.slots.iter_mut().enumerate() {
            if let Some(call) = slot.next(&mut self.owed) {
                let client = Rc::clone(slot.client.as_ref()?);
                return Some((at, slot.number, client, call));
            }
        }
        None
    }

    /// Records that the client at an index has handled a message.
    #[inline]
    pub fn ended(&mut self, at: usize) {
        self.slots[at].busy = false;
    }

    /// Takes a panic of work at arrival, if there is one.
    #[inline]
    pub fn panicked(&mut self) -> Option<Box<dyn Any + Send>> {
        let panic = self.panics.pop_front()?;
        self.owed -= 1;
        Some(panic)
    }

    /// Tells all clients of a failure.
    pub fn failed(&mut self, peer: PeerId, failure: PeerFailure) {
        for slot in self.slots.iter_mut().filter(|slot| slot.client.is_some()) {
            slot.failures.push_back((peer, failure));
            self.owed += 1;
        }
    }

    /// Asks the client that serves a word for an atomic operation. `None` if no client serves it;
    /// false if too many requests wait.
    pub fn ask(&mut self, request: &AtomicRequest) -> Option<bool> {
        let number = *self.served.get(&request.key)?;
        let slot = self.slot(number);
        let has_room = slot.requests.len() < REQUESTS_MAX;
        if has_room {
            slot.requests.push_back(*request);
            self.owed += 1;
        }
        Some(has_room)
    }

    /// Memory for a message.
    #[inline]
    pub fn buffer(&mut self) -> Buffer {
        self.buffers.pop().unwrap_or_default()
    }

    /// Takes memory back.
    #[inline]
    pub fn recycle(&mut self, buffer: Buffer) {
        if buffer.capacity() > 0 && self.buffers.len() < BUFFERS_SPARE {
            self.buffers.push(buffer);
        }
    }
}
