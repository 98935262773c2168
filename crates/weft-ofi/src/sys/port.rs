//! What an endpoint does: operations in, completions out.

use super::abi::*;
use super::av::Av;
use super::cntr::Counter;
use super::cq::{Cq, Entry, Failure};
use super::domain::Domain;
use super::mr::Region;
use super::Answer;
use crate::gate::Gate;
use crate::name::{self, Name};
use libc::{c_int, c_void, iovec};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;
use weft::{job, keyfile, launch, Endpoint};
use weft_core::engine::types::{Claimed, Completion, OpKind, Probed, RecvArgs, Refused, SendArgs};
use weft_core::{OpError, OpId, PeerFailure, PeerId};

/// How long `fi_close` waits until everything sent has arrived.
const CLOSE: Duration = Duration::from_secs(5);

/// A caller's buffer, in one piece or several.
#[derive(Clone, Copy)]
pub enum Pieces<'a> {
    One(*mut u8, usize),
    Many(&'a [iovec]),
}

impl<'a> Pieces<'a> {
    #[inline]
    pub fn one(buf: *mut c_void, len: usize) -> Pieces<'a> {
        Pieces::One(buf.cast(), len)
    }

    pub fn many(iov: &'a [iovec]) -> Pieces<'a> {
        match iov {
            [] => Pieces::One(std::ptr::null_mut(), 0),
            [one] => Pieces::One(one.iov_base.cast(), one.iov_len),
            more => Pieces::Many(more),
        }
    }

    #[inline]
    fn len(&self) -> usize {
        match self {
            Pieces::One(_, len) => *len,
            Pieces::Many(iov) => iov.iter().map(|piece| piece.iov_len).sum(),
        }
    }

    /// All bytes, in one piece.
    ///
    /// # Safety
    /// The pieces can be read.
    unsafe fn gather(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        let mut add = |start: *const u8, len: usize| {
            if len > 0 {
                // SAFETY: promised by the caller.
                out.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
            }
        };
        match self {
            Pieces::One(start, len) => add(*start, *len),
            Pieces::Many(iov) => iov.iter().for_each(|p| add(p.iov_base.cast(), p.iov_len)),
        }
        out
    }
}

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

/// What an endpoint was opened with.
pub struct Defaults {
    pub tx: u64,
    pub rx: u64,
    /// Receives look at the source.
    pub directed: bool,
}

/// Memory of the provider's that stands in for a caller's in several pieces.
struct Bounce {
    bytes: Vec<u8>,
    /// Where the bytes go in the end; empty for a send.
    pieces: Vec<(*mut u8, usize)>,
}

/// An operation in progress.
struct Rec {
    op: Option<OpId>,
    context: *mut c_void,
    /// Flags of the completion.
    flags: u64,
    /// Reported when it ends well.
    report: bool,
    buf: *mut u8,
    bounce: Option<Box<Bounce>>,
    /// The buffer for many messages it is a part of.
    multi: Option<usize>,
    /// Nobody hears of it.
    silent: bool,
}

/// A buffer for many messages.
struct Multi {
    start: *mut u8,
    len: usize,
    used: usize,
    /// Messages that are being received into it.
    arriving: u32,
    /// No more messages go into it.
    full: bool,
    context: *mut c_void,
    report: bool,
}

/// A receive of untagged messages that the engine does not know of yet.
enum Waiting {
    Multi { at: usize, source: Option<PeerId> },
    Plain { rec: u32, start: *mut u8, len: usize, source: Option<PeerId> },
}

/// Which way an operation goes, for queues and counters.
#[derive(Clone, Copy)]
enum Way {
    Send,
    Recv,
    Write,
    Read,
}

#[derive(Default)]
struct Bound {
    vector: Option<Rc<Av>>,
    tx: Option<Rc<Cq>>,
    rx: Option<Rc<Cq>>,
    /// Only operations that ask are reported.
    selective: (bool, bool),
    /// Of sends, receives, writes, reads.
    counters: [Option<Rc<Counter>>; 4],
}

struct State {
    bound: Bound,
    tx_flags: u64,
    rx_flags: u64,
    recs: Vec<Option<Rec>>,
    free: Vec<u32>,
    /// By number in the address vector, as of `changes` of it.
    peers: Vec<Option<PeerId>>,
    changes: u64,
    waiting: VecDeque<Waiting>,
    multis: Vec<Option<Multi>>,
    claims: HashMap<usize, (Claimed, Probed)>,
}

pub struct Port {
    pub endpoint: Endpoint,
    pub domain: Rc<Domain>,
    state: RefCell<State>,
    directed: bool,
    min_multi_recv: Cell<usize>,
    inject_max: usize,
}

fn open_endpoint() -> Result<Endpoint, String> {
    let config = job::config_from_env().map_err(|e| e.to_string())?;
    let links = job::links_from_env().map_err(|e| e.to_string())?;
    let lookup = |name: &str| std::env::var(name).ok();
    let sizes = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"];
    let size = sizes.iter().find_map(|name| lookup(name)?.trim().parse().ok());
    // Of a job whose size nobody tells, some ranks may be far.
    let links = links.of_job(size.unwrap_or(usize::MAX), launch::ranks_here(&lookup));
    let key = keyfile::obtain().map_err(|e| e.to_string())?;
    job::open_endpoint(config, links, key).map_err(|e| e.to_string())
}

impl Port {
    pub fn open(domain: Rc<Domain>, defaults: Defaults) -> Result<Rc<Port>, String> {
        let endpoint = open_endpoint()?;
        let inject_max = crate::offer::INJECT;
        let state = State {
            bound: Bound::default(),
            tx_flags: defaults.tx,
            rx_flags: defaults.rx,
            recs: Vec::new(),
            free: Vec::new(),
            peers: Vec::new(),
            changes: 0,
            waiting: VecDeque::new(),
            multis: Vec::new(),
            claims: HashMap::new(),
        };
        Ok(Rc::new(Port {
            endpoint,
            domain,
            state: RefCell::new(state),
            directed: defaults.directed,
            min_multi_recv: Cell::new(64),
            inject_max,
        }))
    }

    pub fn name(&self) -> Name {
        name::encode(&self.endpoint.address())
    }

    pub fn use_vector(&self, vector: &Rc<Av>) {
        self.state.borrow_mut().bound.vector = Some(vector.clone());
    }

    pub fn use_queue(self: &Rc<Port>, cq: &Rc<Cq>, flags: u64) -> Result<(), c_int> {
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

    pub fn use_counter(self: &Rc<Port>, counter: &Rc<Counter>, flags: u64) -> Result<(), c_int> {
        if flags & (cap::REMOTE_READ | cap::REMOTE_WRITE) != 0 {
            return Err(err::ENOSYS);
        }
        let bound = &mut self.state.borrow_mut().bound;
        for (i, flag) in [cap::SEND, cap::RECV, cap::WRITE, cap::READ].into_iter().enumerate() {
            if flags & flag != 0 {
                bound.counters[i] = Some(counter.clone());
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
        let queue = |cq: &Option<Rc<Cq>>, counter: usize| {
            cq.is_some() || bound.counters[counter].is_some()
        };
        match queue(&bound.tx, 0) || queue(&bound.rx, 1) {
            true => Ok(()),
            false => Err(err::ENOCQ),
        }
    }

    pub fn default_flags(&self, flags: &mut u64, set: bool) -> Result<(), c_int> {
        let state = &mut *self.state.borrow_mut();
        let which = match *flags & (cap::SEND | cap::RECV) {
            cap::SEND => &mut state.tx_flags,
            cap::RECV => &mut state.rx_flags,
            _ => return Err(err::EINVAL),
        };
        if set {
            *which = *flags & !(cap::SEND | cap::RECV);
        } else {
            *flags = *which;
        }
        Ok(())
    }

    #[inline]
    pub fn tx_flags(&self) -> u64 {
        self.state.borrow().tx_flags
    }

    #[inline]
    pub fn rx_flags(&self) -> u64 {
        self.state.borrow().rx_flags
    }

    pub fn min_multi_recv(&self) -> usize {
        self.min_multi_recv.get()
    }

    pub fn set_min_multi_recv(&self, bytes: usize) {
        self.min_multi_recv.set(bytes);
    }

    /// Lets peers use a region.
    pub fn expose(&self, region: &Region) {
        // SAFETY: whoever registered the memory promised that it exists until it is closed.
        let fresh = unsafe {
            self.endpoint.register_at(region.key, region.start, region.len, region.rights)
        };
        if !fresh {
            log::warn!("memory key {:#x} is registered twice", region.key);
        }
    }

    /// Ends what `expose` began.
    pub fn hide(&self, key: u64) {
        self.endpoint.unregister(key);
    }

    /// Sends what is under way and leaves.
    pub fn close(&self) {
        self.endpoint.close(CLOSE);
        let bound = std::mem::take(&mut self.state.borrow_mut().bound);
        for cq in [bound.tx, bound.rx].into_iter().flatten() {
            cq.leave(self);
        }
    }

    /// Does what can be done now, and reports what has ended. True if anything happened.
    #[inline]
    pub fn progress(&self) -> bool {
        let did = self.endpoint.progress();
        self.reap();
        did
    }

    /// Reports what has ended.
    #[inline]
    fn reap(&self) {
        let state = &mut *self.state.borrow_mut();
        while let Some(c) = self.endpoint.poll_completion() {
            self.complete(state, &c);
        }
        if !state.waiting.is_empty() {
            self.pump(state);
        }
    }

    /// Sends from a copy; nothing is reported.
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
        let _inside = self.domain.gate.enter();
        if len > self.inject_max {
            return Err(err::EMSGSIZE);
        }
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, to)?;
        // SAFETY: promised by the caller.
        let bytes = unsafe { slice(buf, len) };
        match self.endpoint.inject(peer, tag, bytes, data.map(|d| d as u32), untagged) {
            Ok(()) => {
                state.count(Way::Send, true);
                Ok(0)
            }
            Err(Refused::Busy) => Err(self.busy()),
            Err(refused) => Err(error_of(refused)),
        }
    }

    /// Too much is queued: the caller will try again, but might do nothing else.
    #[cold]
    fn busy(&self) -> c_int {
        self.endpoint.progress();
        err::EAGAIN
    }

    /// Starts a send.
    ///
    /// # Safety
    /// The pieces can be read until the completion.
    pub unsafe fn send(&self, pieces: Pieces<'_>, op: &SendOp) -> Answer {
        let _inside = self.domain.gate.enter();
        let state = &mut *self.state.borrow_mut();
        if pieces.len() > crate::offer::MESSAGE {
            return Err(err::EMSGSIZE);
        }
        let peer = self.peer(state, op.to)?;
        let sync = op.flags & cap::MATCH_COMPLETE != 0;
        let kind = if op.untagged { cap::MSG } else { cap::TAGGED };
        // A copy will do: what the completion is to mean is no more than that.
        let early = op.flags & (cap::INJECT | cap::INJECT_COMPLETE) != 0;
        let late = op.flags & (cap::DELIVERY_COMPLETE | cap::TRANSMIT_COMPLETE) != 0;
        let small = pieces.len() <= self.inject_max;
        let inject = early && !late && !sync && small;
        // SAFETY: promised by the caller.
        let bounce = match pieces {
            Pieces::One(start, len) if op.flags & cap::INJECT != 0 && !inject => {
                Some(unsafe { Pieces::One(start, len).gather() })
            }
            Pieces::One(..) => None,
            Pieces::Many(_) => Some(unsafe { pieces.gather() }),
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
            report: state.reports(Way::Send, op.flags),
            buf: start,
            bounce: bounce.map(|bytes| Box::new(Bounce { bytes, pieces: Vec::new() })),
            multi: None,
            silent: false,
        };
        let at = state.keep(rec).ok_or(err::EAGAIN)?;
        let args = SendArgs {
            peer,
            tag: op.tag,
            len: len as u64,
            data: op.data.map(|d| d as u32),
            context: u64::from(at),
            addr: 0,
            inject,
            sync,
            active: false,
            untagged: op.untagged,
        };
        // SAFETY: the caller's memory is valid until the completion, and so is the record's.
        match unsafe { self.endpoint.post_send(start, args) } {
            Ok(Some(id)) if !inject => state.started(at, id),
            Ok(_) => state.done(self, at, Way::Send, len, op.tag),
            Err(refused) => return self.refused(state, at, refused),
        }
        Ok(0)
    }

    /// Posts a receive, or does what its flags say: looks for a message, takes or discards it.
    ///
    /// # Safety
    /// The pieces can be written until the completion.
    pub unsafe fn recv(&self, pieces: Pieces<'_>, op: &RecvOp) -> Answer {
        let _inside = self.domain.gate.enter();
        if op.flags & cap::PEEK != 0 {
            return self.peek(op);
        }
        let state = &mut *self.state.borrow_mut();
        let report = state.reports(Way::Recv, op.flags);
        if op.flags & cap::CLAIM != 0 {
            let (claimed, _) = state.claims.remove(&(op.context as usize)).ok_or(err::EINVAL)?;
            return self.take_claimed(state, claimed, pieces, op, report);
        }
        let directed = self.directed && op.source != ADDR_NONE;
        let source = if directed { Some(self.peer(state, op.source)?) } else { None };
        if op.untagged && op.flags & cap::MULTI_RECV != 0 {
            let Pieces::One(start, len) = pieces else { return Err(err::EINVAL) };
            state.offer_many(start, len, source, op.context, report);
            self.pump(state);
            return Ok(0);
        }
        let (rec, start, len) = received(&pieces, op, report);
        let at = state.keep(rec).ok_or(err::EAGAIN)?;
        if op.untagged && !state.waiting.is_empty() {
            state.waiting.push_back(Waiting::Plain { rec: at, start, len, source });
            self.pump(state);
            return Ok(0);
        }
        let args = RecvArgs {
            source,
            tag: op.tag,
            ignore: op.ignore,
            len: len as u64,
            addr: 0,
            context: u64::from(at),
            untagged: op.untagged,
        };
        // SAFETY: promised by the caller; the record's memory lives as long.
        match unsafe { self.endpoint.post_recv(start, args) } {
            Ok(id) => state.started(at, id),
            Err(refused) => return self.refused(state, at, refused),
        }
        Ok(0)
    }

    fn take_claimed(
        &self,
        state: &mut State,
        claimed: Claimed,
        pieces: Pieces<'_>,
        op: &RecvOp,
        report: bool,
    ) -> Answer {
        let discard = op.flags & cap::DISCARD != 0;
        let pieces = if discard { Pieces::One(std::ptr::null_mut(), 0) } else { pieces };
        let (mut rec, start, len) = received(&pieces, op, report);
        rec.silent = discard;
        let context = op.context;
        let flags = rec.flags;
        let at = state.keep(rec).ok_or(err::EAGAIN)?;
        self.receive_claimed(state, at, claimed, start, len)?;
        if discard && report {
            state.add(Way::Recv, Entry {
                fields: fields(context, flags, 0, std::ptr::null_mut(), 0, op.tag),
                source: ADDR_NONE,
            });
        }
        Ok(0)
    }

    /// Receives a claimed message into memory that lives until the record is given back.
    fn receive_claimed(
        &self,
        state: &mut State,
        at: u32,
        claimed: Claimed,
        start: *mut u8,
        len: usize,
    ) -> Result<(), c_int> {
        let args = RecvArgs {
            source: None,
            tag: 0,
            ignore: 0,
            len: len as u64,
            addr: 0,
            context: u64::from(at),
            untagged: false,
        };
        // SAFETY: the memory is a caller's, given until the completion, or the record's.
        match unsafe { self.endpoint.post_recv_claimed(claimed, start, args) } {
            Ok(id) => state.started(at, id),
            Err(refused) => {
                self.refused(state, at, refused)?;
            }
        }
        Ok(())
    }

    fn peek(&self, op: &RecvOp) -> Answer {
        let look = |state: &mut State| -> Result<Option<(Option<Claimed>, Probed)>, c_int> {
            let directed = self.directed && op.source != ADDR_NONE;
            let source = if directed { Some(self.peer(state, op.source)?) } else { None };
            let take = op.flags & (cap::CLAIM | cap::DISCARD) != 0;
            Ok(match (op.untagged, take) {
                (false, false) => self.endpoint.probe(source, op.tag, op.ignore).map(|p| (None, p)),
                (true, false) => self.endpoint.probe_untagged(source).map(|p| (None, p)),
                (false, true) => {
                    self.endpoint.claim(source, op.tag, op.ignore).map(|(c, p)| (Some(c), p))
                }
                (true, true) => self.endpoint.claim_untagged(source).map(|(c, p)| (Some(c), p)),
            })
        };
        let mut found = look(&mut self.state.borrow_mut())?;
        if found.is_none() {
            // A caller may do nothing but peek.
            self.progress();
            found = look(&mut self.state.borrow_mut())?;
        }
        let state = &mut *self.state.borrow_mut();
        let flags = cap::RECV | if op.untagged { cap::MSG } else { cap::TAGGED };
        let Some((claimed, probed)) = found else {
            state.fail(Way::Recv, Failure {
                fields: fields(op.context, flags, 0, std::ptr::null_mut(), 0, op.tag),
                source: ADDR_NONE,
                olen: 0,
                error: err::ENOMSG,
                text: "no message matches".to_owned(),
            });
            return Ok(0);
        };
        let data = probed.data.unwrap_or(0);
        let flags = flags | if probed.data.is_some() { cap::REMOTE_CQ_DATA } else { 0 };
        let len = probed.len as usize;
        let entry = Entry {
            fields: fields(op.context, flags, len, std::ptr::null_mut(), data, probed.tag),
            source: self.source(state, Some(probed.source)),
        };
        if let Some(claimed) = claimed {
            if op.flags & cap::DISCARD != 0 {
                self.take_claimed(state, claimed, Pieces::One(std::ptr::null_mut(), 0), op, false)?;
            } else {
                state.claims.insert(op.context as usize, (claimed, probed));
            }
        }
        state.add(Way::Recv, entry);
        Ok(0)
    }

    /// Takes back a receive that has not matched. Its completion says so; or it ends as usual.
    pub fn cancel(&self, context: *mut c_void) {
        {
            let state = &mut *self.state.borrow_mut();
            if state.cancel_waiting(context) {
                return;
            }
            let of = |rec: &&Option<Rec>| {
                rec.as_ref().is_some_and(|r| r.context == context && r.flags & cap::RECV != 0)
            };
            let op = state.recs.iter().find(of).and_then(|rec| rec.as_ref()?.op);
            match op {
                Some(op) => self.endpoint.cancel(op),
                None => return,
            };
        }
        self.reap();
    }

    /// Hands arrived messages without a tag to the receives that wait here, oldest first.
    fn pump(&self, state: &mut State) {
        while let Some(first) = state.waiting.front() {
            match *first {
                Waiting::Plain { rec, start, len, source } => {
                    // The engine may have it: nothing is before it any more.
                    state.waiting.pop_front();
                    self.post_waiting(state, rec, start, len, source);
                }
                Waiting::Multi { at, source } => {
                    let Some(probed) = self.endpoint.probe_untagged(source) else { return };
                    let Some(multi) = state.multis[at].as_ref() else { return };
                    let room = multi.len - multi.used;
                    if probed.len as usize > room && multi.used > 0 {
                        state.waiting.pop_front();
                        state.fill(at);
                        continue;
                    }
                    self.receive_part(state, at, source);
                }
            }
        }
    }

    fn post_waiting(
        &self,
        state: &mut State,
        rec: u32,
        start: *mut u8,
        len: usize,
        source: Option<PeerId>,
    ) {
        let args = RecvArgs {
            source,
            tag: 0,
            ignore: u64::MAX,
            len: len as u64,
            addr: 0,
            context: u64::from(rec),
            untagged: true,
        };
        // SAFETY: the caller gave the memory until the completion.
        match unsafe { self.endpoint.post_recv(start, args) } {
            Ok(id) => state.started(rec, id),
            Err(refused) => {
                let _reported = self.refused(state, rec, refused);
            }
        }
    }

    /// Receives the next message into a buffer for many.
    fn receive_part(&self, state: &mut State, at: usize, source: Option<PeerId>) {
        let Some((claimed, probed)) = self.endpoint.claim_untagged(source) else { return };
        let least = self.min_multi_recv.get();
        let Some(multi) = state.multis[at].as_mut() else { return };
        let len = (probed.len as usize).min(multi.len - multi.used);
        let start = multi.start.wrapping_add(multi.used);
        multi.used += len;
        multi.arriving += 1;
        multi.full = multi.len - multi.used < least.max(1);
        let rec = Rec {
            op: None,
            context: multi.context,
            flags: cap::RECV | cap::MSG,
            report: multi.report,
            buf: start,
            bounce: None,
            multi: Some(at),
            silent: false,
        };
        if multi.full {
            state.waiting.pop_front();
        }
        match state.keep(rec) {
            Some(rec) => {
                let _reported = self.receive_claimed(state, rec, claimed, start, len);
            }
            None => log::error!("more operations than there are numbers: a message is lost"),
        }
    }

    /// The peer behind a number of the address vector.
    #[inline]
    fn peer(&self, state: &mut State, number: u64) -> Result<PeerId, c_int> {
        let vector = state.bound.vector.as_ref().ok_or(err::ENOAV)?;
        let changes = vector.vector.borrow().changes();
        if state.changes != changes {
            state.changes = changes;
            state.peers.clear();
        }
        match state.peers.get(number as usize) {
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
        if state.peers.len() <= at {
            state.peers.resize(at + 1, None);
        }
        state.peers[at] = Some(peer);
        Ok(peer)
    }

    /// The number a peer has in the address vector, if any.
    #[inline]
    fn source(&self, state: &State, peer: Option<PeerId>) -> u64 {
        let find = || {
            let id = self.endpoint.identity(peer?)?;
            state.bound.vector.as_ref()?.vector.borrow().find(id)
        };
        find().unwrap_or(ADDR_NONE)
    }

    /// An operation that could not be started: to be tried again, or reported as failed.
    #[cold]
    fn refused(&self, state: &mut State, at: u32, refused: Refused) -> Answer {
        let Some(rec) = state.give_back(at) else { return Err(err::EOTHER) };
        if refused == Refused::Busy {
            self.endpoint.progress();
            return Err(err::EAGAIN);
        }
        let way = if rec.flags & cap::RECV != 0 { Way::Recv } else { Way::Send };
        let text = match refused {
            Refused::Peer(peer, why) => format!("{}: {why}", self.endpoint.describe(peer)),
            other => other.to_string(),
        };
        state.fail(way, Failure {
            fields: fields(rec.context, rec.flags, 0, rec.buf, 0, 0),
            source: ADDR_NONE,
            olen: 0,
            error: error_of(refused),
            text,
        });
        Ok(0)
    }

    /// An operation has ended.
    fn complete(&self, state: &mut State, c: &Completion) {
        let Some(mut rec) = state.give_back(c.context as u32) else { return };
        let way = match c.kind {
            OpKind::Recv => Way::Recv,
            OpKind::Put | OpKind::Atomic => Way::Write,
            OpKind::Get => Way::Read,
            OpKind::Send => Way::Send,
        };
        let status = &c.status;
        let len = status.len as usize;
        if let Some(bounce) = &rec.bounce {
            bounce.scatter(len);
        }
        if let (Some(_), Way::Recv) = (status.data, way) {
            rec.flags |= cap::REMOTE_CQ_DATA;
        }
        let last_part = rec.multi.is_some_and(|multi| state.part_ended(multi));
        if last_part {
            rec.flags |= cap::MULTI_RECV;
        }
        if rec.silent {
            return;
        }
        let data = status.data.unwrap_or(0);
        let fields = fields(rec.context, rec.flags, len, rec.buf, data, status.tag);
        let source =
            if matches!(way, Way::Recv) { self.source(state, status.source) } else { ADDR_NONE };
        let Some(error) = c.error else {
            state.count(way, true);
            if rec.report || last_part {
                state.add(way, Entry { fields, source });
            }
            return;
        };
        let (number, olen) = match error {
            OpError::Truncated { sent } => (err::ETRUNC, sent as usize - len),
            OpError::Cancelled => (err::ECANCELED, 0),
            OpError::Peer { failure, .. } => (failure_of(failure), 0),
            OpError::Refused => (err::EACCES, 0),
            _ => (err::EOTHER, 0),
        };
        let text = match error {
            OpError::Peer { peer, failure } => {
                format!("{}: {failure}", self.endpoint.describe(peer))
            }
            other => other.to_string(),
        };
        state.count(way, false);
        state.fail(way, Failure { fields, source, olen, error: number, text });
    }
}

impl Bounce {
    /// Copies what was received to where it belongs.
    fn scatter(&self, len: usize) {
        let mut rest = &self.bytes[..len.min(self.bytes.len())];
        for &(start, room) in &self.pieces {
            let (now, later) = rest.split_at(room.min(rest.len()));
            if !now.is_empty() {
                // SAFETY: the caller gave the pieces until the completion, which is yet to come.
                unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, now.len()) };
            }
            rest = later;
        }
    }
}

impl State {
    /// Whether an operation of these flags is reported when it ends well.
    #[inline]
    fn reports(&self, way: Way, flags: u64) -> bool {
        let (cq, selective) = match way {
            Way::Recv => (&self.bound.rx, self.bound.selective.1),
            _ => (&self.bound.tx, self.bound.selective.0),
        };
        cq.is_some() && (!selective || flags & cap::COMPLETION != 0)
    }

    #[inline]
    fn keep(&mut self, rec: Rec) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            self.recs[at as usize] = Some(rec);
            return Some(at);
        }
        if self.recs.len() >= u32::MAX as usize {
            return None;
        }
        self.recs.push(Some(rec));
        Some(self.recs.len() as u32 - 1)
    }

    #[inline]
    fn give_back(&mut self, at: u32) -> Option<Rec> {
        let rec = self.recs.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(rec)
    }

    #[inline]
    fn started(&mut self, at: u32, id: OpId) {
        if let Some(Some(rec)) = self.recs.get_mut(at as usize) {
            rec.op = Some(id);
        }
    }

    /// An operation ended before it was in progress.
    #[inline]
    fn done(&mut self, _port: &Port, at: u32, way: Way, len: usize, tag: u64) {
        let Some(rec) = self.give_back(at) else { return };
        self.count(way, true);
        if rec.report {
            let fields = fields(rec.context, rec.flags, len, rec.buf, 0, tag);
            self.add(way, Entry { fields, source: ADDR_NONE });
        }
    }

    #[inline]
    fn count(&self, way: Way, ok: bool) {
        if let Some(counter) = &self.bound.counters[way as usize] {
            counter.count(ok);
        }
    }

    #[inline]
    fn add(&self, way: Way, entry: Entry) {
        let cq = match way {
            Way::Recv => &self.bound.rx,
            _ => &self.bound.tx,
        };
        if let Some(cq) = cq {
            cq.add(entry);
        }
    }

    #[cold]
    fn fail(&self, way: Way, failure: Failure) {
        let cq = match way {
            Way::Recv => &self.bound.rx,
            _ => &self.bound.tx,
        };
        if let Some(cq) = cq {
            cq.fail(failure);
        }
    }

    /// A buffer for many messages is there.
    fn offer_many(
        &mut self,
        start: *mut u8,
        len: usize,
        source: Option<PeerId>,
        context: *mut c_void,
        report: bool,
    ) {
        let multi = Multi { start, len, used: 0, arriving: 0, full: false, context, report };
        let at = self.multis.iter().position(Option::is_none).unwrap_or_else(|| {
            self.multis.push(None);
            self.multis.len() - 1
        });
        self.multis[at] = Some(multi);
        self.waiting.push_back(Waiting::Multi { at, source });
    }

    /// A buffer for many messages takes no more.
    fn fill(&mut self, at: usize) {
        let Some(multi) = self.multis[at].as_mut() else { return };
        multi.full = true;
        if multi.arriving > 0 {
            return;
        }
        let (context, start) = (multi.context, multi.start);
        self.multis[at] = None;
        let flags = cap::RECV | cap::MSG | cap::MULTI_RECV;
        let fields = fields(context, flags & !cap::MSG, 0, start, 0, 0);
        self.add(Way::Recv, Entry { fields, source: ADDR_NONE });
    }

    /// A message is in its buffer for many; whether it was the last.
    fn part_ended(&mut self, at: usize) -> bool {
        let Some(multi) = self.multis[at].as_mut() else { return false };
        multi.arriving -= 1;
        let last = multi.full && multi.arriving == 0;
        if last {
            self.multis[at] = None;
        }
        last
    }

    /// Takes back a receive that the engine does not know of.
    fn cancel_waiting(&mut self, context: *mut c_void) -> bool {
        let of = |w: &Waiting| match w {
            Waiting::Multi { at, .. } => {
                self.multis[*at].as_ref().is_some_and(|m| m.context == context)
            }
            Waiting::Plain { rec, .. } => {
                self.recs[*rec as usize].as_ref().is_some_and(|r| r.context == context)
            }
        };
        let Some(i) = self.waiting.iter().position(of) else { return false };
        let mut flags = cap::RECV | cap::MSG;
        match self.waiting.remove(i) {
            Some(Waiting::Multi { at, .. }) => {
                let arriving = self.multis[at].as_ref().map_or(0, |m| m.arriving);
                if arriving == 0 {
                    flags |= cap::MULTI_RECV;
                    self.multis[at] = None;
                } else if let Some(multi) = self.multis[at].as_mut() {
                    multi.full = true;
                }
            }
            Some(Waiting::Plain { rec, .. }) => {
                self.give_back(rec);
            }
            None => return false,
        }
        self.fail(Way::Recv, Failure {
            fields: fields(context, flags, 0, std::ptr::null_mut(), 0, 0),
            source: ADDR_NONE,
            olen: 0,
            error: err::ECANCELED,
            text: "cancelled".to_owned(),
        });
        true
    }
}

/// The record of a receive, and the memory it goes to.
fn received(pieces: &Pieces<'_>, op: &RecvOp, report: bool) -> (Rec, *mut u8, usize) {
    let (start, len, bounce) = match *pieces {
        Pieces::One(start, len) => (start, len, None),
        Pieces::Many(iov) => {
            let mut bytes = vec![0; pieces.len()];
            let pieces = iov.iter().map(|p| (p.iov_base.cast(), p.iov_len)).collect();
            let start = bytes.as_mut_ptr();
            (start, bytes.len(), Some(Box::new(Bounce { bytes, pieces })))
        }
    };
    let kind = if op.untagged { cap::MSG } else { cap::TAGGED };
    let rec = Rec {
        op: None,
        context: op.context,
        flags: cap::RECV | kind,
        report,
        buf: start,
        bounce,
        multi: None,
        silent: false,
    };
    (rec, start, len)
}

#[inline]
fn fields(
    op_context: *mut c_void,
    flags: u64,
    len: usize,
    buf: *mut u8,
    data: u32,
    tag: u64,
) -> CqTaggedEntry {
    CqTaggedEntry { op_context, flags, len, buf: buf.cast(), data: u64::from(data), tag }
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
        PeerFailure::Silent { .. } => err::ETIMEDOUT,
        PeerFailure::Unreachable { .. } | PeerFailure::NoLink => err::EHOSTUNREACH,
        PeerFailure::Refused | PeerFailure::Version { .. } => err::ECONNREFUSED,
        _ => err::ECONNRESET,
    }
}

/// What a caller does that polls in vain while other ranks want its core.
#[derive(Default)]
pub struct Idle {
    in_vain: Cell<u32>,
}

/// Polls in vain before the core is handed over.
const PATIENT: u32 = 2;
/// Polls in vain before the caller sleeps until something arrives, or a little while: it may wait
/// for something that does not come through here.
const TIRED: u32 = 64;
const NAP: Duration = Duration::from_micros(100);

impl Idle {
    #[inline]
    pub fn something(&self) {
        self.in_vain.set(0);
    }

    pub fn nothing(&self, ports: &RefCell<Vec<Weak<Port>>>) {
        let times = self.in_vain.get().saturating_add(1);
        self.in_vain.set(times);
        let only = match &ports.borrow()[..] {
            [only] => only.upgrade(),
            _ => None,
        };
        match only {
            Some(port) if times > TIRED && !port.domain.gate.locks() => {
                port.endpoint.wait(Some(NAP));
                port.reap();
            }
            _ if times > PATIENT => std::thread::yield_now(),
            _ => {}
        }
    }
}

/// Sleeping until an endpoint has something.
pub struct Poller {
    epoll: Option<c_int>,
    wakeup: c_int,
}

impl Poller {
    pub fn new(wanted: bool) -> Result<Poller, c_int> {
        if !wanted {
            return Ok(Poller { epoll: None, wakeup: -1 });
        }
        // SAFETY: plain system calls; results are checked.
        unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            let wakeup = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if epoll < 0 || wakeup < 0 {
                return Err(err::ENOMEM);
            }
            let poller = Poller { epoll: Some(epoll), wakeup };
            poller.add(wakeup);
            Ok(poller)
        }
    }

    fn add(&self, fd: c_int) {
        let Some(epoll) = self.epoll else { return };
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both descriptors are open; the event is copied.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) };
    }

    pub fn fd(&self) -> Option<c_int> {
        self.epoll
    }

    pub fn watch(&self, port: &Port) {
        if let Some(fd) = port.endpoint.wait_fd() {
            self.add(fd);
        }
    }

    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open, or the call fails; eight bytes are written.
        unsafe { libc::write(self.wakeup, (&raw const one).cast(), 8) };
    }

    /// Whether one may sleep now: nothing is there. If so, the endpoints will wake the descriptor.
    pub fn prepare(&self, ports: &RefCell<Vec<Weak<Port>>>) -> Result<(), c_int> {
        let ports: Vec<_> = ports.borrow().iter().filter_map(Weak::upgrade).collect();
        if ports.iter().all(|port| port.endpoint.prepare_wait()) {
            return Ok(());
        }
        ports.iter().for_each(|port| port.endpoint.finish_wait());
        Err(err::EAGAIN)
    }

    /// Sleeps until something may have arrived, for at most `limit`.
    pub fn wait(&self, gate: &Gate, ports: &RefCell<Vec<Weak<Port>>>, limit: Duration) {
        {
            let _inside = gate.enter();
            if self.prepare(ports).is_err() {
                return;
            }
        }
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        let ms = limit.as_millis().clamp(1, 60_000) as c_int;
        // SAFETY: one event has room; a missing descriptor fails at once.
        let woken = unsafe { libc::epoll_wait(self.epoll.unwrap_or(-1), &mut event, 1, ms) };
        if woken > 0 {
            let mut count = 0u64;
            // SAFETY: eight bytes have room; without a signal the call fails at once.
            unsafe { libc::read(self.wakeup, (&raw mut count).cast(), 8) };
        }
        let _inside = gate.enter();
        for port in ports.borrow().iter().filter_map(Weak::upgrade) {
            port.endpoint.finish_wait();
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if let Some(epoll) = self.epoll {
            // SAFETY: both are ours.
            unsafe {
                libc::close(epoll);
                libc::close(self.wakeup);
            }
        }
    }
}
