//! The memory-mapped receive ring (packet_mmap, TPACKET_V2): frames of one size. A status word in
//! each frame says if the kernel or the process owns it.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// Sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a frame, a power of two; includes the ring's own header.
    pub frame: u32,
    /// Number of frames, a power of two.
    pub frames: u32,
}

/// Upper limit of the ring's header in front of each Ethernet frame.
const HEADROOM: u32 = 128;
/// Largest size of a frame in the ring.
const FRAME_MAX: u32 = 128 << 10;
/// Largest size of a ring, bytes.
const RING_MAX: u64 = 1 << 30;
const FRAME_MIN: u32 = 2048;
/// Default size of a ring, bytes.
const BYTES: usize = 1 << 20;
/// Default number of packets that one peer may have in flight.
const WINDOW: usize = 512;

impl Geometry {
    /// Chooses sizes for Ethernet payloads of up to `mtu` bytes, about `bytes` in all. 0 means 1
    /// MiB, which fits a cache, or the size for one window of packets if that is larger.
    pub fn new(mtu: u32, bytes: usize) -> Geometry {
        let frame = (mtu + HEADROOM).next_power_of_two().clamp(FRAME_MIN, FRAME_MAX);
        let bytes = if bytes == 0 { BYTES.max(WINDOW * frame as usize) } else { bytes };
        let frames = (bytes as u64 / u64::from(frame)).clamp(64, 1 << 16) as u32;
        let frames = if frames.is_power_of_two() { frames } else { frames.next_power_of_two() / 2 };
        Geometry { frame, frames }
    }

    /// True if `new` can return these sizes.
    pub fn is_sane(self) -> bool {
        self.frame.is_power_of_two()
            && self.frames.is_power_of_two()
            && (FRAME_MIN..=FRAME_MAX).contains(&self.frame)
            && self.len() as u64 <= RING_MAX
    }

    /// Returns the size of the ring in bytes.
    pub fn len(self) -> usize {
        self.frame as usize * self.frames as usize
    }

    /// Returns the sizes for the kernel: blocks of 64 KiB or a frame, whichever is larger.
    pub fn request(self) -> libc::tpacket_req {
        let block = self.frame.max(64 << 10).min(self.len() as u32);
        libc::tpacket_req {
            tp_block_size: block,
            tp_block_nr: self.len() as u32 / block,
            tp_frame_size: self.frame,
            tp_frame_nr: self.frames,
        }
    }
}

/// A received frame in the ring.
pub struct Seen<'a> {
    /// Ethernet header and payload, as much as fitted.
    pub bytes: &'a mut [u8],
    /// `PACKET_HOST` for a frame to this interface's own address.
    pub station: u8,
    /// The frame is complete.
    pub whole: bool,
}

/// The memory of a ring.
#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: shared memory that the kernel writes, too; each access is an atomic one of a status word,
// or of a frame that its status gives to one owner.
unsafe impl Send for Map {}

// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly what `Ring::map` mapped; borrows of it have ended.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Status of a frame that a [`Held`] has: neither free for the kernel nor new for the reader.
const HELD: u32 = 1 << 30;

/// A frame that stays in the ring until this is dropped, by whichever thread.
#[derive(Debug)]
pub struct Held {
    map: Arc<Map>,
    status: usize,
    start: usize,
    len: usize,
}

impl Held {
    /// Returns the frame, Ethernet header included, as much as fitted.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: checked by `peek` to lie within the frame, which is this one's until its status
        // changes.
        unsafe { std::slice::from_raw_parts(self.map.base.add(self.start).as_ptr(), self.len) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the status word of a frame of the mapping, which this keeps.
        let status = unsafe { self.map.base.add(self.status).cast::<AtomicU32>().as_ref() };
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The mapped ring of a packet socket.
#[derive(Debug)]
pub struct Ring {
    map: Arc<Map>,
    base: NonNull<u8>,
    sizes: Geometry,
    /// Index of the frame that the kernel fills next.
    head: u32,
    /// `head` is not known yet: another process read from this ring before.
    lost: bool,
}

const HEADER: usize = size_of::<libc::tpacket2_hdr>();
/// Offset of the packet type; `sockaddr_ll` follows the header (`TPACKET_ALIGN`).
const STATION: usize = HEADER.next_multiple_of(16) + offset_of!(libc::sockaddr_ll, sll_pkttype);

impl Ring {
    /// Maps the ring of `fd`. If `used`, another process may have read from it before; the frames
    /// in it are discarded.
    pub fn map(fd: &OwnedFd, sizes: Geometry, used: bool) -> io::Result<Ring> {
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                sizes.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        let map = Arc::new(Map { base, len: sizes.len() });
        let ring = Ring { map, base, sizes, head: 0, lost: used };
        if used {
            for at in 0..sizes.frames {
                ring.status(at).store(libc::TP_STATUS_KERNEL, Ordering::Release);
            }
        }
        Ok(ring)
    }

    #[inline]
    fn status(&self, at: u32) -> &AtomicU32 {
        // SAFETY: `at` is below the number of frames, each frame begins with its status word, which
        // kernel and process both access atomically; the mapping lives as long as `self`.
        unsafe { &*self.frame(at).cast::<AtomicU32>().as_ptr() }
    }

    #[inline]
    fn frame(&self, at: u32) -> NonNull<u8> {
        debug_assert!(at < self.sizes.frames);
        // SAFETY: within the mapping, as `at` is below the number of frames.
        unsafe { self.base.add(at as usize * self.sizes.frame as usize) }
    }

    #[inline]
    fn is_ours(&self, at: u32) -> bool {
        self.status(at).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// True if there is a frame to read.
    #[inline]
    pub fn ready(&mut self) -> bool {
        self.is_ours(self.head) && !self.lost || self.lost && self.find_head()
    }

    /// Searches for the first frame that the kernel has filled.
    #[cold]
    fn find_head(&mut self) -> bool {
        let frames = self.sizes.frames;
        let Some(mut at) = (0..frames).find(|&at| self.is_ours(at)) else { return false };
        // The frames before it may have been filled since they were checked.
        for _ in 0..frames {
            let before = (at + frames - 1) % frames;
            if !self.is_ours(before) {
                break;
            }
            at = before;
        }
        (self.head, self.lost) = (at, false);
        true
    }

    /// Returns the oldest frame, which stays in the ring until [`release`](Self::release).
    #[inline]
    pub fn peek(&mut self) -> Option<Seen<'_>> {
        if !self.ready() {
            return None;
        }
        let frame = self.frame(self.head);
        let limit = self.sizes.frame as usize;
        // SAFETY: the status says that the frame is ours: the kernel does not write it until it is
        // released, which needs `&mut self` and so ends the borrow. Header and station lie within
        // the smallest frame; the bytes are checked to lie within this one.
        unsafe {
            let head = frame.cast::<libc::tpacket2_hdr>().as_ref();
            let station = frame.add(STATION).read();
            let start = usize::from(head.tp_mac).clamp(HEADER, limit);
            let len = (head.tp_snaplen as usize).min(limit - start);
            let bytes = std::slice::from_raw_parts_mut(frame.add(start).as_ptr(), len);
            Some(Seen { bytes, station, whole: head.tp_len as usize == len })
        }
    }

    /// Returns the oldest frame to the kernel.
    #[inline]
    pub fn release(&mut self) {
        self.status(self.head).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.head = (self.head + 1) & (self.sizes.frames - 1);
    }

    /// Takes the oldest frame, which keeps its place in the ring until it is dropped. The kernel
    /// drops frames that come while all places are taken.
    pub fn hold(&mut self) -> Option<Held> {
        let seen = self.peek()?;
        let (at, len) = (seen.bytes.as_ptr() as usize, seen.bytes.len());
        let base = self.base.as_ptr() as usize;
        let status = self.head as usize * self.sizes.frame as usize;
        self.status(self.head).store(HELD, Ordering::Relaxed);
        self.head = (self.head + 1) & (self.sizes.frames - 1);
        Some(Held { map: Arc::clone(&self.map), status, start: at - base, len })
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn new__holds_a_frame_of_the_mtu_and_blocks_fill_the_ring() {
        for (mtu, frame) in [(576, 2048), (1500, 2048), (9000, 16384), (65535, 131_072)] {
            for bytes in [0, 1 << 20, 3 << 20, 4 << 20] {
                let sizes = Geometry::new(mtu, bytes);
                assert!(sizes.is_sane() && sizes.frame == frame, "{sizes:?}");
                let r = sizes.request();
                assert_eq!(r.tp_block_size as usize * r.tp_block_nr as usize, sizes.len());
                assert_eq!(r.tp_block_size % r.tp_frame_size, 0);
            }
        }
        assert!(!Geometry { frame: 2048, frames: 3 }.is_sane());
        assert!(!Geometry { frame: 1 << 31, frames: 2 }.is_sane());
    }
}
