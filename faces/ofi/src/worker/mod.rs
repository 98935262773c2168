//! The operations of an endpoint and their completions.

mod atomic;
mod collective;
mod complete;
mod events;
mod expect;
mod many;
mod meet;
mod moving;
mod notice;
mod open;
mod peers;
mod recv;
mod remote;
mod report;
mod requests;
mod send;
mod state;
#[allow(unsafe_code)]
mod sys;
mod transfers;

pub use atomic::{most, AtomicCall};
pub use collective::{combination, CollectiveCall};
pub use open::Defaults;

use crate::abi::*;
use crate::events::Events;
use crate::members::Member;
use crate::mover::Step;
use crate::name::{self, Name};
use crate::region::Region;
use crate::{addresses, counter, domain, queue};
use libc::{c_int, c_void};
use state::State;
use std::cell::{Cell, RefCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::Endpoint;
use weft_core::engine::types::OpKind;

/// The objects that endpoints work with.
pub type Domain = domain::Domain<Worker>;
pub type Queue = queue::Queue<Worker>;
pub type Counter = counter::Counter<Worker>;
pub type Addresses = addresses::Addresses<Worker>;

/// Longest time that `fi_close` waits until everything sent has arrived.
const CLOSE: Duration = Duration::from_secs(5);
/// Longest sleep in `fi_close` between two checks.
const NAP: Duration = Duration::from_millis(50);

/// The tag of a message, or the tags of the messages that a receive takes.
#[derive(Clone, Copy)]
pub struct Tags {
    pub tag: u64,
    pub ignore: u64,
    pub untagged: bool,
}

impl Tags {
    /// Takes the tag and the bits to ignore; nothing for messages without tags.
    #[inline]
    pub fn of(numbers: &[u64]) -> Tags {
        match *numbers {
            [tag, ignore] => Tags { tag, ignore, untagged: false },
            [tag] => Tags { tag, ignore: 0, untagged: false },
            _ => Tags { tag: 0, ignore: u64::MAX, untagged: true },
        }
    }

    /// Returns the flag of such messages.
    #[inline]
    fn flag(self) -> u64 {
        match self.untagged {
            true => cap::MSG,
            false => cap::TAGGED,
        }
    }
}

/// A send to start.
pub struct SendOp {
    pub to: u64,
    pub tags: Tags,
    pub data: Option<u64>,
    pub context: *mut c_void,
    pub flags: u64,
}

/// A receive to post.
pub struct RecvOp {
    pub source: u64,
    pub tags: Tags,
    pub context: *mut c_void,
    pub flags: u64,
}

/// A read or write of a peer's memory to start.
pub struct RemoteOp {
    pub to: u64,
    pub read: bool,
    /// Data of a write for the peer's completion queue.
    pub data: Option<u64>,
    pub context: *mut c_void,
    /// `None`: it is sent from a copy, and has no completion unless it fails.
    pub flags: Option<u64>,
}

/// An endpoint.
pub struct Worker {
    pub endpoint: Endpoint,
    pub domain: Arc<Domain>,
    state: RefCell<State>,
    /// Read without the lock, where several threads may be.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// True if receives compare the source.
    directed: bool,
    /// True if operations on peers' memory are reported to the peers.
    events: bool,
    min_multi_recv: Cell<usize>,
    inject_max: usize,
    /// True while a caller may sleep on a descriptor that becomes readable when there is work.
    prepared: Cell<bool>,
    /// True if progress without the caller ended something that is not reported yet.
    unreported: Cell<bool>,
    introductions: meet::Introductions,
}

impl Worker {
    /// Returns the name by which peers find the endpoint.
    pub fn name(&self) -> Name {
        name::encode(&self.endpoint.address())
    }

    /// Binds an address vector.
    pub fn use_vector(&self, vector: &Rc<Addresses>) {
        self.state.borrow_mut().bound.vector = Some(vector.clone());
    }

    /// Binds an event queue, to which joins of groups are reported as long as it is open.
    pub fn use_events(&self, events: &Arc<Events>) {
        self.state.borrow_mut().bound.events = Arc::downgrade(events);
    }

    /// Binds a completion queue, to the directions in `flags`.
    pub fn use_queue(self: &Rc<Worker>, queue: &Rc<Queue>, flags: u64) -> Result<(), c_int> {
        if flags & (cap::SEND | cap::RECV) == 0 {
            return Err(err::EINVAL);
        }
        let bound = &mut self.state.borrow_mut().bound;
        let selective = flags & cap::SELECTIVE_COMPLETION != 0;
        if flags & cap::SEND != 0 {
            (bound.tx, bound.selective.0) = (Some(queue.clone()), selective);
        }
        if flags & cap::RECV != 0 {
            (bound.rx, bound.selective.1) = (Some(queue.clone()), selective);
        }
        queue.reports.join(self);
        Ok(())
    }

    /// Binds a counter, to the operations in `flags`.
    pub fn use_counter(self: &Rc<Worker>, counter: &Rc<Counter>, flags: u64) -> Result<(), c_int> {
        let own = [cap::SEND, cap::RECV, cap::WRITE, cap::READ];
        let remote = counter::REMOTE;
        if own.iter().chain(&remote).all(|flag| flags & flag == 0) {
            return Err(err::ENOSYS);
        }
        let bound = &mut self.state.borrow_mut().bound;
        counter::put(&mut bound.counters, own, flags, || counter.clone());
        counter::put(&mut bound.remote_counters, remote, flags, || counter.clone());
        counter.reports.join(self);
        Ok(())
    }

    /// Returns an error if something that the endpoint needs is not bound.
    pub fn enable(&self) -> Result<(), c_int> {
        let bound = &self.state.borrow().bound;
        if bound.vector.is_none() {
            return Err(err::ENOAV);
        }
        let queue = |queue: &Option<Rc<Queue>>, counter: usize| {
            queue.is_some() || bound.counters[counter].is_some()
        };
        match queue(&bound.tx, 0) || queue(&bound.rx, 1) {
            true => Ok(()),
            false => Err(err::ENOCQ),
        }
    }

    /// Sets or returns the default flags of the direction in `flags`.
    pub fn default_flags(&self, flags: &mut u64, set: bool) -> Result<(), c_int> {
        let which = match *flags & (cap::SEND | cap::RECV) {
            cap::SEND => &self.tx_flags,
            cap::RECV => &self.rx_flags,
            _ => return Err(err::EINVAL),
        };
        if set {
            which.store(*flags & !(cap::SEND | cap::RECV), Ordering::Relaxed);
        } else {
            *flags = which.load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the default flags of sends.
    #[inline]
    pub fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    /// Returns the default flags of receives.
    #[inline]
    pub fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }

    /// Returns an option of the endpoint.
    pub fn option(&self, level: c_int, name: c_int) -> Result<usize, c_int> {
        match (level, name) {
            (OPT_ENDPOINT, OPT_MIN_MULTI_RECV) => Ok(self.min_multi_recv.get()),
            (OPT_ENDPOINT, OPT_CM_DATA_SIZE) => Ok(0),
            _ => Err(libc::ENOPROTOOPT),
        }
    }

    /// Sets an option of the endpoint, to a value of the length of a word, or with a first byte.
    pub fn set_option(
        &self,
        level: c_int,
        name: c_int,
        word: Option<usize>,
        byte: Option<u8>,
    ) -> Result<c_int, c_int> {
        match (level, name, word, byte) {
            (OPT_ENDPOINT, OPT_MIN_MULTI_RECV, Some(bytes), _) => self.min_multi_recv.set(bytes),
            // Permissions without effect: the provider supports no memory of graphics cards.
            (OPT_ENDPOINT, OPT_FI_HMEM_P2P | OPT_CUDA_API_PERMITTED, ..) => {}
            (OPT_ENDPOINT, OPT_SHARED_MEMORY_PERMITTED, _, Some(0)) => {
                return Err(err::EOPNOTSUPP);
            }
            (OPT_ENDPOINT, OPT_SHARED_MEMORY_PERMITTED, _, Some(_)) => {}
            _ => return Err(libc::ENOPROTOOPT),
        }
        Ok(0)
    }

    /// Sends everything in progress, then closes.
    pub fn close(&self) {
        if self.state.borrow_mut().receives.expecting.take().is_some() {
            self.endpoint.posted().end_expected();
        }
        let start = Instant::now();
        self.finish_sends(CLOSE);
        self.endpoint.close(CLOSE.saturating_sub(start.elapsed()));
        let bound = std::mem::take(&mut self.state.borrow_mut().bound);
        for queue in [bound.tx, bound.rx].into_iter().flatten() {
            queue.reports.leave(self);
        }
        self.domain.members.leave(self);
    }

    /// Waits, for a bounded time, until peers have fetched announced messages: a caller may leave
    /// the end of a send to the provider (`MPI_Request_free`).
    fn finish_sends(&self, limit: Duration) {
        let start = Instant::now();
        self.reap();
        while !self.state.borrow().is_quiet() {
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                log::warn!("closing with messages that nobody has fetched");
                return;
            }
            self.endpoint.wait(Some(left.min(NAP)));
            self.reap();
        }
    }

    /// Reports operations that ended.
    #[inline]
    fn reap(&self) {
        let state = &mut *self.state.borrow_mut();
        if !state.receives.waiting.is_empty() {
            // `pump` comes first: a message that it claims is often complete at once, and a caller
            // that saw a later message must not miss it.
            self.pump(state);
        }
        while let Some(c) = self.endpoint.posted().poll() {
            match c.kind {
                OpKind::Put | OpKind::Get => self.part_ended(state, &c),
                OpKind::Send if transfers::is_part(&c) => self.part_ended(state, &c),
                _ => self.complete(state, &c),
            }
        }
        if state.remote.has_events() {
            self.hear(state);
        }
        if state.collectives.has_events() {
            self.hear_members(state);
        }
        if state.receives.failures != self.endpoint.waiting().failures() {
            self.lose(state);
        }
    }

    /// Ends operations that wait for failed peers without an operation of the engine.
    #[cold]
    fn lose(&self, state: &mut State) {
        if !self.endpoint.posted().has_room() {
            // Messages that they sent before are received first.
            return;
        }
        state.receives.failures = self.endpoint.waiting().failures();
        self.lose_waiting(state);
        self.give_up(state);
        self.lose_neighbours(state);
    }
}

impl Member for Worker {
    /// Makes progress, and reports operations that ended. True if anything happened.
    #[inline]
    fn progress(&self) -> bool {
        self.prepared.set(false);
        if self.state.borrow().receives.expecting.is_some() {
            return self.progress_expecting();
        }
        let did = self.endpoint.progress() | self.unreported.take();
        self.reap();
        did
    }

    /// Makes progress for an absent caller, without reports. Does nothing while the caller may
    /// sleep: its descriptor would not become readable for work that was done here.
    fn progress_for_caller(&self) -> bool {
        if self.prepared.get() {
            return false;
        }
        let settled = self.finish_expected(&mut self.state.borrow_mut());
        // Makes the endpoint read the clock and poll every link.
        self.endpoint.waiting().finish();
        self.endpoint.waiting().program_computes();
        let did = self.endpoint.progress() | settled;
        self.unreported.set(self.unreported.get() | did);
        did
    }

    /// Prepares for the caller's sleep on the endpoint's descriptor; false if there is work.
    fn prepare_wait(&self) -> bool {
        if self.finish_expected(&mut self.state.borrow_mut()) {
            // The receive may have ended at once.
            return false;
        }
        // A message that arrived before this call does not make the descriptor readable.
        let may = !self.unreported.get() && self.endpoint.waiting().prepare();
        self.prepared.set(may);
        may
    }

    /// Reverts `prepare_wait`.
    fn finish_wait(&self) {
        self.prepared.set(false);
        self.endpoint.waiting().finish();
    }

    fn post_all(&self) {
        self.finish_expected(&mut self.state.borrow_mut());
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.waiting().fd()
    }

    fn expose(&self, region: &Region) {
        if !sys::expose(&self.endpoint, region) {
            log::warn!("memory key {:#x} is registered twice", region.key);
        }
    }

    fn hide(&self, key: u64) {
        self.endpoint.regions().unregister(key);
    }

    fn step(&self, step: &Step) -> Result<usize, String> {
        self.move_step(step)
    }
}
