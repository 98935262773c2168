//! The list of a program's connections, in memory of its own that it shows to its agent: the
//! command reads there which of them share memory, and why others do not, and turns the program's
//! use of weft off and on.
//!
//! Layout: 128 bytes of head, then 128 bytes for each connection, all little words of 64 bits of
//! this machine. The reader trusts nothing there.

use crate::message::Place;
use crate::shim::{AtomicU64, Ordering};

/// First word of a list.
const MAGIC: u64 = u64::from_le_bytes(*b"weftsl02");
/// Words of the head, and of a connection.
const WORDS: usize = 16;
/// Bytes of the head, and of a connection.
pub const ENTRY: usize = 8 * WORDS;
/// Offset of the word that turns the program's use of weft off: not 0 is off.
pub const OFF: usize = 8;
/// Words of the reason.
const WHY: usize = 6;

/// Bit of the word of the ports: waits spin on TCP.
const SPINS: u32 = 32;

/// No connection.
const NONE: u64 = 0;
/// The connection looks for its other end.
const ASKS: u64 = 1;
/// The connection shares memory.
const SHARES: u64 = 2;
/// The connection is by TCP.
const STAYS: u64 = 3;

/// The head.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Head {
    magic: AtomicU64,
    off: AtomicU64,
    spun: AtomicU64,
}

/// A connection.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Entry {
    state: AtomicU64,
    from_ring: AtomicU64,
    into_ring: AtomicU64,
    ports: AtomicU64,
    local: [AtomicU64; 2],
    remote: [AtomicU64; 2],
    why: [AtomicU64; WHY],
}

// Programs and commands of different builds share this layout.
#[cfg(not(all(loom, test)))]
const _: () = assert!(size_of::<Entry>() == ENTRY && size_of::<Head>() == ENTRY);

impl Head {
    /// The list is there from now on. `is_off`: the program's use of weft is off.
    pub fn begin(&self, is_off: bool) {
        self.off.store(u64::from(is_off), Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// A wait for bytes by TCP has found some by a spin.
    #[inline]
    pub fn has_spun(&self) {
        self.spun.fetch_add(1, Ordering::Relaxed);
    }

    /// True if the program's use of weft is off.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.off.load(Ordering::Relaxed) != 0
    }
}

fn words(address: [u8; 16]) -> [u64; 2] {
    let (one, two) = address.split_at(8);
    [one, two].map(|half| half.try_into().map_or(0, u64::from_le_bytes))
}

impl Entry {
    /// The connection with these names looks for its other end. `spins`: it leads to another host,
    /// and waits for it spin on TCP.
    pub fn asks(&self, local: Place, remote: Place, spins: bool) {
        let ports = u64::from(local.port()) << 16 | u64::from(remote.port());
        let ports = ports | u64::from(spins) << SPINS;
        self.ports.store(ports, Ordering::Relaxed);
        for (to, from) in [(&self.local, local), (&self.remote, remote)] {
            let words = words(from.address());
            to.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        }
        self.state.store(ASKS, Ordering::Release);
    }

    /// Notes that the connection shares memory.
    pub fn shares(&self) {
        self.state.store(SHARES, Ordering::Release);
    }

    /// Notes that the connection is by TCP, for this reason, of which the first bytes are kept.
    pub fn stays(&self, why: &str) {
        self.write(why);
        if self.state.load(Ordering::Relaxed) != NONE {
            self.state.store(STAYS, Ordering::Release);
        }
    }

    fn write(&self, why: &str) {
        let mut bytes = [0; 8 * WHY];
        let len = why.len().min(bytes.len());
        bytes[..len].copy_from_slice(&why.as_bytes()[..len]);
        for (to, from) in self.why.iter().zip(bytes.chunks_exact(8)) {
            to.store(from.try_into().map_or(0, u64::from_le_bytes), Ordering::Relaxed);
        }
    }

    /// Bytes came from its ring.
    #[inline]
    pub fn came(&self, bytes: usize) {
        self.from_ring.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes went into its ring.
    #[inline]
    pub fn went(&self, bytes: usize) {
        self.into_ring.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Clears the entry: it is another connection's from now on, or nobody's.
    pub fn renew(&self) {
        self.state.store(NONE, Ordering::Release);
        self.from_ring.store(0, Ordering::Relaxed);
        self.into_ring.store(0, Ordering::Relaxed);
    }
}

/// A connection as its program shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its own name.
    pub local: Place,
    /// The name of its peer.
    pub remote: Place,
    /// Its state.
    pub state: State,
    /// True if it leads to another host: waits spin on TCP before they sleep.
    pub spins: bool,
    /// Bytes received from memory.
    pub received: u64,
    /// Bytes sent by memory.
    pub sent: u64,
}

/// The state of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection looks for its other end.
    Asks,
    /// The connection shares memory.
    Shares,
    /// The connection is by TCP, for this reason.
    Stays(String),
}

/// The list of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// True if the program's use of weft is off.
    pub is_off: bool,
    /// Waits for bytes by TCP that a spin has ended, on connections to other hosts.
    pub spun: u64,
    /// Its connections.
    pub connections: Vec<Shown>,
}

/// Returns the list in bytes, of which any may be read. `None`: it is no list.
pub fn read(bytes: &[u8]) -> Option<List> {
    let (head, entries) = bytes.split_at_checked(ENTRY)?;
    let word =
        |of: &[u8], at: usize| of[8 * at..8 * at + 8].try_into().map_or(0, u64::from_le_bytes);
    if word(head, 0) != MAGIC {
        return None;
    }
    let shown = entries.chunks_exact(ENTRY).filter_map(|entry| {
        let place = |at: usize, port: u64| {
            let mut address = [0; 16];
            address.copy_from_slice(&entry[8 * at..8 * at + 16]);
            Place::new(address, port as u16)
        };
        let state = match word(entry, 0) {
            ASKS => State::Asks,
            SHARES => State::Shares,
            STAYS => State::Stays(text(&entry[64..64 + 8 * WHY])),
            _ => return None,
        };
        let ports = word(entry, 3);
        let (local, remote) = (place(4, ports >> 16), place(6, ports));
        let (received, sent, spins) = (word(entry, 1), word(entry, 2), ports >> SPINS & 1 != 0);
        Some(Shown { local, remote, state, spins, received, sent })
    });
    let (is_off, spun) = (word(head, 1) != 0, word(head, 2));
    Some(List { is_off, spun, connections: shown.collect() })
}

/// Returns the text of a reason, without what a terminal would obey.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let shown = |b: &u8| if (b' '..=b'~').contains(b) { *b as char } else { '?' };
    bytes[..end].iter().map(shown).collect()
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn bytes_of(words: &[&AtomicU64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    fn list(head: &Head, entries: &[&Entry]) -> Vec<u8> {
        let mut all = bytes_of(&[&head.magic, &head.off, &head.spun]);
        all.resize(ENTRY, 0);
        for one in entries {
            let mut words = vec![&one.state, &one.from_ring, &one.into_ring, &one.ports];
            words.extend(one.local.iter().chain(&one.remote).chain(&one.why));
            let start = all.len();
            all.extend(bytes_of(&words));
            all.resize(start + ENTRY, 0);
        }
        all
    }

    #[test]
    fn read__what_a_program_shows() {
        let (head, entries) = (Head::default(), [0; 4].map(|_| Entry::default()));
        let places = |port| (Place::v4([127, 0, 0, 1], port), Place::new([0xfe; 16], 80));
        for (one, port) in entries.iter().zip(1..4) {
            let (local, remote) = places(port);
            one.asks(local, remote, port == 3);
        }
        entries[1].shares();
        entries[1].came(7);
        entries[1].went(8);
        head.has_spun();
        entries[2].stays("a reason\x1b of more bytes than there is room for in a list");
        // Nobody knows it.
        entries[3].stays("no name");
        let all: Vec<&Entry> = entries.iter().collect();
        assert_eq!(read(&list(&head, &all)), None);
        head.begin(true);
        let List { is_off, spun, connections: shown } = read(&list(&head, &all)).unwrap();
        assert!(is_off && shown.len() == 3, "{shown:?}");
        assert_eq!((shown[0].local, shown[0].remote), places(1));
        assert_eq!((&shown[1].state, shown[1].received, shown[1].sent), (&State::Shares, 7, 8));
        let why = "a reason? of more bytes than there is room for i".to_string();
        assert_eq!((&shown[2].state, spun), (&State::Stays(why), 1));
        assert_eq!([0, 1, 2].map(|i| shown[i].spins), [false, false, true]);
        entries[0].renew();
        assert_eq!(read(&list(&head, &all)).unwrap().connections.len(), 2);
    }

    #[test]
    fn read__any_bytes() {
        for bytes in weft_bytes() {
            let _ = read(&bytes);
        }
    }

    /// Bytes of every length, with and without the first word.
    fn weft_bytes() -> impl Iterator<Item = Vec<u8>> {
        (0..600usize).map(|len| {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8 & 3).collect();
            if len >= 8 && len % 2 == 0 {
                bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            }
            bytes
        })
    }
}
