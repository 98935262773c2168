//! Checks of memory that programs name.

use super::Fault;
use rustix::io::Errno;
use rustix::mm::{msync, MsyncFlags};
use std::ffi::c_void;

/// Memory of messages from this length on is checked: the check takes nothing of the time of such a
/// message.
const CHECKED: usize = 1 << 30;

/// Returns true if all of `memory..memory + len` is mapped in this process; its rights, and its
/// contents, are not checked.
pub(super) fn is_mapped(memory: *const c_void, len: usize) -> bool {
    let over = memory.addr() % rustix::param::page_size();
    let start = memory.wrapping_byte_sub(over).cast_mut();
    let Some(len) = len.checked_add(over).filter(|&len| len <= isize::MAX as usize) else {
        return false;
    };
    // SAFETY: with this flag the kernel only walks its list of mappings, and accepts any range.
    let walked = unsafe { msync(start, len, MsyncFlags::ASYNC) };
    walked != Err(Errno::NOMEM)
}

/// Checks the length of memory that is not null.
///
/// # Errors
/// It is longer than any memory, or so long that it is checked, and not all of it is mapped.
pub(super) fn check_len(memory: *const c_void, len: usize) -> Result<(), Fault> {
    match len {
        _ if len > isize::MAX as usize => Err(Fault::argument("len is beyond all memory")),
        CHECKED.. if !is_mapped(memory, len) => Err(not_mapped(memory, len)),
        _ => Ok(()),
    }
}

pub(super) fn not_mapped(memory: *const c_void, len: usize) -> Fault {
    Fault::argument(&format!("of the {len} bytes at {memory:p} not all are memory of this process"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

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
        assert!(check_len(at(0), 1 << 40).is_err() && check_len(at(0), usize::MAX).is_err());
        assert!(check_len(at(0), 2 * page).is_ok());
        // SAFETY: the rest of the memory made here.
        unsafe { munmap(start, 4 * page).unwrap() };
    }
}
