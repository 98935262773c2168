//! Sends, writes and reads.
//!
//! The descriptors of a send queue begin in their order. A message leaves at once where it fits one
//! packet, and is lent to the endpoint where it is long. Messages and writes to one peer arrive in
//! the order in which they were begun.

use super::complete::context;
use super::queue::{Direction, End, Running, Stage, Work};
use super::{State, Vi, DESCRIPTORS_MAX};
use crate::code::{status, Answer, Code, Fault, Phase};
use crate::descriptor::{Control, Operation, Segment};
use crate::region::{remote_key, tag, Bounce, Posted, Regions, Span};
use crate::table::Key;
use crate::wire::{self, number, Kind, Offer, Wrote};
use weft::port::Port;
use weft::{OpError, PeerId, Refused};

/// Messages up to this length are copied; of longer ones the memory is lent.
const COPIED_MAX: usize = 8 << 10;
/// Messages up to this length are copied where such messages take several packets. A lent message
/// is complete when the other side has acknowledged it, so it asks for an acknowledgement at once.
const COPIED_IN_PACKETS_MAX: usize = 32 << 10;

/// Returns the longest message to a peer that is copied.
fn copied_max(port: &Port, peer: PeerId) -> usize {
    match port.packet_max(peer) {
        packet if packet < COPIED_MAX => COPIED_IN_PACKETS_MAX,
        _ => COPIED_MAX,
    }
}

/// The beginning of a descriptor.
enum Begun {
    /// The descriptor has ended.
    Ended(End),
    /// Its operation is under way.
    Running(Running),
    /// There is no room for it now, or it waits for the reads before it.
    Later {
        /// True if it is to be tried again after progress.
        blocked: bool,
    },
    /// Its memory is not registered any more.
    Gone,
}

impl Begun {
    fn failed(bits: u32) -> Begun {
        Begun::Ended(End { status: bits, ..End::default() })
    }

    /// The beginning of an operation that the endpoint has refused.
    fn refused(refused: Refused, operation: Operation) -> Begun {
        match refused {
            Refused::Busy => Begun::Later { blocked: true },
            _ => Begun::failed(status::TRANSPORT | operation.status()),
        }
    }
}

/// A descriptor to begin, with its memory checked.
struct Plan<'a> {
    operation: Operation,
    control: Control,
    posted: Posted<'a>,
    regions: &'a Regions,
    tag: Option<Key>,
    /// Number of segments before the data segments.
    skip: u16,
    total: usize,
}

impl<'a> Plan<'a> {
    /// Checks format, protection and length.
    fn new(regions: &'a Regions, posted: Posted<'a>, vi: &Vi) -> Result<Plan<'a>, u32> {
        let control = posted.control();
        let operation = control.operation()?;
        let tag = vi.attributes.tag;
        let fault = |bits: u32| bits | operation.status();
        if posted.tag != tag {
            return Err(fault(status::PROTECTION));
        }
        if operation == Operation::Read && !vi.is_reliable() {
            return Err(fault(status::FORMAT));
        }
        let skip = u16::from(operation != Operation::Send);
        let mut total = 0;
        for i in skip..control.segments {
            let segment = posted.segment(i).ok_or(fault(status::PROTECTION))?;
            span(regions, &segment, tag).map_err(fault)?;
            total += u64::from(segment.len);
        }
        if total != u64::from(control.length) {
            return Err(fault(status::FORMAT));
        }
        if total > vi.attributes.max {
            return Err(fault(status::LENGTH));
        }
        let total = total as usize;
        Ok(Plan { operation, control, posted, regions, tag, skip, total })
    }

    fn segments(&self) -> impl Iterator<Item = (Segment, Span<'a>)> + '_ {
        (self.skip..self.control.segments).filter_map(|i| {
            let segment = self.posted.segment(i)?;
            Some((segment, span(self.regions, &segment, self.tag).ok()?))
        })
    }

    /// Returns the bytes, if they are in one piece, and the handle of their region.
    fn piece(&self) -> Option<(Span<'a>, Option<u32>)> {
        let mut pieces = self.segments().filter(|(segment, _)| segment.len > 0);
        let Some((segment, first)) = pieces.next() else { return Some((Span::EMPTY, None)) };
        pieces.next().is_none().then_some((first, Some(segment.handle)))
    }

    /// Copies all pieces together.
    fn gather(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.total);
        self.segments().for_each(|(_, piece)| bytes.extend_from_slice(piece.bytes()));
        // A program that changes a posted descriptor sends other bytes, but as many.
        bytes.resize(self.total, 0);
        bytes
    }

    fn end(&self) -> End {
        End { status: self.operation.status(), length: self.total as u32, immediate: None }
    }

    fn running(&self, awaits_receipt: bool) -> Running {
        let (status, length) = (self.operation.status(), self.total as u32);
        Running { status, length, awaits_receipt, ..Running::default() }
    }
}

/// Returns the memory of a data segment. One of no bytes needs none.
pub(super) fn span<'a>(
    regions: &'a Regions,
    segment: &Segment,
    tag: Option<Key>,
) -> Result<Span<'a>, u32> {
    match segment.len {
        0 => Ok(Span::EMPTY),
        len => regions
            .span(segment.at, u64::from(len), segment.handle, tag)
            .map_err(|_| status::PROTECTION),
    }
}

/// Returns number and argument of a message to the other side.
fn message(control: &Control, offer: &Offer) -> (u32, u32) {
    match control.has_immediate() {
        true => (number(Kind::SendImmediate, offer.id), control.immediate),
        false => (number(Kind::Send, offer.id), 0),
    }
}

/// Begins a message.
fn send(port: &Port, plan: &Plan<'_>, vi: &Vi, (peer, offer): (PeerId, Offer), at: u64) -> Begun {
    let (of, argument) = message(&plan.control, &offer);
    let receipt = vi.waits_for_receipts();
    let piece = plan.piece();
    let sent = |receipt| match receipt {
        true => Begun::Running(plan.running(true)),
        false => Begun::Ended(plan.end()),
    };
    if let Some((piece, _)) = piece {
        if port.send_now(peer, of, argument, piece.bytes()) {
            return sent(receipt);
        }
    }
    let copied = plan.total <= copied_max(port, peer);
    if copied {
        let result = match piece {
            Some((piece, _)) => port.try_send(peer, of, argument, piece.bytes()),
            None => port.try_send(peer, of, argument, &plan.gather()),
        };
        return match result {
            Ok(()) => sent(receipt),
            Err(OpError::Busy) => Begun::Later { blocked: true },
            Err(_) => Begun::failed(status::TRANSPORT | status::OP_SEND),
        };
    }
    let mut running = plan.running(receipt);
    let whole = match piece {
        Some((piece, handle)) => {
            running.uses = handle;
            piece
        }
        None => running.bounce.insert(Bounce::new(plan.gather())).span(),
    };
    match whole.send(port, peer, tag(of, argument), at) {
        Ok(op) => Begun::Running(Running { op: Some(op), ..running }),
        Err(refused) => Begun::refused(refused, Operation::Send),
    }
}

/// Begins a write or a read of the other side's memory.
fn remote(port: &Port, plan: &Plan<'_>, vi: &Vi, (peer, offer): (PeerId, Offer), at: u64) -> Begun {
    let is_write = plan.operation == Operation::Write;
    let allowed = if is_write { offer.write } else { offer.read };
    if !allowed {
        return Begun::failed(status::RDMA_PROT | plan.operation.status());
    }
    let Some(there) = plan.posted.segment(0) else {
        return Begun::failed(status::PROTECTION | plan.operation.status());
    };
    let place = (remote_key(offer.secret, there.handle), there.at);
    let mut running = plan.running(false);
    let whole = match plan.piece() {
        Some((piece, handle)) => {
            running.uses = handle;
            piece
        }
        None => {
            let bytes = if is_write { plan.gather() } else { vec![0; plan.total] };
            running.bounce.insert(Bounce::new(bytes)).span()
        }
    };
    let begun = whole.remote(port, is_write, (peer, place), at);
    let op = match begun {
        Ok(op) => op,
        Err(refused) => return Begun::refused(refused, plan.operation),
    };
    running.op = Some(op);
    if is_write && plan.control.has_immediate() {
        let wrote = Wrote { at: there.at, handle: there.handle, len: running.length };
        let of = number(Kind::Wrote, offer.id);
        // The write fails as well where the peer has.
        let told = port.post(peer, of, plan.control.immediate, &wrote.encode()).is_ok();
        running.awaits_receipt = told && vi.waits_for_receipts();
    }
    Begun::Running(running)
}

/// Begins the descriptor at an index of the send queue.
fn begin(port: &Port, regions: &Regions, vi: &Vi, key: Key, index: usize) -> Begun {
    let work = &vi.send.items[index];
    let Some(posted) = regions.descriptor(work.at, work.handle) else { return Begun::Gone };
    let plan = match Plan::new(regions, posted, vi) {
        Ok(plan) => plan,
        Err(bits) => return Begun::failed(bits),
    };
    if plan.control.is_fenced() && vi.reads > 0 {
        return Begun::Later { blocked: false };
    }
    let Some(other) = vi.other_side() else {
        return Begun::failed(status::FLUSHED | plan.operation.status());
    };
    let at = context(key, vi.send.first + index as u64);
    match plan.operation {
        Operation::Send => send(port, &plan, vi, other, at),
        Operation::Write | Operation::Read => remote(port, &plan, vi, other, at),
    }
}

impl State {
    /// Checks a descriptor that is posted, and makes it one of a queue.
    fn post(&mut self, key: Key, direction: Direction, at: u64, handle: u32) -> Answer<Phase> {
        let vi = self.vis.get_mut(key).ok_or(Code::InvalidParameter)?;
        let posted = self.regions.descriptor(at, handle).ok_or(Code::InvalidParameter)?;
        let queue = vi.queue(direction);
        if queue.items.len() >= DESCRIPTORS_MAX {
            return Err(Code::ErrorResource);
        }
        posted.begin();
        queue.items.push_back(Work { at, handle, stage: Stage::Posted });
        Ok(vi.phase)
    }

    /// Posts a descriptor to the send queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such virtual interface, or the descriptor does not lie
    /// in registered memory as it has to; `VIP_ERROR_RESOURCE`: the queue is full.
    pub fn post_send(&mut self, port: &Port, key: Key, at: u64, handle: u32) -> Answer {
        if self.send_at_once(port, key, at, handle).is_some() {
            return Ok(());
        }
        match self.post(key, Direction::Send, at, handle)? {
            Phase::Connected => self.advance(port, key),
            _ => self.flush_last(key, Direction::Send),
        }
        Ok(())
    }

    /// Sends a message that is in one piece and fits one packet, if all descriptors before it are
    /// complete and only calls ask for their ends: the descriptor is complete then. `None` if it
    /// is to be posted.
    #[inline]
    fn send_at_once(&mut self, port: &Port, key: Key, at: u64, handle: u32) -> Option<()> {
        let vi = self.vis.get_mut(key)?;
        let is_simple = vi.phase == Phase::Connected && !vi.waits_for_receipts();
        if !is_simple || vi.reads > 0 || !vi.send.is_settled() {
            return None;
        }
        let posted = self.regions.descriptor(at, handle)?;
        let (control, tag) = (posted.control(), vi.attributes.tag);
        let is_send = control.operation() == Ok(Operation::Send) && control.segments == 1;
        if !is_send || posted.tag != tag || u64::from(control.length) > vi.attributes.max {
            return None;
        }
        let segment = posted.segment(0).filter(|segment| segment.len == control.length)?;
        let piece = span(&self.regions, &segment, tag).ok()?;
        let (peer, offer) = vi.other_side()?;
        let (of, argument) = message(&control, &offer);
        if !port.send_now(peer, of, argument, piece.bytes()) {
            return None;
        }
        posted.finish(status::OP_SEND | status::DONE, control.length, None);
        vi.send.add_done(at, handle);
        self.changes += 1;
        Some(())
    }

    /// Posts a descriptor to the receive queue.
    ///
    /// # Errors
    /// Returns the errors of [`post_send`](State::post_send).
    pub fn post_recv(&mut self, key: Key, at: u64, handle: u32) -> Answer {
        if self.post(key, Direction::Recv, at, handle)? == Phase::Error {
            self.flush_last(key, Direction::Recv);
        }
        Ok(())
    }

    /// Ends the last descriptor of a queue as flushed.
    fn flush_last(&mut self, key: Key, direction: Direction) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        let Some(work) = vi.queue(direction).items.back_mut() else { return };
        let operation = match direction {
            Direction::Recv => status::OP_RECEIVE,
            Direction::Send => {
                let posted = self.regions.descriptor(work.at, work.handle);
                let operation = posted.and_then(|posted| posted.control().operation().ok());
                operation.map_or(status::OP_SEND, Operation::status)
            }
        };
        let status = status::FLUSHED | operation;
        work.stage = Stage::Ended(End { status, ..End::default() });
        self.settle(key, direction);
    }

    /// Begins the descriptors of a send queue that can begin.
    pub(super) fn advance(&mut self, port: &Port, key: Key) {
        loop {
            let Some(vi) = self.vis.get_mut(key).filter(|vi| vi.phase == Phase::Connected) else {
                return;
            };
            let index = vi.send.started;
            if index >= vi.send.items.len() {
                return;
            }
            let begun = begin(port, &self.regions, vi, key, index);
            let bits = match begun {
                Begun::Later { blocked } => {
                    if blocked && !self.blocked.contains(&key) {
                        self.blocked.push(key);
                    }
                    return;
                }
                Begun::Gone => {
                    let at = vi.send.items[index].at;
                    self.report(key, Fault::PostDesc, (at, 0));
                    return self.drop_gone(port, key, Direction::Send, index);
                }
                Begun::Running(running) => {
                    let is_read = running.status & status::OP_MASK == status::OP_RDMA_READ;
                    vi.reads += u32::from(is_read);
                    vi.send.items[index].stage = Stage::Running(running);
                    0
                }
                Begun::Ended(end) => {
                    vi.send.items[index].stage = Stage::Ended(end);
                    end.status
                }
            };
            vi.send.started += 1;
            self.settle(key, Direction::Send);
            self.failed(port, key, bits);
        }
    }

    /// Ends a descriptor whose memory is not registered any more: it fails, and so does a reliable
    /// connection.
    pub(super) fn drop_gone(&mut self, port: &Port, key: Key, direction: Direction, index: usize) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        let queue = vi.queue(direction);
        let Some(work) = queue.items.get_mut(index) else { return };
        // The descriptor was reported already: nothing is written to it.
        work.stage = Stage::Done { failed: true };
        if index == queue.done {
            queue.done += 1;
        }
        queue.started = queue.started.max(index + 1);
        self.changes += 1;
        self.failed(port, key, status::PROTECTION);
    }

    /// Begins the sends that waited for room.
    pub fn retry(&mut self, port: &Port) {
        for key in std::mem::take(&mut self.blocked) {
            self.advance(port, key);
        }
    }

    /// True if sends wait for room.
    pub fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Copies the bytes of a read to the segments of its descriptor; returns bits of its status.
    pub(super) fn scatter(&mut self, key: Key, index: usize) -> u32 {
        let Some(vi) = self.vis.get(key) else { return 0 };
        let work = &vi.send.items[index];
        let Stage::Running(Running { bounce: Some(bounce), .. }) = &work.stage else { return 0 };
        let Some(posted) = self.regions.descriptor(work.at, work.handle) else {
            return status::PROTECTION;
        };
        let Ok(plan) = Plan::new(&self.regions, posted, vi) else { return status::PROTECTION };
        let mut rest = bounce.bytes();
        plan.segments().for_each(|(_, piece)| rest = &rest[piece.fill(rest)..]);
        0
    }
}

/// True if a message of this kind brings immediate data.
pub(super) fn has_immediate(kind: wire::Kind) -> bool {
    matches!(kind, Kind::SendImmediate | Kind::Wrote)
}
