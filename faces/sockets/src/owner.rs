//! The threads that count their calls without additions, and the barrier that takes the counts
//! away from them.

use crate::holders;
use crate::sys::{calls, real};
use libc::c_long;
use std::sync::atomic::{AtomicU32, Ordering};

/// Commands of membarrier(2): `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, and its registration.
const BARRIER: c_long = 1 << 3;
const REGISTER: c_long = 1 << 4;

/// 1 if the kernel has barriers for this process and its children.
static HAS_BARRIERS: AtomicU32 = AtomicU32::new(0);

/// Asks for barriers, which children inherit. Without them all threads count by additions.
pub fn begin() {
    let was = real::errno();
    HAS_BARRIERS.store(u32::from(calls::membarrier(REGISTER)), Ordering::Relaxed);
    real::set_errno(was);
}

/// True if threads may own counts.
pub fn may_own() -> bool {
    HAS_BARRIERS.load(Ordering::Relaxed) != 0
}

/// Has all threads of this process pass a barrier. False if the kernel refuses it.
pub fn barrier() -> bool {
    let was = real::errno();
    let passed = !may_own() || calls::membarrier(BARRIER);
    real::set_errno(was);
    passed
}

/// Returns the number of this thread, which no thread of any process with the same connections
/// has. A child by vfork(2) has that of its parent's thread, which waits for it.
#[inline]
pub fn thread() -> u64 {
    // Addresses of programs take 56 bits at most.
    calls::thread_address() | holders::own_bit() << 56
}
