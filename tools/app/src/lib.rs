//! `weft app`: a parallel application, run as a rank of the job this process was started in.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
extern crate weft_run;

pub mod asp;
pub mod pictures;
pub mod progress;
pub mod sor;

pub use progress::{Convergence, Progress};

use anyhow::{Context, Result};
use clap::Arg;
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use weft::launch::ranks_here;
use weft::{Group, Job, Op};
use weft_apps::Memory;
use weft_plot::Picture;
use weft_run::misuse;
use weft_run::program::{hand_over, PAPERS};

/// Run one of the parallel applications; alone, or on many ranks: `weft run -n 4 weft app sor`
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In the program weft-papers:
  awari   End games of Awari
  barnes  Gravitation of bodies (Barnes-Hut)
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

/// The report that rank 0 prints at the end.
#[derive(Serialize)]
pub struct Report {
    /// The name of the application.
    pub app: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Time of the parallel program.
    pub seconds: f64,
    /// Exact hash of the result.
    pub checksum: String,
    /// The figures that the application is about.
    pub result: Value,
    /// The comparison with the sequential program, if that was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Packets and bytes that came to all ranks.
    pub traffic: Traffic,
    /// The files that were written.
    pub files: Vec<PathBuf>,
}

/// Packets and bytes that have come to ranks, start and end of the job included.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Traffic {
    packets: u64,
    /// Bytes in packets, and those that were copied directly between processes.
    bytes: u64,
    /// Packets that only acknowledge; those of the other kinds acknowledge as well.
    acknowledgements: u64,
}

impl Traffic {
    /// Returns the sum of what has come to all ranks, which call this together at the end. A packet
    /// that only acknowledges is counted where it was sent.
    fn of(world: &Group) -> Result<Traffic> {
        let own = world.endpoint().stats();
        let mine = vec![own.packets_received, own.bytes_received + own.direct_bytes, own.acks_sent];
        let all = world.allreduce_blocking(mine, Op::Sum).context("the end of all ranks")?;
        let of = |at: usize| all.get(at).copied().unwrap_or(0);
        Ok(Traffic { packets: of(0), bytes: of(1), acknowledgements: of(2) })
    }
}

/// The comparison with the sequential program.
#[derive(Serialize)]
pub struct Check {
    pass: bool,
    sequential_seconds: f64,
    speedup: f64,
    sequential_checksum: String,
}

impl Check {
    /// Returns the comparison with a sequential run.
    pub fn new(pass: bool, parallel: Duration, sequential: Duration, checksum: u64) -> Check {
        Check {
            pass,
            sequential_seconds: sequential.as_secs_f64(),
            speedup: sequential.as_secs_f64() / parallel.as_secs_f64().max(1e-9),
            sequential_checksum: format!("{checksum:016x}"),
        }
    }
}

impl Report {
    /// Prints the report: `summary` with the checks and the files written, or one JSON object.
    ///
    /// # Errors
    /// The report is no JSON.
    pub fn print(&self, common: &Common, summary: &str) -> Result<ExitCode> {
        if common.json {
            println!("{}", serde_json::to_string(self)?);
        } else {
            print!("{summary}");
            if let Some(check) = &self.check {
                println!("{check}");
            }
            for file in &self.files {
                println!("written          {}", file.display());
            }
        }
        let failed = self.check.as_ref().is_some_and(|check| !check.pass);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pass {
            let (seconds, speedup) = (self.sequential_seconds, self.speedup);
            write!(f, "check            PASS: equal to the sequential program, ")?;
            write!(f, "which took {seconds:.3} s ({speedup:.2} x the time)")
        } else {
            let checksum = &self.sequential_checksum;
            write!(f, "check            FAIL: the sequential program's checksum is {checksum}")
        }
    }
}

/// Waits until all ranks have their results: the others would miss a rank that ends before. Returns
/// what came to all of them.
pub fn all_done(world: &Group) -> Result<Traffic> {
    let traffic = Traffic::of(world)?;
    world.barrier_blocking().context("the end of all ranks")?;
    Ok(traffic)
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

/// Writes a picture into a directory, as SVG; nothing if there is none.
///
/// # Errors
/// The file cannot be written.
pub fn write_picture(dir: &Path, name: &str, picture: Option<Picture>) -> Result<Vec<PathBuf>> {
    let Some(picture) = picture else { return Ok(Vec::new()) };
    let svg = picture.svg(name);
    Ok(vec![write_file(dir, &format!("{name}.svg"), |to| to.write_all(svg.as_bytes()))?])
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
