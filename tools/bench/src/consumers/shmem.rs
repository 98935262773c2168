//! Put, get and fetch-and-add of Sandia OpenSHMEM, by the program that `weft bench models` runs.

use super::place::{Carrier, Place};
use super::{line, Line, Program, What};
use crate::shmem::{compile, figure, find, folders, Operation, HOME};
use anyhow::{ensure, Context, Result};
use std::path::PathBuf;
use weft_run::folder::Folder;

/// Bytes of an operation.
const SIZE: usize = 8;
/// Seconds of a run.
const TURN: &str = "0.3";

const BOTH: &[Carrier] = &[Carrier::Tcp, Carrier::Sockets];

/// The operations, with their rows.
const OPERATIONS: [(What, Operation); 3] = [
    ("openshmem put and quiet", Operation::Put),
    ("openshmem get", Operation::Get),
    ("openshmem fetch-and-add", Operation::Ticket),
];

const BETWEEN: &[Line] = &lines(Some(0.6));
const INSIDE: &[Line] = &lines(None);

const fn lines(most: Option<f64>) -> [Line; 3] {
    [
        line(OPERATIONS[0].0, SIZE, most, BOTH),
        line(OPERATIONS[1].0, SIZE, most, BOTH),
        line(OPERATIONS[2].0, SIZE, most, BOTH),
    ]
}

/// An OpenSHMEM, with the program compiled for it.
pub struct Shmem {
    _folder: Folder,
    program: PathBuf,
}

impl Shmem {
    /// Finds one, and compiles the program.
    ///
    /// # Errors
    /// The user names none, or its compiler fails.
    pub fn find() -> Result<Shmem> {
        // An OpenSHMEM of an MPI, as some have in PATH, starts under the launcher of the MPI alone.
        ensure!(std::env::var_os(HOME).is_some(), "{HOME} names no folder of a Sandia OpenSHMEM");
        let folder = Folder::new()?;
        let program = compile(&find(folders(), &["oshcc"])?, &folder.0)?;
        Ok(Shmem { _folder: folder, program })
    }
}

impl Program for Shmem {
    fn lines(&self, place: &Place) -> &'static [Line] {
        if place.is_lab() {
            BETWEEN
        } else {
            INSIDE
        }
    }

    fn run(&self, place: &Place, carrier: Carrier, _size: usize) -> Result<Vec<(What, f64)>> {
        let program = self.program.display().to_string();
        let once = |(what, operation): (What, Operation)| {
            let words = [program.clone(), operation.name().into(), TURN.into()];
            let (_, seconds) = figure(&place.fabric(carrier, &words)?)?.context("no figure")?;
            Ok((what, seconds * 1e6))
        };
        OPERATIONS.into_iter().map(once).collect()
    }
}
