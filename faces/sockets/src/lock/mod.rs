//! Locks in memory that children share.
//!
//! A lock names its thread. One whose thread has died is taken over: a child may be killed, and a
//! thread cancelled, at any moment. The thread that has it already is told so: it is in a signal
//! handler. They are held for a copy of at most a ring, never while anything sleeps.

mod sys;

pub use sys::Locked;

use crate::sys::{calls, real};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Polls before the processor is given to others.
const POLLS: u32 = 200;
/// Turns before the owner is looked for.
const TURNS: u32 = 50;

thread_local! {
    /// Number of this thread; 0: not yet asked for.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// Returns the number of this thread.
#[inline]
pub fn thread() -> u32 {
    THREAD.with(|known| match known.get() {
        0 => {
            let own = calls::thread();
            known.set(own);
            own
        }
        own => own,
    })
}

/// Forgets the number: this is a child of the thread that had it.
pub fn thread_is_new() {
    THREAD.with(|known| known.set(0));
}

/// A lock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Lock(AtomicU32);

/// A lock that is held.
#[derive(Debug)]
pub struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0 .0.store(0, Ordering::Release);
    }
}

impl Lock {
    /// A lock that nobody has.
    pub const fn new() -> Lock {
        Lock(AtomicU32::new(0))
    }

    /// Takes the lock. `None`: this thread holds it, in a frame that a signal interrupted.
    #[inline]
    pub fn take(&self) -> Option<Held<'_>> {
        self.take_from(|_| false)
    }

    /// Takes the lock as `take` does, also from a thread that needs it no more, though that cannot
    /// free it.
    #[inline]
    pub fn take_from(&self, needs_no_more: impl Fn(u32) -> bool) -> Option<Held<'_>> {
        let own = thread();
        match self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Held(self)),
            Err(owner) if owner == own => None,
            Err(_) => Some(self.wait(own, needs_no_more)),
        }
    }

    /// Frees a lock that was taken for good, in a child too, where its thread is another one.
    pub fn free(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Frees a lock that this thread has taken for good, unless another one has taken it over.
    pub fn free_if_own(&self) {
        let _ = self.0.compare_exchange(thread(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// True if the thread of this number has it.
    pub fn is_of(&self, thread: u32) -> bool {
        self.0.load(Ordering::Relaxed) == thread
    }

    /// Takes the lock if nobody has it.
    pub fn try_take(&self) -> Option<Held<'_>> {
        let taken = self.0.compare_exchange(0, thread(), Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_| Held(self))
    }

    #[cold]
    fn wait(&self, own: u32, needs_no_more: impl Fn(u32) -> bool) -> Held<'_> {
        let mut turns = 0;
        loop {
            for _ in 0..POLLS {
                let free = self.0.load(Ordering::Relaxed) == 0;
                if free
                    && self.0.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return Held(self);
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
            turns += 1;
            let owner = self.0.load(Ordering::Relaxed);
            if owner != 0 && (needs_no_more(owner) || turns % TURNS == 0 && is_dead(owner)) {
                let take =
                    self.0.compare_exchange(owner, own, Ordering::Acquire, Ordering::Relaxed);
                if take.is_ok() {
                    return Held(self);
                }
            }
        }
    }
}

/// True if no thread of this number exists.
fn is_dead(thread: u32) -> bool {
    if is_foreign() {
        return false;
    }
    let was = real::errno();
    let lives = calls::thread_lives(thread);
    real::set_errno(was);
    !lives
}

/// 1 if the numbers of processes are those of another namespace than the parent's.
static IS_FOREIGN: AtomicU32 = AtomicU32::new(0);

/// True if the numbers of other processes say nothing here.
pub fn is_foreign() -> bool {
    IS_FOREIGN.load(Ordering::Relaxed) != 0
}

/// The numbers of other processes say nothing here.
pub fn has_foreign_numbers() {
    IS_FOREIGN.store(1, Ordering::Relaxed);
}
