//! Atomics: those of the standard library, or those of the model checker.

#[cfg(not(all(loom, test)))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(loom, test))]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Keeps a store before a later load, where another thread has this one pass a barrier between its
/// own store and load. The model checker knows no such barrier, so that both sides have a fence.
#[inline]
pub fn pass() {
    #[cfg(not(all(loom, test)))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(all(loom, test))]
    loom::sync::atomic::fence(Ordering::SeqCst);
}
