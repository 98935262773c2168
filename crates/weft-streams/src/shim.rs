//! Atomics: those of the standard library, or those of the model checker.

#[cfg(not(all(loom, test)))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(loom, test))]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
