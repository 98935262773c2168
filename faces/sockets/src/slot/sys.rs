//! The memory of the region.

use super::Region;
use crate::sys::memory;
use std::sync::atomic::{AtomicPtr, Ordering};

static REGION: AtomicPtr<Region> = AtomicPtr::new(std::ptr::null_mut());

/// Maps the region. False if the system has no memory: nothing is upgraded then.
pub fn map() -> bool {
    let at = memory::map_for_children(size_of::<Region>());
    at.iter().for_each(|at| REGION.store(at.cast(), Ordering::Release));
    at.is_some()
}

/// Returns the region, once it is mapped.
#[inline]
pub fn region() -> Option<&'static Region> {
    // SAFETY: mapped for good, of this size; all of it are atomics, for which zeros are valid.
    unsafe { REGION.load(Ordering::Acquire).as_ref() }
}
