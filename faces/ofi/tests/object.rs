//! The shared object as a loader reads it.
#![allow(non_snake_case)]

/// Type of the section for the loader, and of its entries for needed libraries.
const DYNAMIC: u32 = 6;
const NEEDED: u64 = 1;

/// An ELF file of 64 bits, little endian.
struct Object(Vec<u8>);

struct Section {
    kind: u32,
    /// The section that contains the names of this one.
    link: usize,
    start: usize,
    len: usize,
}

impl Object {
    fn number(&self, at: usize, len: usize) -> u64 {
        self.0[at..at + len].iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b))
    }

    fn sections(&self) -> Vec<Section> {
        let (table, size) = (self.number(0x28, 8) as usize, self.number(0x3a, 2) as usize);
        let section = |at: usize| Section {
            kind: self.number(at + 4, 4) as u32,
            link: self.number(at + 40, 4) as usize,
            start: self.number(at + 24, 8) as usize,
            len: self.number(at + 32, 8) as usize,
        };
        (0..self.number(0x3c, 2) as usize).map(|i| section(table + i * size)).collect()
    }

    /// Returns the names of the libraries it needs.
    fn needed(&self) -> Vec<String> {
        let sections = self.sections();
        let dynamic = sections.iter().find(|s| s.kind == DYNAMIC).expect("it is loaded");
        let names = sections[dynamic.link].start;
        let entries = (dynamic.start..dynamic.start + dynamic.len).step_by(16);
        let needed = entries.filter(|&at| self.number(at, 8) == NEEDED);
        let name = |at: usize| {
            let bytes = &self.0[names + self.number(at + 8, 8) as usize..];
            String::from_utf8_lossy(bytes.split(|&b| b == 0).next().unwrap()).into_owned()
        };
        needed.map(name).collect()
    }
}

#[test]
fn needed__no_libfabric_and_no_mpi() {
    // An MPI's own libfabric loads it: a second libfabric would have separate state.
    let own = std::env::current_exe().unwrap();
    let object = Object(std::fs::read(own.with_file_name("libweft_fi.so")).unwrap());
    assert_eq!(&object.0[..6], b"\x7fELF\x02\x01");
    let needed = object.needed();
    assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
    let system = ["libc.so", "libm.so", "libgcc_s.so", "ld-linux", "libpthread.so", "libdl.so"];
    let others = needed.iter().find(|name| !system.iter().any(|s| name.starts_with(s)));
    assert_eq!(others, None, "{needed:?}");
}
