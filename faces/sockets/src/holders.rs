//! The processes that hold a connection or a set: a bit for each, in memory that all of them share.
//!
//! A process that ends takes nothing back. Its bits are cleared by those that need to know: before
//! a connection is joined or reset, and where no slot is left.

use crate::lock::{self, Held, Lock};
use crate::slot::{self, Region};
use crate::sys::{calls, real};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weft_streams::holding::Holding;
use weft_streams::leaving::Leaving;

/// Words of bits.
const WORDS: usize = 4;
/// Processes that have a bit of their own.
pub const PROCESSES: usize = 64 * WORDS - 1;
/// The bit of all others, for good: it is never cleared.
const OTHERS: u32 = PROCESSES as u32;

/// This process's bit.
static OWN: AtomicU32 = AtomicU32::new(OTHERS);
/// The bit of the child that is being made.
static CHILD: AtomicU32 = AtomicU32::new(OTHERS);
/// Held while a child is being made, and while the connections of this process change.
static FORK: Lock = Lock::new();
/// The thread that makes the child; 0: none. It may wait for what the child does (CLONE_VFORK).
static MAKER: AtomicU32 = AtomicU32::new(0);
/// The calls of this process by which other programs begin.
static LEAVING: Leaving = Leaving::new();

thread_local! {
    /// The bit of the child that this thread made last.
    static LAST: Cell<u32> = const { Cell::new(OTHERS) };
}

/// Bits of processes.
type Bits = [u64; WORDS];

/// The holders of one thing.
#[derive(Debug, Default)]
pub struct Holders {
    bits: [AtomicU64; WORDS],
    /// 1 while a process takes it.
    claim: AtomicU32,
}

impl Holders {
    fn word(&self, bit: u32) -> (&AtomicU64, u64) {
        (&self.bits[bit as usize / 64 % WORDS], 1 << (bit % 64))
    }

    fn set(&self, bit: u32) {
        let (word, mask) = self.word(bit);
        word.fetch_or(mask, Ordering::AcqRel);
    }

    fn clear(&self, bit: u32) {
        let (word, mask) = self.word(bit);
        if bit != OTHERS && word.load(Ordering::Relaxed) & mask != 0 {
            word.fetch_and(!mask, Ordering::AcqRel);
        }
    }

    fn bits(&self) -> Bits {
        std::array::from_fn(|i| self.bits[i].load(Ordering::Acquire))
    }

    /// True if nobody holds it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bits() == [0; WORDS]
    }

    /// Takes it for this process, if nobody holds it. A process without a bit takes nothing.
    pub fn claim(&self) -> bool {
        let own = OWN.load(Ordering::Relaxed);
        if own == OTHERS || self.claim.swap(1, Ordering::Acquire) != 0 {
            return false;
        }
        let free = self.is_empty();
        if free {
            self.set(own);
        }
        self.claim.store(0, Ordering::Release);
        free
    }

    /// This process does not hold it any more.
    pub fn leave(&self) {
        self.clear(OWN.load(Ordering::Relaxed));
    }

    /// This process holds it again.
    pub fn enter(&self) {
        self.set(OWN.load(Ordering::Relaxed));
    }

    /// The child that is being made holds it as well.
    pub fn inherit(&self) {
        self.set(CHILD.load(Ordering::Relaxed));
    }

    /// A program that cannot be followed holds it as well.
    pub fn has_strangers(&self) {
        self.set(OTHERS);
    }

    /// True if this process alone holds it.
    pub fn is_own(&self) -> bool {
        self.is_of(|_| 0)
    }

    /// True if no other process that can be followed holds it.
    pub fn is_own_or_strangers(&self) -> bool {
        self.is_of(|word| if word == OTHERS as usize / 64 { 1 << (OTHERS % 64) } else { 0 })
    }

    /// True if this process holds it, and none of another bit but those that `but` has of a word.
    fn is_of(&self, but: impl Fn(usize) -> u64) -> bool {
        let own = OWN.load(Ordering::Relaxed);
        if own == OTHERS {
            return false;
        }
        let others = |bits: Bits| {
            let mut bits = bits;
            bits[own as usize / 64] &= !(1 << (own % 64));
            bits.iter_mut().enumerate().for_each(|(word, bits)| *bits &= !but(word));
            bits
        };
        let before = others(self.bits());
        if before == [0; WORDS] {
            return true;
        }
        slot::region().iter().for_each(|region| reap(region, before));
        others(self.bits()) == [0; WORDS]
    }
}

/// Returns the number of this process's bit, which no other process has that can be followed.
#[inline]
pub fn own_bit() -> u64 {
    OWN.load(Ordering::Relaxed).into()
}

/// True if the child that is being made has a bit of its own.
pub fn child_has_bit() -> bool {
    CHILD.load(Ordering::Relaxed) != OTHERS
}

/// Clears the bits of processes that have ended, among those of `bits`.
fn reap(region: &Region, bits: Bits) {
    if lock::is_foreign() {
        return;
    }
    let was = real::errno();
    let own = OWN.load(Ordering::Relaxed);
    for (at, process) in region.processes.iter().enumerate() {
        if bits[at / 64] >> (at % 64) & 1 == 0 || at as u32 == own {
            continue;
        }
        let Some(number) = process.number() else { continue };
        // Number 0 is free, and has no holder that lives.
        if number == 0 || !calls::lives(number as libc::pid_t) {
            process.ends(number, || forget(region, at as u32));
        }
    }
    real::set_errno(was);
}

/// Clears a bit, which nobody else clears or takes meanwhile.
fn forget(region: &Region, bit: u32) {
    let slots = region.slots.iter().take(region.used.load(Ordering::Acquire) as usize);
    slots.for_each(|slot| slot.holders.clear(bit));
    region.sets.iter().for_each(|set| set.holders.clear(bit));
}

/// Clears the bits of all processes that have ended.
pub fn reap_all(region: &Region) {
    reap(region, [u64::MAX; WORDS]);
}

fn process() -> u32 {
    calls::process() as u32
}

/// The first process has its bit from now on.
pub fn begin(region: &Region) {
    region.processes[0].is_of(process());
    OWN.store(0, Ordering::Relaxed);
}

/// Takes a bit for a child.
fn bit(region: &Region) -> Option<u32> {
    region.processes.iter().position(Holding::take).map(|at| at as u32)
}

/// No child is made while the result lives. `None`: in a signal handler of a thread that makes one.
pub fn no_fork() -> Option<Held<'static>> {
    // A child that lives has its own memory, so its parent's may change.
    FORK.take_from(|owner| owner == MAKER.load(Ordering::Acquire) && child_lives())
}

/// True if the child that is being made has said its number.
fn child_lives() -> bool {
    let child = CHILD.load(Ordering::Relaxed);
    let number = |region: &'static Region| region.processes[child as usize].number();
    child != OTHERS && slot::region().and_then(number).is_some_and(|number| number != 0)
}

/// While it lives, no connection is joined.
pub struct Look;

impl Look {
    /// Begins: connections that are joined already are seen.
    pub fn begin() -> Look {
        LEAVING.begin(|| drop(no_fork()));
        Look
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        LEAVING.end();
    }
}

/// True if a connection may be joined, while the result of `no_fork` lives.
pub fn may_join() -> bool {
    LEAVING.allows()
}

/// A child is about to be made: `inherit` gives it what this process has.
pub fn child_comes(region: &Region) {
    if let Some(held) = no_fork() {
        std::mem::forget(held);
    }
    let found = bit(region).or_else(|| {
        reap_all(region);
        bit(region)
    });
    let child = found.unwrap_or(OTHERS);
    CHILD.store(child, Ordering::Relaxed);
    LAST.with(|last| last.set(child));
    MAKER.store(lock::thread(), Ordering::Release);
}

/// The child is made, or it failed; this is its parent.
pub fn child_came() {
    let own = lock::thread();
    // Another thread may make the next child already.
    let _ = MAKER.compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    FORK.free_if_own();
}

/// The child of this thread's last attempt was not made.
pub fn child_failed() {
    let last = LAST.with(|last| last.replace(OTHERS));
    if let Some(region) = slot::region().filter(|_| last != OTHERS) {
        region.processes[last as usize].fails(|| forget(region, last));
    }
}

/// This is the child.
pub fn is_child() {
    lock::thread_is_new();
    MAKER.store(0, Ordering::Relaxed);
    FORK.free();
    LEAVING.is_new();
    let own = CHILD.load(Ordering::Relaxed);
    OWN.store(own, Ordering::Relaxed);
    if calls::parent() == 0 {
        // The parent is in another namespace of processes: numbers mean others there.
        lock::has_foreign_numbers();
    }
    let Some(region) = slot::region().filter(|_| own != OTHERS && !lock::is_foreign()) else {
        return;
    };
    region.processes[own as usize].is_of(process());
}
