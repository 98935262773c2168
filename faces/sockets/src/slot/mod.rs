//! The state of a connection, in memory that children share and the peer does not.

mod sys;

pub use sys::{map, region};

use crate::history;
use crate::holders::{self, Holders, PROCESSES};
use crate::lock::Lock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weft_streams::count::Count;
use weft_streams::holding::Holding;
use weft_streams::message::Other;
use weft_streams::receiver::Receiver;
use weft_streams::sender::Sender;

/// Most connections of a process and its children.
pub const SLOTS: usize = 16 << 10;
/// Most epoll sets.
pub const SETS: usize = 1024;
/// Most registrations of a connection in epoll sets.
pub const REGISTRATIONS: usize = 4;
/// Most connections of a set that may be awake.
pub const PLACES: usize = 256;
/// Places of one word of bits.
pub const WORD: usize = u64::BITS as usize;

/// Events of a registration that bytes fire.
pub const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;

/// A connection by TCP.
pub const PLAIN: u32 = 1;
/// A connection that shares memory.
pub const SHARED: u32 = 2;
/// A connection by TCP for good: nothing is counted.
pub const FINAL: u32 = 3;

/// The connection is not to be upgraded.
pub const NEVER: u32 = 1;
/// The descriptor is in non-blocking mode.
pub const NONBLOCKING: u32 = 2;
/// A wait of this library has seen it.
pub const WATCHED: u32 = 4;
/// A wait for the connection does not see the ring: the direction is never awake.
pub const UNSEEN: u32 = 8;
/// The direction's words cannot be: the connection is over.
pub const BROKEN: u32 = 16;
/// The program holds partial packets back (TCP_CORK): all bytes go by TCP meanwhile.
pub const CORKED: u32 = 32;
/// The program has not asked for TCP_NODELAY, which this library sets.
pub const NAGLE: u32 = 64;
/// The program has not limited the bytes that wait to be sent (TCP_NOTSENT_LOWAT), which this
/// library does.
pub const DEEP: u32 = 128;
/// The socket is on loan to the agent, or about to be: nothing is sent by it.
pub const HELD: u32 = 256;
/// The agent has asked for the socket, and does not have it yet.
pub const WANTED: u32 = 512;
/// The program knows that the peer has ended without reading all; or it has ended its receiving
/// direction, so that nothing is known of the peer's end.
pub const NOTIFIED: u32 = 1024;
/// The program has ended its sending direction. The peer knows that only from TCP if the memory
/// came later, and would take it for the end of the process.
pub const SHUT: u32 = 2048;

/// The connection leads to another host: waits spin on TCP before they sleep.
pub const SPINS: u32 = 4096;
/// The kernel was asked about its options and names.
pub const KNOWN: u32 = 8192;

/// A copy of the socket may be on its way to the agent, which does not answer: a close is no end
/// for the peer.
pub const SHOWN: u32 = 32768;

/// The connection leads to another host, and carries long sends or receives.
pub const BULK: u32 = 16384;
/// The program asks each receive for the number of bytes that are left (TCP_INQ).
pub const INQ: u32 = 65536;

/// A registration in an epoll set.
#[derive(Debug, Default)]
pub struct Registration {
    /// The set: index and generation. 0: none.
    pub set: AtomicU64,
    /// The descriptor of the set.
    pub set_fd: AtomicU32,
    /// The descriptor of the registration.
    pub fd: AtomicU32,
    /// Its events.
    pub events: AtomicU32,
    /// The program's number.
    pub data: AtomicU64,
    /// Edge-triggered: the ring's position that was notified of, and one.
    pub notified: AtomicU64,
    /// Its place in the set, and one; 0: none.
    pub place: AtomicU32,
}

/// A connection.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Slot {
    /// `PLAIN`, `SHARED` or `FINAL`.
    pub state: AtomicU32,
    /// Flags.
    pub flags: AtomicU32,
    /// Changes when the slot is given to another connection.
    pub generation: AtomicU32,
    /// Processes that have a descriptor of it. None: it is free once no call uses it.
    pub holders: Holders,
    /// Calls under way that use the shared memory.
    pub users: AtomicU32,
    /// Held to receive from the ring, and to change whether the direction is awake.
    pub receiving: Lock,
    /// The direction that comes in.
    pub receiver: Receiver,
    /// The history of spins on the ring.
    pub history: AtomicU32,
    /// Held to send into the ring.
    pub sending: Lock,
    /// The direction that goes out.
    pub sender: Sender,
    /// The history of long spins on the full ring.
    pub send_history: AtomicU32,
    /// The sender's bytes unread at its last check, and checks since they became fewer.
    pub stuck: AtomicU64,
    /// Progress of the search for the other end.
    pub ask: Ask,
    /// The other end, once it is found.
    pub other: OtherEnd,
    /// Registrations in epoll sets.
    pub registrations: [Registration; REGISTRATIONS],
}

/// Progress of the search for the other end.
#[derive(Debug, Default)]
pub struct Ask {
    /// `IDLE`, `ASKED` or `DENIED`.
    pub state: AtomicU32,
    /// The process that asked.
    pub process: AtomicU32,
    /// Calls since it asked; before that, the last pause while other processes held it.
    pub calls: AtomicU32,
    /// Times that it asked.
    pub times: AtomicU32,
    /// The descriptor by which it asked.
    pub fd: AtomicU32,
    /// Calls until it asks, or looks if it is time to.
    pub left: AtomicU32,
    /// The reason why it stays TCP (`why`). 0: none is known.
    pub why: AtomicU32,
}

/// The other end of a connection that shares memory, as the agent knows it.
#[derive(Debug, Default)]
pub struct OtherEnd([AtomicU64; 3]);

impl OtherEnd {
    /// Keeps it.
    pub fn set(&self, other: Other) {
        let numbers = [other.program, other.token, other.key];
        self.0.iter().zip(numbers).for_each(|(to, number)| to.store(number, Ordering::Relaxed));
    }

    /// Returns it.
    pub fn get(&self) -> Other {
        let [program, token, key] = &self.0;
        let number = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Other { program: number(program), token: number(token), key: number(key) }
    }
}

/// The other end is not asked for.
pub const IDLE: u32 = 0;
/// The agent is asked for the other end.
pub const ASKED: u32 = 1;
/// The other end is not asked for again.
pub const DENIED: u32 = 2;

/// An epoll set.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Set {
    /// Changes when the place is given to another set.
    pub generation: AtomicU32,
    /// Processes that have a descriptor of it.
    pub holders: Holders,
    /// Threads that sleep in a wait for it.
    pub waiting: AtomicU32,
    /// 1 if it is waited for in a way that does not see rings.
    pub unseen: AtomicU32,
    /// 1 once it was waited for by a function of this library: a program that makes its waits by
    /// instructions of its own would not see rings.
    pub is_hooked: AtomicU32,
    /// The history of spins on the rings.
    pub history: AtomicU32,
    /// 1 if waits spin on TCP, as a connection leads to another host.
    pub by_tcp: AtomicU32,
    /// The program's number of the last event of the kernel, and the waits in a row that had no
    /// other.
    pub last: AtomicU64,
    pub alone: AtomicU32,
    /// Rounds through the connections, by which each is the first one in turn.
    pub turn: AtomicU32,
    /// Connections that can be awake: slots, and one.
    pub places: [AtomicU32; PLACES],
    /// Places of connections.
    pub taken: [AtomicU64; PLACES / WORD],
    /// Places of those that may be awake.
    pub awake: [AtomicU64; PLACES / WORD],
}

/// All of it.
#[repr(C)]
pub struct Region {
    /// Slots ever used.
    pub used: AtomicU32,
    /// The search for a free slot begins here.
    pub next: AtomicU32,
    /// The search for a free set begins here.
    pub next_set: AtomicU32,
    /// The processes, by their bits; 0: none.
    pub processes: [Holding; PROCESSES],
    /// The connections.
    pub slots: [Slot; SLOTS],
    /// The sets.
    pub sets: [Set; SETS],
}

impl Slot {
    /// True if a flag is set.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    /// Sets a flag.
    #[inline]
    pub fn set(&self, flag: u32) {
        if !self.has(flag) {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        }
    }

    /// Takes a flag away.
    pub fn clear(&self, flag: u32) {
        self.flags.fetch_and(!flag, Ordering::AcqRel);
    }

    /// The number of the connection: the index of its slot, and the slot's generation.
    pub fn token(&self, at: usize) -> u64 {
        u64::from(self.generation.load(Ordering::Acquire)) << 32 | at as u64
    }

    /// True if the connection is by TCP.
    pub fn is_plain(&self) -> bool {
        self.state.load(Ordering::SeqCst) != SHARED
    }

    /// True if the connection is by TCP for good.
    #[inline]
    pub fn is_final(&self) -> bool {
        self.state.load(Ordering::Relaxed) == FINAL
    }

    /// True if the connection shares memory.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.state.load(Ordering::SeqCst) == SHARED
    }

    /// The counts of both directions.
    pub fn counts(&self) -> [&Count; 2] {
        [&self.receiver.tcp, &self.sender.tcp]
    }

    /// True if no call uses it.
    fn is_idle(&self) -> bool {
        self.users.load(Ordering::SeqCst) == 0
            && self.counts().iter().all(|count| count.calls() == 0)
    }

    fn clean(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.state.store(PLAIN, Ordering::SeqCst);
        self.flags.store(0, Ordering::Relaxed);
        self.history.store(history::NEW, Ordering::Relaxed);
        self.send_history.store(history::NEW, Ordering::Relaxed);
        self.stuck.store(0, Ordering::Relaxed);
        // Nobody is in a call on it. A process that has become another program by exec may have had
        // them, and its number lives on.
        self.receiving.free();
        self.sending.free();
        self.other.set(Other::default());
        self.receiver.renew();
        self.sender.renew();
        if !crate::owner::may_own() {
            self.counts().into_iter().for_each(Count::share);
        }
        let ask = &self.ask;
        for word in [&ask.state, &ask.process, &ask.calls, &ask.times, &ask.fd, &ask.why] {
            word.store(0, Ordering::Relaxed);
        }
        ask.left.store(crate::settings::after().max(1) - 1, Ordering::Relaxed);
        for one in &self.registrations {
            one.set.store(0, Ordering::Relaxed);
            one.place.store(0, Ordering::Relaxed);
        }
    }
}

/// Takes a free slot for a new connection.
pub fn take() -> Option<usize> {
    take_or_reap(take_from)
}

/// Takes a place; if none is free, once more without those of processes that have ended.
fn take_or_reap(take: fn(&Region) -> Option<usize>) -> Option<usize> {
    let region = region()?;
    take(region).or_else(|| {
        holders::reap_all(region);
        take(region)
    })
}

fn take_from(region: &Region) -> Option<usize> {
    let used = region.used.load(Ordering::Relaxed) as usize;
    // A slot that was used has pages already; a few are looked at before a new one is.
    let from = region.next.load(Ordering::Relaxed) as usize;
    let seen = used.min(64);
    let near = (0..seen).map(|i| (from + i) % used.max(1));
    let is_free = |at: &usize| {
        let slot = &region.slots[*at];
        slot.holders.is_empty() && slot.is_idle() && slot.holders.claim()
    };
    let first = Some(from % used.max(1)).filter(|at| used > 0 && is_free(at));
    let search = || near.chain(used..(used + 64).min(SLOTS)).chain(0..used).find(is_free);
    let found = first.or_else(search)?;
    region.slots[found].clean();
    region.used.fetch_max(found as u32 + 1, Ordering::AcqRel);
    region.next.store(found as u32 + 1, Ordering::Relaxed);
    Some(found)
}

/// Takes a place for a new epoll set.
pub fn take_set() -> Option<usize> {
    take_or_reap(take_set_from)
}

fn take_set_from(region: &Region) -> Option<usize> {
    let from = region.next_set.load(Ordering::Relaxed) as usize;
    let all = (0..SETS).map(|i| (from + i) % SETS);
    let found = all.into_iter().find(|&at| region.sets[at].holders.claim())?;
    let set = &region.sets[found];
    set.generation.fetch_add(1, Ordering::AcqRel);
    set.waiting.store(0, Ordering::Relaxed);
    set.unseen.store(0, Ordering::Relaxed);
    set.is_hooked.store(0, Ordering::Relaxed);
    set.by_tcp.store(0, Ordering::Relaxed);
    set.alone.store(0, Ordering::Relaxed);
    set.history.store(history::NEW, Ordering::Relaxed);
    set.places.iter().for_each(|one| one.store(0, Ordering::Relaxed));
    set.taken.iter().chain(&set.awake).for_each(|word| word.store(0, Ordering::Relaxed));
    region.next_set.store(found as u32 + 1, Ordering::Relaxed);
    Some(found)
}

impl Set {
    /// Marks a registration as one that may be awake. False if there is no place for it. The
    /// receiver's lock of its slot is held.
    pub fn mark_awake(&self, at: usize, one: &Registration) -> bool {
        let place = match one.place.load(Ordering::Relaxed).checked_sub(1) {
            Some(place) => place as usize,
            None => {
                let Some(place) = self.take_place() else { return false };
                self.places[place].store(at as u32 + 1, Ordering::Release);
                one.place.store(place as u32 + 1, Ordering::Relaxed);
                place
            }
        };
        self.awake[place / WORD].fetch_or(1 << (place % WORD), Ordering::SeqCst);
        true
    }

    fn take_place(&self) -> Option<usize> {
        self.taken.iter().enumerate().find_map(|(i, word)| loop {
            let free = word.load(Ordering::Relaxed).trailing_ones() as usize;
            if free == WORD {
                return None;
            }
            if word.fetch_or(1 << free, Ordering::AcqRel) & 1 << free == 0 {
                return Some(i * WORD + free);
            }
        })
    }

    /// Marks a place as one that is not awake.
    pub fn mark_asleep(&self, place: usize) {
        self.awake[place / WORD].fetch_and(!(1 << (place % WORD)), Ordering::SeqCst);
    }

    /// Gives up the place of a registration.
    pub fn leave(&self, one: &Registration) {
        if let Some(place) = one.place.swap(0, Ordering::AcqRel).checked_sub(1) {
            self.give(place as usize);
        }
    }

    /// Gives up a place.
    pub fn give(&self, place: usize) {
        self.mark_asleep(place);
        self.places[place].store(0, Ordering::Release);
        self.taken[place / WORD].fetch_and(!(1 << (place % WORD)), Ordering::AcqRel);
    }

    /// True if no place is taken.
    pub fn is_empty(&self) -> bool {
        self.taken.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// The number of places that may be awake.
    pub fn awake_places(&self) -> usize {
        self.awake.iter().map(|word| word.load(Ordering::SeqCst).count_ones() as usize).sum()
    }

    /// Returns the number by which registrations name the set at this index.
    pub fn number(&self, at: usize) -> u64 {
        u64::from(self.generation.load(Ordering::Acquire)) << 32 | (at as u64 + 1)
    }
}
