//! `weft app`: a parallel application, run as a rank of the job this process was started in.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

pub mod asp;
pub mod pictures;
pub mod progress;
mod report;
pub mod sor;

pub use progress::{Convergence, Progress};
pub use report::{all_done, Ran, Report};

use anyhow::{Context, Result};
use clap::Arg;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::launch::ranks_here;
use weft::{Group, Job};
use weft_apps::Memory;
use weft_run::misuse;
use weft_run::program::{hand_over, PAPERS};

/// Run one of the parallel applications; alone, or on many ranks: `weft run -n 4 weft app sor`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In the program weft-papers:
  awari   End games of Awari
  barnes  Gravitation of bodies (Barnes-Hut)
  dd      Electrons and holes in a semiconductor
  leq     Linear equations
  puzzle  The 15-puzzle
  qr      QR factorisation
  radix   Radix sort")]
pub struct Args {
    #[command(subcommand)]
    which: Which,
}

#[derive(Debug, clap::Subcommand)]
enum Which {
    /// Red-black successive over-relaxation of a heated plate (SOR)
    Sor(sor::Args),
    Asp(asp::Args),
    #[command(external_subcommand)]
    OfPapers(Vec<OsString>),
}

/// Options of every application.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// Run the sequential program too and compare: any difference is a failure
    #[arg(long)]
    pub check: bool,
    /// Write result files into this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON object in place of the summary
    #[arg(long)]
    pub json: bool,
}

/// The option of applications whose data grow with their input.
#[derive(Debug, clap::Args)]
pub struct Room {
    /// Most memory that a rank may use for its data, in MiB [default: its part of what is free on
    /// its host]
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
}

/// The options of an application whose input `I` is measured against the memory.
#[derive(Debug, clap::Args)]
#[command(mut_args(numbers))]
pub struct Measured<I: clap::Args> {
    /// The options of the input.
    #[command(flatten)]
    pub input: I,
    /// Its memory.
    #[command(flatten)]
    pub room: Room,
    /// The options of every application.
    #[command(flatten)]
    pub common: Common,
}

impl Room {
    /// Returns the memory that this rank may use. All ranks of `world` call it before they take
    /// any, so that those of a host see the same memory free.
    ///
    /// # Errors
    /// A rank failed.
    pub fn of(&self, world: &Group) -> Result<Memory> {
        let here = ranks_here(&|name| std::env::var(name).ok());
        let memory = self.part(here.unwrap_or(world.size()));
        if self.memory.is_none() {
            world.barrier_blocking().context("the memory of all ranks")?;
        }
        Ok(memory)
    }

    /// Returns the memory that one of so many ranks on this host may use.
    pub fn part(&self, ranks: usize) -> Memory {
        match self.memory {
            Some(mib) => Memory::said(mib.saturating_mul(1 << 20)),
            None => Memory::free(ranks),
        }
    }
}

/// Lets numbers be negative, so that the check of their range answers, and not the parser of
/// options.
pub fn numbers(arg: Arg) -> Arg {
    let takes_values = arg.get_action().takes_values();
    arg.allow_negative_numbers(takes_values)
}

/// Opens an input file.
pub fn open(path: &Path) -> Result<BufReader<File>> {
    let name = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => misuse!("the input {name} cannot be opened: {error}"),
    };
    if file.metadata().is_ok_and(|meta| meta.is_dir()) {
        misuse!("the input {name} is a directory: name a file");
    }
    Ok(BufReader::new(file))
}

/// Makes the directory for results before the work starts.
pub fn prepare_out(out: Option<&Path>) -> Result<()> {
    let Some(dir) = out else { return Ok(()) };
    let name = dir.display();
    if dir.exists() && !dir.is_dir() {
        misuse!("--out {name}: this is a file, and results need a directory");
    }
    match std::fs::create_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(error) => misuse!("--out {name}: the directory cannot be made: {error}"),
    }
}

/// Writes a result file into a directory.
pub fn write_file(
    dir: &Path,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<PathBuf> {
    let path = dir.join(name);
    let mut to = BufWriter::new(File::create(&path).with_context(|| path.display().to_string())?);
    let written = write(&mut to).and_then(|()| to.flush());
    written.with_context(|| path.display().to_string())?;
    Ok(path)
}

/// Runs an application as a rank of the job that this process was started in.
///
/// # Errors
/// The application failed, and no other rank waits for this one.
pub fn run_rank(run: impl FnOnce(&Job) -> Result<ExitCode>) -> Result<ExitCode> {
    let job = Job::init().context("joining the job")?;
    match run(&job) {
        Ok(code) => Ok(code),
        // No other rank waits for this one.
        Err(error) if job.world().size() == 1 => Err(error),
        // All ranks end together with the rank that knows the cause.
        Err(error) => {
            let status = if misuse::is(&error) { 2 } else { 1 };
            job.abort(status, &format!("weft app: {error:#}"))
        }
    }
}

/// Runs the application.
///
/// # Errors
/// The application failed, or its program is not there.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.which {
        Which::Sor(args) => run_rank(|job| sor::run(job, &args)),
        Which::Asp(args) => run_rank(|job| asp::run(job, &args)),
        Which::OfPapers(words) => {
            hand_over(PAPERS, std::iter::once(OsString::from("app")).chain(words))
        }
    }
}
