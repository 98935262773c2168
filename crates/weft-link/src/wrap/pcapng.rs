//! The pcapng file format, as much of it as a capture needs
//! (draft-ietf-opsawg-pcapng, sections 4.1 to 4.3).

use std::io::{self, Write};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;

/// Which way a packet went, as the flags option has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In = 1,
    /// Sent.
    Out = 2,
}

/// A capture of one Ethernet interface with nanosecond timestamps.
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Starts the capture of an interface of this name.
    pub fn new(out: W, interface: &str) -> io::Result<Writer<W>> {
        let mut w = Writer { out, block: Vec::new() };
        w.begin(SECTION);
        w.block.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        w.block.extend([1, 0, 0, 0]); // version 1.0
        w.block.extend(u64::MAX.to_le_bytes()); // section length not given
        w.end()?;
        w.begin(INTERFACE);
        w.block.extend(LINKTYPE_ETHERNET.to_le_bytes());
        w.block.extend([0; 2 + 4]); // reserved; no limit on the captured length
        w.option(OPTION_NAME, interface.as_bytes());
        w.option(OPTION_TIME_RESOLUTION, &[9]);
        w.option(0, &[]);
        w.end()?;
        Ok(w)
    }

    /// Adds a frame, given in parts, at `time` nanoseconds since 1970.
    pub fn packet(&mut self, time: u64, way: Direction, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let len = (len as u32).to_le_bytes();
        self.begin(PACKET);
        self.block.extend([0; 4]); // interface 0
        self.block.extend(((time >> 32) as u32).to_le_bytes());
        self.block.extend((time as u32).to_le_bytes());
        self.block.extend(len); // captured
        self.block.extend(len); // on the wire
        parts.iter().for_each(|p| self.block.extend_from_slice(p));
        self.pad();
        self.option(OPTION_PACKET_FLAGS, &(way as u32).to_le_bytes());
        self.option(0, &[]);
        self.end()
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend(kind.to_le_bytes());
        self.block.extend([0; 4]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.block.extend(code.to_le_bytes());
        self.block.extend((value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn end(&mut self) -> io::Result<()> {
        let len = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&len);
        self.block.extend(len);
        self.out.write_all(&self.block)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn word(b: &[u8], at: usize) -> u32 {
        u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
    }

    /// Type and body of each block, with both lengths checked.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut found = Vec::new();
        while !file.is_empty() {
            let len = word(file, 4) as usize;
            assert_eq!(len % 4, 0);
            assert_eq!(word(file, len - 4) as usize, len);
            found.push((word(file, 0), file[8..len - 4].to_vec()));
            file = &file[len..];
        }
        found
    }

    #[test]
    fn writer__makes_well_formed_blocks() {
        let mut file = Vec::new();
        let mut w = Writer::new(&mut file, "shm").unwrap();
        w.packet(0x1_0000_0002, Direction::Out, &[&[1, 2, 3], &[4, 5]]).unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|b| b.0).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, PACKET]);
        assert_eq!(word(&blocks[0].1, 0), BYTE_ORDER_MAGIC);
        let packet = &blocks[2].1;
        assert_eq!([word(packet, 4), word(packet, 8)], [1, 2]);
        assert_eq!([word(packet, 12), word(packet, 16)], [5, 5]);
        assert_eq!(&packet[20..28], [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(&packet[28..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
