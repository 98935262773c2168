//! An AF_XDP socket and its options.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The kernel's counters of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::xdp) struct Statistics {
    /// Frames dropped because they did not fit a buffer, or for want of memory.
    pub dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub ring_full: u64,
    /// Frames dropped because the kernel had no buffer to fill.
    pub no_buffer: u64,
}

/// The result of a call to the kernel's sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kick {
    /// The kernel has taken all frames.
    Done,
    /// The kernel could not take all frames now.
    Again,
    /// The interface is down or gone.
    Down,
}

/// An AF_XDP socket.
#[derive(Debug)]
pub(in crate::xdp) struct Socket(OwnedFd);

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

impl Socket {
    /// Opens a new socket. Needs the right CAP_NET_RAW.
    pub(in crate::xdp) fn open() -> io::Result<Socket> {
        // SAFETY: no memory is passed.
        let fd =
            check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Socket(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(super) fn owned(&self) -> &OwnedFd {
        &self.0
    }

    /// Sets an option to a plain structure.
    pub(super) fn set<T: Copy>(&self, level: i32, name: i32, value: &T) -> io::Result<()> {
        let len = size_of::<T>() as libc::socklen_t;
        let value: *const T = value;
        // SAFETY: `value` is readable for `len` bytes.
        check(unsafe { libc::setsockopt(self.as_raw_fd(), level, name, value.cast(), len) })?;
        Ok(())
    }

    /// Reads an option, which must be as long as `T`.
    ///
    /// # Safety
    /// Every bit pattern is a valid `T`.
    unsafe fn get<T: Copy>(&self, level: i32, name: i32) -> io::Result<T> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: all bit patterns are valid by contract.
        let mut value: T = unsafe { zeroed() };
        let into: *mut T = &mut value;
        // SAFETY: `value` is writable for `len` bytes.
        check(unsafe {
            libc::getsockopt(self.as_raw_fd(), level, name, into.cast(), &raw mut len)
        })?;
        if len as usize != size_of::<T>() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's AF_XDP is too old",
            ));
        }
        Ok(value)
    }

    /// Returns the offsets of the parts of the rings in their mappings.
    pub(super) fn offsets(&self) -> io::Result<libc::xdp_mmap_offsets> {
        // SAFETY: numbers only.
        unsafe { self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
    }

    /// Returns the kernel's counters.
    pub(in crate::xdp) fn statistics(&self) -> io::Result<Statistics> {
        // SAFETY: numbers only.
        let all: libc::xdp_statistics = unsafe { self.get(libc::SOL_XDP, libc::XDP_STATISTICS)? };
        Ok(Statistics {
            dropped: all.rx_dropped,
            ring_full: all.rx_ring_full,
            no_buffer: all.rx_fill_ring_empty_descs,
        })
    }

    /// True if the driver uses our memory without a copy.
    pub(in crate::xdp) fn is_zero_copy(&self) -> bool {
        // SAFETY: numbers only.
        let options = unsafe { self.get::<libc::xdp_options>(libc::SOL_XDP, libc::XDP_OPTIONS) };
        options.is_ok_and(|o| o.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// Returns a number that identifies the network namespace while the system runs.
    pub(in crate::xdp) fn namespace(&self) -> io::Result<u64> {
        // SAFETY: a number.
        unsafe { self.get(libc::SOL_SOCKET, libc::SO_NETNS_COOKIE) }
    }

    /// Lets this process drive the card instead of its interrupts, for up to `us` microseconds and
    /// `budget` frames in a call.
    pub(in crate::xdp) fn prefer_busy_poll(&self, us: i32, budget: i32) -> io::Result<()> {
        const SO_PREFER_BUSY_POLL: i32 = 69;
        const SO_BUSY_POLL_BUDGET: i32 = 70;
        self.set(libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1_i32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &us)?;
        self.set(libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &budget)
    }

    /// Binds the socket to a queue of an interface.
    pub(super) fn bind(&self, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
        let name = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `name` is readable for `len` bytes.
        check(unsafe { libc::bind(self.as_raw_fd(), (&raw const name).cast(), len) })?;
        Ok(())
    }

    /// Makes the kernel send the frames in the transmit ring.
    #[inline]
    pub(super) fn kick(&self) -> Kick {
        let (fd, flags) = (self.as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        // SAFETY: no memory is passed.
        let sent = unsafe { libc::sendto(fd, std::ptr::null(), 0, flags, std::ptr::null(), 0) };
        if sent >= 0 {
            return Kick::Done;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV) => Kick::Down,
            _ => Kick::Again,
        }
    }

    /// Makes the kernel check the fill ring, or poll the card.
    #[inline]
    pub(super) fn poke(&self) {
        let (fd, flags) = (self.as_raw_fd(), libc::MSG_DONTWAIT);
        let nobody = std::ptr::null_mut();
        // SAFETY: no memory is passed. The result does not matter: the rings show the state.
        unsafe { libc::recvfrom(fd, std::ptr::null_mut(), 0, flags, nobody, std::ptr::null_mut()) };
    }
}
