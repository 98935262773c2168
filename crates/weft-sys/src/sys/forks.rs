//! Copies of this process, made by `fork`: they must not use what the process had open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

/// True in a child of a process that has called `watch`.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Notes forks from now on.
pub fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: the function only stores to a static, which is allowed in a forked child, and it is
    // one of a library that stays mapped.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

/// True in a child that `fork` made of a process after it has called [`watch`].
#[inline]
pub fn is_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}
