//! A program in C for two PEs of an OpenSHMEM: found compilers, its operations and its figures.

use crate::mpi::job::last_words;
use crate::mpi::parse;
use crate::sources::in_c;
use anyhow::{bail, ensure, Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names the folder of an OpenSHMEM, which has its programs in `bin`.
pub const HOME: &str = "SHMEM_HOME";

/// An operation of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fetch-and-add at the other PE.
    Ticket,
    /// A get of 16 bytes from the other PE, a put of them, and a quiet.
    Write,
    /// A put of 8 bytes and a quiet.
    Put,
    /// A get of 8 bytes.
    Get,
}

impl Operation {
    /// Returns its name, which the program takes.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Ticket => "ticket",
            Operation::Write => "write",
            Operation::Put => "put",
            Operation::Get => "get",
        }
    }
}

/// Returns the folders of programs: that of the folder that the user names, else those of `PATH`.
pub fn folders() -> Vec<PathBuf> {
    match std::env::var_os(HOME).filter(|home| !home.is_empty()) {
        Some(home) => vec![PathBuf::from(home).join("bin")],
        None => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect(),
    }
}

/// Returns the first of these programs, in the first folder that has them all.
///
/// # Errors
/// No folder has them.
pub fn find(folders: Vec<PathBuf>, programs: &[&str]) -> Result<PathBuf> {
    let has = |folder: &PathBuf| programs.iter().all(|program| folder.join(program).is_file());
    let Some(folder) = { folders }.into_iter().find(has) else {
        bail!("none is installed ({} in PATH, or in bin of {HOME})", programs.join(" and "))
    };
    Ok(folder.join(programs[0]))
}

/// Compiles the program into a folder.
///
/// # Errors
/// The compiler fails.
pub fn compile(oshcc: &Path, folder: &Path) -> Result<PathBuf> {
    let (source, program) =
        (in_c(folder, "shmem.c", include_str!("shmem.c"))?, folder.join("shmem"));
    let mut command = Command::new(oshcc);
    command.arg("-o").args([&program, &source]).arg("-O2").stdin(Stdio::null());
    let output = command.output().with_context(|| format!("{}", oshcc.display()))?;
    ensure!(output.status.success(), "{}: {}", oshcc.display(), last_words(&output));
    Ok(program)
}

/// Reads the output of the program: the name of the OpenSHMEM, and the seconds of an operation.
///
/// # Errors
/// The program printed a failure.
pub fn figure(said: &str) -> Result<Option<(String, f64)>> {
    let after = |word| said.lines().find_map(|line| line.trim().strip_prefix(word));
    if let Some(why) = after("weft-failed ") {
        bail!("{why}");
    }
    let seconds = parse(said).first().map(|&(_, seconds)| seconds);
    Ok(after("weft-shmem ").map(str::to_string).zip(seconds))
}
