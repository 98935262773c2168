//! Remote memory: reads and writes, and peers' messages about them.

use super::complete::{error_of, number_of};
use super::report::{fields, Direction, Report};
use super::requests::QUEUED_MAX;
use super::state::State;
use super::transfers::{notice_with, segments, Segment, Transfer, NOTICE, OF_TRANSFER};
use super::{sys, RemoteOp, Worker};
use crate::abi::{cap, err, RmaIov, ADDR_NONE};
use crate::call::Answer;
use crate::memory::{Bounce, Pieces};
use crate::offer;
use crate::queue::{Entry, Failure};
use libc::c_int;
use weft::{OpError, PeerId};
use weft_core::engine::types::{Completion, Refused, SendArgs};

fn op_error(refused: Refused) -> OpError {
    match refused {
        Refused::Peer(peer, failure) => OpError::Peer { peer, failure },
        Refused::Busy => OpError::Busy,
        _ => OpError::Refused,
    }
}

impl Worker {
    /// Starts a read or write of a peer's memory.
    pub fn transfer(&self, local: Pieces<'_>, remote: &[RmaIov], op: &RemoteOp) -> Answer {
        let (injected, op_flags) = (op.flags.is_none(), op.flags.unwrap_or(0));
        let len = local.len();
        let copied = !op.read && (injected || op_flags & cap::INJECT != 0);
        local.check(if injected { self.inject_max } else { offer::MESSAGE })?;
        self.fence(op_flags)?;
        let state = &mut *self.state.borrow_mut();
        let peer = self.peer(state, op.to)?;
        if self.endpoint.peer(peer).queued() > QUEUED_MAX {
            return Err(self.busy());
        }
        let copy = copied.then(|| local.gather()).transpose()?;
        let copy = copy.map(|bytes| Bounce::new(bytes, &[]));
        let from = copy.as_ref().map_or(local, |copy| Pieces::One(copy.memory()));
        let segments = segments(&from, remote)?;
        let (way, kind) = match op.read {
            true => (Direction::Read, cap::READ),
            false => (Direction::Write, cap::WRITE),
        };
        let buf = match local {
            Pieces::One(one) => one.start(),
            Pieces::Many(_) => std::ptr::null_mut(),
        };
        let wanted = !injected && state.reports(way, op_flags);
        let flags = cap::RMA | kind;
        let report = Report { context: op.context, flags, way, wanted, buf, len };
        let heard = op.data.filter(|_| op_flags & cap::DELIVERY_COMPLETE != 0);
        let notices = u32::from(heard.is_some());
        let left = segments.len() as u32 + notices;
        let tells = (op.read && self.events).then(|| (peer, remote.to_vec()));
        let notice = heard.map(|data| Bounce::new(notice_with(data, remote), &[]));
        let transfer = Transfer { report, left, error: None, _copy: copy, notice, tells };
        let at = state.remote.transfers.keep(transfer).ok_or(err::EAGAIN)?;
        if let Some((parts, refused)) = self.post(peer, at, &segments, op.read) {
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
        let transfer = state.remote.transfers.get(at);
        let Some(notice) = transfer.and_then(|transfer| transfer.notice.as_ref()) else { return };
        let args = SendArgs {
            active: true,
            delivered: true,
            context: OF_TRANSFER | u64::from(at),
            ..SendArgs::new(peer, NOTICE.into(), 0)
        };
        if let Err(refused) = sys::send(&self.endpoint, notice.memory(), args) {
            if let Some(transfer) = state.remote.ended(at, 1, Some(op_error(refused))) {
                self.tell(state, transfer.report, transfer.error);
            }
        }
    }

    /// Posts the parts of a transfer; returns the number that was not posted, and the reason.
    fn post(
        &self,
        peer: PeerId,
        at: u32,
        segments: &[Segment],
        read: bool,
    ) -> Option<(u32, Refused)> {
        for (i, &(memory, key, offset)) in segments.iter().enumerate() {
            let place = (peer, (key, offset));
            if let Err(refused) = sys::transfer(&self.endpoint, memory, read, place, at) {
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
        match error {
            None => self.report_success(state, &report),
            Some(error) => {
                self.report_failure(state, &report, number_of(error), self.text_of(error));
            }
        }
    }

    fn report_success(&self, state: &State, r: &Report) {
        state.count(r.way, true);
        if r.wanted {
            let fields = fields(r.context, r.flags, r.len, r.buf, 0, 0);
            state.add(r.way, Entry { fields, source: ADDR_NONE });
        }
    }

    pub(super) fn report_failure(&self, state: &State, r: &Report, error: c_int, text: String) {
        let fields = fields(r.context, r.flags, 0, r.buf, 0, 0);
        state.failed(r.way, Failure::new(fields, error, text));
    }

    /// Handles peers' messages about remote memory.
    pub(super) fn hear(&self, state: &mut State) {
        for n in state.remote.take_notices() {
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
