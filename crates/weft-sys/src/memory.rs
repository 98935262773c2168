//! Memory files of other processes.

use rustix::fs::{fcntl_get_seals, fstat, fstatfs, SealFlags};
use std::os::fd::AsFd;

/// The number of the file system of ordinary memory files (statfs(2)).
const TMPFS: u64 = 0x0102_1994;

/// True if a descriptor from another process is a memory file of `len` bytes that can be mapped:
/// no access within its length ends this process by SIGBUS. Its length is sealed, and its pages
/// are those of ordinary memory. Huge pages of a pool are taken at the first access, and there may
/// be none left.
///
/// The seals are asked for first: only memory files have any, so no file system in user space and
/// no network is asked, whatever the descriptor is.
pub fn is_steady(file: impl AsFd, len: usize) -> bool {
    let file = file.as_fd();
    let both = SealFlags::SHRINK | SealFlags::GROW;
    fcntl_get_seals(file).is_ok_and(|seals| seals.contains(both))
        && fstatfs(file).is_ok_and(|system| system.f_type as u64 == TMPFS)
        && fstat(file).is_ok_and(|stat| stat.st_size as u64 == len as u64)
}

/// True if a descriptor is a memory file, sealed or not: to close one takes no time.
pub fn is_memory(file: impl AsFd) -> bool {
    fcntl_get_seals(file).is_ok()
}

/// Returns the length of a memory file of another process that is as [`is_steady`] wants it.
pub fn steady_len(file: impl AsFd) -> Option<usize> {
    let file = file.as_fd();
    if !is_memory(file) {
        return None;
    }
    let len = usize::try_from(fstat(file).ok()?.st_size).ok()?;
    is_steady(file, len).then_some(len)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags};
    use std::os::fd::OwnedFd;

    const LEN: usize = 4 << 20;

    fn memory(flags: MemfdFlags, seals: SealFlags) -> rustix::io::Result<OwnedFd> {
        let all = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("weft-sys-test", all | flags)?;
        ftruncate(&file, LEN as u64)?;
        fcntl_add_seals(&file, seals)?;
        Ok(file)
    }

    #[test]
    fn is_steady__sealed_memory_of_that_length_alone() {
        let both = SealFlags::SHRINK | SealFlags::GROW;
        let file = memory(MemfdFlags::empty(), both).unwrap();
        assert!(is_steady(&file, LEN) && !is_steady(&file, LEN + 1) && !is_steady(&file, 0));
        assert_eq!(steady_len(&file), Some(LEN));
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW] {
            let file = memory(MemfdFlags::empty(), seals).unwrap();
            assert!(!is_steady(&file, LEN) && steady_len(&file).is_none());
        }
        let plain = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(!is_steady(&plain, plain.metadata().unwrap().len() as usize));
        assert_eq!(steady_len(&plain), None);
    }

    #[test]
    fn is_steady__huge_pages_of_a_pool_are_refused() {
        let both = SealFlags::SHRINK | SealFlags::GROW;
        // The kernel makes the file also where the pool has no page, which is the dangerous case.
        let file = memory(MemfdFlags::HUGETLB, both).expect("a kernel with huge pages");
        assert!(!is_steady(&file, LEN));
        assert_eq!(steady_len(&file), None);
    }
}
