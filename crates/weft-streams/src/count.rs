//! The bytes of a direction that TCP has carried, and the calls of the kernel under way.
//!
//! A call that begins while the connection is by TCP alone must be known to those that make it
//! share memory. An addition before the call and one after it do that, in any thread. They take
//! longer than all else that is done for the call. So the first thread that makes calls owns the
//! count, as the first owner of a biased lock does (Kawachiya, Koseki and Onodera, "Lock
//! Reservation", OOPSLA 2002, section 3). It writes words of its own by plain stores. The order of
//! its mark and its next look at the owner is left to who takes the count away from it, which
//! happens once in a connection's life: that one takes it away, has all threads pass a barrier
//! (membarrier(2)), and reads the mark.

use crate::shim::{pass, AtomicU32, AtomicU64, Ordering};

/// Calls that are under way are counted in the low bits of a count of bytes.
const CALLS: u32 = 16;
const CALL: u64 = 1;

/// No thread has made a call yet.
const NOBODY: u64 = 0;
/// All calls are counted by additions.
const ALL: u64 = u64::MAX;

/// A count of the bytes that went by TCP, and of the calls under way that may add to it.
#[derive(Debug, Default)]
pub struct Count {
    /// Bytes and calls in one word, so that a call costs two additions: of all threads but the
    /// owner.
    all: AtomicU64,
    /// The thread whose calls are counted in the words below.
    owner: AtomicU64,
    /// Bytes of the owner.
    bytes: AtomicU64,
    /// 1 while a call of the owner is under way.
    calls: AtomicU32,
}

impl Count {
    /// A call of the kernel begins, on a connection that may share memory.
    #[inline]
    pub fn call(&self) -> Call<'_> {
        self.all.fetch_add(CALL, Ordering::AcqRel);
        Call { count: self, moved: 0, is_own: false }
    }

    /// A call of the kernel begins in this thread, a number that no other thread of any process
    /// has, if it owns the count: the connection is by TCP then. `None`: it is counted by [`call`].
    ///
    /// [`call`]: Count::call
    #[inline]
    pub fn own_call(&self, thread: u64) -> Option<Call<'_>> {
        // A handler of signals that interrupted a call of its thread finds the mark.
        if self.owner.load(Ordering::Relaxed) != thread || self.calls.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.calls.store(1, Ordering::Relaxed);
        pass();
        if self.owner.load(Ordering::Relaxed) != thread {
            self.calls.store(0, Ordering::Release);
            return None;
        }
        Some(Call { count: self, moved: 0, is_own: true })
    }

    /// This thread owns the count from its next call on, unless another one does.
    pub fn adopt(&self, thread: u64) {
        if self.owner.load(Ordering::Relaxed) == NOBODY {
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            let _ = self.owner.compare_exchange(NOBODY, thread, success, failure);
        }
    }

    #[inline]
    fn end(&self, moved: u64, is_own: bool) {
        if !is_own {
            // One addition adds the bytes and takes the call away.
            self.all.fetch_add((moved << CALLS).wrapping_sub(CALL), Ordering::AcqRel);
            return;
        }
        if moved > 0 {
            let bytes = self.bytes.load(Ordering::Relaxed) + moved;
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        self.calls.store(0, Ordering::Release);
    }

    /// No thread owns the count from now on. A call of the owner that is under way is known to who
    /// asks after a barrier that all threads of the process have passed.
    pub fn share(&self) {
        self.owner.store(ALL, Ordering::SeqCst);
    }

    /// Ends the ownership of a thread, as [`share`](Self::share) does, if a thread owns the count.
    pub fn share_owned(&self) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner != NOBODY && owner != ALL {
            self.share();
        }
    }

    /// True if the owner is a thread, and another one than this.
    pub fn is_of_other(&self, thread: u64) -> bool {
        ![NOBODY, ALL, thread].contains(&self.owner.load(Ordering::Relaxed))
    }

    /// Returns the bytes of calls that have ended.
    #[inline]
    pub fn bytes(&self) -> u64 {
        (self.all.load(Ordering::Acquire) >> CALLS) + self.bytes.load(Ordering::Acquire)
    }

    /// The bytes are those of another connection from now on.
    pub fn renew(&self) {
        self.all.fetch_and((1 << CALLS) - 1, Ordering::AcqRel);
        self.bytes.store(0, Ordering::Relaxed);
        self.owner.store(NOBODY, Ordering::Release);
    }

    /// Returns the number of calls under way.
    #[inline]
    pub fn calls(&self) -> u64 {
        // First, so that bytes of a call that has ended are seen by who asks for them next.
        let own = u64::from(self.calls.load(Ordering::Acquire));
        own + (self.all.load(Ordering::Acquire) & ((1 << CALLS) - 1))
    }
}

/// A call of the kernel that is under way. It ends with this object: a thread may be cancelled in
/// it.
#[derive(Debug)]
#[must_use]
pub struct Call<'a> {
    count: &'a Count,
    moved: u64,
    is_own: bool,
}

impl Call<'_> {
    /// The call has returned, and has moved so many bytes.
    #[inline]
    pub fn done(mut self, moved: u64) {
        self.moved = moved;
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        self.count.end(self.moved, self.is_own);
    }
}
