//! Memory of a collective operation, of which parts are sent and received while others are
//! combined. A field knows which of its parts operations use, and refuses to touch those.
//!
//! Memory is borrowed from the caller of a blocking operation, or owned by the operation. In both
//! cases it outlives the field: the functions of this module that make one run the work to its end,
//! or drop it, before they give the memory back; and operations are taken back when the work drops
//! them. The work must not forget (`std::mem::forget`) one.

use crate::endpoint::sys::placed::Placed;
use crate::endpoint::{Endpoint, Status};
use crate::group::element::{encode, store, Element};
use crate::group::number::Kernel;
use std::cell::RefCell;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use weft_core::engine::types::SendArgs;
use weft_core::matching::RecvSpec;
use weft_core::OpError;

/// A part that is in use.
struct Use {
    number: u32,
    range: Range<usize>,
    is_written: bool,
}

#[derive(Default)]
struct Uses {
    all: Vec<Use>,
    last: u32,
}

/// Memory that a collective operation uses.
pub struct Field<'m> {
    ptr: *mut u8,
    len: usize,
    may_write: bool,
    uses: RefCell<Uses>,
    memory: PhantomData<&'m mut [u8]>,
}

/// An operation on a part of a field, which uses it until this is dropped.
pub struct Part<'f> {
    placed: Placed<'f>,
    uses: &'f RefCell<Uses>,
    number: u32,
}

impl Part<'_> {
    /// True if the operation has ended, so that the part is free.
    pub fn is_free(&self) -> bool {
        self.placed.is_free()
    }

    /// Waits for the end; returns error and status.
    pub async fn end(mut self) -> (Option<OpError>, Status) {
        poll_fn(|cx| self.placed.poll(cx)).await
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.uses.borrow_mut().all.retain(|one| one.number != self.number);
    }
}

impl Field<'_> {
    /// Makes a field.
    ///
    /// # Safety
    /// The memory stays valid, and is used by nobody else, until the field and its parts were
    /// dropped, which happens; it is written only if `may_write`.
    pub(super) unsafe fn new(ptr: *mut u8, len: usize, may_write: bool) -> Self {
        Field { ptr, len, may_write, uses: RefCell::default(), memory: PhantomData }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Notes that a part is used.
    ///
    /// # Panics
    /// There is no such part, or the use would disturb another: a fault of the algorithm.
    fn enter(&self, range: &Range<usize>, is_written: bool) -> u32 {
        assert!(range.start <= range.end && range.end <= self.len, "a part outside of its field");
        assert!(self.may_write || !is_written, "the field is only read");
        let uses = &mut *self.uses.borrow_mut();
        let overlaps = |other: &Use| other.range.start < range.end && range.start < other.range.end;
        let disturbs = |other: &Use| (is_written || other.is_written) && overlaps(other);
        assert!(!uses.all.iter().any(disturbs), "a part that is in use");
        uses.last = uses.last.wrapping_add(1);
        if !range.is_empty() {
            uses.all.push(Use { number: uses.last, range: range.clone(), is_written });
        }
        uses.last
    }

    fn at(&self, range: &Range<usize>) -> *mut u8 {
        self.ptr.wrapping_add(range.start)
    }

    /// Sends a part as a message; `args` has its peer, match bits and completion data.
    pub fn send<'f>(
        &'f self,
        endpoint: &'f Endpoint,
        args: SendArgs,
        range: Range<usize>,
    ) -> Part<'f> {
        let number = self.enter(&range, false);
        let args = SendArgs { len: range.len() as u64, ..args };
        // SAFETY: nothing writes the part until `Part` is dropped, and with it the operation; the
        // field's memory lives longer.
        let placed = unsafe { endpoint.send_placed(args, self.at(&range)) };
        Part { placed, uses: &self.uses, number }
    }

    /// Receives a message into a part.
    pub fn recv<'f>(
        &'f self,
        endpoint: &'f Endpoint,
        spec: RecvSpec,
        range: Range<usize>,
    ) -> Part<'f> {
        let number = self.enter(&range, true);
        // SAFETY: nothing uses the part until `Part` is dropped, and with it the operation; the
        // field's memory lives longer.
        let placed = unsafe { endpoint.recv_placed(spec, self.at(&range), range.len()) };
        Part { placed, uses: &self.uses, number }
    }

    /// Receives a message into a part, and polls for it before it is posted: for a caller that
    /// waits for nothing else.
    pub fn recv_polled<'f>(
        &'f self,
        endpoint: &'f Endpoint,
        spec: RecvSpec,
        range: Range<usize>,
    ) -> Part<'f> {
        let number = self.enter(&range, true);
        // SAFETY: nothing uses the part until `Part` is dropped, and with it the operation; the
        // field's memory lives longer.
        let placed = unsafe { endpoint.recv_polled(spec, self.at(&range), range.len()) };
        Part { placed, uses: &self.uses, number }
    }

    /// Calls `f` with the bytes of a part.
    pub fn read<R>(&self, range: Range<usize>, f: impl FnOnce(&[u8]) -> R) -> R {
        let _inside = Inside { uses: &self.uses, number: self.enter(&range, false) };
        // SAFETY: initialised memory that nothing writes while `_inside` lives.
        f(unsafe { std::slice::from_raw_parts(self.at(&range), range.len()) })
    }

    /// Calls `f` with the bytes of a part, to be written.
    pub fn write<R>(&self, range: Range<usize>, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let _inside = Inside { uses: &self.uses, number: self.enter(&range, true) };
        // SAFETY: initialised memory that nothing else uses while `_inside` lives.
        f(unsafe { std::slice::from_raw_parts_mut(self.at(&range), range.len()) })
    }

    /// Combines a part with one of another field, or with another part of this one.
    pub fn fold(&self, kernel: &Kernel, to: Range<usize>, from: (&Field<'_>, Range<usize>)) {
        self.write(to, |all| from.0.read(from.1, |bytes| kernel.fold(all, bytes)));
    }

    /// Copies a part of another field, or another part of this one.
    pub fn copy(&self, to: Range<usize>, from: (&Field<'_>, Range<usize>)) {
        self.write(to, |all| from.0.read(from.1, |bytes| all.copy_from_slice(bytes)));
    }
}

/// The use of a part by a call.
struct Inside<'f> {
    uses: &'f RefCell<Uses>,
    number: u32,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.uses.borrow_mut().all.retain(|one| one.number != self.number);
    }
}

/// A field with memory of its own.
pub struct Slots {
    field: Field<'static>,
    memory: Vec<u8>,
}

impl Slots {
    /// Makes a field of all bytes of `memory`.
    pub fn new(mut memory: Vec<u8>) -> Slots {
        // SAFETY: the memory is kept beside the field, where nothing uses it, and dropped after it.
        let field = unsafe { Field::new(memory.as_mut_ptr(), memory.len(), true) };
        Slots { field, memory }
    }

    /// Returns the memory.
    pub fn into_memory(self) -> Vec<u8> {
        self.memory
    }
}

impl Deref for Slots {
    type Target = Field<'static>;

    fn deref(&self) -> &Field<'static> {
        &self.field
    }
}

/// Runs work on memory of the caller to its end, and makes progress meanwhile.
pub fn with_borrowed<R>(
    endpoint: &Endpoint,
    memory: &mut [u8],
    work: impl AsyncFnOnce(&Field<'_>) -> R,
) -> R {
    // SAFETY: the work ends, or is dropped, in this call; the memory is borrowed for longer.
    let field = unsafe { Field::new(memory.as_mut_ptr(), memory.len(), true) };
    endpoint.block_on(work(&field))
}

/// Runs work on memory of the caller that is read, and on memory that is written.
pub fn with_two<R>(
    endpoint: &Endpoint,
    (from, into): (&[u8], &mut [u8]),
    work: impl AsyncFnOnce(&Field<'_>, &Field<'_>) -> R,
) -> R {
    // SAFETY: the work ends, or is dropped, in this call; the memory is borrowed for longer, and a
    // field that is only read writes nothing.
    let from = unsafe { Field::new(from.as_ptr().cast_mut(), from.len(), false) };
    // SAFETY: as above.
    let into = unsafe { Field::new(into.as_mut_ptr(), into.len(), true) };
    endpoint.block_on(work(&from, &into))
}

/// Runs work on the bytes of values, and returns the values at its end.
pub async fn with_owned<T: Element>(
    mut values: Vec<T>,
    work: impl AsyncFnOnce(&Field<'_>) -> Result<(), OpError>,
) -> Result<Vec<T>, OpError> {
    match T::bytes_mut(&mut values) {
        Some(bytes) => {
            // SAFETY: the values are kept by this future, which drops the work before them.
            let field = unsafe { Field::new(bytes.as_mut_ptr(), bytes.len(), true) };
            work(&field).await?;
        }
        None => {
            let slots = Slots::new(encode(&values));
            work(&slots).await?;
            store(&mut values, &slots.into_memory());
        }
    }
    Ok(values)
}
