//! The connection, or the epoll set, of each descriptor of this process.

mod sys;

pub use sys::{Mapped, Memory, Span};

use crate::holders::{self, Holders};
use crate::slot::{self, Region, Set, Slot, SETS, SLOTS};
use crate::{board, guard, owner, vfork};
use std::sync::atomic::{AtomicU32, Ordering};
use sys::{entry, memory, place, Entry, MARKS, PART};
use weft_streams::count::Count;

/// Descriptors of this process of each connection, and of each set.
static OF_SLOT: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];
static OF_SET: [AtomicU32; SETS] = [const { AtomicU32::new(0) }; SETS];

/// Connections of this process that share memory.
static SHARED: AtomicU32 = AtomicU32::new(0);

/// Mark of an entry that is a set: its index is in the other bits.
const IS_SET: usize = 1;
/// An entry that is a socket of TCP without a connection: it may listen, or be connected later.
const IS_TCP: usize = 2;
/// Bits of the marks.
const MARK_BITS: u32 = 2;

/// The meaning of an entry.
#[derive(Clone, Copy)]
enum Kind {
    Nothing,
    Tcp,
    Set(usize),
    Slot(usize),
}

fn kind(value: *mut Slot) -> Kind {
    match (value.addr() & MARKS, value.is_null()) {
        (_, true) => Kind::Nothing,
        (0, _) => slot::region().map_or(Kind::Nothing, |region| Kind::Slot(index(region, value))),
        (IS_SET, _) => Kind::Set(value.addr() >> MARK_BITS),
        _ => Kind::Tcp,
    }
}

/// Returns the index of a slot.
#[inline]
fn index(region: &Region, slot: *const Slot) -> usize {
    (slot.addr() - region.slots.as_ptr().addr()) / size_of::<Slot>()
}

fn of_number(number: usize) -> *mut Slot {
    std::ptr::without_provenance_mut(number)
}

/// A descriptor of a connection.
#[derive(Clone, Copy)]
pub struct Connection {
    /// Its slot.
    pub slot: &'static Slot,
    /// The slot's number.
    pub at: usize,
    /// The descriptor.
    pub fd: i32,
    /// Its entry in the table.
    entry: Option<&'static Entry>,
}

/// Returns the slot of the connection of a descriptor.
#[inline]
pub fn slot(fd: i32) -> Option<&'static Slot> {
    sys::slot_of(entry(fd)?)
}

/// Returns the connection of a descriptor.
#[inline]
pub fn connection(fd: i32) -> Option<Connection> {
    let entry = entry(fd)?;
    let slot = sys::slot_of(entry)?;
    Some(Connection { slot, at: index(slot::region()?, slot), fd, entry: Some(entry) })
}

/// True if something is kept of a descriptor.
#[inline]
pub fn knows(fd: i32) -> bool {
    entry(fd).is_some_and(|one| !one.load(Ordering::Relaxed).is_null())
}

/// Returns the epoll set of a descriptor, and its index.
#[inline]
pub fn set(fd: i32) -> Option<(&'static Set, usize)> {
    let value = entry(fd)?.load(Ordering::SeqCst);
    if value.addr() & MARKS != IS_SET {
        return None;
    }
    let at = value.addr() >> MARK_BITS;
    Some((&slot::region()?.sets[at], at))
}

/// Returns the set of a number, if it is still there.
pub fn set_of(number: u64) -> Option<(&'static Set, usize)> {
    let at = (number as u32).checked_sub(1)? as usize;
    let set = slot::region()?.sets.get(at)?;
    (set.number(at) == number && !set.holders.is_empty()).then_some((set, at))
}

/// Returns a slot by its index.
pub fn slot_at(at: usize) -> Option<&'static Slot> {
    slot::region()?.slots.get(at)
}

impl Connection {
    /// The connection of a slot, by no descriptor.
    pub fn of_slot(slot: &'static Slot, at: usize) -> Connection {
        Connection { slot, at, fd: -1, entry: None }
    }

    /// True if the descriptor is still this connection's: a thread may have closed it.
    #[inline]
    pub fn is_here(&self) -> bool {
        let own = std::ptr::from_ref(self.slot);
        self.entry.is_some_and(|one| std::ptr::eq(one.load(Ordering::SeqCst), own))
    }

    /// Returns the shared memory, if the connection has some.
    #[inline]
    pub fn memory(&self) -> Option<Memory> {
        memory(self.at)
    }
}

/// Calls `with` with the shared memory of a connection, if it has some.
#[inline]
pub fn with_memory<R>(at: usize, slot: &Slot, with: impl FnOnce(Memory) -> R) -> Option<R> {
    if !slot.is_shared() {
        return None;
    }
    slot.users.fetch_add(1, Ordering::SeqCst);
    let result = memory(at).map(with);
    slot.users.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Sets the shared memory of a slot. `first`: this end sends in the first direction.
pub fn set_memory(at: usize, mapped: Mapped, first: bool) {
    sys::set_memory(at, mapped, first);
    SHARED.fetch_add(1, Ordering::AcqRel);
}

/// A descriptor is a new connection.
pub fn begin(fd: i32) -> Option<Connection> {
    if vfork::is_child() {
        return None;
    }
    guard::begin();
    forget(fd);
    let entry = place(fd)?;
    // A child has either all of it or nothing.
    let _steady = holders::no_fork()?;
    let at = slot::take()?;
    board::renew(at);
    let slot = slot_at(at)?;
    unmap(at, slot);
    OF_SLOT[at].store(1, Ordering::Relaxed);
    entry.store(std::ptr::from_ref(slot).cast_mut(), Ordering::SeqCst);
    connection(fd)
}

/// A descriptor is a socket of TCP, which has no connection here.
pub fn begin_tcp(fd: i32) {
    if !vfork::is_child() {
        forget(fd);
        place(fd).iter().for_each(|entry| entry.store(of_number(IS_TCP), Ordering::SeqCst));
    }
}

/// True if a descriptor is known to be a socket of TCP.
#[inline]
pub fn is_tcp(fd: i32) -> bool {
    entry(fd).is_some_and(|one| one.load(Ordering::Relaxed).addr() == IS_TCP)
}

/// A descriptor is a new epoll set. False if there is no place for one more.
pub fn begin_set(fd: i32) -> bool {
    if vfork::is_child() {
        return false;
    }
    forget(fd);
    let Some(_steady) = holders::no_fork() else { return false };
    let (Some(entry), Some(at)) = (place(fd), slot::take_set()) else { return false };
    OF_SET[at].store(1, Ordering::Relaxed);
    entry.store(of_number(at << MARK_BITS | IS_SET), Ordering::SeqCst);
    true
}

/// A descriptor is another one of the same file.
pub fn copy(from: i32, to: i32) {
    let value = entry(from).map_or(std::ptr::null_mut(), |one| one.load(Ordering::SeqCst));
    forget(to);
    if value.is_null() {
        return;
    }
    let Some(place) = place(to) else { return };
    let count = match kind(value) {
        Kind::Slot(at) => Some(&OF_SLOT[at]),
        Kind::Set(at) => Some(&OF_SET[at]),
        Kind::Tcp | Kind::Nothing => None,
    };
    if let Some(count) = count {
        count.fetch_add(1, Ordering::AcqRel);
    }
    place.store(value, Ordering::SeqCst);
}

/// The end that comes with a descriptor.
pub enum Ended {
    /// Nothing: there are others, or there was nothing.
    Nothing,
    /// The connection of this slot, in this process.
    Connection(usize),
}

/// Takes a descriptor out of the table.
pub fn remove(fd: i32) -> Ended {
    if vfork::is_child() {
        // Descriptors of a child say nothing about those of its parent.
        return Ended::Nothing;
    }
    let null = std::ptr::null_mut();
    match entry(fd).map_or(Kind::Nothing, |one| kind(one.swap(null, Ordering::SeqCst))) {
        Kind::Set(at) if OF_SET[at].fetch_sub(1, Ordering::AcqRel) == 1 => {
            slot::region().iter().for_each(|region| region.sets[at].holders.leave());
            Ended::Nothing
        }
        Kind::Slot(at) if OF_SLOT[at].fetch_sub(1, Ordering::AcqRel) == 1 => Ended::Connection(at),
        _ => Ended::Nothing,
    }
}

/// True if the descriptor is the last one of its connection in this process.
pub fn is_last(connection: &Connection) -> bool {
    OF_SLOT[connection.at].load(Ordering::Acquire) == 1
}

/// The descriptor was closed, or is another file now.
pub fn forget(fd: i32) {
    if let Ended::Connection(at) = remove(fd) {
        release(at);
    }
}

/// This process has no descriptor of a connection any more.
pub fn release(at: usize) {
    let Some(slot) = slot_at(at) else { return };
    unmap(at, slot);
    let own = owner::thread();
    if slot.counts().iter().any(|count| count.is_of_other(own)) {
        // A call that found the descriptor in the table is known before the slot is free.
        slot.counts().into_iter().for_each(Count::share);
        owner::barrier();
    }
    slot.holders.leave();
    if slot.holders.is_empty() {
        board::renew(at);
    }
}

/// Unmaps the shared memory of a connection that this process has left. If a call uses it, it stays
/// until the slot is another connection's.
fn unmap(at: usize, slot: &Slot) {
    // A call counts itself before it looks for the memory.
    if sys::unmap(at, || slot.users.load(Ordering::SeqCst) > 0) {
        SHARED.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Returns the number of connections of this process that share memory.
pub fn shared() -> u32 {
    SHARED.load(Ordering::Relaxed)
}

/// Calls `each` with the index of each connection of this process.
pub fn each_slot(region: &Region, mut each: impl FnMut(usize, &'static Slot)) {
    for (at, count) in OF_SLOT.iter().enumerate().take(region.used.load(Ordering::Acquire) as usize)
    {
        if count.load(Ordering::Acquire) > 0 {
            if let Some(slot) = slot_at(at) {
                each(at, slot);
            }
        }
    }
}

/// Calls `each` with the holders of all that this process has.
fn each_held(region: &'static Region, each: impl Fn(&Holders)) {
    each_slot(region, |_, slot| each(&slot.holders));
    let sets = region.sets.iter().zip(&OF_SET);
    let own = sets.filter(|(_, count)| count.load(Ordering::Acquire) > 0);
    own.for_each(|(set, _)| each(&set.holders));
}

/// A child is about to be made, which has all that this process has.
pub fn is_forking() {
    let Some(region) = slot::region() else { return };
    holders::child_comes(region);
    each_held(region, Holders::inherit);
    each_slot(region, |_, slot| {
        // The child's thread is none that owns a count of its parent's. Two without a bit of their
        // own could not be told apart.
        let shares = if holders::child_has_bit() { Count::share_owned } else { Count::share };
        slot.counts().into_iter().for_each(shares);
    });
}

/// This process is about to become another program, which knows of nothing here; or it has not
/// become it.
pub fn is_leaving(leaves: bool) {
    let Some(region) = slot::region() else { return };
    each_held(region, if leaves { Holders::leave } else { Holders::enter });
}

/// Returns the first descriptor from this one on that is in the table, below `end`.
pub fn next(from: i32, end: i32) -> Option<i32> {
    let mut fd = from;
    while fd < end {
        match sys::part(fd)? {
            None => fd = (fd / PART as i32 + 1) * PART as i32,
            Some(part) if !part[fd as usize % PART].load(Ordering::Relaxed).is_null() => {
                return Some(fd)
            }
            Some(_) => fd += 1,
        }
    }
    None
}
