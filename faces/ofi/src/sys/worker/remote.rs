//! Remote memory: reads and writes, and peers' messages about them.

use super::atomic::{Answers, Asked};
use super::buffer::Pieces;
use super::events::Touched;
use super::notice::{notice, parts};
use super::state::{fields, Direction, State};
use super::{error_of, failure_of, Worker};
use crate::sys::abi::{cap, err, RmaIov, ADDR_NONE};
use crate::sys::cq::{Entry, Failure};
use crate::sys::Answer;
use libc::{c_int, c_void};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use weft::endpoint::Regions;
use weft::{Endpoint, OpError, PeerId, Rights};
use weft_core::engine::types::{Completion, Refused, SendArgs};

/// Active messages that report bytes written just before.
const NOTICE: u32 = 0x6f_6601;
/// Most queued messages and requests to a peer; later ones are refused until there is room.
pub(super) const QUEUED_MAX: usize = 1 << 13;

/// A read or write to start.
pub struct RemoteOp {
    pub to: u64,
    pub read: bool,
    /// Data of a write for the peer's completion queue.
    pub data: Option<u64>,
    pub context: *mut c_void,
    pub flags: u64,
    /// Sent from a copy, and without a completion unless it fails.
    pub injected: bool,
}

/// The completion of an operation on remote memory.
pub(super) struct Report {
    pub context: *mut c_void,
    pub flags: u64,
    pub way: Direction,
    pub wanted: bool,
    pub buf: *mut u8,
    pub len: usize,
}

/// A read or write in progress. Its parts are gets, puts, and the notice of a write whose
/// completion includes the notice's arrival.
struct Transfer {
    report: Report,
    left: u32,
    error: Option<OpError>,
    /// The source of a write from a copy.
    _copy: Option<Vec<u8>>,
    notice: Option<Vec<u8>>,
    /// For a read that is reported to the peer: the peer, and the pieces read.
    tells: Option<(PeerId, Vec<RmaIov>)>,
}

/// Bytes were written, with data for the completion queue.
struct Notice {
    from: PeerId,
    data: u64,
    len: usize,
}

/// State of operations on remote memory.
pub struct Remote {
    transfers: Vec<Option<Transfer>>,
    free: Vec<u32>,
    notices: Rc<RefCell<Vec<Notice>>>,
    /// Peers' operations on memory of this endpoint, for counters.
    pub(super) touched: Touched,
    /// Atomic operations that wait for an answer.
    pub(super) asked: Asked,
    /// Answers of peers to atomic operations, and answers to peers.
    pub(super) answers: Answers,
}

/// In the context of an engine's operation: it is a part of a transfer.
const OF_TRANSFER: u64 = 1 << 32;

/// Returns true if this completion is that of a part of a transfer.
pub(super) fn is_part(c: &Completion) -> bool {
    c.context & OF_TRANSFER != 0
}

/// Returns the completion data of a notice and the number of bytes written; `None` if a part may
/// not be written, so was not.
fn verify(regions: &Regions<'_>, notice: &[u8]) -> Option<[u64; 2]> {
    let need = Rights { read: false, write: true };
    let (written, data) = notice.split_last_chunk::<8>()?;
    let mut total = 0u64;
    for [key, offset, len] in parts(written)? {
        regions.check(key, offset, len, need).ok()?;
        total = total.checked_add(len)?;
    }
    Some([u64::from_le_bytes(*data), total])
}

/// Encodes a notice of these pieces with completion data.
fn notice_with(data: u64, remote: &[RmaIov]) -> Vec<u8> {
    let mut bytes = notice(remote);
    bytes.extend_from_slice(&data.to_le_bytes());
    bytes
}

impl Remote {
    pub fn new(endpoint: &Endpoint) -> Remote {
        let notices: Rc<RefCell<Vec<Notice>>> = Rc::default();
        endpoint.active().handle_at_once(NOTICE, |regions, _, data| {
            verify(regions, &data).map(|two| two.map(u64::to_le_bytes).concat())
        });
        let heard = notices.clone();
        endpoint.active().handle(NOTICE, move |_, message| {
            let Some((data, len)) = message.data.split_first_chunk::<8>() else { return };
            let data = u64::from_le_bytes(*data);
            let len = u64::from_le_bytes(len.try_into().unwrap_or_default()) as usize;
            heard.borrow_mut().push(Notice { from: message.source, data, len });
        });
        let touched = Touched::new(endpoint);
        Remote {
            transfers: Vec::new(),
            free: Vec::new(),
            notices,
            asked: Asked::default(),
            answers: Answers::new(endpoint, touched.clone()),
            touched,
        }
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.notices.borrow().is_empty() || self.touched.has_events() || self.answers.has_events()
    }

    /// Returns true if every operation of this endpoint on memory of others has ended.
    pub(super) fn is_quiet(&self) -> bool {
        self.transfers.len() == self.free.len() && self.asked.is_empty()
    }

    fn keep(&mut self, transfer: Transfer) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.transfers[at as usize] = Some(transfer);
                at
            }
            None => {
                self.transfers.push(Some(transfer));
                self.transfers.len() as u32 - 1
            }
        }
    }

    /// Ends some parts of a transfer; returns the transfer if they were the last.
    fn ended(&mut self, at: u32, parts: u32, error: Option<OpError>) -> Option<Transfer> {
        let slot = self.transfers.get_mut(at as usize)?;
        let transfer = slot.as_mut()?;
        transfer.left = transfer.left.saturating_sub(parts);
        transfer.error = transfer.error.or(error);
        if transfer.left > 0 {
            return None;
        }
        self.free.push(at);
        slot.take()
    }
}

/// Bytes of one part: local start, length, remote key, remote offset.
type Segment = (*mut u8, usize, u64, u64);

/// Cuts local and remote pieces into parts that are contiguous on both sides.
///
/// # Errors
/// The lengths differ, or there is no remote piece.
fn segments(local: &Pieces<'_>, remote: &[RmaIov]) -> Result<Vec<Segment>, c_int> {
    let one;
    let local = match *local {
        Pieces::One(start, len) => {
            one = [libc::iovec { iov_base: start.cast(), iov_len: len }];
            &one[..]
        }
        Pieces::Many(iov) => iov,
    };
    let mut out = Vec::with_capacity(local.len().max(remote.len()));
    let mut here = local.iter().map(|p| (p.iov_base.cast::<u8>(), p.iov_len));
    let mut rest: (*mut u8, usize) = (std::ptr::null_mut(), 0);
    for there in remote {
        let mut done = 0;
        while done < there.len {
            while rest.1 == 0 {
                rest = here.next().ok_or(err::EINVAL)?;
            }
            let len = rest.1.min(there.len - done);
            let offset = there.addr.checked_add(done as u64).ok_or(err::EINVAL)?;
            out.push((rest.0, len, there.key, offset));
            rest = (rest.0.wrapping_add(len), rest.1 - len);
            done += len;
        }
    }
    if rest.1 > 0 || here.any(|(_, len)| len > 0) {
        return Err(err::EINVAL);
    }
    if out.is_empty() {
        // A transfer of no bytes still checks the key and completes.
        let first = remote.first().ok_or(err::EINVAL)?;
        out.push((std::ptr::null_mut(), 0, first.key, first.addr));
    }
    Ok(out)
}

fn op_error(refused: Refused) -> OpError {
    match refused {
        Refused::Peer(peer, failure) => OpError::Peer { peer, failure },
        Refused::Busy => OpError::Busy,
        _ => OpError::Refused,
    }
}

impl Worker {
    /// Starts a read or write of a peer's memory.
    ///
    /// # Safety
    /// The pieces can be written or read until the completion, or, if injected, now.
    pub unsafe fn transfer(&self, local: Pieces<'_>, remote: &[RmaIov], op: &RemoteOp) -> Answer {
        let _inside = self.domain.lock.enter()?;
        let len = local.len();
        let copied = !op.read && (op.injected || op.flags & cap::INJECT != 0);
        local.check(if op.injected { self.inject_max } else { crate::offer::MESSAGE })?;
        self.fence(op.flags)?;
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, op.to)?;
        if self.endpoint.peer(peer).queued() > QUEUED_MAX {
            return Err(self.busy());
        }
        // SAFETY: promised by the caller.
        let copy = copied.then(|| unsafe { local.gather() }).transpose()?;
        let from = match &copy {
            Some(bytes) => Pieces::One(bytes.as_ptr().cast_mut(), bytes.len()),
            None => local,
        };
        let segments = segments(&from, remote)?;
        let (way, kind) = match op.read {
            true => (Direction::Read, cap::READ),
            false => (Direction::Write, cap::WRITE),
        };
        let buf = match local {
            Pieces::One(start, _) => start,
            Pieces::Many(_) => std::ptr::null_mut(),
        };
        let wanted = !op.injected && state.reports(way, op.flags);
        let flags = cap::RMA | kind;
        let report = Report { context: op.context, flags, way, wanted, buf, len };
        let heard = op.data.filter(|_| op.flags & cap::DELIVERY_COMPLETE != 0);
        let notices = u32::from(heard.is_some());
        let left = segments.len() as u32 + notices;
        let tells = (op.read && self.events).then(|| (peer, remote.to_vec()));
        let notice = heard.map(|data| notice_with(data, remote));
        let at =
            state.remote.keep(Transfer { report, left, error: None, _copy: copy, notice, tells });
        // SAFETY: the caller's memory is valid until the completion, and so is the copy.
        let refused = unsafe { self.post(peer, at, &segments, op.read) };
        if let Some((parts, refused)) = refused {
            return self.not_started(state, at, (left, parts + notices), refused);
        }
        match op.data {
            Some(_) if heard.is_some() => self.notify(state, peer, at),
            Some(data) => self.notify_early(peer, data, remote),
            None => {}
        }
        if self.events && !op.read {
            self.report_event(peer, false, remote);
        }
        Ok(0)
    }

    /// Sends the peer a notice of the bytes written before.
    fn notify_early(&self, peer: PeerId, data: u64, remote: &[RmaIov]) {
        if let Err(why) = self.endpoint.active().send(peer, NOTICE, 0, &notice_with(data, remote)) {
            log::warn!("{}: remote completion data: {why}", self.endpoint.peer(peer).describe());
        }
    }

    /// Sends a notice as a part of a transfer, which ends when the notice has arrived.
    fn notify(&self, state: &mut State, peer: PeerId, at: u32) {
        let Some(Some(transfer)) = state.remote.transfers.get(at as usize) else { return };
        let Some(notice) = &transfer.notice else { return };
        let args = SendArgs {
            active: true,
            delivered: true,
            context: OF_TRANSFER | u64::from(at),
            ..SendArgs::new(peer, NOTICE.into(), notice.len() as u64)
        };
        // SAFETY: the transfer keeps the bytes until all its parts have ended.
        if let Err(refused) = unsafe { self.endpoint.posted().send(notice.as_ptr(), args) } {
            if let Some(transfer) = state.remote.ended(at, 1, Some(op_error(refused))) {
                self.tell(state, transfer.report, transfer.error);
            }
        }
    }

    /// Posts the parts of a transfer; returns the number that was not posted, and the reason.
    ///
    /// # Safety
    /// The segments' memory is valid until the transfer ends.
    unsafe fn post(
        &self,
        peer: PeerId,
        at: u32,
        segments: &[Segment],
        read: bool,
    ) -> Option<(u32, Refused)> {
        let context = u64::from(at);
        for (i, &(start, len, key, offset)) in segments.iter().enumerate() {
            // SAFETY: promised by the caller.
            let posted = unsafe {
                match read {
                    true => self.endpoint.posted().get(start, len, peer, (key, offset), context),
                    false => self.endpoint.posted().put(start, len, peer, (key, offset), context),
                }
            };
            if let Err(refused) = posted {
                return Some(((segments.len() - i) as u32, refused));
            }
        }
        None
    }

    /// Handles a transfer of `all` parts some of which could not be started.
    #[cold]
    fn not_started(
        &self,
        state: &mut State,
        at: u32,
        (all, parts): (u32, u32),
        refused: Refused,
    ) -> Answer {
        let ended = state.remote.ended(at, parts, Some(op_error(refused)));
        match ended {
            // Nothing has begun: the caller may try again.
            Some(_) if all == parts && refused == Refused::Busy => Err(self.busy()),
            Some(_) if all == parts && !matches!(refused, Refused::Peer(..)) => {
                Err(error_of(refused))
            }
            Some(transfer) => {
                self.tell(state, transfer.report, transfer.error);
                Ok(0)
            }
            None => Ok(0),
        }
    }

    /// Ends a get or put.
    pub(super) fn part_ended(&self, state: &mut State, c: &Completion) {
        if let Some(transfer) = state.remote.ended(c.context as u32, 1, c.error) {
            if let (Some((peer, read)), None) = (&transfer.tells, transfer.error) {
                self.report_event(*peer, true, read);
            }
            self.tell(state, transfer.report, transfer.error);
        }
    }

    /// Reports the end of an operation on remote memory.
    pub(super) fn tell(&self, state: &State, report: Report, error: Option<OpError>) {
        let number = match error {
            None => return self.report_success(state, &report),
            Some(OpError::Peer { failure, .. }) => failure_of(failure),
            Some(OpError::Refused | OpError::Unmapped) => err::EACCES,
            Some(OpError::Busy) => err::EAGAIN,
            Some(_) => err::EOTHER,
        };
        let text = error.map(|error| self.text_of(error)).unwrap_or_default();
        self.report_failure(state, &report, number, text);
    }

    fn report_success(&self, state: &State, r: &Report) {
        state.count(r.way, true);
        if r.wanted {
            let fields = fields(r.context, r.flags, r.len, r.buf, 0, 0);
            state.add(r.way, Entry { fields, source: ADDR_NONE });
        }
    }

    pub(super) fn report_failure(&self, state: &State, r: &Report, error: c_int, text: String) {
        state.count(r.way, false);
        let fields = fields(r.context, r.flags, 0, r.buf, 0, 0);
        state.fail(r.way, Failure { fields, source: ADDR_NONE, olen: 0, error, text });
    }

    /// Handles peers' messages about remote memory.
    pub(super) fn hear(&self, state: &mut State) {
        let notices = std::mem::take(&mut *state.remote.notices.borrow_mut());
        for n in notices {
            let flags = cap::RMA | cap::REMOTE_WRITE | cap::REMOTE_CQ_DATA;
            let none = std::ptr::null_mut();
            let fields = fields(none, flags, n.len, none.cast(), n.data, 0);
            let source = self.source(state, Some(n.from));
            state.add(Direction::Recv, Entry { fields, source });
        }
        if state.remote.touched.has_events() {
            self.count_events(&state.remote.touched, &state.bound.remote_counters);
        }
        self.handle_answers(state);
    }
}

/// Counts by peer; peers with count 0 have no entry.
#[derive(Default)]
pub(super) struct Tally(HashMap<PeerId, u32>);

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
