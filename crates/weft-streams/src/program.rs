//! The programs that a library of the GNU C library's loader can be put before, by their files.
//!
//! A file is read by the caller. It may hold anything.

/// The result of a look at a program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The program has this machine's loader, which takes libraries, and makes its system calls by
    /// the C library.
    Takes,
    /// The program may take libraries: it is no file of a kind that is known here, has a loader
    /// elsewhere, or makes its system calls itself (Go).
    MayTake,
    /// A script, with the name of its interpreter.
    Script(Name),
    /// The program has a loader that does not take libraries of the GNU C library (musl).
    OtherLoader,
    /// The program has the address sanitizer's library, which has to be the first one.
    Sanitizer,
    /// The program is of another kind of machine, or of another width.
    OtherMachine,
    /// The program is linked statically: it has no loader.
    Static,
}

impl Program {
    /// Returns the reason why a library cannot be put before it. `None`: it can.
    pub fn why(&self) -> Option<&'static str> {
        match self {
            Program::Takes | Program::MayTake | Program::Script(_) => None,
            Program::OtherLoader => Some("it is built with another C library (musl)"),
            Program::Sanitizer => Some("it has the address sanitizer, which has to come first"),
            Program::OtherMachine => Some("it is built for another kind of machine"),
            Program::Static => Some("it is linked statically"),
        }
    }
}

/// A name in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME],
    len: usize,
}

impl Name {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.min(NAME)]
    }
}

/// Longest name that is read.
const NAME: usize = 184;
/// Bytes of the head of a file, and of an entry of its lists.
const HEAD: usize = 64;
const SEGMENT: usize = 56;
const ENTRY: usize = 16;
/// Most entries that are read of its lists.
const SEGMENTS: u64 = 64;
const ENTRIES: u64 = 4096;
/// Kinds of segments.
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;
/// Longest notes that are read, and bytes that are read at once.
const NOTES: u64 = 4096;
const PART: usize = 64;
/// The name in notes of the Go compiler, whose programs ask the kernel themselves.
const GO: &[u8] = b"Go\0\0";
/// Tags of the dynamic section.
const END: u64 = 0;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;

/// Libraries that end a program before whose other libraries another one comes.
const SANITIZERS: [&[u8]; 3] = [b"libasan.so", b"libclang_rt.asan", b"libhwasan.so"];

/// Number of this machine in files, and its loader.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
const LOADER: &[u8] = match cfg!(target_arch = "aarch64") {
    true => b"/lib/ld-linux-aarch64.so.1",
    false => b"/lib64/ld-linux-x86-64.so.2",
};

/// The list of the file's segments: its place in the file, and their number.
struct Segments {
    at: u64,
    count: u64,
}

/// A part of the file: its place there, and in memory.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    len: u64,
}

/// Looks at a file. `read` fills the buffer with bytes from this place on, and returns their
/// number, which is less at the end.
pub fn look(mut read: impl FnMut(u64, &mut [u8]) -> usize) -> Program {
    let mut file = File { read: &mut read };
    file.look().unwrap_or(Program::MayTake)
}

/// True if a list of libraries, as the loader's variable has it, names the address sanitizer's.
pub fn has_sanitizer(list: &[u8]) -> bool {
    list.split(|byte| matches!(byte, b':' | b' ')).any(is_sanitizer)
}

/// True for the file of such a library.
fn is_sanitizer(file: &[u8]) -> bool {
    let base = file.rsplit(|&byte| byte == b'/').next().unwrap_or(file);
    SANITIZERS.iter().any(|one| base.starts_with(one))
}

struct File<'a> {
    read: &'a mut dyn FnMut(u64, &mut [u8]) -> usize,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let part = bytes.get(at..at + N).and_then(|part| part.try_into().ok());
    part.unwrap_or([0; N])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(word(bytes, at))
}

impl File<'_> {
    fn look(&mut self) -> Option<Program> {
        let mut head = [0; HEAD];
        let len = (self.read)(0, &mut head);
        if head.starts_with(b"#!") {
            return self.script().map(Program::Script);
        }
        if len < HEAD || !head.starts_with(b"\x7fELF") {
            return None;
        }
        // 64 bits, in the order of this machine.
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head[4] != 2 || head[5] != order || u16::from_ne_bytes(word(&head, 18)) != MACHINE {
            return Some(Program::OtherMachine);
        }
        let (at, count) = (long(&head, 32), u16::from_ne_bytes(word(&head, 56)));
        let segments = Segments { at, count: u64::from(count).min(SEGMENTS) };
        let (mut dynamic, mut loader, mut is_go) = (None, None, false);
        for i in 0..segments.count {
            let one = self.segment(&segments, i)?;
            match one.kind {
                DYNAMIC => dynamic = Some((one.offset, one.len)),
                INTERPRETER => loader = Some(self.name(one.offset)?),
                NOTE => is_go |= self.is_of_go(one.offset, one.len),
                _ => {}
            }
        }
        let Some(loader) = loader else { return Some(Program::Static) };
        let base = loader.bytes().rsplit(|&byte| byte == b'/').next()?;
        if !base.starts_with(b"ld-linux") && !base.starts_with(b"ld-2") {
            return Some(Program::OtherLoader);
        }
        let has_sanitizer =
            dynamic.is_some_and(|at| self.needs_sanitizer(at, &segments) == Some(true));
        Some(match has_sanitizer {
            true => Program::Sanitizer,
            false if is_go || loader.bytes() != LOADER => Program::MayTake,
            false => Program::Takes,
        })
    }

    fn segment(&mut self, of: &Segments, i: u64) -> Option<Segment> {
        let mut bytes = [0; SEGMENT];
        let place = of.at.checked_add(i * SEGMENT as u64)?;
        ((self.read)(place, &mut bytes) == SEGMENT).then(|| Segment {
            kind: u32::from_ne_bytes(word(&bytes, 0)),
            offset: long(&bytes, 8),
            address: long(&bytes, 16),
            len: long(&bytes, 32),
        })
    }

    /// True if notes are the Go compiler's, or too long to be read.
    fn is_of_go(&mut self, at: u64, len: u64) -> bool {
        let mut part = [0; PART];
        // Each part begins with the last bytes of the one before.
        let mut parts = (0..len.min(NOTES)).step_by(PART - GO.len());
        len > NOTES
            || parts.any(|from| {
                let n = (self.read)(at.saturating_add(from), &mut part).min(PART);
                part[..n].windows(GO.len()).any(|four| four == GO)
            })
    }

    /// The interpreter of a script, from its first line.
    fn script(&mut self) -> Option<Name> {
        let line = self.name(2)?;
        let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let words = line.bytes().split(|byte| *byte == b'\n').next()?;
        let word = words.split(is_end).find(|word| !word.is_empty())?;
        let mut name = Name { bytes: [0; NAME], len: word.len() };
        name.bytes[..word.len()].copy_from_slice(word);
        Some(name)
    }

    /// A name that ends with a zero, or where there is no more room.
    fn name(&mut self, at: u64) -> Option<Name> {
        let mut name = Name { bytes: [0; NAME], len: 0 };
        let len = (self.read)(at, &mut name.bytes).min(NAME);
        name.len = name.bytes[..len].iter().position(|&byte| byte == 0).unwrap_or(len);
        (name.len > 0).then_some(name)
    }

    /// True if the dynamic section names the sanitizer's library.
    fn needs_sanitizer(&mut self, (at, len): (u64, u64), of: &Segments) -> Option<bool> {
        let strings = self.value_of(at, len, STRINGS)?;
        let strings = (0..of.count).find_map(|i| {
            let one = self.segment(of, i).filter(|one| one.kind == LOAD)?;
            let inside = strings.checked_sub(one.address).filter(|&at| at < one.len)?;
            one.offset.checked_add(inside)
        })?;
        for i in 0..ENTRIES.min(len / ENTRY as u64) {
            let [tag, value] = self.entry(at, i)?;
            let name = (tag == NEEDED).then(|| self.name(strings.checked_add(value)?)).flatten();
            if name.is_some_and(|name| is_sanitizer(name.bytes())) {
                return Some(true);
            }
            if tag == END {
                break;
            }
        }
        Some(false)
    }

    fn entry(&mut self, at: u64, i: u64) -> Option<[u64; 2]> {
        let mut entry = [0; ENTRY];
        let place = at.checked_add(i.checked_mul(ENTRY as u64)?)?;
        let is_whole = (self.read)(place, &mut entry) == ENTRY;
        is_whole.then(|| [long(&entry, 0), long(&entry, 8)])
    }

    /// The value of the first entry with a tag.
    fn value_of(&mut self, at: u64, len: u64, tag: u64) -> Option<u64> {
        for i in 0..ENTRIES.min(len / ENTRY as u64) {
            match self.entry(at, i)? {
                [found, value] if found == tag => return Some(value),
                [END, _] => return None,
                _ => {}
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn look_at(bytes: &[u8]) -> Program {
        look(|at, to| {
            let from = bytes.get(at as usize..).unwrap_or(&[]);
            let len = from.len().min(to.len());
            to[..len].copy_from_slice(&from[..len]);
            len
        })
    }

    /// A file with a loader, that needs a library.
    fn file(loader: Option<&str>, library: &str) -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, b"\x7fELF\x02");
        put(5, &[if cfg!(target_endian = "little") { 1 } else { 2 }]);
        put(18, &MACHINE.to_ne_bytes());
        put(32, &64u64.to_ne_bytes());
        put(56, &3u16.to_ne_bytes());
        // Kind, flags; place, address, address, length.
        let kinds = [LOAD, DYNAMIC, if loader.is_some() { INTERPRETER } else { 7 }];
        let parts = [[0, 0x1000, 0x1000, 1024], [512, 0x1200, 0x1200, 64], [768, 0, 0, 64]];
        for (i, (kind, part)) in kinds.iter().zip(parts).enumerate() {
            put(64 + SEGMENT * i, &kind.to_ne_bytes());
            part.iter().enumerate().for_each(|(word, value): (usize, &u64)| {
                put(64 + SEGMENT * i + 8 + 8 * word, &value.to_ne_bytes());
            });
        }
        for (i, [tag, value]) in [[NEEDED, 1], [STRINGS, 0x1280], [END, 0]].iter().enumerate() {
            put(512 + ENTRY * i, &u64::to_ne_bytes(*tag));
            put(512 + ENTRY * i + 8, &u64::to_ne_bytes(*value));
        }
        put(641, library.as_bytes());
        put(768, loader.unwrap_or("").as_bytes());
        bytes
    }

    #[test]
    fn look__by_loader_and_libraries() {
        let gnu = std::str::from_utf8(LOADER).ok();
        assert_eq!(look_at(&file(gnu, "libc.so.6")), Program::Takes);
        let elsewhere = Some("/nix/store/lib/ld-linux-x86-64.so.2");
        assert_eq!(look_at(&file(elsewhere, "libc.so.6")), Program::MayTake);
        assert_eq!(look_at(&file(gnu, "libasan.so.8")), Program::Sanitizer);
        assert_eq!(look_at(&file(gnu, "/x/libclang_rt.asan-x86_64.so")), Program::Sanitizer);
        let musl = Some("/lib/ld-musl-x86_64.so.1");
        assert_eq!(look_at(&file(musl, "libc.so")), Program::OtherLoader);
        assert_eq!(look_at(&file(None, "libc.so")), Program::Static);
        let mut other = file(gnu, "libc.so.6");
        other[4] = 1;
        assert_eq!(look_at(&other), Program::OtherMachine);
    }

    #[test]
    fn has_sanitizer__in_a_list() {
        assert!(has_sanitizer(b"/lib/x.so:/usr/lib/libasan.so.8"));
        assert!(!has_sanitizer(b"/lib/libasan/x.so libtsan.so.2"));
    }

    #[test]
    fn look__at_programs_of_go() {
        let mut bytes = file(std::str::from_utf8(LOADER).ok(), "libc.so.6");
        // The first segment becomes one of notes.
        bytes[64..68].copy_from_slice(&NOTE.to_ne_bytes());
        assert_eq!(look_at(&bytes), Program::Takes);
        for at in [700, 1020, PART - 2 + 512 + 128] {
            let mut bytes = bytes.clone();
            bytes[at..at + GO.len()].copy_from_slice(GO);
            assert_eq!(look_at(&bytes), Program::MayTake, "{at}");
        }
    }

    #[test]
    fn look__at_scripts() {
        for line in ["#!/bin/sh", "#! /bin/sh -e\necho", "#!\t/bin/sh\n"] {
            let Program::Script(name) = look_at(line.as_bytes()) else { panic!("{line}") };
            assert_eq!(name.bytes(), b"/bin/sh");
        }
        for none in ["#!", "#!\n/bin/sh", "", "text"] {
            assert_eq!(look_at(none.as_bytes()), Program::MayTake, "{none}");
        }
    }

    #[test]
    fn look__at_any_bytes() {
        let whole = file(Some("/lib64/ld-linux-x86-64.so.2"), "libasan.so.8");
        for len in 0..whole.len() {
            look_at(&whole[..len]);
        }
        // Every byte of the head and of the lists with other values.
        for at in (0..232).chain(512..576) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                look_at(&bytes);
            }
        }
    }
}
