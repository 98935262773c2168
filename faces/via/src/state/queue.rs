//! Work queues, and completion queues.

use crate::sys::region::Bounce;
use crate::table::Key;
use std::collections::VecDeque;
use weft::OpId;

/// A queue of a virtual interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

/// A handler that the program waits with: address of its code, and its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Address of the handler.
    pub handler: usize,
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
    pub notifies: VecDeque<Notify>,
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
    pub notifies: VecDeque<Notify>,
    /// True if the program was told that it has no room.
    pub told: bool,
}

impl Cq {
    /// Makes an empty one.
    pub fn new(size: usize) -> Cq {
        let (entries, notifies) = (VecDeque::new(), VecDeque::new());
        Cq { entries, size, users: 0, notifies, told: false }
    }
}
