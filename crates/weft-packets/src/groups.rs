//! The multicast groups of an endpoint, and their packets on the way.

use super::multicast::{Delivery, Group, InFlight};
use super::wire::{GroupId, Multicast};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use weft::port::{Arrived, Port};
use weft::PeerId;
use weft_core::slab::Slab;

/// Groups that have ended of which late packets are known as such. All packets of an older one have
/// come long before.
const ENDED_MAX: usize = 1024;

/// The groups, those that have ended, and packets of those that are made later.
#[derive(Default)]
pub(super) struct Groups {
    table: BTreeMap<GroupId, Group>,
    /// Groups that have ended, at most [`ENDED_MAX`].
    ended: VecDeque<GroupId>,
    /// Packets of groups not yet made here; bounded like those of a mailbox.
    orphans: VecDeque<Arrived>,
}

impl Groups {
    /// Adds a group. Returns the packets that came before it; `None` if there is one with this id.
    pub fn make(&mut self, id: GroupId, group: Group) -> Option<VecDeque<Arrived>> {
        if self.table.contains_key(&id) {
            return None;
        }
        self.table.insert(id, group);
        self.ended.retain(|&ended| ended != id);
        let is_its = |arrived: &Arrived| {
            Multicast::parse(&arrived.data).is_some_and(|(header, _)| header.id() == id)
        };
        let (its, others) = std::mem::take(&mut self.orphans).into_iter().partition(is_its);
        self.orphans = others;
        Some(its)
    }

    /// Removes a group: later packets of it are not taken.
    pub fn end(&mut self, id: GroupId) -> Option<Group> {
        let group = self.table.remove(&id)?;
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(id);
        Some(group)
    }

    pub fn contains(&self, id: GroupId) -> bool {
        self.table.contains_key(&id)
    }

    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.table.get(&id)
    }

    pub fn get_mut(&mut self, id: GroupId) -> Option<&mut Group> {
        self.table.get_mut(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.table.iter().map(|(&id, group)| (id, group))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (GroupId, &mut Group)> {
        self.table.iter_mut().map(|(&id, group)| (id, group))
    }

    /// Keeps a packet of a group that is made later; one of a group that has ended goes back. Until
    /// then the packet holds its sender's credit, which bounds the queue.
    pub fn keep_early(&mut self, port: &Port, id: GroupId, mut packet: Arrived) {
        if self.ended.contains(&id) {
            return port.release(packet);
        }
        port.note_kept(&mut packet);
        self.orphans.push_back(packet);
    }
}

/// Multicast packets that are being forwarded and delivered here; bounded by the trees' credit.
#[derive(Default)]
pub(super) struct Flights {
    table: Slab<InFlight>,
    /// Packets whose upcall is due.
    due: VecDeque<Delivery>,
}

impl Flights {
    /// Adds a packet; `None` if there are too many.
    pub fn insert(&mut self, flight: InFlight) -> Option<u32> {
        self.table.insert(flight)
    }

    pub fn get(&self, id: u32) -> Option<&InFlight> {
        self.table.get(id)
    }

    /// Drops one reference to a packet; returns the packet with the last one.
    pub fn land(&mut self, id: u32) -> Option<InFlight> {
        let flight = self.table.get_mut(id)?;
        flight.refs -= 1;
        match flight.refs {
            0 => self.table.remove(id),
            _ => None,
        }
    }

    /// Makes the upcall of a packet due.
    pub fn deliver(&mut self, id: u32, source: PeerId) {
        let Some(flight) = self.table.get(id) else { return };
        let (handler, argument, buf) = (flight.handler, flight.argument, Rc::clone(&flight.buf));
        self.due.push_back(Delivery { id, handler, argument, source, buf });
    }

    /// Makes an upcall due for a packet that waited in a mailbox.
    pub fn redeliver(&mut self, delivery: Delivery) {
        self.due.push_back(delivery);
    }

    /// Takes the next upcall that is due.
    pub fn next_due(&mut self) -> Option<Delivery> {
        self.due.pop_front()
    }

    /// True if an upcall is due.
    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }
}
