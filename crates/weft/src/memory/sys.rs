//! Allocations that may fail, and questions to the kernel about mappings.

use rustix::io::Errno;
use rustix::mm::{msync, MsyncFlags};
use std::alloc::Layout;
use std::ffi::c_void;

/// Below this length nobody asks if the machine has so much memory, or if all of it is mapped: the
/// questions take nothing of the time of longer memory.
const LARGE: usize = 1 << 30;

/// True if this machine has so much memory, used or not: the kernel gives more, and ends the
/// processes that use it.
pub(crate) fn fits(len: usize) -> bool {
    if len < LARGE {
        return true;
    }
    let has = rustix::system::sysinfo();
    let pages = has.totalram.saturating_add(has.totalswap);
    len as u64 <= pages.saturating_mul(u64::from(has.mem_unit))
}

/// Returns `len` bytes of 0. `None` if the machine does not have so many.
pub fn zeroed(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len).ok().filter(|_| fits(len))?;
    if len == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the length is not 0; the vector gets the memory with its length, all of it set, in
    // the layout in which it was allocated.
    unsafe {
        let start = std::alloc::alloc_zeroed(layout);
        (!start.is_null()).then(|| Vec::from_raw_parts(start, len, len))
    }
}

/// Returns an empty vector with room for `count` values. `None` if the machine does not have so
/// much memory.
pub fn reserved<T>(count: usize) -> Option<Vec<T>> {
    let len = count.checked_mul(size_of::<T>())?;
    let mut all = Vec::new();
    (fits(len) && all.try_reserve_exact(count).is_ok()).then_some(all)
}

/// Returns a copy of the values. `None` if the machine does not have so much memory.
pub fn copied<T: Copy>(values: &[T]) -> Option<Vec<T>> {
    let mut all = reserved(values.len())?;
    all.extend_from_slice(values);
    Some(all)
}

/// Returns true if all of `start..start + len` is mapped in this process; its rights, and its
/// contents, are not checked.
pub fn is_mapped(start: *const c_void, len: usize) -> bool {
    let over = start.addr() % rustix::param::page_size();
    let first = start.wrapping_byte_sub(over).cast_mut();
    let Some(len) = len.checked_add(over).filter(|&len| len <= isize::MAX as usize) else {
        return false;
    };
    // SAFETY: with this flag the kernel only walks its list of mappings, and accepts any range.
    let walked = unsafe { msync(first, len, MsyncFlags::ASYNC) };
    walked != Err(Errno::NOMEM)
}

/// Returns true if `start..start + len` may be memory of this process: it is of a usual length, or
/// all of it is mapped. No slice over memory for which this is true is longer than a slice can be.
#[inline]
pub fn seems_mapped(start: *const c_void, len: usize) -> bool {
    len < LARGE || is_mapped(start, len)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

    #[test]
    fn zeroed__memory_that_no_machine_has_is_refused() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60, 1 << 46] {
            assert!(zeroed(len).is_none() && reserved::<u8>(len).is_none(), "{len}");
            assert!(reserved::<u64>(len).is_none() && reserved::<u64>(len / 8).is_none(), "{len}");
        }
        assert_eq!(zeroed(3), Some(vec![0; 3]));
        assert_eq!((zeroed(0), copied(&[1u16, 2])), (Some(Vec::new()), Some(vec![1, 2])));
    }

    #[test]
    fn copied__of_more_than_the_machine_has_is_refused() {
        let (len, null) = (1 << 45, std::ptr::null_mut());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: new memory at no address of ours, of which nothing is touched.
        unsafe {
            let start = mmap_anonymous(null, len, ProtFlags::READ, flags).unwrap();
            assert!(seems_mapped(start, len));
            assert!(copied(std::slice::from_raw_parts(start.cast::<u64>(), len / 8)).is_none());
            munmap(start, len).unwrap();
        }
    }

    #[test]
    fn is_mapped__all_pages_of_a_range_count() {
        let page = rustix::param::page_size();
        let null = std::ptr::null_mut();
        // SAFETY: new memory at no address of ours, of which the middle is given back.
        let start = unsafe {
            let start = mmap_anonymous(null, 4 * page, ProtFlags::READ, MapFlags::PRIVATE).unwrap();
            munmap(start.byte_add(2 * page), page).unwrap();
            start
        };
        let at = |offset: usize| start.wrapping_byte_add(offset).cast_const();
        assert!(is_mapped(at(0), 2 * page) && is_mapped(at(1), 1) && is_mapped(at(3 * page), page));
        assert!(!is_mapped(at(0), 2 * page + 1) && !is_mapped(at(0), 4 * page));
        assert!(!is_mapped(at(2 * page), 1) && !is_mapped(at(2 * page - 1), page));
        assert!(!is_mapped(at(0), usize::MAX) && !is_mapped(at(0), isize::MAX as usize));
        assert!(!is_mapped(std::ptr::null(), 1));
        assert!(!seems_mapped(at(0), 1 << 40) && !seems_mapped(at(0), usize::MAX));
        assert!(seems_mapped(at(0), 2 * page));
        // SAFETY: the rest of the memory made here.
        unsafe { munmap(start, 4 * page).unwrap() };
    }
}
