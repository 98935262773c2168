//! Work queues, and completion queues.

use crate::code::{Answer, Code};
use crate::raw::{QueueHandler, WorkHandler};
use crate::region::Bounce;
use crate::table::{Key, Table};
use std::collections::VecDeque;
use weft::OpId;

/// Most completion queues.
pub const QUEUES_MAX: usize = 4096;
/// Most entries of a completion queue.
pub const ENTRIES_MAX: u64 = 1 << 20;

/// A queue of a virtual interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

/// A handler that the program waits with.
#[derive(Clone, Copy, Debug)]
pub struct Notify<H> {
    /// The handler.
    pub handler: H,
    /// The program's context.
    pub context: usize,
}

/// The result of a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Bits of the status, without "done".
    pub status: u32,
    /// Bytes.
    pub length: u32,
    /// Immediate data that came.
    pub immediate: Option<u32>,
}

/// A descriptor whose operation is under way.
#[derive(Debug, Default)]
pub struct Running {
    /// Operation and errors so far, as in the status.
    pub status: u32,
    /// Bytes.
    pub length: u32,
    /// The operation of the endpoint.
    pub op: Option<OpId>,
    /// The handle of the region that the operation uses.
    pub uses: Option<u32>,
    /// Memory that the operation uses in place of a region.
    pub bounce: Option<Bounce>,
    /// True until the other side has said that the message is in its memory.
    pub awaits_receipt: bool,
}

impl Running {
    /// True if nothing is left to happen.
    pub fn has_ended(&self) -> bool {
        self.op.is_none() && !self.awaits_receipt
    }

    /// Returns its result.
    pub fn end(&self) -> End {
        End { status: self.status, length: self.length, immediate: None }
    }
}

/// The stage of a descriptor.
#[derive(Debug)]
pub enum Stage {
    /// The descriptor waits for its turn, or for a message.
    Posted,
    /// Its operation is under way.
    Running(Running),
    /// The descriptor has ended, and an earlier one has not.
    Ended(End),
    /// The descriptor is complete, with or without errors.
    Done {
        /// True if it has failed.
        failed: bool,
    },
}

/// A descriptor in a queue.
#[derive(Debug)]
pub struct Work {
    /// Its address.
    pub at: u64,
    /// Handle of its memory.
    pub handle: u32,
    /// Its stage.
    pub stage: Stage,
}

/// A queue of descriptors. They become complete in their order.
#[derive(Debug)]
pub struct WorkQueue {
    /// The descriptors.
    pub items: VecDeque<Work>,
    /// Number of the first one, counted from the first that was ever posted.
    pub first: u64,
    /// Number of those at the front that are complete.
    pub done: usize,
    /// Number of those at the front that were begun; as `done` in a receive queue.
    pub started: usize,
    /// The completion queue.
    pub cq: Option<Key>,
    /// Handlers, each for the next complete descriptor.
    pub notifies: VecDeque<Notify<WorkHandler>>,
}

impl WorkQueue {
    /// Makes an empty queue.
    pub fn new(cq: Option<Key>) -> WorkQueue {
        WorkQueue {
            items: VecDeque::new(),
            first: 0,
            done: 0,
            started: 0,
            cq,
            notifies: VecDeque::new(),
        }
    }

    /// True if no descriptor is in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes the first descriptor, if it is complete: its address, and true if it has failed.
    #[inline]
    pub fn take_done(&mut self) -> Option<(u64, bool)> {
        let taken = match self.items.front() {
            Some(Work { at, stage: Stage::Done { failed }, .. }) => (*at, *failed),
            _ => return None,
        };
        self.items.pop_front();
        self.first += 1;
        self.done -= 1;
        self.started = self.started.saturating_sub(1);
        Some(taken)
    }

    /// True if all descriptors are complete, there is room for one more, and neither a completion
    /// queue nor a handler learns of it.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.done == self.items.len()
            && self.done < super::DESCRIPTORS_MAX
            && self.cq.is_none()
            && self.notifies.is_empty()
    }

    /// Adds a descriptor that is complete behind others that are.
    #[inline]
    pub fn add_done(&mut self, at: u64, handle: u32) {
        self.items.push_back(Work { at, handle, stage: Stage::Done { failed: false } });
        self.done += 1;
        self.started = self.done;
    }

    /// Takes the first descriptor, of a queue of which none is complete.
    #[inline]
    pub fn take_first(&mut self) -> Option<Work> {
        let work = self.items.pop_front()?;
        self.first += 1;
        self.started = self.started.saturating_sub(1);
        Some(work)
    }

    /// Adds errors to the operations that are under way.
    pub fn fail_running(&mut self, bits: u32) {
        for work in self.items.iter_mut().skip(self.done) {
            if let Stage::Running(running) = &mut work.stage {
                running.status |= bits;
            }
        }
    }

    /// Returns the index of the descriptor with a number.
    pub fn index_of(&self, number: u64, mask: u64) -> Option<usize> {
        let index = (number.wrapping_sub(self.first) & mask) as usize;
        (index < self.items.len()).then_some(index)
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    /// Entries: a virtual interface, and one of its queues.
    pub entries: VecDeque<(Key, Direction)>,
    /// Most entries.
    pub size: usize,
    /// Queues that use it.
    pub users: u32,
    /// Handlers, each for the next entry.
    pub notifies: VecDeque<Notify<QueueHandler>>,
    /// True if the program was told that it has no room.
    pub told: bool,
}

/// The completion queues of a network interface.
pub struct Queues {
    all: Table<Cq>,
}

/// Checks the number of entries of a completion queue.
fn entries_of(entries: u64) -> Answer<usize> {
    match (1..=ENTRIES_MAX).contains(&entries) {
        true => Ok(entries as usize),
        false => Err(Code::InvalidParameter),
    }
}

impl Queues {
    /// Makes an empty table; `turn` as of [`Table::new`].
    pub fn new(turn: u32) -> Queues {
        Queues { all: Table::new(QUEUES_MAX, turn) }
    }

    /// Makes a queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: a wrong number of entries; `VIP_ERROR_RESOURCE`: too many queues.
    pub fn create(&mut self, entries: u64) -> Answer<Key> {
        let (size, entries, notifies) = (entries_of(entries)?, VecDeque::new(), VecDeque::new());
        let queue = Cq { entries, size, users: 0, notifies, told: false };
        self.all.add(queue).ok_or(Code::ErrorResource)
    }

    /// Returns a queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such queue.
    #[inline]
    pub fn get(&mut self, key: Key) -> Answer<&mut Cq> {
        self.all.get_mut(key).ok_or(Code::InvalidParameter)
    }

    /// Ends a queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_ERROR_RESOURCE`: a virtual interface uses it.
    pub fn destroy(&mut self, key: Key) -> Answer {
        if self.get(key)?.users > 0 {
            return Err(Code::ErrorResource);
        }
        self.all.remove(key);
        Ok(())
    }

    /// Changes the number of entries of a queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none, or the number is wrong; `VIP_ERROR_RESOURCE`: more
    /// entries are in it.
    pub fn resize(&mut self, key: Key, entries: u64) -> Answer {
        let queue = self.get(key)?;
        let size = entries_of(entries)?;
        if queue.entries.len() > size {
            return Err(Code::ErrorResource);
        }
        queue.size = size;
        Ok(())
    }

    /// Takes the first entry of a queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such queue.
    #[inline]
    pub fn take(&mut self, key: Key) -> Answer<Option<(Key, Direction)>> {
        let queue = self.get(key)?;
        let entry = queue.entries.pop_front();
        queue.told &= entry.is_none();
        Ok(entry)
    }

    /// True if a handler waits for an entry.
    pub fn have_handlers(&self) -> bool {
        self.all.values().any(|queue| !queue.notifies.is_empty())
    }
}
