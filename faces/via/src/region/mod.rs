//! Registered memory of programs: the only memory that is read and written here.
//!
//! A program promises with `VipRegisterMem` that the memory stays there until `VipDeregisterMem`.
//! Each use checks handle, bounds and protection tag first. The state takes operations of the
//! endpoint that use a region back before the region ends.

#[allow(unsafe_code)]
mod sys;

use crate::descriptor::{Control, Segment};
use crate::descriptor::{ALIGNMENT, CONTROL_LEN, COUNT_AT, IMMEDIATE_AT, LENGTH_AT, SEGMENT_LEN};
use crate::table::{Key, Table};
use crate::wire;
use std::marker::PhantomData;
use weft::memory::is_mapped;
use weft::port::Port;
use weft::{OpError, OpId, PeerId, Refused, Rights, SendArgs, Status};

/// Most regions of a network interface.
pub const REGIONS_MAX: usize = 1 << HANDLE_BITS;
const HANDLE_BITS: u32 = 16;
const HANDLE_MASK: u32 = (1 << HANDLE_BITS) - 1;

/// Attributes of a region: `VIP_MEM_ATTRIBUTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its protection tag; none where the interface has no tags.
    pub tag: Option<Key>,
    /// True if the other side of a connection may write to it.
    pub write: bool,
    /// True if the other side of a connection may read it.
    pub read: bool,
}

/// Memory of a program, which is there until its region ends.
#[derive(Debug)]
pub struct Memory {
    start: *mut u8,
    len: usize,
}

impl Memory {
    /// True if there may be memory, and all of it is mapped.
    pub fn is_there(&self) -> bool {
        !self.start.is_null() && self.len > 0 && is_mapped(self.start.cast(), self.len)
    }
}

/// A registered region.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its key at the endpoint, if another side may use it.
    key: Option<u64>,
}

impl Region {
    /// Returns the address of its first byte.
    #[inline]
    pub fn start(&self) -> u64 {
        self.memory.start.addr() as u64
    }

    /// Returns the bytes from an address on. `None` if that is none of the region, or of its end.
    #[inline]
    fn rest(&self, at: u64) -> Option<Span<'_>> {
        let Memory { start, len } = self.memory;
        let offset = at.checked_sub(self.start())?;
        let len = (len as u64).checked_sub(offset)? as usize;
        Some(Span { start: start.wrapping_add(offset as usize), len, _of: PhantomData })
    }
}

/// The reason why memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied;

/// The regions of a network interface.
#[derive(Debug)]
pub struct Regions {
    table: Table<Region>,
}

/// Returns the key of a region at the endpoint of the other side.
pub fn remote_key(secret: u32, handle: u32) -> u64 {
    u64::from(secret) << 32 | u64::from(handle)
}

fn handle_of(key: Key) -> u32 {
    (key.generation & HANDLE_MASK) << HANDLE_BITS | key.index
}

impl Regions {
    /// Makes an empty table; `turn` as of [`Table::new`].
    pub fn new(turn: u32) -> Regions {
        Regions { table: Table::new(REGIONS_MAX, turn) }
    }

    /// Adds a region; returns its handle, which is never 0. `None` if there are too many.
    pub fn add(&mut self, memory: Memory, attributes: Attributes) -> Option<u32> {
        self.table.add(Region { memory, attributes, key: None }).map(handle_of)
    }

    fn key(&self, handle: u32) -> Option<Key> {
        self.table.key_at(handle & HANDLE_MASK, handle >> HANDLE_BITS, HANDLE_MASK)
    }

    /// Returns a region.
    pub fn get(&self, handle: u32) -> Option<&Region> {
        self.table.get(self.key(handle)?)
    }

    /// Changes the attributes of a region, and lets the other sides of connections use it by them.
    /// False if there is no such region, or the endpoint has no room for it.
    pub fn set(&mut self, port: &Port, handle: u32, attributes: Attributes, secret: u32) -> bool {
        let Some(region) = self.key(handle).and_then(|key| self.table.get_mut(key)) else {
            return false;
        };
        if let Some(old) = region.key.take() {
            port.endpoint().regions().unregister(old);
        }
        region.attributes = attributes;
        let rights = Rights { read: attributes.read, write: attributes.write };
        if !rights.read && !rights.write {
            return true;
        }
        let key = remote_key(secret, handle);
        let added = region.memory.register(port, key, rights);
        region.key = added.then_some(key);
        added
    }

    /// Ends a region.
    pub fn remove(&mut self, port: &Port, handle: u32) -> Option<Region> {
        let region = self.table.remove(self.key(handle)?)?;
        if let Some(key) = region.key {
            port.endpoint().regions().unregister(key);
        }
        Some(region)
    }

    /// True if a region has this tag.
    pub fn has_tag(&self, tag: Key) -> bool {
        self.table.values().any(|region| region.attributes.tag == Some(tag))
    }

    /// Returns memory by handle and address.
    ///
    /// # Errors
    /// There is no such region, it has another tag, or the bytes are not all in it.
    #[inline]
    pub fn span(
        &self,
        at: u64,
        len: u64,
        handle: u32,
        tag: Option<Key>,
    ) -> Result<Span<'_>, Denied> {
        let region = self.get(handle).filter(|region| region.attributes.tag == tag);
        let rest = region.and_then(|region| region.rest(at)).ok_or(Denied)?;
        match usize::try_from(len) {
            Ok(len) if len <= rest.len => Ok(Span { len, ..rest }),
            _ => Err(Denied),
        }
    }

    /// Returns a descriptor by address and the handle of its memory, whatever tag that has.
    #[inline]
    pub fn descriptor(&self, at: u64, handle: u32) -> Option<Posted<'_>> {
        let region = self.get(handle)?;
        let all = region.rest(at)?;
        let is_one = all.len >= CONTROL_LEN && at.is_multiple_of(ALIGNMENT);
        is_one.then_some(Posted { all, tag: region.attributes.tag })
    }
}

/// Bytes of a region.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    start: *mut u8,
    len: usize,
    _of: PhantomData<&'a u8>,
}

/// A descriptor in a region.
#[derive(Clone, Copy)]
pub struct Posted<'a> {
    /// The bytes of the region from its start on.
    all: Span<'a>,
    /// The tag of its region.
    pub tag: Option<Key>,
}

/// Memory of the face, for bytes that are not in one piece: kept until its operation has ended.
#[derive(Debug)]
pub struct Bounce(Vec<u8>);

impl Bounce {
    /// Makes memory of some bytes.
    pub fn new(bytes: Vec<u8>) -> Bounce {
        Bounce(bytes)
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes for an operation.
    pub fn span(&mut self) -> Span<'_> {
        Span { start: self.0.as_mut_ptr(), len: self.0.len(), _of: PhantomData }
    }
}

impl<'a> Span<'a> {
    /// No bytes.
    pub const EMPTY: Span<'static> =
        Span { start: std::ptr::dangling_mut(), len: 0, _of: PhantomData };

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first `max` bytes.
    pub fn first(self, max: usize) -> Span<'a> {
        Span { len: self.len.min(max), ..self }
    }

    /// Starts a send of the bytes; a completion with the context follows.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::send`].
    pub fn send(&self, port: &Port, to: PeerId, tag: u64, context: u64) -> Result<OpId, Refused> {
        let args = SendArgs { context, ..SendArgs::active(to, tag, self.len) };
        let started = self.post_send(port, SendArgs { inject: false, ..args });
        started.map(|op| op.expect("an active message that is not injected has an operation"))
    }

    /// Polls briefly for a message of the port, and stores it at the start, by way of other memory
    /// where there is some: a message that is longer changes nothing then. `None` as of
    /// [`Port::poll_for`].
    ///
    /// # Errors
    /// `Truncated`: it is longer.
    #[inline]
    pub fn poll_for(
        &self,
        port: &Port,
        (from, number): (PeerId, u32),
        by: Option<&mut Vec<u8>>,
    ) -> Option<Result<Status, OpError>> {
        let Some(by) = by else { return self.poll_into(port, from, number) };
        by.resize(by.len().max(self.len), 0);
        let polled = port.poll_for(Some(from), number, &mut by[..self.len])?;
        Some(polled.inspect(|came| _ = self.fill(&by[..came.len])))
    }
}

impl Posted<'_> {
    /// Reads the control segment.
    #[inline]
    pub fn control(&self) -> Control {
        Control {
            segments: self.field(COUNT_AT),
            control: self.field(COUNT_AT + 2),
            immediate: self.field(IMMEDIATE_AT),
            length: self.field(LENGTH_AT),
        }
    }

    /// Reads a segment. `None` if it is not all in the region.
    #[inline]
    pub fn segment(&self, number: u16) -> Option<Segment> {
        let at = CONTROL_LEN + usize::from(number) * SEGMENT_LEN;
        (at + SEGMENT_LEN <= self.all.len).then(|| Segment {
            at: self.field(at),
            handle: self.field(at + 8),
            len: self.field(at + 12),
        })
    }
}

/// Returns the tag of a message of this client of the port.
#[inline]
pub fn tag(number: u32, argument: u32) -> u64 {
    u64::from(argument) << 32 | u64::from(wire::CLIENT) << 24 | u64::from(number)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::code::status;

    #[repr(C, align(64))]
    struct Bytes([u8; 256]);

    fn registered(memory: &mut Bytes, tag: Option<Key>) -> (Regions, u32, u64) {
        let mut regions = Regions::new(0);
        let attributes = Attributes { tag, write: false, read: false };
        let start = memory.0.as_mut_ptr();
        let handle = regions.add(Memory { start, len: 256 }, attributes).unwrap();
        (regions, handle, start.addr() as u64)
    }

    #[test]
    fn span__handle_tag_and_bounds_are_checked() {
        let tag = Some(Key { index: 1, generation: 2 });
        let mut memory = Bytes([0; 256]);
        let (regions, handle, at) = registered(&mut memory, tag);
        assert_ne!(handle, 0);
        let span = |at, len, handle, tag| regions.span(at, len, handle, tag).map(|s| s.len());
        assert_eq!(span(at, 256, handle, tag), Ok(256));
        assert_eq!(span(at + 256, 0, handle, tag), Ok(0));
        for (at, len) in [(at - 1, 1), (at, 257), (at + 257, 0), (at, u64::MAX), (u64::MAX, 2)] {
            assert_eq!(span(at, len, handle, tag), Err(Denied), "{len}");
        }
        assert_eq!(span(at, 1, handle + 1, tag), Err(Denied));
        assert_eq!(span(at, 1, handle ^ 1 << 20, tag), Err(Denied));
        assert_eq!(span(at, 1, handle, None), Err(Denied));
        let other = Some(Key { index: 1, generation: 3 });
        assert_eq!(span(at, 1, handle, other), Err(Denied));
    }

    #[test]
    fn descriptor__fields_lie_where_the_interface_says() {
        let mut memory = Bytes(std::array::from_fn(|i| i as u8));
        let (regions, handle, at) = registered(&mut memory, None);
        let posted = regions.descriptor(at + 64, handle).unwrap();
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| (at + i) as u8));
        let half = |at: usize| u16::from_le_bytes(std::array::from_fn(|i| (at + i) as u8));
        let control = posted.control();
        assert_eq!((control.segments, control.control), (half(76), half(78)));
        assert_eq!((control.immediate, control.length), (word(84), word(88)));
        let segment = posted.segment(1).unwrap();
        assert_eq!((segment.at >> 32, segment.handle), (word(116).into(), word(120)));
        assert_eq!(segment.len, word(124));
        assert!(posted.segment(9).is_some() && posted.segment(10).is_none());
        posted.finish(status::DONE, 7, Some(9));
        assert_eq!(memory.0[84..96], [9, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0]);
        let (regions, handle, at) = registered(&mut memory, None);
        for wrong in [at + 1, at + 32, at + 256, at - 64, 0, u64::MAX - 63] {
            assert!(regions.descriptor(wrong, handle).is_none(), "{wrong}");
        }
    }
}
