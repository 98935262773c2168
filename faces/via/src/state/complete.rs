//! The ends of descriptors: their order, completion queues, handlers, and what a broken connection
//! leaves.

use super::queue::{End, Running, Stage};
use super::{Direction, ErrorReport, Notify, State, Upcall};
use crate::code::{status, Answer, Code, Fault, Phase, Resource};
use crate::descriptor::Operation;
use crate::raw::{QueueHandler, WorkHandler};
use crate::table::Key;
use crate::wire::{self, number, Reason};
use weft::port::Port;
use weft::{OpError, OpId};

/// Bits of the number of a descriptor in the context of an operation.
const NUMBER_BITS: u32 = 26;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const INDEX_BITS: u32 = 14;

const _: () = assert!(super::VIS_MAX <= 1 << INDEX_BITS);
const _: () = assert!(super::DESCRIPTORS_MAX < 1 << (NUMBER_BITS - 1));

/// Returns the context of the operation of a descriptor of a send queue.
pub(super) fn context(vi: Key, descriptor: u64) -> u64 {
    u64::from(vi.generation) << (NUMBER_BITS + INDEX_BITS)
        | u64::from(vi.index) << NUMBER_BITS
        | descriptor & NUMBER_MASK
}

fn parts(context: u64) -> (Key, u64) {
    let index = (context >> NUMBER_BITS) as u32 & ((1 << INDEX_BITS) - 1);
    let generation = (context >> (NUMBER_BITS + INDEX_BITS)) as u32;
    (Key { index, generation }, context & NUMBER_MASK)
}

impl State {
    /// Completes descriptors that have ended, in their order.
    pub(super) fn settle(&mut self, key: Key, direction: Direction) {
        loop {
            let Some(vi) = self.vis.get_mut(key) else { return };
            let queue = vi.queue(direction);
            let Some(work) = queue.items.get_mut(queue.done) else { return };
            let Stage::Ended(end) = work.stage else { return };
            let (at, cq) = (work.at, queue.cq);
            let written = self.regions.descriptor(at, work.handle);
            if let Some(posted) = written {
                posted.finish(end.status | status::DONE, end.length, end.immediate);
            }
            let gone = written.is_none();
            work.stage = Stage::Done { failed: gone || end.status & status::ERRORS != 0 };
            queue.done += 1;
            queue.started = queue.started.max(queue.done);
            self.changes += 1;
            match cq {
                Some(cq) => self.add_entry(cq, key, direction),
                None => self.serve(key, direction),
            }
            if gone {
                self.report(key, Fault::CompProt, (at, end.status & status::OP_MASK));
            }
        }
    }

    /// Adds an entry to a completion queue. Without room for it the entry is lost, and the program
    /// is told.
    fn add_entry(&mut self, cq: Key, vi: Key, direction: Direction) {
        let Ok(queue) = self.queues.get(cq) else { return };
        if queue.entries.len() >= queue.size {
            if !std::mem::replace(&mut queue.told, true) {
                self.upcalls.push_back(Upcall::Error(ErrorReport {
                    vi: Some(vi),
                    queue: Some(cq),
                    descriptor: 0,
                    operation: 0,
                    resource: Resource::Cq,
                    fault: Fault::ViOverrun,
                }));
            }
            return;
        }
        queue.entries.push_back((vi, direction));
        self.serve_queue(cq);
    }

    /// Gives complete descriptors to the handlers that wait for them.
    fn serve(&mut self, key: Key, direction: Direction) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        let queue = vi.queue(direction);
        while !queue.notifies.is_empty() {
            let Some((at, _)) = queue.take_done() else { return };
            let Some(notify) = queue.notifies.pop_front() else { return };
            self.upcalls.push_back(Upcall::Descriptor(notify, key, at));
        }
    }

    /// Gives entries of a completion queue to the handlers that wait for them.
    fn serve_queue(&mut self, cq: Key) {
        let Ok(queue) = self.queues.get(cq) else { return };
        while !queue.notifies.is_empty() {
            let Some((vi, direction)) = queue.entries.pop_front() else { return };
            queue.told = false;
            let Some(notify) = queue.notifies.pop_front() else { return };
            self.upcalls.push_back(Upcall::Queue(notify, cq, vi, direction));
        }
    }

    /// Lets a handler wait for the next complete descriptor.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such queue, or it has a completion queue;
    /// `VIP_ERROR_RESOURCE`: too many wait.
    pub fn notify(
        &mut self,
        key: Key,
        direction: Direction,
        notify: Notify<WorkHandler>,
    ) -> Answer {
        let vi = self.vis.get_mut(key).ok_or(Code::InvalidParameter)?;
        let queue = vi.queue(direction);
        if queue.cq.is_some() {
            return Err(Code::InvalidParameter);
        }
        if queue.notifies.len() >= super::DESCRIPTORS_MAX {
            return Err(Code::ErrorResource);
        }
        queue.notifies.push_back(notify);
        self.serve(key, direction);
        Ok(())
    }

    /// Lets a handler wait for the next entry of a completion queue.
    ///
    /// # Errors
    /// Returns the errors of [`notify`](State::notify).
    pub fn notify_queue(&mut self, cq: Key, notify: Notify<QueueHandler>) -> Answer {
        let queue = self.queues.get(cq)?;
        if queue.notifies.len() >= super::DESCRIPTORS_MAX {
            return Err(Code::ErrorResource);
        }
        queue.notifies.push_back(notify);
        self.serve_queue(cq);
        Ok(())
    }

    /// Takes the first descriptor of a queue: `None` if it is not complete.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such virtual interface; `VIP_DESCRIPTOR_ERROR` and no
    /// descriptor: the queue is empty.
    #[inline]
    pub fn take_done(&mut self, key: Key, direction: Direction) -> Answer<Option<(u64, bool)>> {
        let queue = self.vis.get_mut(key).ok_or(Code::InvalidParameter)?.queue(direction);
        match queue.is_empty() {
            true => Err(Code::DescriptorError),
            false => Ok(queue.take_done()),
        }
    }

    /// Takes the first descriptor of a queue for a call that waits: `None` if it is not complete.
    ///
    /// # Errors
    /// Returns the errors of `take_done`, and `VIP_INVALID_PARAMETER` also if the queue has a
    /// completion queue.
    #[inline]
    pub fn take_waited(&mut self, key: Key, direction: Direction) -> Answer<Option<(u64, bool)>> {
        let queue = self.vis.get_mut(key).ok_or(Code::InvalidParameter)?.queue(direction);
        match queue.cq {
            None if queue.is_empty() => Err(Code::DescriptorError),
            None => Ok(queue.take_done()),
            Some(_) => Err(Code::InvalidParameter),
        }
    }

    /// Handles the end of an operation of the endpoint.
    pub fn ended(&mut self, port: &Port, context: u64, op: OpId, error: Option<OpError>) {
        let (key, descriptor) = parts(context);
        let Some(vi) = self.vis.get_mut(key) else { return };
        let Some(index) = vi.send.index_of(descriptor, NUMBER_MASK) else { return };
        let unreliable = !vi.is_reliable();
        let Stage::Running(running) = &mut vi.send.items[index].stage else { return };
        if running.op != Some(op) {
            return;
        }
        (running.op, running.uses) = (None, None);
        let is_read = running.status & status::OP_MASK == Operation::Read.status();
        let refused = matches!(error, Some(OpError::Refused | OpError::Unmapped));
        running.status |= match error {
            None => 0,
            // Nobody learns of a write that an unreliable connection loses.
            Some(_) if refused && unreliable && !is_read => 0,
            Some(_) if refused => status::RDMA_PROT,
            Some(_) => status::TRANSPORT,
        };
        vi.reads -= u32::from(is_read);
        if is_read && error.is_none() {
            let bits = self.scatter(key, index);
            self.add_errors(key, index, bits);
        }
        if refused {
            let reason = if is_read { Reason::Read } else { Reason::Write };
            self.refused(port, key, reason);
        }
        self.conclude(port, key, index);
        if is_read {
            self.advance(port, key);
        }
    }

    /// Adds errors to a descriptor whose operation is under way.
    fn add_errors(&mut self, key: Key, index: usize, bits: u32) {
        let work = self.vis.get_mut(key).and_then(|vi| vi.send.items.get_mut(index));
        if let Some(Stage::Running(running)) = work.map(|work| &mut work.stage) {
            running.status |= bits;
        }
    }

    /// Tells the other side that it has refused a write or a read.
    fn refused(&mut self, port: &Port, key: Key, reason: Reason) {
        let Some(vi) = self.vis.get(key).filter(|vi| !vi.is_reliable()) else { return };
        let Some((peer, offer)) = vi.other_side() else { return };
        // Its own failure is reported.
        let _failed = port.post(peer, number(wire::Kind::Notice, offer.id), reason as u32, &[]);
    }

    /// Handles a receipt of the other side.
    pub(super) fn receipt(&mut self, port: &Port, key: Key, bits: u32) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        let awaits = |stage: &Stage| matches!(stage, Stage::Running(r) if r.awaits_receipt);
        let Some(index) = vi.send.items.iter().position(|work| awaits(&work.stage)) else { return };
        let Stage::Running(running) = &mut vi.send.items[index].stage else { return };
        running.awaits_receipt = false;
        running.status |= bits & (status::REMOTE_DESC | status::RDMA_PROT);
        self.conclude(port, key, index);
    }

    /// Ends a descriptor of the send queue if nothing of its operation is left.
    pub(super) fn conclude(&mut self, port: &Port, key: Key, index: usize) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        let Some(work) = vi.send.items.get_mut(index) else { return };
        let Stage::Running(running) = &work.stage else { return };
        if !running.has_ended() {
            return;
        }
        let end = running.end();
        work.stage = Stage::Ended(end);
        self.settle(key, Direction::Send);
        self.failed(port, key, end.status);
    }

    /// Breaks a reliable connection off if a descriptor has failed with these bits.
    pub(super) fn failed(&mut self, port: &Port, key: Key, bits: u32) {
        let reason = match bits & status::OP_MASK {
            status::OP_RDMA_WRITE if bits & status::RDMA_PROT != 0 => Reason::Write,
            status::OP_RDMA_READ if bits & status::RDMA_PROT != 0 => Reason::Read,
            _ => Reason::Descriptor,
        };
        let reliable = self.vis.get(key).is_some_and(super::Vi::is_reliable);
        if bits & status::ERRORS != 0 && reliable {
            self.break_off(port, key, Some(reason), None);
        }
    }

    /// Ends a connection by an error: tells the other side the reason, and the program the fault;
    /// flushes both queues.
    pub(super) fn break_off(
        &mut self,
        port: &Port,
        key: Key,
        reason: Option<Reason>,
        fault: Option<Fault>,
    ) {
        let Some(vi) = self.vis.get_mut(key).filter(|vi| vi.phase == Phase::Connected) else {
            return;
        };
        vi.phase = Phase::Error;
        if let (Some(reason), Some((peer, offer))) = (reason, vi.other_side()) {
            // A peer that has failed needs to hear nothing.
            let _failed = port.post(peer, number(wire::Kind::Break, offer.id), reason as u32, &[]);
        }
        self.leave(port, key);
        self.flush(port, key);
        if let Some(fault) = fault {
            self.report(key, fault, (0, 0));
        }
    }

    /// Takes back operations that are under way, and ends all descriptors as flushed.
    pub(super) fn flush(&mut self, port: &Port, key: Key) {
        let Some(vi) = self.vis.get_mut(key) else { return };
        vi.reads = 0;
        for work in vi.send.items.iter_mut().skip(vi.send.done) {
            let bits = match &mut work.stage {
                Stage::Running(running) => take_back(port, running),
                Stage::Posted => 0,
                _ => continue,
            };
            let operation = self.regions.descriptor(work.at, work.handle);
            let operation = operation.and_then(|d| d.control().operation().ok());
            let operation = operation.map_or(status::OP_SEND, Operation::status);
            let status = if bits == 0 { status::FLUSHED | operation } else { bits };
            work.stage = Stage::Ended(End { status, ..End::default() });
        }
        for work in vi.recv.items.iter_mut().skip(vi.recv.done) {
            let status = status::FLUSHED | status::OP_RECEIVE;
            work.stage = Stage::Ended(End { status, ..End::default() });
        }
        self.settle(key, Direction::Send);
        self.settle(key, Direction::Recv);
        self.blocked.retain(|of| *of != key);
    }

    /// Takes back the operations that use a region, and ends their descriptors with an error of
    /// protection.
    pub(super) fn take_back_memory(&mut self, port: &Port, handle: u32) {
        for key in self.vis.keys() {
            let Some(vi) = self.vis.get_mut(key) else { continue };
            let mut bits = 0;
            for work in vi.send.items.iter_mut().skip(vi.send.done) {
                let Stage::Running(running) = &mut work.stage else { continue };
                if running.uses != Some(handle) {
                    continue;
                }
                vi.reads -= u32::from(running.status & status::OP_MASK == status::OP_RDMA_READ);
                take_back(port, running);
                running.status |= status::PROTECTION;
                bits = running.status;
                let end = running.end();
                work.stage = Stage::Ended(End { length: 0, ..end });
            }
            if bits != 0 {
                self.settle(key, Direction::Send);
                self.failed(port, key, bits);
            }
        }
    }
}

/// Takes the operation of a descriptor back; returns the errors that it has had, with the
/// operation, or 0.
fn take_back(port: &Port, running: &mut Running) -> u32 {
    if let Some(op) = running.op.take() {
        port.endpoint().posted().take_back(op);
    }
    match running.status & status::ERRORS {
        0 => 0,
        _ => running.status,
    }
}
