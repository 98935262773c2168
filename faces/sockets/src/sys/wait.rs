//! Waits: poll, select and epoll_wait over connections whose bytes may be in a ring, where the
//! kernel does not see them.
//!
//! Each wait looks at the rings first. Before it sleeps in the kernel it has the bytes of all its
//! connections come by TCP, and looks again.

use super::set;
use super::signals::{self, Held, ANY};
use super::slot::{Slot, TOLD, WATCHED};
use super::table::{self, Connection};
use super::{board, look, real, settings, stream, tcp, wake};
use libc::c_int;
use std::sync::atomic::Ordering;

/// Most connections of one wait. Those beyond never have bytes in a ring.
const MOST: usize = 128;

/// The connections and sets of one wait.
pub struct Waiting {
    slots: [(u32, u32); MOST],
    n: usize,
    /// Epoll sets among the descriptors: not seen any more.
    has_sets: bool,
    is_sleeping: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.rise();
    }
}

impl Waiting {
    /// A wait for nothing.
    pub fn new() -> Waiting {
        Waiting { slots: [(0, 0); MOST], n: 0, has_sets: false, is_sleeping: false }
    }

    /// Adds a descriptor that is waited for until it can be read.
    pub fn add(&mut self, fd: i32) {
        let Some(connection) = table::connection(fd) else {
            if let Some((set, _)) = table::set(fd) {
                self.has_sets = true;
                set::is_unseen(fd, set);
            }
            return;
        };
        let slot = connection.slot;
        slot.set(WATCHED);
        if self.n == MOST {
            return never(&connection);
        }
        self.slots[self.n] = (connection.at as u32, slot.generation.load(Ordering::Relaxed));
        self.n += 1;
    }

    /// True if nothing here can have bytes in a ring.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    fn each(&self) -> impl Iterator<Item = (usize, &'static Slot)> + '_ {
        self.slots[..self.n].iter().filter_map(|&(at, generation)| {
            let slot = table::slot_at(at as usize)?;
            let same = slot.generation.load(Ordering::Acquire) == generation;
            same.then_some((at as usize, slot))
        })
    }

    /// Looks at the rings for a while, and lets bytes come there meanwhile; at TCP as well if a
    /// connection leads to another host. True: there are some, or the kernel has something, which
    /// does not wait for a look at rings.
    fn look(&self, held: &mut Option<Held>, is_ready: impl Fn() -> bool) -> bool {
        let mut lucky = [None; MOST];
        let pays = |&(at, slot): &(usize, &Slot)| {
            if look::is_one(slot) {
                return wake::is_lucky(&slot.luck);
            }
            let pays = |memory| wake::pays(&slot.luck, slot, memory);
            table::with_memory(at, slot, pays).unwrap_or(false)
        };
        let all = self.each().filter(pays);
        let found = lucky.iter_mut().zip(all).map(|(to, one)| *to = Some(one)).count();
        if found == 0 {
            return false;
        }
        if is_ready() {
            lucky[..found].iter().flatten().for_each(|(_, slot)| wake::is_busy(&slot.luck));
            return true;
        }
        let (mut first, mut by_tcp) = (None, false);
        for (at, slot) in lucky[..found].iter().flatten() {
            let looks = look::is_one(slot);
            by_tcp |= looks;
            if looks || wake(*at, slot) {
                first.get_or_insert(*slot);
            }
        }
        let Some(first) = first else { return false };
        // Others do not wait longer than a look at a ring.
        let times = if found == 1 { wake::times(first) } else { 1 };
        let found = wake::spin(&first.luck, 1, times, (ANY, held), || {
            self.each().any(|(at, slot)| is_readable(at, slot)) || by_tcp && is_ready()
        });
        if found && by_tcp {
            board::looked();
        }
        found
    }

    /// Has all bytes come by TCP from now on. False if there are bytes in a ring: there is
    /// something to read.
    pub fn lie_down(&mut self) -> bool {
        self.is_sleeping = true;
        self.each().for_each(|(_, slot)| slot.receiver.wait_begins());
        let quiet = self.each().all(|(at, slot)| lie_down(at, slot) != Rest::Readable);
        if !quiet {
            self.rise();
        }
        quiet
    }

    /// The sleep is over.
    pub fn rise(&mut self) {
        if std::mem::take(&mut self.is_sleeping) {
            self.each().for_each(|(_, slot)| slot.receiver.wait_ends());
        }
    }
}

/// Lets bytes of a connection come into its ring. False if they come by TCP.
pub fn wake(at: usize, slot: &'static Slot) -> bool {
    let is_awake = table::with_memory(at, slot, |memory| {
        let held = slot.receiving.take();
        // The descriptor does not matter here.
        let is_awake = held.is_some() && wake::wake(&Connection::of_slot(slot, at), memory);
        drop(held);
        is_awake
    });
    is_awake == Some(true)
}

/// True if a connection has bytes in its ring that are next.
pub fn is_readable(at: usize, slot: &Slot) -> bool {
    let readable = |memory: table::Memory| slot.receiver.is_readable(memory.incoming());
    table::with_memory(at, slot, readable).unwrap_or(false)
}

/// True if a connection has bytes in its ring, next ones or ones behind bytes of TCP.
pub fn holds_bytes(at: usize, slot: &Slot) -> bool {
    let holds = |memory: table::Memory| slot.receiver.has_bytes(memory.incoming());
    table::with_memory(at, slot, holds).unwrap_or(false)
}

/// True if the descriptor is a connection that has bytes in its ring that are next.
pub fn has_bytes(fd: i32) -> bool {
    let Some(connection) = table::connection(fd) else { return false };
    connection.is_here() && is_readable(connection.at, connection.slot)
}

/// True if the descriptor is a connection whose peer was killed before it had read all, of which
/// the program knows nothing yet. TCP would have had a reset, and tells of an error.
pub fn is_broken(fd: i32) -> bool {
    let Some(one) = table::connection(fd).filter(|one| one.slot.is_shared()) else { return false };
    let is_left = |memory: table::Memory| {
        let slot = one.slot;
        slot.sender.unread(memory.out()) > 0 && !slot.receiver.is_told_of_end(memory.incoming())
    };
    !one.slot.has(TOLD)
        && table::with_memory(one.at, one.slot, is_left).unwrap_or(false)
        && settings::is_on()
        && tcp::has_ended(fd)
}

/// The state of a connection before a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing is in its ring, and nothing will come there.
    Empty,
    /// Bytes by TCP come before those in its ring; the kernel tells of them.
    Later,
    /// Its ring has bytes that are next.
    Readable,
}

/// Has all further bytes of a connection come by TCP.
pub fn lie_down(at: usize, slot: &Slot) -> Rest {
    let rest = table::with_memory(at, slot, |memory| {
        let words = memory.incoming();
        let Some(_held) = slot.receiving.take() else {
            // A handler of a signal that interrupted a read: the wait ends, which it may always.
            return Rest::Readable;
        };
        if slot.receiver.sleep(words) == Ok(true) {
            return Rest::Empty;
        }
        slot.receiver.doze(words);
        match slot.receiver.is_readable(words) {
            true => Rest::Readable,
            false => Rest::Later,
        }
    });
    rest.unwrap_or(Rest::Empty)
}

/// No byte of a connection comes by a ring any more, as waits for it cannot be followed.
pub fn never(connection: &Connection) {
    connection.slot.set(super::slot::UNSEEN);
    if let Some(user) = stream::enter(*connection) {
        user.end_receiving();
    }
}

/// Runs a wait of the kernel. `now` is a call that does not wait, and returns with the rings'
/// readiness merged; `is_ready` tells if that would find something; `sleep` is the call itself.
/// Another thread may take what was found: then the wait goes on.
pub fn run(
    mut waiting: Waiting,
    is_poll: bool,
    any: impl Fn() -> bool,
    is_ready: impl Fn() -> bool,
    now: impl Fn() -> c_int,
    sleep: impl FnOnce() -> c_int,
) -> c_int {
    let found = || Some(now()).filter(|&n| n != 0);
    if let Some(n) = any().then(found).flatten() {
        return n;
    }
    if is_poll {
        // A wait for no time.
        return sleep();
    }
    let mut held = None;
    if settings::spins() && waiting.look(&mut held, is_ready) {
        if let Some(n) = found() {
            return n;
        }
    }
    while !waiting.lie_down() {
        if let Some(n) = any().then(found).flatten() {
            return n;
        }
    }
    if signals::end(held) {
        waiting.rise();
        return real::fail(libc::EINTR);
    }
    let (result, waited) = wake::time(sleep);
    let was = real::errno();
    waiting.each().for_each(|(_, slot)| wake::learn(&slot.luck, waited));
    waiting.rise();
    real::set_errno(was);
    result
}
