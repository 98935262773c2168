//! Wakes a sleeping process from a program in the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weft_link::xdp::bpf;
use weft_link::xdp::Mapping;

/// A ring whose records have no content: when a program adds one, the sleeping process wakes.
#[derive(Debug)]
pub(crate) struct Bell {
    ring: OwnedFd,
    taken: Mapping,
    put: Mapping,
}

// SAFETY: memory is accessed by atomic words only, from any thread.
unsafe impl Sync for Bell {}

impl Bell {
    /// Makes a new bell with an empty ring.
    pub fn new(name: &str) -> io::Result<Bell> {
        // SAFETY: no memory is passed.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let ring = bpf::record_ring(page as u32, name)?;
        let taken = Mapping::of(&ring, page, 0)?;
        let put = Mapping::readable(&ring, page, page as libc::off_t)?;
        Ok(Bell { ring, taken, put })
    }

    /// Sleeps until it rings, until the timeout, or until a signal.
    pub fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        let mut all =
            [libc::pollfd { fd: self.ring.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let timeout = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: an array of the length given.
        let rc = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, timeout) };
        if rc < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        // SAFETY: the first word of each page is a position that the kernel and processes access
        // as a whole word; both mappings live as long as this.
        let (taken, put) = unsafe {
            let word = |page: &Mapping| &*page.base().as_ptr().cast::<AtomicU64>();
            (word(&self.taken), word(&self.put))
        };
        taken.store(put.load(Ordering::Acquire), Ordering::Release);
        Ok(())
    }
}

/// An array of bells.
#[derive(Debug)]
pub(crate) struct Bells(OwnedFd);

impl Bells {
    /// Makes an array of `entries` places without bells.
    pub fn new(entries: u32, name: &str) -> io::Result<Bells> {
        let like = Bell::new(name)?;
        Ok(Bells(bpf::map_of_maps(entries, &like.ring, name)?))
    }

    /// Makes a new bell at a place; it replaces the bell that was there.
    pub fn hang(&self, place: u32, name: &str) -> io::Result<Bell> {
        let bell = Bell::new(name)?;
        bpf::place(&self.0, place, &bell.ring)?;
        Ok(bell)
    }
}

impl AsRawFd for Bells {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
