//! Memory that the kernel sends from without copying: `vmsplice` puts its pages into a pipe,
//! `splice` from there into a datagram.

use super::io::{trained, Control};
use super::socket::set;
use super::{SockAddr, Socket};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Anonymous pages. Unlike the heap, they are never anyone else's: what the kernel still holds of
/// them when they are unmapped keeps its content.
pub struct Pages {
    start: *mut u8,
    len: usize,
}

// SAFETY: the pages belong to this value alone.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps `len` bytes of zeros; touches none.
    pub fn map(len: usize) -> io::Result<Pages> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping where the kernel likes.
        let at = unsafe { libc::mmap(none, len, prot, flags | libc::MAP_ANONYMOUS, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Pages { start: at.cast(), len })
    }

    /// The bytes in `range`.
    ///
    /// # Panics
    /// If they are not there.
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: the mapping is `len` bytes long, initialised, and lives as long as `self`, which
        // is borrowed; the kernel only reads.
        unsafe { &std::slice::from_raw_parts(self.start, self.len)[range] }
    }

    /// The same, to write to.
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { &mut std::slice::from_raw_parts_mut(self.start, self.len)[range] }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// A pipe, empty between calls.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    /// A pipe that holds `len` bytes of whole pages.
    pub fn new(len: usize) -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for both descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were made by the call, and nobody else owns them.
        let [read, write] = unsafe { ends.map(|fd| OwnedFd::from_raw_fd(fd)) };
        // SAFETY: no memory is passed.
        let size = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ) };
        if usize::try_from(size).unwrap_or(0) < len {
            // A user with many pipes gets small ones.
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(Pipe { read, write })
    }
}

#[cfg(test)]
impl Pipe {
    /// One that takes nothing, or takes all and gives nothing.
    pub fn broken(fills: bool) -> Pipe {
        let null = || std::fs::File::open("/dev/null").unwrap().into();
        match fills {
            true => Pipe { read: null(), ..Pipe::new(1).unwrap() },
            false => Pipe { read: null(), write: null() },
        }
    }
}

impl Pipe {
    fn fill(&self, bytes: &[u8]) -> io::Result<()> {
        let iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let (end, flags) = (self.write.as_raw_fd(), libc::SPLICE_F_NONBLOCK);
        // SAFETY: `bytes` is readable; the kernel takes references to its pages and only reads.
        whole(unsafe { libc::vmsplice(end, &raw const iov, 1, flags) }, bytes.len())
    }

    fn pour(&self, into: RawFd, len: usize) -> io::Result<()> {
        let (end, none) = (self.read.as_raw_fd(), std::ptr::null_mut());
        // SAFETY: no memory is passed.
        whole(unsafe { libc::splice(end, none, into, none, len, 0) }, len)
    }

    #[cold]
    fn drain(&self) {
        let mut scratch = [0u8; 4096];
        let (end, to) = (self.read.as_raw_fd(), scratch.as_mut_ptr().cast());
        // SAFETY: `scratch` is writable for its length.
        while unsafe { libc::read(end, to, scratch.len()) } > 0 {}
    }
}

impl Socket {
    /// As [`send_train`](Socket::send_train), from pages that must keep their content until the
    /// datagrams were received. After an error nothing worth keeping was sent.
    pub fn lend_train(
        &self,
        bytes: &[u8],
        segment: u16,
        to: &SockAddr,
        pipe: &Pipe,
    ) -> io::Result<()> {
        // An empty part says where to and how to cut; what follows belongs to it.
        let mut control = Control::new();
        let msg = trained(&mut control, segment, to, &mut []);
        let flags = libc::MSG_DONTWAIT | libc::MSG_MORE;
        // SAFETY: every pointer in `msg` is valid for the call; the kernel only reads.
        if unsafe { libc::sendmsg(self.raw(), &raw const msg, flags) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let sent = pipe.fill(bytes).and_then(|()| pipe.pour(self.raw(), bytes.len()));
        if sent.is_err() {
            pipe.drain();
            // Away with what was begun, if the kernel still has it: an empty datagram.
            let _ = set(self.raw(), libc::SOL_UDP, libc::UDP_CORK, 0);
        }
        sent
    }
}

fn whole(done: isize, asked: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Ok(done) if done == asked => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Whether this kernel sends pages from a pipe as one train: since Linux 6.5.
pub fn sends_pages() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    since_6_5(&release)
}

fn since_6_5(release: &str) -> bool {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 5),
        _ => false,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn since_6_5__by_number_not_by_text() {
        for yes in ["6.5.0", "6.18.2-cloud", "7.0.0", "10.1"] {
            assert!(since_6_5(yes), "{yes}");
        }
        for no in ["6.4.99", "5.15.0-91-generic", "6", "", "x.y", "4.18.0-553.el8"] {
            assert!(!since_6_5(no), "{no}");
        }
    }

    #[test]
    fn bytes__what_was_written() {
        let mut pages = Pages::map(10_000).unwrap();
        assert!(pages.bytes(0..10_000).iter().all(|&b| b == 0));
        pages.bytes_mut(4_000..4_004).copy_from_slice(b"weft");
        assert_eq!(pages.bytes(3_999..4_005), b"\0weft\0");
    }
}
