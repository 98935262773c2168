//! Registered memory of programs: the only memory that is read and written here.
//!
//! A program promises with `VipRegisterMem` that the memory stays there until `VipDeregisterMem`.
//! Each use checks handle, bounds and protection tag first. The state takes operations of the
//! endpoint that use a region back before the region ends.

use crate::descriptor::{Control, Segment};
use crate::descriptor::{CONTROL_LEN, COUNT_AT, IMMEDIATE_AT, LENGTH_AT, SEGMENT_LEN, STATUS_AT};
use crate::table::{Key, Table};
use crate::wire;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
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

/// A registered region.
#[derive(Debug)]
pub struct Region {
    start: *mut u8,
    len: usize,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its key at the endpoint, if another side may use it.
    key: Option<u64>,
}

impl Region {
    /// Returns the address of its first byte.
    pub fn start(&self) -> u64 {
        self.start.addr() as u64
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
    ///
    /// # Safety
    /// Until `remove`, `start..start + len` is memory of the process, and writable where anything
    /// is received or written to it.
    pub unsafe fn add(
        &mut self,
        start: *mut u8,
        len: usize,
        attributes: Attributes,
    ) -> Option<u32> {
        let region = Region { start, len, attributes, key: None };
        self.table.add(region).map(handle_of)
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
        let first = region.start();
        // SAFETY: promised to `add`; `remove` ends it.
        let added = unsafe {
            port.endpoint().regions().register_from(key, first, region.start, region.len, rights)
        };
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
        let region = region.ok_or(Denied)?;
        let offset = at.checked_sub(region.start()).ok_or(Denied)?;
        let end = offset.checked_add(len).ok_or(Denied)?;
        if end > region.len as u64 {
            return Err(Denied);
        }
        let start = region.start.wrapping_add(offset as usize);
        Ok(Span { start, len: len as usize, _of: PhantomData })
    }

    /// Returns a descriptor by address and the handle of its memory, whatever tag that has.
    #[inline]
    pub fn descriptor(&self, at: u64, handle: u32) -> Option<Posted<'_>> {
        let region = self.get(handle)?;
        let offset = at.checked_sub(region.start())?;
        let room = (region.len as u64).checked_sub(offset)? as usize;
        if room < CONTROL_LEN || !at.is_multiple_of(crate::descriptor::ALIGNMENT) {
            return None;
        }
        let start = region.start.wrapping_add(offset as usize);
        Some(Posted { start, room, tag: region.attributes.tag, _of: PhantomData })
    }
}

/// Bytes of a region.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    start: *mut u8,
    len: usize,
    _of: PhantomData<&'a Regions>,
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

    /// Returns the bytes, to be read at once.
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: within a region, as `Regions::add` was promised. A program that changes bytes
        // that are being sent sends arbitrary bytes.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// Copies bytes to its start, as many as both have; returns their number.
    pub fn fill(&self, from: &[u8]) -> usize {
        let len = from.len().min(self.len);
        // SAFETY: within a region, as `Regions::add` was promised. The two may overlap, where a
        // program sends to itself.
        unsafe { std::ptr::copy(from.as_ptr(), self.start, len) };
        len
    }

    /// Returns the first `max` bytes.
    pub fn first(self, max: usize) -> Span<'a> {
        Span { len: self.len.min(max), ..self }
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
        if let Some(by) = by {
            by.resize(by.len().max(self.len), 0);
            let polled = port.poll_for(Some(from), number, &mut by[..self.len])?;
            return Some(polled.inspect(|came| _ = self.fill(&by[..came.len])));
        }
        // SAFETY: within a region, as `Regions::add` was promised. The program leaves the memory of
        // a posted descriptor alone, and this call runs none of its code.
        let into = unsafe { std::slice::from_raw_parts_mut(self.start, self.len) };
        port.poll_for(Some(from), number, into)
    }

    /// Starts a send of the bytes; a completion with the context follows.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::send`].
    pub fn send(&self, port: &Port, to: PeerId, tag: u64, context: u64) -> Result<OpId, Refused> {
        lend(port, self.start, SendArgs { context, ..SendArgs::active(to, tag, self.len) })
    }

    /// Starts a write of the bytes to the other side; a completion with the context follows.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::put`].
    pub fn put(
        &self,
        port: &Port,
        to: PeerId,
        at: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        // SAFETY: the state takes the operation back before the region ends.
        unsafe { port.endpoint().posted().put(self.start, self.len, to, at, context) }
    }

    /// Starts a read of the other side's memory to the bytes; a completion follows.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::get`].
    pub fn get(
        &self,
        port: &Port,
        of: PeerId,
        at: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        // SAFETY: the state takes the operation back before the region ends.
        unsafe { port.endpoint().posted().get(self.start, self.len, of, at, context) }
    }
}

/// Starts a send of lent memory.
fn lend(port: &Port, start: *const u8, args: SendArgs) -> Result<OpId, Refused> {
    // SAFETY: the caller keeps the memory until the completion, or takes the operation back.
    let started =
        unsafe { port.endpoint().posted().send(start, SendArgs { inject: false, ..args }) };
    started.map(|op| op.expect("an active message that is not injected has an operation"))
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

    /// Starts to send these bytes; see [`Span::send`] for memory of the program.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::send`].
    pub fn send(&self, port: &Port, to: PeerId, tag: u64, context: u64) -> Result<OpId, Refused> {
        lend(port, self.0.as_ptr(), SendArgs { context, ..SendArgs::active(to, tag, self.0.len()) })
    }

    /// Starts to put these bytes into a peer's memory; see [`Span::put`] for memory of the program.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::put`].
    pub fn put(
        &self,
        port: &Port,
        to: PeerId,
        at: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        // SAFETY: the owner keeps the vector until the completion, or takes the operation back.
        unsafe { port.endpoint().posted().put(self.0.as_ptr(), self.0.len(), to, at, context) }
    }

    /// Starts to get these bytes from a peer's memory; see [`Span::get`] for memory of the program.
    ///
    /// # Errors
    /// Returns the errors of [`weft::endpoint::Posted::get`].
    pub fn get(
        &mut self,
        port: &Port,
        of: PeerId,
        at: (u64, u64),
        context: u64,
    ) -> Result<OpId, Refused> {
        // SAFETY: as in `put`; nothing reads the vector meanwhile.
        unsafe { port.endpoint().posted().get(self.0.as_mut_ptr(), self.0.len(), of, at, context) }
    }
}

/// A descriptor in a region.
#[derive(Clone, Copy)]
pub struct Posted<'a> {
    start: *mut u8,
    /// Bytes of the region from its start on.
    room: usize,
    /// The tag of its region.
    pub tag: Option<Key>,
    _of: PhantomData<&'a Regions>,
}

impl Posted<'_> {
    fn field<T: Copy>(&self, at: usize) -> T {
        debug_assert!(at + size_of::<T>() <= self.room);
        // SAFETY: inside the region, aligned since the descriptor and all offsets are. A program
        // that changes a posted descriptor meanwhile gets one of the values.
        unsafe { self.start.wrapping_add(at).cast::<T>().read_volatile() }
    }

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
        (at + SEGMENT_LEN <= self.room).then(|| Segment {
            at: self.field(at),
            handle: self.field(at + 8),
            len: self.field(at + 12),
        })
    }

    /// Writes the result, the status last: a program may look at it.
    #[inline]
    pub fn finish(&self, status: u32, length: u32, immediate: Option<u32>) {
        let word = |at: usize| self.start.wrapping_add(at).cast::<u32>();
        // SAFETY: inside the region, and aligned; promised to be writable.
        unsafe {
            if let Some(data) = immediate {
                word(IMMEDIATE_AT).write_volatile(data);
            }
            word(LENGTH_AT).write_volatile(length);
            AtomicU32::from_ptr(word(STATUS_AT)).store(status, Ordering::Release);
        }
    }

    /// Clears the status.
    pub fn begin(&self) {
        // SAFETY: as in `finish`.
        unsafe {
            AtomicU32::from_ptr(self.start.wrapping_add(STATUS_AT).cast())
                .store(0, Ordering::Relaxed);
        }
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
    struct Memory([u8; 256]);

    fn registered(memory: &mut Memory, tag: Option<Key>) -> (Regions, u32, u64) {
        let mut regions = Regions::new(0);
        let attributes = Attributes { tag, write: false, read: false };
        let start = memory.0.as_mut_ptr();
        // SAFETY: the memory outlives the regions, which are dropped in the same test.
        let handle = unsafe { regions.add(start, 256, attributes) }.unwrap();
        (regions, handle, start.addr() as u64)
    }

    #[test]
    fn span__handle_tag_and_bounds_are_checked() {
        let tag = Some(Key { index: 1, generation: 2 });
        let mut memory = Memory([0; 256]);
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
        let mut memory = Memory(std::array::from_fn(|i| i as u8));
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
