//! Operations: their buffers, owners and results.

use super::sleepers::wake;
use super::spare::Pool;
use super::sys::Memory;
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use weft_core::engine::types::{self, Awaited, Completion, Refused};
use weft_core::slab::OpKeys;
use weft_core::{OpError, OpId, PeerId};
use weft_link::Bytes;

/// The status of a successful operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The other side.
    pub source: Option<PeerId>,
    /// Match bits of the message.
    pub tag: u64,
    /// Bytes moved.
    pub len: usize,
    /// Completion data the sender gave.
    pub data: Option<u64>,
    /// Old value, for atomic operations.
    pub value: u64,
}

impl From<types::Status> for Status {
    fn from(s: types::Status) -> Status {
        Status { source: s.source, tag: s.tag, len: s.len as usize, data: s.data, value: s.value }
    }
}

pub(crate) fn error_of(refused: Refused) -> OpError {
    match refused {
        Refused::Peer(peer, failure) => OpError::Peer { peer, failure },
        Refused::Busy => OpError::Busy,
        _ => OpError::Refused,
    }
}

/// The receiver of the completion of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    /// None.
    #[default]
    Nobody,
    /// The completion queue.
    Queue,
    /// A future or a blocking call.
    Waiter,
    /// None, but the program asks when its memory is free.
    Program,
}

/// A waiter's claim to the result of its operation. The engine gives a number again some thousand
/// operations later, perhaps before the waiter collects; the serial number comes only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub op: OpId,
    serial: u64,
}

#[derive(Default)]
struct Entry {
    op: u32,
    serial: u64,
    owner: Owner,
    memory: Memory,
    done: Option<Completion>,
    /// End of the bulk data placed so far.
    high: u64,
    waker: Option<Waker>,
}

impl Entry {
    #[inline]
    fn is_of(&self, ticket: Ticket) -> bool {
        self.op == ticket.op.0 && self.serial == ticket.serial
    }
}

/// A receive that has no operation until it needs one.
#[derive(Default)]
pub(crate) struct AwaitedRecv {
    pub memory: Memory,
    pub done: Option<Awaited>,
    /// The operation that it became, which has the memory.
    pub posted: Option<Ticket>,
}

impl AwaitedRecv {
    pub fn new(memory: Memory) -> AwaitedRecv {
        AwaitedRecv { memory, ..AwaitedRecv::default() }
    }

    /// Forgets the receive; returns its result, and the operation that it became. The fields are
    /// emptied one by one: the whole is so large that the compiler would call for its copy.
    #[inline]
    pub fn end(&mut self) -> (Option<Awaited>, Option<Ticket>) {
        self.memory = Memory::None;
        (self.done.take(), self.posted.take())
    }

    /// Gives the receive an operation.
    pub fn posted(&mut self, op: OpId, ops: &mut OpTable) {
        self.posted = Some(ops.insert(op, Owner::Waiter, std::mem::take(&mut self.memory)));
    }
}

/// A table with an entry for each operation of the engine, at the same index.
#[derive(Default)]
pub(crate) struct OpTable {
    entries: Vec<Entry>,
    /// Ended operations whose index the engine reused before their completion was collected, by
    /// serial number.
    displaced: BTreeMap<u64, Entry>,
    /// Serial number of the newest entry.
    serial: u64,
    /// Number of entries to keep when the others have been collected: see `shrink`.
    places: Option<usize>,
    /// Memory for copies, and for unexpected messages.
    pub(super) spare: Pool,
    /// Number of operations whose memory is borrowed.
    borrowed: usize,
    /// Addresses of borrowed memory that is free again; bounded by its owner.
    pub returned: VecDeque<u64>,
}

impl OpTable {
    #[inline]
    fn get(&self, op: OpId) -> Option<&Entry> {
        match self.entries.get(OpKeys::index(op.0)) {
            Some(entry) if entry.op == op.0 => Some(entry),
            _ => self.displaced.values().rev().find(|entry| entry.op == op.0),
        }
    }

    #[inline]
    fn get_mut(&mut self, op: OpId) -> Option<&mut Entry> {
        match self.entries.get_mut(OpKeys::index(op.0)) {
            Some(entry) if entry.op == op.0 => Some(entry),
            _ => self.displaced.values_mut().rev().find(|entry| entry.op == op.0),
        }
    }

    /// Returns the newest entry of an operation as a ticket.
    pub fn ticket(&self, op: OpId) -> Option<Ticket> {
        self.get(op).map(|entry| Ticket { op, serial: entry.serial })
    }

    /// True if the engine means this operation by its number, and no later one.
    #[inline]
    pub fn is_current(&self, ticket: Ticket) -> bool {
        let entry = self.entries.get(OpKeys::index(ticket.op.0));
        entry.is_some_and(|entry| entry.is_of(ticket))
    }

    #[inline]
    fn awaited(&self, ticket: Ticket) -> Option<&Entry> {
        match self.entries.get(OpKeys::index(ticket.op.0)) {
            Some(entry) if entry.is_of(ticket) => Some(entry),
            _ => self.displaced.get(&ticket.serial),
        }
    }

    #[inline]
    fn awaited_mut(&mut self, ticket: Ticket) -> Option<&mut Entry> {
        match self.entries.get_mut(OpKeys::index(ticket.op.0)) {
            Some(entry) if entry.is_of(ticket) => Some(entry),
            _ => self.displaced.get_mut(&ticket.serial),
        }
    }

    /// Removes an entry.
    #[inline]
    fn take(&mut self, ticket: Ticket) -> Option<Memory> {
        match self.entries.get_mut(OpKeys::index(ticket.op.0)) {
            Some(entry) if entry.is_of(ticket) => {
                // Written in place, since moving the whole entry costs more than all the rest.
                entry.op = 0;
                entry.owner = Owner::Nobody;
                entry.done = None;
                entry.high = 0;
                entry.waker = None;
                Some(std::mem::take(&mut entry.memory))
            }
            _ => self.displaced.remove(&ticket.serial).map(|entry| entry.memory),
        }
    }

    /// Records the buffer of an operation just started.
    #[inline]
    pub fn insert(&mut self, op: OpId, owner: Owner, memory: Memory) -> Ticket {
        let at = OpKeys::index(op.0);
        if self.entries.len() <= at {
            self.entries.resize_with(at + 1, Entry::default);
        }
        let entry = &mut self.entries[at];
        // Operation numbers are never 0, which marks an empty entry.
        if entry.op != 0 {
            let old = std::mem::take(entry);
            self.displaced.insert(old.serial, old);
        }
        self.borrowed += usize::from(owner == Owner::Program);
        self.serial += 1;
        let entry = &mut self.entries[at];
        entry.op = op.0;
        entry.serial = self.serial;
        entry.owner = owner;
        entry.memory = memory;
        Ticket { op, serial: self.serial }
    }

    /// Shrinks the table to the engine's number of places, as soon as all entries beyond are
    /// collected.
    #[cold]
    pub fn shrink(&mut self, places: usize) {
        self.places = Some(places);
        while self.entries.len() > places && self.entries.last().is_some_and(|e| e.op == 0) {
            self.entries.pop();
        }
        if self.entries.len() <= places {
            self.entries.shrink_to_fit();
            self.places = None;
        }
    }

    /// Continues a `shrink` that had to wait for uncollected entries.
    #[inline]
    pub fn shrink_on(&mut self) {
        if let Some(places) = self.places {
            self.shrink(places);
        }
    }

    /// Returns the number of operations that still use borrowed memory.
    pub fn borrowed(&self) -> usize {
        self.borrowed
    }

    /// Returns a copy of `data` in reused memory.
    pub fn copy_of(&mut self, data: &[u8]) -> Memory {
        let mut v = self.spare.take();
        v.clear();
        v.extend_from_slice(data);
        Memory::Owned(v)
    }

    #[inline]
    pub fn read(&self, op: OpId, offset: u64, len: usize) -> &[u8] {
        self.get(op).map_or(&[], |e| e.memory.read(offset, len))
    }

    pub fn write(&mut self, op: OpId, offset: u64, len: u64) -> Option<&mut [u8]> {
        self.get_mut(op)?.memory.write(offset, len as usize)
    }

    /// Copies the first `len` bytes of a payload into an operation's buffer.
    #[inline]
    pub fn place(&mut self, op: OpId, offset: u64, len: u64, payload: Bytes<'_>) {
        let len = (len as usize).min(payload.len());
        if let Some(dst) = self.get_mut(op).and_then(|e| e.memory.write(offset, len)) {
            payload.copy_to(dst);
        }
    }

    /// Records that bulk data was placed in `offset..offset + len`; returns the number of bytes
    /// beyond.
    #[inline]
    pub fn placed(&mut self, op: OpId, offset: u64, len: u64) -> u64 {
        let Some(e) = self.get_mut(op) else { return 0 };
        e.high = e.high.max(offset + len);
        (e.memory.len() as u64).saturating_sub(e.high)
    }

    /// Returns the number of bytes of an operation's buffer from `offset` on.
    #[inline]
    pub fn beyond_of(&self, op: OpId, offset: u64) -> u64 {
        self.get(op).map_or(0, |e| (e.memory.len() as u64).saturating_sub(offset))
    }

    /// Returns the part of a buffer without bulk data, and its offset: the place of the next data,
    /// if it comes in order.
    pub fn beyond(&mut self, op: OpId) -> Option<(u64, &mut [u8])> {
        let e = self.get_mut(op)?;
        let (high, len) = (e.high, e.memory.len());
        Some((high, e.memory.write(high, len.checked_sub(high as usize)?)?))
    }

    /// Records a completion, and returns its owner.
    #[inline]
    pub fn complete(&mut self, c: &Completion) -> Owner {
        let Some(entry) = self.get_mut(c.op) else { return Owner::Nobody };
        let owner = entry.owner;
        match owner {
            Owner::Waiter => {
                entry.done = Some(*c);
                if let Some(w) = entry.waker.take() {
                    wake(w);
                }
            }
            Owner::Queue | Owner::Nobody | Owner::Program if c.released => self.release(c.op),
            _ => {}
        }
        match owner {
            // No call waits for it before a flush.
            Owner::Program => Owner::Nobody,
            other => other,
        }
    }

    /// Releases an operation's buffer, which the engine needs no more.
    pub fn release(&mut self, op: OpId) {
        let Some(entry) = self.get_mut(op) else { return };
        if let (Owner::Waiter, Some(done)) = (entry.owner, &mut entry.done) {
            // The waiter has not collected it and its buffer yet.
            done.released = true;
            return;
        }
        let borrowed = entry.owner == Owner::Program;
        let ticket = Ticket { op, serial: entry.serial };
        if let Some(memory) = self.take(ticket) {
            if borrowed {
                self.give_back(&memory);
            }
            self.keep(memory);
        }
    }

    #[cold]
    fn give_back(&mut self, memory: &Memory) {
        self.borrowed -= 1;
        if let Memory::Raw(ptr, _) = memory {
            self.returned.push_back(*ptr as u64);
        }
    }

    fn keep(&mut self, memory: Memory) {
        if let Memory::Owned(v) = memory {
            self.spare.keep(v);
        }
    }

    /// Takes the completion of an operation that a future or blocking call waits for, with its
    /// buffer.
    #[inline]
    pub fn take_done(&mut self, ticket: Ticket) -> Option<(Completion, Memory)> {
        let entry = self.awaited_mut(ticket)?;
        let done = entry.done?;
        if done.released {
            return self.take(ticket).map(|memory| (done, memory));
        }
        entry.done = None;
        entry.owner = Owner::Nobody;
        Some((done, Memory::None))
    }

    /// Abandons an operation whose memory is about to become invalid: if the memory `is_read`, a
    /// copy replaces it.
    pub fn take_back(&mut self, ticket: Ticket, is_read: bool) {
        if let Some(e) = self.awaited_mut(ticket) {
            let memory = std::mem::take(&mut e.memory);
            if is_read {
                e.memory = Memory::Owned(memory.read(0, memory.len()).to_vec());
            }
        }
        self.abandon(ticket);
    }

    /// Sends the completion of a waiter's operation to the queue instead.
    pub fn queue(&mut self, ticket: Ticket) {
        if let Some(e) = self.awaited_mut(ticket) {
            e.owner = Owner::Queue;
        }
    }

    /// True if the result of an operation is there.
    pub fn is_done(&self, ticket: Ticket) -> bool {
        self.awaited(ticket).is_some_and(|e| e.done.is_some())
    }

    pub fn set_waker(&mut self, ticket: Ticket, waker: &Waker) {
        if let Some(e) = self.awaited_mut(ticket) {
            e.waker = Some(waker.clone());
        }
    }

    /// Abandons an operation: no waiter collects it any more.
    pub fn abandon(&mut self, ticket: Ticket) {
        if let Some(e) = self.awaited_mut(ticket) {
            if e.done.is_some_and(|d| d.released) {
                self.take(ticket);
                return;
            }
            e.owner = Owner::Nobody;
            e.waker = None;
            e.done = None;
        }
    }
}
