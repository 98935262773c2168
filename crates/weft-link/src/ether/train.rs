//! A train on Ethernet: several packets of one size in one frame longer than the MTU, which the
//! kernel passes on in one piece if there is no wire between the hosts (segmentation offload).
//!
//! The kernel accepts such a frame only if it could cut it, so the frame is a UDP datagram. Its
//! destination is a multicast group that no host joins, so the receiver's IP layer silently drops
//! it after a packet socket has taken it.

use super::{FrameError, Mac};
use std::fmt;

const IPV4: u16 = 0x0800;
const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
/// Protocol number of UDP.
const PROTOCOL: u8 = 17;
/// The address of hosts that have no address (RFC 7600).
const FROM: [u8; 4] = [192, 0, 0, 8];
/// A group for use within a site (RFC 2365, section 6.2). No router forwards it, because the time
/// to live is 1.
const TO: [u8; 4] = [239, 255, 0x77, 0x66];

/// The headers before a train on Ethernet.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 0 | 6 | dst |
/// | 6 | 6 | src |
/// | 12 | 2 | 0x0800 |
/// | 14 | 20 | IPv4 header: time to live 1, from 192.0.0.8 to 239.255.119.102 |
/// | 34 | 8 | UDP header: both ports 0x7766 |
/// | 42 | 2 | slot, little-endian |
/// | 44 | 2 | each, little-endian |
/// | 46 | 2 | len, little-endian |
/// | 48 | 2 | padding, little-endian |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainHead {
    /// Receiver's interface.
    pub dst: Mac,
    /// Sender's interface.
    pub src: Mac,
    /// The receiver's endpoint on that interface.
    pub slot: u16,
    /// Length of each weft frame that follows, in bytes; the last may be shorter.
    pub each: u16,
    /// Length of all weft frames together, in bytes.
    pub len: u16,
    /// Length of the padding behind them, in bytes.
    pub padding: u16,
}

impl TrainHead {
    /// Bytes of the Ethernet header.
    pub const ETHERNET: usize = 14;
    /// Bytes of the headers before the shim.
    pub const OUTER: usize = Self::ETHERNET + IP_LEN + UDP_LEN;
    /// Bytes of the shim: `slot`, `each`, `len`, `padding`.
    pub const SHIM: usize = 8;
    /// Bytes of both.
    pub const LEN: usize = Self::OUTER + Self::SHIM;
    /// Position of `slot`.
    pub const SLOT: usize = Self::OUTER;
    /// Bytes of an MTU that IP and UDP take.
    pub const IP_AND_UDP: usize = IP_LEN + UDP_LEN;
    /// Position of the UDP header.
    pub const UDP: usize = Self::ETHERNET + IP_LEN;
    /// UDP port of sender and receiver.
    pub const PORT: u16 = 0x7766;
    /// Highest length of the packets in a train: an IP packet has at most 65,535 bytes.
    pub const TRAIN_MAX: usize = 65_535 - IP_LEN - UDP_LEN - Self::SHIM;

    /// Encodes the headers. A train of `len` bytes and `padding` follow, together at most
    /// [`TRAIN_MAX`](Self::TRAIN_MAX).
    pub fn encode(&self) -> [u8; TrainHead::LEN] {
        let mut out = [0; TrainHead::LEN];
        let udp_len = UDP_LEN + Self::SHIM + usize::from(self.len) + usize::from(self.padding);
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        out[12..14].copy_from_slice(&IPV4.to_be_bytes());
        let ip = &mut out[14..Self::UDP];
        (ip[0], ip[8], ip[9]) = (0x45, 1, PROTOCOL);
        ip[2..4].copy_from_slice(&((IP_LEN + udp_len) as u16).to_be_bytes());
        // The flag "do not fragment".
        ip[6] = 0x40;
        ip[12..16].copy_from_slice(&FROM);
        ip[16..20].copy_from_slice(&TO);
        let sum = checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let udp = &mut out[Self::UDP..];
        udp[..2].copy_from_slice(&Self::PORT.to_be_bytes());
        udp[2..4].copy_from_slice(&Self::PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&(udp_len as u16).to_be_bytes());
        let shim = [self.slot, self.each, self.len, self.padding];
        for (at, field) in shim.into_iter().enumerate() {
            udp[UDP_LEN + 2 * at..][..2].copy_from_slice(&field.to_le_bytes());
        }
        out
    }
}

/// Computes the checksum of IP (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let once = (sum & 0xffff) + (sum >> 16);
    !((once & 0xffff) + (once >> 16)) as u16
}

impl fmt::Display for TrainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TrainHead { dst, src, slot, each, len, padding } = self;
        write!(f, "{src} > {dst} train slot {slot:#06x} each {each} len {len} and {padding}")
    }
}

/// A checked view of a received train.
#[derive(Clone, Copy, Debug)]
pub struct TrainFrame<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl<'a> TrainFrame<'a> {
    /// Checks headers and lengths. Only a train that arrived in one piece passes; the first piece
    /// of a train that was cut lacks its padding and is refused.
    pub fn new_checked(bytes: &'a [u8]) -> Result<TrainFrame<'a>, FrameError> {
        let head = bytes.first_chunk::<{ TrainHead::LEN }>().ok_or(FrameError::Short)?;
        let big = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let ours = big(12) == IPV4
            && head[14] == 0x45
            && head[14 + 9] == PROTOCOL
            && head[14 + 16..14 + 20] == TO
            && big(TrainHead::UDP + 2) == TrainHead::PORT;
        if !ours {
            return Err(FrameError::Foreign);
        }
        let frame = TrainFrame { bytes, end: bytes.len() };
        let end = TrainHead::LEN + usize::from(frame.shim(2));
        if end + usize::from(frame.shim(3)) > bytes.len() || frame.shim(1) == 0 {
            return Err(FrameError::Truncated);
        }
        Ok(TrainFrame { bytes, end })
    }

    fn shim(&self, field: usize) -> u16 {
        let at = TrainHead::SLOT + 2 * field;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Returns all headers.
    pub fn head(&self) -> TrainHead {
        let mac = |at: usize| Mac(std::array::from_fn(|i| self.bytes[at + i]));
        let (each, len, padding) = (self.shim(1), self.shim(2), self.shim(3));
        TrainHead { dst: mac(0), src: mac(6), slot: self.slot(), each, len, padding }
    }

    /// Returns the number of the receiving endpoint.
    pub fn slot(&self) -> u16 {
        self.shim(0)
    }

    /// Returns the length of each weft frame, never zero; the last may be shorter.
    pub fn each(&self) -> usize {
        self.shim(1).into()
    }

    /// Returns the weft frames, one after the other, without padding.
    pub fn train(&self) -> &'a [u8] {
        &self.bytes[TrainHead::LEN..self.end]
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn sample() -> TrainHead {
        let (dst, src) = (Mac([2, 1, 2, 3, 4, 5]), Mac([2, 9, 8, 7, 6, 5]));
        TrainHead { dst, src, slot: 0x4102, each: 2, len: 3, padding: 39 }
    }

    #[test]
    fn new_checked__round_trips_and_leaves_padding_out() {
        let bytes = [&sample().encode()[..], b"abc", &[0; 39]].concat();
        let frame = TrainFrame::new_checked(&bytes).unwrap();
        assert_eq!((frame.head(), frame.train(), frame.each()), (sample(), &b"abc"[..], 2));
        // Lengths of IP and UDP, and a checksum that a host would accept.
        assert_eq!(bytes[16..18], ((bytes.len() - 14) as u16).to_be_bytes());
        assert_eq!(bytes[38..40], ((bytes.len() - 34) as u16).to_be_bytes());
        assert_eq!(checksum(&bytes[14..34]), 0);
        let line = frame.head().to_string();
        assert_eq!(
            line,
            "02:09:08:07:06:05 > 02:01:02:03:04:05 train slot 0x4102 each 2 len 3 and 39"
        );
    }

    #[test]
    fn new_checked__refuses_what_was_cut_and_datagrams_of_others() {
        let bytes = [&sample().encode()[..], b"abc", &[0; 39]].concat();
        for end in 0..bytes.len() {
            let short = end < TrainHead::LEN;
            let expected = if short { FrameError::Short } else { FrameError::Truncated };
            assert_eq!(TrainFrame::new_checked(&bytes[..end]).unwrap_err(), expected);
        }
        for at in [12, 14, 23, 30, 33, 36, 37] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(TrainFrame::new_checked(&other).unwrap_err(), FrameError::Foreign, "{at}");
        }
        let empty = TrainHead { each: 0, ..sample() };
        let empty = [&empty.encode()[..], b"abc", &[0; 39]].concat();
        assert_eq!(TrainFrame::new_checked(&empty).unwrap_err(), FrameError::Truncated);
    }
}
