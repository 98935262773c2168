//! The state of a network interface: its objects, and the rules by which they change.
//!
//! The state does no waiting: calls of the program and messages of other interfaces change it, and
//! a call that waits looks at it again after each round of progress.

mod complete;
mod connect;
mod hub;
mod queue;
mod receive;
mod transfer;
mod vi;

pub use connect::{Caller, Waiter};
pub use hub::Hub;
pub use queue::{Direction, Notify, WorkQueue};
pub use vi::{Connection, Request, Vi, ViAttributes};

use crate::code::{level, Answer, Code, Fault, Resource};
use crate::handle::{pack, Kind};
use crate::sys::region::{Attributes, Regions};
use crate::table::{Key, Table};
use crate::wire::CONNECTIONS;
use queue::Cq;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use weft::port::Port;

/// Longest message and longest write or read, in bytes: that of a message of the port.
pub const TRANSFER_MAX: u64 = 64 << 10;
/// Most virtual interfaces.
pub const VIS_MAX: usize = CONNECTIONS;
/// Most completion queues.
pub const QUEUES_MAX: usize = 4096;
/// Most entries of a completion queue.
pub const ENTRIES_MAX: u64 = 1 << 20;
/// Most protection tags.
pub const TAGS_MAX: usize = 4096;
/// Most descriptors in a queue.
pub const DESCRIPTORS_MAX: usize = 1 << 16;
/// Most requests for connections that wait to be accepted.
const CALLERS_MAX: usize = 1024;

/// A protection tag.
#[derive(Debug)]
pub struct Tag {
    /// The part of the keys of regions that the tag gives.
    pub secret: u32,
}

/// A call of the program's code, by the thread that serves the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcall {
    /// A descriptor is complete: handler, context, virtual interface and descriptor.
    Descriptor(Notify, Key, u64),
    /// A completion queue has an entry: its own key, the virtual interface, and the direction.
    Queue(Notify, Key, Key, Direction),
    /// An asynchronous error.
    Error(ErrorReport),
}

/// An asynchronous error: `VIP_ERROR_DESCRIPTOR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// The virtual interface.
    pub vi: Option<Key>,
    /// The completion queue.
    pub queue: Option<Key>,
    /// Address of the descriptor, or 0.
    pub descriptor: u64,
    /// The operation, as in the status of a descriptor.
    pub operation: u32,
    /// The kind of object.
    pub resource: Resource,
    /// The error.
    pub fault: Fault,
}

/// The state of a network interface.
pub struct State {
    /// Number of the interface in this process.
    nic: u8,
    /// Its handle.
    pub handle: u64,
    /// Its network address.
    pub host: Ipv4Addr,
    /// True if it has protection tags.
    pub tagged: bool,
    /// Virtual interfaces.
    pub vis: Table<Vi>,
    /// Completion queues.
    pub queues: Table<Cq>,
    /// Protection tags.
    pub tags: Table<Tag>,
    /// Registered memory.
    pub regions: Regions,
    /// Requests for connections that wait to be accepted.
    pub callers: Table<Caller>,
    /// Calls that wait for a request.
    pub waiters: Vec<Waiter>,
    /// Calls of the program's code that are due.
    pub upcalls: VecDeque<Upcall>,
    /// The virtual interface of each connection.
    ways: Table<Key>,
    /// Virtual interfaces whose next send waits for room.
    blocked: Vec<Key>,
    /// Number of the latest waiter.
    waiter: u64,
    /// Number of changes for which a thread may wait.
    pub changes: u64,
    /// True if the program has opened the name service.
    pub names: Option<weft_ffi::hosts::Service>,
}

impl State {
    /// Makes the state of the interface with this number and key.
    pub fn new(nic: u8, key: Key, host: Ipv4Addr, tagged: bool) -> State {
        let turn = key.generation;
        State {
            nic,
            handle: pack(Kind::Nic, nic, key),
            host,
            tagged,
            vis: Table::new(VIS_MAX, turn),
            queues: Table::new(QUEUES_MAX, turn),
            tags: Table::new(TAGS_MAX, turn),
            regions: Regions::new(turn),
            callers: Table::new(CALLERS_MAX, turn),
            waiters: Vec::new(),
            upcalls: VecDeque::new(),
            ways: Table::new(CONNECTIONS, turn),
            blocked: Vec::new(),
            waiter: 0,
            changes: 0,
            names: None,
        }
    }

    /// Returns the handle of an object.
    pub fn handle_of(&self, kind: Kind, key: Key) -> u64 {
        pack(kind, self.nic, key)
    }

    /// Checks a tag that a program names by handle.
    ///
    /// # Errors
    /// `VIP_INVALID_PTAG`: it is none, and the interface has tags.
    pub fn tag(&self, handle: u64) -> Answer<Option<Key>> {
        if !self.tagged {
            return Ok(None);
        }
        let found = crate::handle::unpack(Kind::Tag, handle).filter(|(nic, _)| *nic == self.nic);
        let found = found.filter(|(_, key)| self.tags.get(*key).is_some());
        found.map(|(_, key)| Some(key)).ok_or(Code::InvalidPtag)
    }

    /// Returns the part of the keys of regions that a tag gives.
    pub fn secret(&self, tag: Option<Key>) -> u32 {
        tag.and_then(|tag| self.tags.get(tag)).map_or(0, |tag| tag.secret)
    }

    /// Makes a protection tag.
    ///
    /// # Errors
    /// `VIP_ERROR_RESOURCE`: there are too many.
    pub fn create_tag(&mut self) -> Answer<Key> {
        // Never 0, the secret of an interface without tags.
        let secret = (weft_link::random_u64() as u32).max(1);
        self.tags.add(Tag { secret }).ok_or(Code::ErrorResource)
    }

    /// Ends a protection tag.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_ERROR_RESOURCE`: it is in use.
    pub fn destroy_tag(&mut self, key: Key) -> Answer {
        self.tags.get(key).ok_or(Code::InvalidParameter)?;
        let of_vi = self.vis.values().any(|vi| vi.attributes.tag == Some(key));
        if of_vi || self.regions.has_tag(key) {
            return Err(Code::ErrorResource);
        }
        self.tags.remove(key);
        Ok(())
    }

    /// Makes a virtual interface.
    ///
    /// # Errors
    /// `VIP_ERROR_RESOURCE`: there are too many; `VIP_INVALID_PARAMETER`: a queue is none.
    pub fn create_vi(&mut self, attributes: ViAttributes, queues: [Option<Key>; 2]) -> Answer<Key> {
        if queues.into_iter().flatten().any(|queue| self.queues.get(queue).is_none()) {
            return Err(Code::InvalidParameter);
        }
        let key = self.vis.add(Vi::new(attributes, queues)).ok_or(Code::ErrorResource)?;
        for queue in queues.into_iter().flatten() {
            self.queues.get_mut(queue).into_iter().for_each(|queue| queue.users += 1);
        }
        Ok(key)
    }

    /// Ends a virtual interface.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_INVALID_STATE`: it is connected or about to be;
    /// `VIP_ERROR_RESOURCE`: descriptors are in its queues.
    pub fn destroy_vi(&mut self, key: Key) -> Answer {
        let vi = self.vis.get(key).ok_or(Code::InvalidParameter)?;
        if vi.is_linked() {
            return Err(Code::InvalidState);
        }
        if !vi.send.is_empty() || !vi.recv.is_empty() {
            return Err(Code::ErrorResource);
        }
        self.forget_vi(key);
        Ok(())
    }

    /// Removes a virtual interface, its entries in completion queues, and calls about it.
    fn forget_vi(&mut self, key: Key) {
        let Some(vi) = self.vis.remove(key) else { return };
        self.changes += 1;
        for queue in [vi.send.cq, vi.recv.cq].into_iter().flatten() {
            if let Some(queue) = self.queues.get_mut(queue) {
                queue.users -= 1;
                queue.entries.retain(|(of, _)| *of != key);
            }
        }
        self.upcalls.retain(|call| !matches!(call, Upcall::Descriptor(_, of, _) if *of == key));
        self.blocked.retain(|of| *of != key);
    }

    /// Makes a completion queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: a wrong number of entries; `VIP_ERROR_RESOURCE`: too many queues.
    pub fn create_queue(&mut self, entries: u64) -> Answer<Key> {
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return Err(Code::InvalidParameter);
        }
        self.queues.add(Cq::new(entries as usize)).ok_or(Code::ErrorResource)
    }

    /// Ends a completion queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_ERROR_RESOURCE`: a virtual interface uses it.
    pub fn destroy_queue(&mut self, key: Key) -> Answer {
        let queue = self.queues.get(key).ok_or(Code::InvalidParameter)?;
        if queue.users > 0 {
            return Err(Code::ErrorResource);
        }
        self.queues.remove(key);
        self.changes += 1;
        self.upcalls.retain(|call| !matches!(call, Upcall::Queue(_, of, ..) if *of == key));
        Ok(())
    }

    /// Changes the number of entries of a completion queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none, or the number is wrong; `VIP_ERROR_RESOURCE`: more
    /// entries are in it.
    pub fn resize_queue(&mut self, key: Key, entries: u64) -> Answer {
        let queue = self.queues.get_mut(key).ok_or(Code::InvalidParameter)?;
        if !(1..=ENTRIES_MAX).contains(&entries) {
            return Err(Code::InvalidParameter);
        }
        if queue.entries.len() as u64 > entries {
            return Err(Code::ErrorResource);
        }
        queue.size = entries as usize;
        Ok(())
    }

    /// Ends the registration of memory: operations that use it are taken back, and their
    /// descriptors fail.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such region, or it begins elsewhere.
    pub fn deregister(&mut self, port: &Port, start: u64, handle: u32) -> Answer {
        let region = self.regions.get(handle).filter(|region| region.start() == start);
        region.ok_or(Code::InvalidParameter)?;
        self.take_back_memory(port, handle);
        self.regions.remove(port, handle);
        Ok(())
    }

    /// Changes the attributes of registered memory.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: there is no such region, or it begins elsewhere;
    /// `VIP_ERROR_RESOURCE`: the endpoint has no room.
    pub fn set_memory(
        &mut self,
        port: &Port,
        (start, handle): (u64, u32),
        attributes: Attributes,
    ) -> Answer {
        let region = self.regions.get(handle).filter(|region| region.start() == start);
        region.ok_or(Code::InvalidParameter)?;
        let secret = self.secret(attributes.tag);
        match self.regions.set(port, handle, attributes, secret) {
            true => Ok(()),
            false => Err(Code::ErrorResource),
        }
    }

    /// Ends all that uses the endpoint, before it closes: connections are broken off.
    pub fn close(&mut self, port: &Port) {
        for key in self.vis.keys() {
            self.disconnect(port, key);
            self.forget_vi(key);
        }
        for key in self.callers.keys() {
            self.reject(port, key);
        }
        self.upcalls.clear();
    }

    /// Reports an asynchronous error of a virtual interface.
    fn report(&mut self, vi: Key, fault: Fault, (descriptor, operation): (u64, u32)) {
        let resource = match descriptor {
            0 => Resource::Vi,
            _ => Resource::Descriptor,
        };
        let vi = Some(vi);
        let report = ErrorReport { vi, queue: None, descriptor, operation, resource, fault };
        self.upcalls.push_back(Upcall::Error(report));
    }

    /// True if the thread that serves the interface has to be there for every message: a handler
    /// waits for one.
    pub fn has_handlers(&self) -> bool {
        let notified = |queue: &WorkQueue| !queue.notifies.is_empty();
        self.queues.values().any(|queue| !queue.notifies.is_empty())
            || self.vis.values().any(|vi| notified(&vi.send) || notified(&vi.recv))
    }
}

/// Checks the level of reliability of a virtual interface.
///
/// # Errors
/// `VIP_INVALID_RELIABILITY_LEVEL`: it is not one level.
pub fn check_level(of: u16) -> Answer<u16> {
    match of.is_power_of_two() && of & !level::ALL == 0 {
        true => Ok(of),
        false => Err(Code::InvalidReliabilityLevel),
    }
}
