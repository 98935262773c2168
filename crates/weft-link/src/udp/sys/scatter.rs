//! Receiving predicted datagrams straight into the memory where their payload belongs.

use super::Socket;
use crate::secure::TRAILER;
use crate::udp::recv::Received;
use crate::{Bytes, Prediction};
use std::io;

/// Where the pieces of predicted datagrams go: headers and trailers into slots of the link,
/// payloads straight to their destination.
pub struct Scatter {
    iov: Vec<libc::iovec>,
    slots: Box<[Slot]>,
    header_len: usize,
    payload_len: usize,
    predicted: usize,
    base: *mut u8,
    len: usize,
}

// SAFETY: the pointers are set and used within one call of `recv`; between calls nothing reads
// them.
unsafe impl Send for Scatter {}

#[derive(Clone, Copy)]
struct Slot {
    header: [u8; 64],
    trailer: [u8; TRAILER],
}

impl Scatter {
    /// For at most `segments` datagrams.
    pub fn new(segments: usize) -> Scatter {
        Scatter {
            iov: Vec::with_capacity(3 * segments + 1),
            slots: vec![Slot { header: [0; 64], trailer: [0; TRAILER] }; segments].into(),
            header_len: 0,
            payload_len: 0,
            predicted: 0,
            base: std::ptr::null_mut(),
            len: 0,
        }
    }

    /// Receives for a prediction, at most `max` datagrams into their places and what is beyond into
    /// `overflow`. `None` if the prediction makes no sense.
    ///
    /// Sound because a [`Prediction`] promises memory that is writable and used by nobody else
    /// until the link's `recv` returns, and the link drops what this gives out before that.
    pub fn recv(
        &mut self,
        socket: &Socket,
        p: &Prediction,
        max: usize,
        overflow: &mut [u8],
    ) -> Option<io::Result<Received>> {
        let sane = p.payload_len > 0 && p.len > 0 && (24..=64).contains(&p.header_len);
        if !sane || p.base.is_null() {
            return None;
        }
        self.iov.clear();
        (self.header_len, self.payload_len) = (p.header_len, p.payload_len);
        (self.base, self.len) = (p.base, p.len);
        self.predicted = p.len.div_ceil(p.payload_len).min(self.slots.len()).min(max);
        let piece = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
        for (i, slot) in self.slots[..self.predicted].iter_mut().enumerate() {
            let at = i * p.payload_len;
            self.iov.push(piece(slot.header.as_mut_ptr(), p.header_len));
            self.iov.push(piece(p.base.wrapping_add(at), p.payload_len.min(p.len - at)));
            self.iov.push(piece(slot.trailer.as_mut_ptr(), TRAILER));
        }
        self.iov.push(piece(overflow.as_mut_ptr(), overflow.len()));
        // SAFETY: the slots are ours, `overflow` is borrowed; the prediction's memory is writable
        // by its promise.
        Some(unsafe { socket.recv_iov(&mut self.iov) })
    }

    /// How many datagrams had a place.
    pub fn predicted(&self) -> usize {
        self.predicted
    }

    /// Size of the `i`th predicted datagram.
    pub fn size(&self, i: usize) -> usize {
        self.header_len + self.payload(i).len() + TRAILER
    }

    /// Header of the `i`th predicted datagram.
    pub fn header(&self, i: usize) -> &[u8] {
        &self.slots[i].header[..self.header_len]
    }

    /// Trailer of the `i`th predicted datagram.
    pub fn trailer(&self, i: usize) -> &[u8; TRAILER] {
        &self.slots[i].trailer
    }

    /// Payload of the `i`th predicted datagram, in its place.
    pub fn payload(&self, i: usize) -> Bytes<'_> {
        assert!(i < self.predicted);
        let at = i * self.payload_len;
        let len = self.payload_len.min(self.len - at);
        // SAFETY: within the prediction's memory, readable until the link's `recv` returns.
        unsafe { Bytes::from_raw(self.base.add(at), len) }
    }

    /// The same, to be authenticated; dropped before anybody else touches the memory.
    pub fn payload_slice(&self, i: usize) -> &[u8] {
        let bytes = self.payload(i);
        // SAFETY: readable as above, and written by nobody while the slice lives.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
    }

    /// Undoes the placing: brings the `len` bytes received together at the front of `out`, which
    /// was the overflow buffer of the call.
    pub fn collect(&mut self, len: usize, out: &mut [u8]) {
        self.iov.pop();
        let placed: usize = self.iov.iter().map(|piece| piece.iov_len).sum();
        if let Some(beyond) = len.checked_sub(placed) {
            out.copy_within(..beyond, placed);
        }
        let mut at = 0;
        for piece in &self.iov {
            let n = piece.iov_len.min(len - at);
            // SAFETY: the pieces are readable, `recv` filled them in order; `out` is a different
            // buffer.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), n) };
            out[at..at + n].copy_from_slice(bytes);
            at += n;
        }
    }
}
