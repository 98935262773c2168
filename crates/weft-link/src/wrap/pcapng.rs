//! The parts of the pcapng file format that a capture needs (draft-ietf-opsawg-pcapng, sections 4.1
//! to 4.3).

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
const OPTION_NAME: u16 = 2;
const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;

/// The direction of a packet, as in the flags option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In = 1,
    /// Sent.
    Out = 2,
}

/// Bytes of complete blocks that are buffered before they are written.
const BUFFER: usize = 64 << 10;

/// The destination of a capture.
pub trait Store: Write {
    /// Removes all bytes beyond this length.
    fn shorten(&mut self, len: u64) -> io::Result<()>;
}

impl Store for File {
    fn shorten(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(SeekFrom::Start(len)).map(drop)
    }
}

impl<S: Store + ?Sized> Store for Box<S> {
    fn shorten(&mut self, len: u64) -> io::Result<()> {
        (**self).shorten(len)
    }
}

/// A capture of one Ethernet interface with nanosecond timestamps. If writing fails, only complete
/// blocks stay in the file, so it can be read.
pub struct Writer<W> {
    out: W,
    /// Blocks to be written; the last block may be incomplete.
    blocks: Vec<u8>,
    /// Start of the last block.
    begun: usize,
    /// Bytes written to the file.
    written: u64,
}

/// Returns the length of the complete blocks at the start.
fn whole(blocks: &[u8]) -> usize {
    let mut at = 0;
    while let Some(len) = blocks.get(at + 4..at + 8).and_then(|len| len.try_into().ok()) {
        let next = at.saturating_add(u32::from_le_bytes(len) as usize);
        if next > blocks.len() {
            break;
        }
        at = next;
    }
    at
}

impl<W: Store> Writer<W> {
    /// Starts the capture of an interface of this name; writes the first blocks at once.
    pub fn new(out: W, interface: &str) -> io::Result<Writer<W>> {
        let mut w = Writer { out, blocks: Vec::new(), begun: 0, written: 0 };
        w.begin(SECTION);
        w.blocks.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        w.blocks.extend([1, 0, 0, 0]); // version 1.0
        w.blocks.extend(u64::MAX.to_le_bytes()); // section length not given
        w.end()?;
        w.begin(INTERFACE);
        w.blocks.extend(LINKTYPE_ETHERNET.to_le_bytes());
        w.blocks.extend([0; 2 + 4]); // reserved; no limit on the captured length
        w.option(OPTION_NAME, interface.as_bytes());
        w.option(OPTION_TIME_RESOLUTION, &[9]);
        w.option(0, &[]);
        w.end()?;
        w.flush()?;
        Ok(w)
    }

    /// Adds a frame, given in parts, at `time` nanoseconds since 1970.
    pub fn packet(&mut self, time: u64, way: Direction, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let len = (len as u32).to_le_bytes();
        self.begin(PACKET);
        self.blocks.extend([0; 4]); // interface 0
        self.blocks.extend(((time >> 32) as u32).to_le_bytes());
        self.blocks.extend((time as u32).to_le_bytes());
        self.blocks.extend(len); // captured
        self.blocks.extend(len); // on the wire
        parts.iter().for_each(|p| self.blocks.extend_from_slice(p));
        self.pad();
        self.option(OPTION_PACKET_FLAGS, &(way as u32).to_le_bytes());
        self.option(0, &[]);
        self.end()
    }

    /// Writes the buffered blocks. If writing fails, the blocks written completely stay in the
    /// file.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.blocks.len() {
            match self.out.write(&self.blocks[done..]) {
                Ok(0) => return self.cut(done, ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return self.cut(done, e),
            }
        }
        self.written += done as u64;
        self.blocks.clear();
        self.out.flush()
    }

    /// Removes the incomplete block at the end of the written bytes.
    fn cut(&mut self, done: usize, error: io::Error) -> io::Result<()> {
        self.written += whole(&self.blocks[..done]) as u64;
        self.blocks.clear();
        // If that fails, too, the first error is the one to report.
        let _ = self.out.shorten(self.written);
        Err(error)
    }

    fn begin(&mut self, kind: u32) {
        self.begun = self.blocks.len();
        self.blocks.extend(kind.to_le_bytes());
        self.blocks.extend([0; 4]);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.blocks.extend(code.to_le_bytes());
        self.blocks.extend((value.len() as u16).to_le_bytes());
        self.blocks.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        self.blocks.resize(self.blocks.len().next_multiple_of(4), 0);
    }

    fn end(&mut self) -> io::Result<()> {
        let begun = self.begun;
        let len = ((self.blocks.len() - begun) as u32 + 4).to_le_bytes();
        self.blocks[begun + 4..begun + 8].copy_from_slice(&len);
        self.blocks.extend(len);
        match self.blocks.len() < BUFFER {
            true => Ok(()),
            false => self.flush(),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn word(b: &[u8], at: usize) -> u32 {
        u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
    }

    /// Returns type and body of each block; checks both lengths.
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

    /// A store with room for this number of bytes.
    #[derive(Default)]
    struct Small {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.room - self.bytes.len());
            if fits == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.bytes.extend(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Store for Small {
        fn shorten(&mut self, len: u64) -> io::Result<()> {
            self.bytes.truncate(len as usize);
            Ok(())
        }
    }

    impl Store for &mut Small {
        fn shorten(&mut self, len: u64) -> io::Result<()> {
            (**self).shorten(len)
        }
    }

    #[test]
    fn writer__without_room_leaves_whole_blocks() {
        let mut full = Small { room: 1 << 20, ..Small::default() };
        let mut w = Writer::new(&mut full, "udp").unwrap();
        (0..9).for_each(|n| w.packet(n, Direction::In, &[&[7; 99][..n as usize * 11]]).unwrap());
        w.flush().unwrap();
        let all = blocks(&full.bytes);
        let head = full.bytes.len() - all[2..].iter().map(|(_, b)| b.len() + 12).sum::<usize>();
        for room in 0..full.bytes.len() {
            let mut small = Small { room, ..Small::default() };
            let Ok(mut w) = Writer::new(&mut small, "udp") else {
                assert!(room < head && blocks(&small.bytes).len() < 2);
                continue;
            };
            (0..9)
                .for_each(|n| w.packet(n, Direction::In, &[&[7; 99][..n as usize * 11]]).unwrap());
            assert_eq!(w.flush().unwrap_err().kind(), ErrorKind::StorageFull);
            let kept = blocks(&small.bytes);
            assert_eq!(kept[..], all[..kept.len()]);
            let next = all[kept.len()].1.len() + 12;
            assert!(small.bytes.len() + next > room, "as many as there is room for");
        }
    }

    #[test]
    fn writer__makes_well_formed_blocks() {
        let mut file = Small { room: 1 << 20, ..Small::default() };
        let mut w = Writer::new(&mut file, "shm").unwrap();
        w.packet(0x1_0000_0002, Direction::Out, &[&[1, 2, 3], &[4, 5]]).unwrap();
        w.flush().unwrap();
        let blocks = blocks(&file.bytes);
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
