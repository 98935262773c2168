//! A weft frame on Ethernet: Ethernet header, shim, packet and trailer, padding.

use super::Mac;
use std::fmt;

/// The EtherType that marks weft's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EtherType(u16);

impl EtherType {
    /// Lowest EtherType: smaller numbers are lengths (IEEE 802.3, section 3.2.6).
    const MIN: u16 = 0x0600;

    /// Numbers with a meaning for others on the network: IPv4, ARP, 802.1Q, IPv6, flow control,
    /// 802.1ad.
    const TAKEN: [u16; 6] = [0x0800, 0x0806, 0x8100, 0x86dd, 0x8808, 0x88a8];

    /// Returns an EtherType for weft; `None` for a length or the number of another protocol.
    pub const fn new(number: u16) -> Option<EtherType> {
        let mut i = 0;
        while i < EtherType::TAKEN.len() {
            if EtherType::TAKEN[i] == number {
                return None;
            }
            i += 1;
        }
        if number < EtherType::MIN {
            return None;
        }
        Some(EtherType(number))
    }

    /// Parses hexadecimal digits, with or without `0x`.
    pub fn parse(text: &str) -> Option<EtherType> {
        let text = text.trim();
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
        EtherType::new(u16::from_str_radix(digits, 16).ok()?)
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for EtherType {
    /// 0x88b5: IEEE 802, local experimental 1.
    fn default() -> EtherType {
        EtherType(0x88b5)
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// The headers before a weft frame on Ethernet.
///
/// | offset | size | field |
/// | --- | --- | --- |
/// | 0 | 6 | dst |
/// | 6 | 6 | src |
/// | 12 | 2 | EtherType, big-endian |
/// | 14 | 2 | slot, little-endian |
/// | 16 | 2 | len, little-endian |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtherHead {
    /// Receiver's interface.
    pub dst: Mac,
    /// Sender's interface.
    pub src: Mac,
    /// EtherType.
    pub kind: EtherType,
    /// The receiver's endpoint on that interface.
    pub slot: u16,
    /// Length of the weft frame that follows, in bytes; padding may follow the frame.
    pub len: u16,
}

impl EtherHead {
    /// Bytes of the Ethernet header.
    pub const ETHERNET: usize = 14;
    /// Bytes of the shim: `slot`, `len`.
    pub const SHIM: usize = 4;
    /// Bytes of both.
    pub const LEN: usize = Self::ETHERNET + Self::SHIM;
    /// Position of `slot`.
    pub const SLOT: usize = 14;
    /// Position of `len`.
    pub const LENGTH: usize = 16;

    /// Encodes the headers.
    pub fn encode(&self) -> [u8; EtherHead::LEN] {
        let mut out = [0; EtherHead::LEN];
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        out[12..14].copy_from_slice(&self.kind.get().to_be_bytes());
        out[Self::SLOT..Self::SLOT + 2].copy_from_slice(&self.slot.to_le_bytes());
        out[Self::LENGTH..].copy_from_slice(&self.len.to_le_bytes());
        out
    }
}

impl fmt::Display for EtherHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EtherHead { dst, src, kind, slot, len } = self;
        write!(f, "{src} > {dst} {kind} slot {slot:#06x} len {len}")
    }
}

/// The reason why bytes are not a weft frame on Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter than header and shim.
    Short,
    /// Another EtherType, or an invalid one.
    Foreign,
    /// `len` exceeds the bytes present.
    Truncated,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameError::Short => "shorter than header and shim",
            FrameError::Foreign => "not of weft's EtherType",
            FrameError::Truncated => "shorter than its length field",
        })
    }
}

impl std::error::Error for FrameError {}

/// A checked view of a received frame.
#[derive(Clone, Copy, Debug)]
pub struct EtherFrame<'a> {
    bytes: &'a [u8],
    end: usize,
}

impl<'a> EtherFrame<'a> {
    /// Checks the length and, if `kind` is given, the EtherType.
    pub fn new_checked(
        bytes: &'a [u8],
        kind: Option<EtherType>,
    ) -> Result<EtherFrame<'a>, FrameError> {
        let head = bytes.first_chunk::<{ EtherHead::LEN }>().ok_or(FrameError::Short)?;
        let found = u16::from_be_bytes([head[12], head[13]]);
        if EtherType::new(found).is_none() || kind.is_some_and(|k| k.get() != found) {
            return Err(FrameError::Foreign);
        }
        let len = u16::from_le_bytes([head[EtherHead::LENGTH], head[EtherHead::LENGTH + 1]]);
        let end = EtherHead::LEN + usize::from(len);
        if end > bytes.len() {
            return Err(FrameError::Truncated);
        }
        Ok(EtherFrame { bytes, end })
    }

    /// Returns header and shim.
    pub fn head(&self) -> EtherHead {
        let mac = |at: usize| Mac(std::array::from_fn(|i| self.bytes[at + i]));
        EtherHead {
            dst: mac(0),
            src: mac(6),
            // Checked above; the default is never used.
            kind: EtherType::new(u16::from_be_bytes([self.bytes[12], self.bytes[13]]))
                .unwrap_or_default(),
            slot: self.slot(),
            len: (self.end - EtherHead::LEN) as u16,
        }
    }

    /// Returns the number of the receiving endpoint.
    pub fn slot(&self) -> u16 {
        u16::from_le_bytes([self.bytes[EtherHead::SLOT], self.bytes[EtherHead::SLOT + 1]])
    }

    /// Returns the weft frame: packet and trailer, without padding.
    pub fn frame(&self) -> &'a [u8] {
        &self.bytes[EtherHead::LEN..self.end]
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn sample() -> EtherHead {
        EtherHead {
            dst: Mac([2, 1, 2, 3, 4, 5]),
            src: Mac([2, 9, 8, 7, 6, 5]),
            kind: EtherType::default(),
            slot: 0x0102,
            len: 3,
        }
    }

    #[test]
    fn new_checked__round_trips_and_leaves_padding_out() {
        let bytes = [&sample().encode()[..], b"abc", &[0; 39]].concat();
        let frame = EtherFrame::new_checked(&bytes, Some(EtherType::default())).unwrap();
        assert_eq!((frame.head(), frame.frame()), (sample(), &b"abc"[..]));
        assert_eq!(bytes[EtherHead::SLOT..][..4], [2, 1, 3, 0]);
        let line = frame.head().to_string();
        assert_eq!(line, "02:09:08:07:06:05 > 02:01:02:03:04:05 0x88b5 slot 0x0102 len 3");
    }

    #[test]
    fn new_checked__refuses_short_truncated_and_foreign_frames() {
        let bytes = [&sample().encode()[..], b"abc"].concat();
        for end in 0..bytes.len() {
            let expected =
                if end < EtherHead::LEN { FrameError::Short } else { FrameError::Truncated };
            assert_eq!(EtherFrame::new_checked(&bytes[..end], None).unwrap_err(), expected);
        }
        let other = EtherType::parse("0x88b6");
        assert_eq!(EtherFrame::new_checked(&bytes, other).unwrap_err(), FrameError::Foreign);
        let mut ip = bytes.clone();
        ip[12..14].copy_from_slice(&[8, 0]);
        assert_eq!(EtherFrame::new_checked(&ip, None).unwrap_err(), FrameError::Foreign);
    }

    #[test]
    fn parse__takes_hexadecimal_and_refuses_numbers_of_others() {
        for text in ["0x88b6", "88B6", " 0X88b6 "] {
            assert_eq!(EtherType::parse(text).map(EtherType::get), Some(0x88b6), "{text}");
        }
        for text in ["0x0800", "0806", "86dd", "0x05ff", "0x10000", "", "weft"] {
            assert_eq!(EtherType::parse(text), None, "{text}");
        }
    }
}
