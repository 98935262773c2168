//! Programs in Python and in C that benchmarks run: written to a folder that vanishes afterwards.

use anyhow::{ensure, Context, Result};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weft_run::folder::Folder;
use weft_run::limited::output_within;

use crate::mpi::job::last_words;
use crate::sys::{prepare, Setup};

/// Longest run of a program that says what a Python has.
const CHECK: Duration = Duration::from_secs(180);

/// Writes a program in C that includes `pin.h`; returns its file.
///
/// # Errors
/// The folder cannot be written.
pub fn in_c(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let source = folder.join(name);
    let files = [(&source, text), (&folder.join("pin.h"), include_str!("pin.h"))];
    for (file, text) in files {
        std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(source)
}

/// Runs a command that ends with this process; returns its output.
///
/// # Errors
/// The command does not start, fails, or takes longer than `limit`.
pub fn output(mut command: Command, limit: Duration) -> Result<String> {
    prepare(&mut command, Setup { inherited: vec![], cpus: None, host: None });
    let program = command.get_program().to_string_lossy().into_owned();
    let output = output_within(command, limit).with_context(|| format!("running {program}"))?;
    ensure!(output.status.success(), "{}: {}", output.status, last_words(&output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program in Python. With the argument `check` it prints a line of JSON about the packages that
/// it finds.
pub struct Script {
    /// Removes the program when it is dropped.
    _folder: Folder,
    pub python: String,
    pub program: PathBuf,
}

impl Script {
    /// Writes the program for a Python, `python3` unless one is named.
    ///
    /// # Errors
    /// The program cannot be written.
    pub fn new(python: Option<&str>, text: &str) -> Result<Script> {
        let folder = Folder::new()?;
        let program = folder.0.join("bench.py");
        std::fs::write(&program, text).context("writing the program")?;
        let python = python.unwrap_or("python3").to_owned();
        Ok(Script { _folder: folder, python, program })
    }

    /// Returns the packages that the program finds.
    ///
    /// # Errors
    /// The Python does not run.
    pub fn check<T: DeserializeOwned>(&self) -> Result<T> {
        let mut command = Command::new(&self.python);
        command.arg(&self.program).arg("check");
        let said = output(command, CHECK).with_context(|| {
            let python = &self.python;
            format!("{python} does not run: name a Python of version 3.11 or newer by --python")
        })?;
        serde_json::from_str(said.lines().last().unwrap_or_default())
            .context("the packages of a Python")
    }
}
