//! One AF_XDP socket with its memory; this module decides which side owns each frame.

use super::ring::{Consumer, Mapping, Producer};
use super::socket::{Kick, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Number of entries of the receive ring, and of frames to receive into.
const RX_FRAMES: u32 = 512;
/// Number of entries of the fill ring. The kernel shows a received frame before it shows that it
/// took the frame from this ring, so for a moment there seem to be more frames than exist.
const FILL: u32 = 2 * RX_FRAMES;
/// Number of entries of the transmit and completion rings, and of frames to send from.
const TX_FRAMES: u32 = 1024;
/// Bytes that the kernel keeps free at the start of a frame that it receives into
/// (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Bytes of a cache line, and number of lines of a frame that are prefetched.
const LINE: usize = 64;
const LINES: usize = 4;
/// Highest number of frames searched for the received one if it is not the expected one.
const LOST: u32 = RX_FRAMES;
/// Highest number of calls to the kernel for one burst: the kernel takes at least 32 frames in
/// each.
const KICKS: u32 = TX_FRAMES / 32 + 1;

/// The settings of a port.
#[derive(Clone, Copy, Debug)]
pub(in crate::xdp) struct PortConfig {
    /// The interface.
    pub ifindex: u32,
    /// Its queue.
    pub queue: u32,
    /// Longest frame to carry, Ethernet header included.
    pub frame_len: usize,
    /// Demand that the driver uses our memory without a copy; otherwise the kernel copies.
    pub zero_copy: bool,
}

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::xdp) enum Flushed {
    /// All frames are sent.
    Gone,
    /// Some are still in the ring; flush again later.
    Some,
    /// The interface is down or gone.
    Down,
}

/// A socket on one queue of one interface.
///
/// Each frame belongs to one side at any time. The kernel owns the frames to receive into, except
/// the frame that `next` returned. We own a frame to send from while it is in `free` or is being
/// filled.
#[derive(Debug)]
pub(in crate::xdp) struct Port {
    socket: Socket,
    memory: Mapping,
    /// Size of a frame, a power of two.
    chunk: usize,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Consumer<libc::xdp_desc>,
    tx: Producer<libc::xdp_desc>,
    /// Unused frames to send from.
    free: Vec<u64>,
    /// The frame that `next` returned.
    held: Option<u64>,
    /// Index in the fill ring of the frame that the kernel has probably received into next.
    expected: u32,
    /// Frames were taken since `end_burst`.
    in_burst: bool,
    /// Frames are in the transmit ring that the kernel has not taken, as far as is known.
    unsent: bool,
    zero_copy: bool,
}

/// Returns the size of a frame that holds `len` bytes; `None` beyond a page.
fn chunk_for(len: usize) -> Option<usize> {
    [2048, 4096].into_iter().find(|chunk| len + HEADROOM <= *chunk)
}

impl Port {
    /// Length of the longest frame that a port can carry.
    pub const FRAME_MAX: usize = 4096 - HEADROOM;

    /// Opens a socket and binds it to a queue. It receives frames once the program sends them to
    /// it.
    ///
    /// # Errors
    /// The kernel's: `EBUSY` if the queue has a socket of another process, `EOPNOTSUPP` and
    /// `EINVAL` if the driver does not support the settings, `ENOBUFS` if no more memory may be
    /// locked.
    pub fn open(config: &PortConfig) -> io::Result<Port> {
        let chunk = chunk_for(config.frame_len).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = Mapping::anonymous((RX_FRAMES + TX_FRAMES) as usize * chunk)?;
        let socket = Socket::open()?;
        let area = libc::xdp_umem_reg_v1 {
            addr: memory.base().as_ptr() as u64,
            len: memory.size() as u64,
            chunk_size: chunk as u32,
            headroom: 0,
        };
        socket.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &area)?;
        for (ring, size) in [
            (libc::XDP_UMEM_FILL_RING, FILL),
            (libc::XDP_UMEM_COMPLETION_RING, TX_FRAMES),
            (libc::XDP_RX_RING, RX_FRAMES),
            (libc::XDP_TX_RING, TX_FRAMES),
        ] {
            socket.set(libc::SOL_XDP, ring, &size)?;
        }
        let at = socket.offsets()?;
        let fd = socket.owned();
        let (fill_page, done_page) =
            (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let mut fill = Producer::map(fd, fill_page as libc::off_t, &at.fr, FILL)?;
        let completion = Consumer::map(fd, done_page as libc::off_t, &at.cr, TX_FRAMES)?;
        let rx = Consumer::map(fd, libc::XDP_PGOFF_RX_RING, &at.rx, RX_FRAMES)?;
        let tx = Producer::map(fd, libc::XDP_PGOFF_TX_RING, &at.tx, TX_FRAMES)?;
        for i in 0..u64::from(RX_FRAMES) {
            fill.push(i * chunk as u64);
        }
        fill.publish();
        let copy = if config.zero_copy { libc::XDP_ZEROCOPY } else { libc::XDP_COPY };
        socket.bind(config.ifindex, config.queue, copy | libc::XDP_USE_NEED_WAKEUP)?;
        let sending = u64::from(RX_FRAMES)..u64::from(RX_FRAMES + TX_FRAMES);
        Ok(Port {
            zero_copy: socket.is_zero_copy(),
            free: sending.rev().map(|i| i * chunk as u64).collect(),
            held: None,
            expected: 0,
            in_burst: false,
            unsent: false,
            socket,
            memory,
            chunk,
            fill,
            completion,
            rx,
            tx,
        })
    }

    /// Returns the socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns the socket's descriptor, readable when there is a frame to receive.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if the driver uses our memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// True if no frame was received.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rx.is_empty()
    }

    /// Returns the next received frame, Ethernet header included, in the kernel's buffer. The frame
    /// is valid until the next call of this method or of `end_burst`.
    #[inline]
    pub fn next(&mut self) -> Option<&mut [u8]> {
        self.give_back();
        let desc = self.rx.pop()?;
        self.in_burst = true;
        let (at, len) = (desc.addr as usize, desc.len as usize);
        let end = at.checked_add(len).filter(|end| *end <= self.memory.size());
        if end.is_none() || len > self.chunk {
            // The kernel never returns such an entry; that memory belongs to no side.
            return Some(&mut []);
        }
        let frame = (at & !(self.chunk - 1)) as u64;
        self.held = Some(frame);
        self.follow(frame);
        self.fetch(at, 1, len);
        // SAFETY: within the memory. The kernel gave the frame to us with this entry and gets it
        // back with `give_back`, which needs `&mut self`; other frames given out are sending ones.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.base().as_ptr().add(at), len) })
    }

    /// Finds the frame that the kernel uses next after this one: it takes frames in their order,
    /// except those that it drops.
    #[inline]
    fn follow(&mut self, frame: u64) {
        let ahead = (0..LOST).find(|&n| self.fill.entry(self.expected.wrapping_add(n)) == frame);
        self.expected = self.expected.wrapping_add(ahead.map_or(0, |n| n + 1));
    }

    /// If a frame was received, prefetches the first lines of the frame that probably holds it,
    /// before the entry that names the frame has arrived in this core.
    #[inline]
    pub fn foresee(&self) {
        if !self.rx.is_empty() {
            let at = self.fill.entry(self.expected) as usize + HEADROOM;
            self.fetch(at, 0, LINES * LINE);
        }
    }

    /// Prefetches the first lines of a frame from line `first` on, all at the same time, from the
    /// core that received it.
    #[inline]
    fn fetch(&self, at: usize, first: usize, len: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in first..len.div_ceil(LINE).min(LINES) {
            use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
            let line = self.memory.base().as_ptr().wrapping_add(at + line * LINE);
            // SAFETY: a hint without effect on memory.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, first, len);
    }

    /// Returns the frame from the last `next` to the kernel.
    #[inline]
    fn give_back(&mut self) {
        if let Some(frame) = self.held.take() {
            let fits = self.fill.push(frame);
            debug_assert!(fits, "the fill ring holds all frames");
        }
    }

    /// Ends a burst of `next`: the kernel may use the frames again.
    #[inline]
    pub fn end_burst(&mut self) {
        if !std::mem::take(&mut self.in_burst) {
            return;
        }
        self.give_back();
        self.fill.publish();
        self.rx.publish();
        if self.fill.needs_wakeup() {
            self.socket.poke();
        }
    }

    /// Lets the kernel poll the card.
    pub fn busy_poll(&self) {
        self.socket.poke();
    }

    /// Collects the frames that the kernel has sent.
    #[inline]
    fn reclaim(&mut self) {
        let mut any = false;
        while let Some(frame) = self.completion.pop() {
            any = true;
            let own = (RX_FRAMES as usize * self.chunk) as u64..self.memory.size() as u64;
            if own.contains(&frame) && self.free.len() < TX_FRAMES as usize {
                self.free.push(frame & !(self.chunk as u64 - 1));
            }
        }
        if any {
            self.completion.publish();
        }
    }

    /// Queues one frame for sending: `write` fills it and returns its length; 0 queues nothing.
    /// False if there is no room now.
    #[inline]
    pub fn put(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
        if !self.unsent || self.free.is_empty() {
            // At each opportunity: the frames used last are still in the cache.
            self.reclaim();
        }
        let Some(frame) = self.free.pop() else { return false };
        // SAFETY: a sending frame that is not in use: within the memory, and not the kernel's
        // before it is put into the ring below.
        let bytes = unsafe {
            let base = self.memory.base().as_ptr().add(frame as usize);
            std::slice::from_raw_parts_mut(base, self.chunk)
        };
        let len = write(bytes).min(self.chunk) as u32;
        let desc = libc::xdp_desc { addr: frame, len, options: 0 };
        if len == 0 || !self.tx.push(desc) {
            self.free.push(frame);
            return len == 0;
        }
        self.unsent = true;
        true
    }

    /// True if frames wait for a flush.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.unsent
    }

    /// Sends the queued frames.
    #[inline]
    pub fn flush(&mut self) -> Flushed {
        if !self.unsent {
            return Flushed::Gone;
        }
        self.tx.publish();
        let mut down = false;
        for _ in 0..KICKS {
            if !self.tx.needs_wakeup() {
                break;
            }
            let kick = self.socket.kick();
            down = kick == Kick::Down;
            // A driver that shares our memory continues without calls.
            if down || self.zero_copy || self.tx.is_drained() {
                break;
            }
        }
        self.unsent = !self.zero_copy && !self.tx.is_drained();
        match (down, self.unsent) {
            (true, _) => Flushed::Down,
            (_, true) => Flushed::Some,
            _ => Flushed::Gone,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn chunk_for__leaves_the_headroom() {
        assert_eq!(chunk_for(1518), Some(2048));
        assert_eq!(chunk_for(2048 - HEADROOM), Some(2048));
        assert_eq!(chunk_for(2049 - HEADROOM), Some(4096));
        assert_eq!(chunk_for(Port::FRAME_MAX), Some(4096));
        assert_eq!(chunk_for(Port::FRAME_MAX + 1), None);
    }
}
