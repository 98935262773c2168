//! The state of a network interface: its objects, and the rules by which they change.
//!
//! The state does no waiting: calls of the program and messages of other interfaces change it, and
//! a call that waits looks at it again after each round of progress.

mod callers;
mod complete;
mod connect;
mod hub;
mod queue;
mod receive;
mod tags;
mod transfer;
mod vi;

pub use callers::{Caller, Callers};
pub use hub::Hub;
pub use queue::{Direction, Notify, Queues, WorkQueue, ENTRIES_MAX, QUEUES_MAX};
pub use tags::{Tags, TAGS_MAX};
pub use vi::{check_level, Connection, Request, Vi, ViAttributes};

use crate::code::{Answer, Code, Fault, Resource};
use crate::handle::{pack, Handle, Kind};
use crate::raw::{QueueHandler, WorkHandler};
use crate::region::{Attributes, Regions};
use crate::table::{Key, Table};
use crate::wire::CONNECTIONS;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use weft::port::Port;

/// Longest message and longest write or read, in bytes: that of a message of the port.
pub const TRANSFER_MAX: u64 = 64 << 10;
/// Most virtual interfaces.
pub const VIS_MAX: usize = CONNECTIONS;
/// Most descriptors in a queue.
pub const DESCRIPTORS_MAX: usize = 1 << 16;
/// A call of the program's code, by the thread that serves the interface.
#[derive(Clone, Copy, Debug)]
pub enum Upcall {
    /// A descriptor is complete: handler, context, virtual interface and descriptor.
    Descriptor(Notify<WorkHandler>, Key, u64),
    /// A completion queue has an entry: its own key, the virtual interface, and the direction.
    Queue(Notify<QueueHandler>, Key, Key, Direction),
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
    pub handle: Handle,
    /// Its network address.
    pub host: Ipv4Addr,
    /// Virtual interfaces.
    pub vis: Table<Vi>,
    /// Completion queues.
    pub queues: Queues,
    /// Protection tags.
    pub tags: Tags,
    /// Registered memory.
    pub regions: Regions,
    /// Requests for connections that wait to be accepted, and calls that wait for one.
    pub callers: Callers,
    /// Calls of the program's code that are due.
    pub upcalls: VecDeque<Upcall>,
    /// The virtual interface of each connection.
    ways: Table<Key>,
    /// Virtual interfaces whose next send waits for room.
    blocked: Vec<Key>,
    /// Number of changes for which a thread may wait.
    pub changes: u64,
    /// The name service, if the program has opened it.
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
            vis: Table::new(VIS_MAX, turn),
            queues: Queues::new(turn),
            tags: Tags::new(nic, tagged, turn),
            regions: Regions::new(turn),
            callers: Callers::new(turn),
            upcalls: VecDeque::new(),
            ways: Table::new(CONNECTIONS, turn),
            blocked: Vec::new(),
            changes: 0,
            names: None,
        }
    }

    /// Returns the handle of an object.
    pub fn handle_of(&self, kind: Kind, key: Key) -> Handle {
        pack(kind, self.nic, key)
    }

    /// Ends a protection tag.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_ERROR_RESOURCE`: it is in use.
    pub fn destroy_tag(&mut self, key: Key) -> Answer {
        let of_vi = self.vis.values().any(|vi| vi.attributes.tag == Some(key));
        self.tags.destroy(key, of_vi || self.regions.has_tag(key))
    }

    /// Makes a virtual interface.
    ///
    /// # Errors
    /// `VIP_ERROR_RESOURCE`: there are too many; `VIP_INVALID_PARAMETER`: a queue is none.
    pub fn create_vi(&mut self, attributes: ViAttributes, queues: [Option<Key>; 2]) -> Answer<Key> {
        let mut each = queues.into_iter().flatten();
        each.try_for_each(|queue| self.queues.get(queue).map(|_| ()))?;
        let key = self.vis.add(Vi::new(attributes, queues)).ok_or(Code::ErrorResource)?;
        for queue in queues.into_iter().flatten() {
            self.queues.get(queue)?.users += 1;
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
            if let Ok(queue) = self.queues.get(queue) {
                queue.users -= 1;
                queue.entries.retain(|(of, _)| *of != key);
            }
        }
        self.upcalls.retain(|call| !matches!(call, Upcall::Descriptor(_, of, _) if *of == key));
        self.blocked.retain(|of| *of != key);
    }

    /// Ends a completion queue.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_ERROR_RESOURCE`: a virtual interface uses it.
    pub fn destroy_queue(&mut self, key: Key) -> Answer {
        self.queues.destroy(key)?;
        self.changes += 1;
        self.upcalls.retain(|call| !matches!(call, Upcall::Queue(_, of, ..) if *of == key));
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
        let secret = self.tags.secret(attributes.tag);
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
        self.queues.have_handlers()
            || self.vis.values().any(|vi| notified(&vi.send) || notified(&vi.recv))
    }
}
