//! Detects if the ranks on this host use weft, by the files that their processes have mapped.

use super::detect::{Family, Mpi};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Name of the mapping that the provider makes when libfabric asks for it.
const USED: &str = "memfd:weft-provider";

/// Facts seen about the ranks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// True if libfabric asked for the provider in some process. A mapped file alone is no
    /// evidence, because it may have been loaded first.
    pub weft: bool,
    /// True if some process has an MPI library.
    pub mpi: bool,
    /// An MPI library of another family than the launcher's.
    pub foreign: Option<PathBuf>,
}

/// Returns processes and their parents.
fn parents() -> HashMap<u32, u32> {
    let Ok(list) = std::fs::read_dir("/proc") else { return HashMap::new() };
    let numbers = list.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold any character.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    numbers.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

fn descends(pid: u32, from: u32, parents: &HashMap<u32, u32>) -> bool {
    let mut at = pid;
    // Bounded: the table is no snapshot and may have cycles.
    for _ in 0..64 {
        match parents.get(&at) {
            Some(&parent) if parent == from => return true,
            Some(&parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// Returns all processes that descend from `pid`.
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents = parents();
    parents.keys().copied().filter(|p| descends(*p, pid, &parents)).collect()
}

/// Returns the hint about a program that loads a library of another MPI.
pub fn other_mpi(program: &str, library: &str, mpi: &Mpi) -> String {
    format!(
        "{program} loads {library}, which is not of {mpi} ({}): every rank is alone in a job of \
         its own, or ends in MPI_Init; --mpi PATH names the mpiexec that belongs to that library",
        mpi.launcher.display()
    )
}

impl Sighting {
    /// Adds the mappings of one process.
    fn note(&mut self, maps: &str, family: Family) {
        for line in maps.lines() {
            let Some(path) = line.find('/').map(|at| Path::new(&line[at..])) else { continue };
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.starts_with(USED) {
                self.weft = true;
            } else if name.starts_with("libmpi.so") || name.starts_with("libmpich.so") {
                self.mpi = true;
                if !family.runs(name) && self.foreign.is_none() {
                    self.foreign = Some(path.to_path_buf());
                }
            }
        }
    }

    /// Adds all processes that descend from `launcher`.
    pub fn look(&mut self, launcher: u32, family: Family) {
        for pid in descendants(launcher) {
            let Ok(maps) = std::fs::read(format!("/proc/{pid}/maps")) else { continue };
            self.note(&String::from_utf8_lossy(&maps), family);
        }
    }

    /// Returns a hint for the user, if there is a reason for one. Ranks that were not seen are
    /// none. Ranks that only loaded their MPI's library may still load weft, unless they had time
    /// to (`long`).
    pub fn hint(&self, mpi: &Mpi, program: &str, long: bool) -> Option<String> {
        if self.weft {
            return None;
        }
        if let Some(library) = &self.foreign {
            return Some(other_mpi(program, &library.display().to_string(), mpi));
        }
        (self.mpi && long).then(|| {
            format!(
                "no rank on this host has loaded weft: {program} has not called MPI_Init, or its \
                 MPI uses something else; FI_LOG_LEVEL=info shows libfabric's choice"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn mpi() -> Mpi {
        let (family, version) = (Family::Mpich, "5.0.2".into());
        Mpi { family, version, launcher: "/m/bin/mpiexec".into(), prefix: "/m".into() }
    }

    fn after(maps: &str, long: bool) -> Option<String> {
        let mut seen = Sighting::default();
        seen.note(maps, Family::Mpich);
        seen.hint(&mpi(), "./a.out", long)
    }

    #[test]
    fn hint__the_wrong_mpi_is_named() {
        let maps = "7f-80 r-xp 0 08:01 1   /usr/lib/libmpi.so.40.30.4\n80-81 rw-p 0 00:00 0 \n";
        let hint = after(maps, false).unwrap();
        assert!(hint.contains("/usr/lib/libmpi.so.40.30.4, which is not of MPICH 5.0.2"), "{hint}");
    }

    #[test]
    fn hint__nothing_is_said_of_what_works_or_was_not_seen() {
        assert_eq!(after("7f-80 r-xp 0 08:01 1   /usr/lib/libc.so.6\n", true), None);
        let own = "1-2 r-xp 0 08:01 1 /m/lib/libmpi.so.12\n";
        assert_eq!(after(own, false), None);
        assert!(after(own, true).unwrap().contains("no rank on this host"));
        let first = format!("{own}2-3 r-xp 0 08:01 2 /p/libweft-fi.so\n");
        assert!(after(&first, true).is_some(), "loaded first, and not asked for");
        let asked = format!("{first}3-4 r--s 0 00:01 9   /memfd:weft-provider (deleted)\n");
        assert_eq!(after(&asked, true), None);
    }

    #[test]
    fn look__finds_descendants() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        assert!(!descendants(child.id()).contains(&std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
