//! Atomics of the standard library, or of the model checker loom: `RUSTFLAGS="--cfg loom" cargo
//! test -p weft-link --release loom`.

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};
