//! The MPI library that a program names in its file: before the program runs, and however soon it
//! ends.

use super::detect::{Family, Mpi};
use std::path::{Path, PathBuf};

/// Longest file that is read: longer ones are judged by their processes.
const LONGEST: u64 = 1 << 30;
/// Most program headers, and entries of the dynamic section, that are read.
const MANY: usize = 4096;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// Returns the little-endian number of so many bytes at an offset.
fn number(file: &[u8], at: u64, len: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let bytes = file.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

/// A program header: type, offset in the file, address in memory, length in the file.
type Segment = (u64, u64, u64, u64);

/// Returns the program headers of an ELF file of 64 bits, little-endian.
fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (start, each, count) = (number(file, 32, 8)?, number(file, 54, 2)?, number(file, 56, 2)?);
    let one = |i: u64| {
        let at = start.checked_add(i.checked_mul(each)?)?;
        let field = |offset: u64, len| number(file, at.checked_add(offset)?, len);
        Some((field(0, 4)?, field(8, 8)?, field(16, 8)?, field(32, 8)?))
    };
    (0..count.min(MANY as u64)).map(one).collect()
}

/// Returns the names of the libraries that an ELF file names as needed.
fn needed(file: &[u8]) -> Option<Vec<String>> {
    let segments = segments(file)?;
    let &(_, dynamic, _, len) = segments.iter().find(|(kind, ..)| *kind == PT_DYNAMIC)?;
    let entries: Vec<(u64, u64)> = (0..len / 16)
        .take(MANY)
        .map_while(|i| {
            let at = dynamic.checked_add(i * 16)?;
            Some((number(file, at, 8)?, number(file, at.checked_add(8)?, 8)?))
        })
        .collect();
    let &(_, table) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB)?;
    let in_file = |&(kind, offset, address, len): &Segment| {
        let within = table.checked_sub(address).filter(|within| *within < len)?;
        (kind == PT_LOAD).then(|| offset.checked_add(within)).flatten()
    };
    let strings = segments.iter().find_map(in_file)?;
    let name = |offset: u64| {
        let at = usize::try_from(strings.checked_add(offset)?).ok()?;
        let text = file.get(at..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(text).into_owned())
    };
    let of = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
    Some(of.filter_map(|&(_, offset)| name(offset)).collect())
}

/// Returns the file of a program as a shell finds it.
fn found(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|p| p.is_file())
}

/// Returns the MPI library of another family that a program's file names.
fn foreign(file: &Path, family: Family) -> Option<String> {
    let len = file.metadata().ok()?.len();
    let bytes = (len <= LONGEST).then(|| std::fs::read(file).ok())??;
    let is_mpi = |name: &String| name.starts_with("libmpi.so") || name.starts_with("libmpich.so");
    needed(&bytes)?.into_iter().filter(is_mpi).find(|name| !family.runs(name))
}

/// Returns a hint if a program is one of another MPI.
pub fn hint(program: &str, mpi: &Mpi) -> Option<String> {
    let library = foreign(&found(program)?, mpi.family)?;
    Some(super::watch::other_mpi(program, &library, mpi))
}

/// Returns the MPI library of a program whose ranks cannot move: its file names one of another MPI
/// than MPICH.
pub fn immovable(program: &str) -> Option<String> {
    foreign(&found(program)?, Family::Mpich)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn needed__of_this_program_has_the_c_library_and_no_mpi() {
        let own = std::env::current_exe().unwrap();
        let all = needed(&std::fs::read(&own).unwrap()).unwrap();
        assert!(all.iter().any(|name| name.starts_with("libc.so")), "{all:?}");
        assert_eq!(foreign(&own, Family::OpenMpi5), None);
        assert_eq!(found("sh").and_then(|file| foreign(&file, Family::Mpich)), None);
    }

    #[test]
    fn needed__no_damaged_file_is_believed() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for cut in [0, 5, 40, 64, 100, 1000, own.len() / 2] {
            let _ = needed(&own[..cut.min(own.len())]);
        }
        let mut damaged = own[..own.len().min(1 << 16)].to_vec();
        for at in (0..1024.min(damaged.len())).rev() {
            damaged[at] = 0xff;
            let _ = needed(&damaged);
        }
        assert_eq!(needed(b"#!/bin/sh\n"), None);
    }
}
