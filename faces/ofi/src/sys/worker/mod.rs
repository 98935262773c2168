//! The operations of an endpoint and their completions.

mod atomic;
mod buffer;
mod events;
mod expect;
mod many;
mod meet;
mod notice;
mod recv;
mod remote;
mod state;
mod wait;

pub use atomic::AtomicOp;
pub use buffer::Pieces;
pub use remote::RemoteOp;
pub use wait::{clock, looking, Idle, Poller};

use super::abi::*;
use super::av::Av;
use super::cntr::Counter;
use super::cq::{Cq, Entry, Failure};
use super::domain::Domain;
use super::mr::Region;
use super::{watchdog, Answer};
use crate::name::{self, Name};
use crate::who;
use buffer::Bounce;
use libc::{c_int, c_void};
use state::{fields, Bound, Direction, Peers, Rec, Receives, Records, State};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::choices::Receipt;
use weft::counters::RankId;
use weft::launch::{self, keyfile};
use weft::{job, Endpoint};
use weft_core::engine::types::{Completion, OpKind, Refused, SendArgs};
use weft_core::event::Status;
use weft_core::{OpError, PeerFailure, PeerId};
use weft_link::secure::JobKey;

/// Longest time that `fi_close` waits until everything sent has arrived.
const CLOSE: Duration = Duration::from_secs(5);
/// Longest sleep in `fi_close` between two checks.
const NAP: Duration = Duration::from_millis(50);

/// A send to start.
pub struct SendOp {
    pub to: u64,
    pub tag: u64,
    pub data: Option<u64>,
    pub context: *mut c_void,
    pub flags: u64,
    pub untagged: bool,
}

/// A receive to post.
pub struct RecvOp {
    pub source: u64,
    pub tag: u64,
    pub ignore: u64,
    pub context: *mut c_void,
    pub flags: u64,
    pub untagged: bool,
}

/// Attributes that an endpoint was opened with.
pub struct Defaults {
    pub tx: u64,
    pub rx: u64,
    /// True if receives compare the source.
    pub directed: bool,
    /// True if operations on peers' memory are reported to the peers.
    pub events: bool,
}

pub struct Worker {
    pub endpoint: Endpoint,
    pub domain: Arc<Domain>,
    state: RefCell<State>,
    /// Read without the lock, where several threads may be.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    directed: bool,
    events: bool,
    min_multi_recv: Cell<usize>,
    inject_max: usize,
    /// True while a caller may sleep on a descriptor that becomes readable when there is work.
    prepared: Cell<bool>,
    /// True if progress without the caller ended something that is not reported yet.
    unreported: Cell<bool>,
    introductions: meet::Introductions,
}

/// Opens an endpoint; also returns the interval of progress for absent callers.
fn open_endpoint() -> Result<(Endpoint, Duration), String> {
    let mut config = job::config_from_env().map_err(|e| e.to_string())?;
    if config.receipt == Receipt::Watchdog {
        log::info!("WEFT_RECEIPT=watchdog: under MPI it is the provider's (WEFT_WATCHDOG_MS)");
        config.receipt = Receipt::Adaptive;
    }
    let every = Duration::from_millis(u64::from(config.watchdog_ms));
    let links = job::links_from_env().map_err(|e| e.to_string())?;
    let lookup = |name: &str| std::env::var(name).ok();
    let number = |names: &[&str]| names.iter().find_map(|name| lookup(name)?.trim().parse().ok());
    let size = number(&who::SIZES);
    // Without a known job size, some ranks may be on other hosts.
    let links = links.of_job(size.unwrap_or(usize::MAX), launch::ranks_here(&lookup));
    let rank = number(&who::RANKS);
    config.rank = rank.and_then(|rank: usize| u32::try_from(rank).ok());
    let key = keyfile::obtain().map_err(|e| e.to_string())?;
    JobKey::from_bytes(&key).iter().for_each(name::use_key);
    let endpoint = job::open_endpoint(config, links, key).map_err(|e| e.to_string())?;
    let who = RankId {
        job: who::job(&lookup, std::os::unix::process::parent_id()),
        rank: rank.unwrap_or(0),
        size: size.unwrap_or(1),
    };
    if let Err(e) = endpoint.counters().publish(&who) {
        log::warn!("`weft top` will not see this rank: {e}");
    }
    Ok((endpoint, every))
}

/// Creates the behaviour of callers that poll in vain. The endpoint reports a wrong setting.
pub fn idle() -> Idle {
    let receipt = job::config_from_env().map_or(Receipt::Adaptive, |config| config.receipt);
    Idle::new(receipt, job::oversubscribed())
}

impl Worker {
    pub fn open(domain: Arc<Domain>, defaults: Defaults) -> Result<Rc<Worker>, String> {
        let (endpoint, every) = open_endpoint()?;
        if domain.is_auto {
            if !watchdog::add(&domain, watchdog::SOON) {
                return Err("FI_PROGRESS_AUTO needs membarrier(2) or FI_THREAD_SAFE".into());
            }
        } else if endpoint.link_caps().iter().any(|caps| caps.network) {
            // Inside a host no packet is lost, and a silent peer is seen to run.
            watchdog::add(&domain, every);
        }
        let inject_max = crate::offer::INJECT;
        let state = State {
            bound: Bound::default(),
            records: Records::default(),
            peers: Peers::default(),
            receives: Receives::default(),
            remote: remote::Remote::new(&endpoint),
        };
        Ok(Rc::new(Worker {
            introductions: meet::Introductions::new(&endpoint),
            endpoint,
            domain,
            state: RefCell::new(state),
            tx_flags: AtomicU64::new(defaults.tx),
            rx_flags: AtomicU64::new(defaults.rx),
            directed: defaults.directed,
            events: defaults.events,
            min_multi_recv: Cell::new(64),
            inject_max,
            prepared: Cell::new(false),
            unreported: Cell::new(false),
        }))
    }

    pub fn name(&self) -> Name {
        name::encode(&self.endpoint.address())
    }

    pub fn use_vector(&self, vector: &Rc<Av>) {
        self.state.borrow_mut().bound.vector = Some(vector.clone());
    }

    pub fn use_queue(self: &Rc<Worker>, cq: &Rc<Cq>, flags: u64) -> Result<(), c_int> {
        if flags & (cap::SEND | cap::RECV) == 0 {
            return Err(err::EINVAL);
        }
        let bound = &mut self.state.borrow_mut().bound;
        let selective = flags & cap::SELECTIVE_COMPLETION != 0;
        if flags & cap::SEND != 0 {
            (bound.tx, bound.selective.0) = (Some(cq.clone()), selective);
        }
        if flags & cap::RECV != 0 {
            (bound.rx, bound.selective.1) = (Some(cq.clone()), selective);
        }
        cq.join(self);
        Ok(())
    }

    pub fn use_counter(self: &Rc<Worker>, counter: &Rc<Counter>, flags: u64) -> Result<(), c_int> {
        let remote = [cap::REMOTE_WRITE, cap::REMOTE_READ];
        let own = cap::SEND | cap::RECV | cap::WRITE | cap::READ;
        if flags & (own | remote[0] | remote[1]) == 0 {
            return Err(err::ENOSYS);
        }
        let bound = &mut self.state.borrow_mut().bound;
        for (i, flag) in [cap::SEND, cap::RECV, cap::WRITE, cap::READ].into_iter().enumerate() {
            if flags & flag != 0 {
                bound.counters[i] = Some(counter.clone());
            }
        }
        for (i, flag) in remote.into_iter().enumerate() {
            if flags & flag != 0 {
                bound.remote_counters[i] = Some(counter.clone());
            }
        }
        counter.join(self);
        Ok(())
    }

    pub fn enable(&self) -> Result<(), c_int> {
        let bound = &self.state.borrow().bound;
        if bound.vector.is_none() {
            return Err(err::ENOAV);
        }
        let queue =
            |cq: &Option<Rc<Cq>>, counter: usize| cq.is_some() || bound.counters[counter].is_some();
        match queue(&bound.tx, 0) || queue(&bound.rx, 1) {
            true => Ok(()),
            false => Err(err::ENOCQ),
        }
    }

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

    #[inline]
    pub fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }

    pub fn min_multi_recv(&self) -> usize {
        self.min_multi_recv.get()
    }

    pub fn set_min_multi_recv(&self, bytes: usize) {
        self.min_multi_recv.set(bytes);
    }

    /// Lets peers use a region.
    pub fn expose(&self, region: &Region) {
        // SAFETY: the caller that registered the memory promised that it exists until it is closed.
        let fresh = unsafe {
            let (start, len) = (region.start, region.len);
            self.endpoint.regions().register_from(
                region.key,
                region.first,
                start,
                len,
                region.rights,
            )
        };
        if !fresh {
            log::warn!("memory key {:#x} is registered twice", region.key);
        }
    }

    /// Reverts `expose`.
    pub fn hide(&self, key: u64) {
        self.endpoint.regions().unregister(key);
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
        for cq in [bound.tx, bound.rx].into_iter().flatten() {
            cq.leave(self);
        }
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

    /// Makes progress, and reports operations that ended. True if anything happened.
    #[inline]
    pub fn progress(&self) -> bool {
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
    pub fn progress_for_caller(&self) -> bool {
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
    pub(super) fn prepare_wait(&self) -> bool {
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
    pub(super) fn finish_wait(&self) {
        self.prepared.set(false);
        self.endpoint.waiting().finish();
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
                OpKind::Send if remote::is_part(&c) => self.part_ended(state, &c),
                _ => self.complete(state, &c),
            }
        }
        if state.remote.has_events() {
            self.hear(state);
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
    }

    /// Sends from a copy, without a completion.
    ///
    /// # Safety
    /// `buf` has `len` bytes.
    pub unsafe fn inject(
        &self,
        buf: *const u8,
        len: usize,
        to: u64,
        tag: u64,
        data: Option<u64>,
        untagged: bool,
    ) -> Answer {
        let _inside = self.domain.lock.enter()?;
        if len > self.inject_max {
            return Err(err::EMSGSIZE);
        }
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, to)?;
        // SAFETY: promised by the caller.
        let bytes = unsafe { slice(buf, len) };
        match self.endpoint.posted().inject(peer, tag, bytes, data, untagged) {
            Ok(()) => {
                state.count(Direction::Send, true);
                self.meet(state, peer);
                Ok(0)
            }
            Err(Refused::Busy) => Err(self.busy()),
            Err(refused) => Err(error_of(refused)),
        }
    }

    /// Makes progress and returns the error of a full queue: the caller may only try again.
    #[cold]
    fn busy(&self) -> c_int {
        self.endpoint.progress();
        err::EAGAIN
    }

    /// Returns an error if an operation with these flags may not start yet: a fenced one starts
    /// when all earlier ones have ended, to other peers too. Makes progress, since the caller may
    /// only try again.
    #[inline]
    fn fence(&self, flags: u64) -> Result<(), c_int> {
        match flags & cap::FENCE {
            0 => Ok(()),
            _ => self.wait_for_quiet(),
        }
    }

    #[cold]
    fn wait_for_quiet(&self) -> Result<(), c_int> {
        self.progress();
        match self.state.borrow().is_quiet() {
            true => Ok(()),
            false => Err(err::EAGAIN),
        }
    }

    /// Starts a send.
    ///
    /// # Safety
    /// The pieces can be read until the completion.
    pub unsafe fn send(&self, pieces: Pieces<'_>, op: &SendOp) -> Answer {
        let _inside = self.domain.lock.enter()?;
        pieces.check(crate::offer::MESSAGE)?;
        self.fence(op.flags)?;
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, op.to)?;
        let sync = op.flags & cap::MATCH_COMPLETE != 0;
        let kind = if op.untagged { cap::MSG } else { cap::TAGGED };
        // The completion promises no more than a copy fulfils.
        let early = op.flags & (cap::INJECT | cap::INJECT_COMPLETE) != 0;
        let late = op.flags & (cap::DELIVERY_COMPLETE | cap::TRANSMIT_COMPLETE) != 0;
        let small = pieces.len() <= self.inject_max;
        let inject = early && !late && !sync && small;
        let bounce = match pieces {
            Pieces::One(start, len) if op.flags & cap::INJECT != 0 && !inject => {
                // SAFETY: promised by the caller.
                Some(unsafe { Pieces::One(start, len).gather() }?)
            }
            Pieces::One(..) => None,
            // SAFETY: promised by the caller.
            Pieces::Many(_) => Some(unsafe { pieces.gather() }?),
        };
        let (start, len) = match (&bounce, pieces) {
            (Some(bytes), _) => (bytes.as_ptr().cast_mut(), bytes.len()),
            (None, Pieces::One(start, len)) => (start, len),
            (None, Pieces::Many(_)) => return Err(err::EINVAL),
        };
        let rec = Rec {
            op: None,
            context: op.context,
            flags: cap::SEND | kind,
            report: state.reports(Direction::Send, op.flags),
            buf: start,
            bounce: bounce.map(|bytes| Box::new(Bounce { bytes, pieces: Vec::new() })),
            multi: None,
            silent: false,
        };
        let at = state.records.keep(rec).ok_or(err::EAGAIN)?;
        let args = SendArgs {
            peer,
            tag: op.tag,
            len: len as u64,
            data: op.data,
            context: u64::from(at),
            addr: 0,
            inject,
            sync,
            delivered: op.flags & cap::DELIVERY_COMPLETE != 0,
            active: false,
            untagged: op.untagged,
        };
        // SAFETY: the caller's memory is valid until the completion, and so is the record's.
        match unsafe { self.endpoint.posted().send(start, args) } {
            Ok(Some(id)) if !inject => state.records.started(at, id),
            Ok(_) => state.done(at, Direction::Send, len, op.tag),
            Err(refused) => return self.refused(state, at, refused),
        }
        self.meet(state, peer);
        Ok(0)
    }

    /// Returns the peer with this number in the address vector.
    #[inline]
    fn peer(&self, state: &mut State, number: u64) -> Result<PeerId, c_int> {
        state.follow_vector()?;
        match state.peers.by_number.get(number as usize) {
            Some(Some(peer)) => Ok(*peer),
            _ => self.find_peer(state, number),
        }
    }

    #[cold]
    fn find_peer(&self, state: &mut State, number: u64) -> Result<PeerId, c_int> {
        let vector = state.bound.vector.as_ref().ok_or(err::ENOAV)?;
        let vector = vector.vector.borrow();
        let address = vector.address(number).ok_or(err::EINVAL)?;
        let peer = self.endpoint.connect(address).map_err(|why| {
            log::error!("{why}");
            err::EHOSTUNREACH
        })?;
        let at = number as usize;
        if state.peers.by_number.len() <= at {
            state.peers.by_number.resize(at + 1, None);
        }
        state.peers.by_number[at] = Some(peer);
        Ok(peer)
    }

    /// Returns the peer's number in the address vector, or `ADDR_NONE`.
    #[inline]
    fn source(&self, state: &mut State, peer: Option<PeerId>) -> u64 {
        let (Some(peer), Ok(())) = (peer, state.follow_vector()) else { return ADDR_NONE };
        match state.peers.numbers.get(peer.0 as usize) {
            Some(&number) if number != ADDR_NONE => number,
            _ => self.find_number(state, peer),
        }
    }

    #[cold]
    fn find_number(&self, state: &mut State, peer: PeerId) -> u64 {
        let find = || {
            let id = self.endpoint.peer(peer).identity()?;
            state.bound.vector.as_ref()?.vector.borrow().find(id)
        };
        let number = find().unwrap_or(ADDR_NONE);
        let at = peer.0 as usize;
        if state.peers.numbers.len() <= at {
            state.peers.numbers.resize(at + 1, ADDR_NONE);
        }
        state.peers.numbers[at] = number;
        number
    }

    /// Handles an operation that could not be started: tried again, or reported as failed.
    #[cold]
    fn refused(&self, state: &mut State, at: u32, refused: Refused) -> Answer {
        let Some(rec) = state.records.give_back(at) else { return Err(err::EOTHER) };
        if refused == Refused::Busy {
            self.endpoint.progress();
            return Err(err::EAGAIN);
        }
        let way = if rec.flags & cap::RECV != 0 { Direction::Recv } else { Direction::Send };
        let text = match refused {
            Refused::Peer(peer, why) => format!("{}: {why}", self.endpoint.peer(peer).describe()),
            other => other.to_string(),
        };
        state.count(way, false);
        state.fail(
            way,
            Failure {
                fields: fields(rec.context, rec.flags, 0, rec.buf, 0, 0),
                source: ADDR_NONE,
                olen: 0,
                error: error_of(refused),
                text,
            },
        );
        Ok(0)
    }

    /// Ends an operation that the engine has completed.
    fn complete(&self, state: &mut State, c: &Completion) {
        let Some(mut rec) = state.records.give_back(c.context as u32) else { return };
        if let Some(multi) = rec.multi {
            if state.part_ended(multi) {
                rec.flags |= cap::MULTI_RECV;
            }
        }
        self.ended(state, rec, &c.status, c.error);
    }

    /// Reports the result of an operation.
    #[inline]
    fn ended(&self, state: &mut State, mut rec: Rec, status: &Status, error: Option<OpError>) {
        let way = if rec.flags & cap::RECV != 0 { Direction::Recv } else { Direction::Send };
        let len = status.len as usize;
        if let Some(bounce) = &rec.bounce {
            bounce.scatter(len);
        }
        if rec.silent {
            return;
        }
        if let (Some(_), Direction::Recv) = (status.data, way) {
            rec.flags |= cap::REMOTE_CQ_DATA;
        }
        let data = status.data.unwrap_or(0);
        let fields = fields(rec.context, rec.flags, len, rec.buf, data, status.tag);
        let source = if matches!(way, Direction::Recv) {
            self.source(state, status.source)
        } else {
            ADDR_NONE
        };
        let Some(error) = error else {
            state.count(way, true);
            if rec.report || rec.flags & cap::MULTI_RECV != 0 {
                state.add(way, Entry { fields, source });
            }
            return;
        };
        let (number, olen) = match error {
            OpError::Truncated { sent } => (err::ETRUNC, sent as usize - len),
            OpError::Cancelled => (err::ECANCELED, 0),
            OpError::Peer { failure, .. } => (failure_of(failure), 0),
            OpError::Refused | OpError::Unmapped => (err::EACCES, 0),
            _ => (err::EOTHER, 0),
        };
        let text = self.text_of(error);
        state.count(way, false);
        state.fail(way, Failure { fields, source, olen, error: number, text });
    }

    /// Describes an error, for people.
    fn text_of(&self, error: OpError) -> String {
        self.endpoint.explain(error)
    }
}

/// # Safety
/// `start` has `len` bytes.
#[inline]
unsafe fn slice<'a>(start: *const u8, len: usize) -> &'a [u8] {
    match len {
        0 => &[],
        // SAFETY: promised by the caller.
        _ => unsafe { std::slice::from_raw_parts(start, len) },
    }
}

fn error_of(refused: Refused) -> c_int {
    match refused {
        Refused::Busy => err::EAGAIN,
        Refused::Peer(_, failure) => failure_of(failure),
        Refused::TooLong => err::EMSGSIZE,
        _ => err::EINVAL,
    }
}

fn failure_of(failure: PeerFailure) -> c_int {
    match failure {
        PeerFailure::Silent { .. } | PeerFailure::Stopped { .. } | PeerFailure::Stuck { .. } => {
            err::ETIMEDOUT
        }
        PeerFailure::Unreachable { .. } | PeerFailure::NoLink => err::EHOSTUNREACH,
        PeerFailure::Refused | PeerFailure::Version { .. } => err::ECONNREFUSED,
        _ => err::ECONNRESET,
    }
}
