//! The report that rank 0 prints at the end of an application.

use super::{write_file, Common};
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use weft::{Group, Op};
use weft_plot::Picture;

/// The figures that every run has.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// The name of the application.
    pub app: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Time of the parallel program.
    pub elapsed: Duration,
    /// Exact hash of the result.
    pub checksum: u64,
}

/// The report of a run, with the files that it has written.
#[derive(Serialize)]
pub struct Report<'a> {
    app: &'static str,
    ranks: usize,
    seconds: f64,
    checksum: String,
    /// The figures that the application is about.
    result: Value,
    /// The comparison with the sequential program, if that was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<Check>,
    /// Packets and bytes that came to all ranks.
    traffic: Traffic,
    files: Vec<PathBuf>,
    #[serde(skip)]
    common: &'a Common,
    #[serde(skip)]
    elapsed: Duration,
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
struct Check {
    pass: bool,
    sequential_seconds: f64,
    speedup: f64,
    sequential_checksum: String,
}

impl Check {
    fn new(pass: bool, parallel: Duration, sequential: Duration, checksum: u64) -> Check {
        Check {
            pass,
            sequential_seconds: sequential.as_secs_f64(),
            speedup: sequential.as_secs_f64() / parallel.as_secs_f64().max(1e-9),
            sequential_checksum: format!("{checksum:016x}"),
        }
    }
}

/// Waits until all ranks have their results: the others would miss a rank that ends before. Returns
/// what came to all of them.
///
/// # Errors
/// A rank failed.
pub fn all_done(world: &Group) -> Result<Traffic> {
    let traffic = Traffic::of(world)?;
    world.barrier_blocking().context("the end of all ranks")?;
    Ok(traffic)
}

impl<'a> Report<'a> {
    /// Waits until all ranks have their results. Returns the report of rank 0, `None` for the
    /// others.
    ///
    /// # Errors
    /// A rank failed.
    pub fn begin(world: &Group, common: &'a Common, ran: Ran) -> Result<Option<Report<'a>>> {
        let traffic = all_done(world)?;
        let Ran { app, ranks, elapsed, checksum } = ran;
        Ok((world.rank() == 0).then(|| Report {
            app,
            ranks,
            seconds: elapsed.as_secs_f64(),
            checksum: format!("{checksum:016x}"),
            result: Value::Null,
            check: None,
            traffic,
            files: Vec::new(),
            common,
            elapsed,
        }))
    }

    /// Writes a result file, if `--out` asks for files.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn file(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<()> {
        if let Some(dir) = &self.common.out {
            self.files.push(write_file(dir, name, write)?);
        }
        Ok(())
    }

    /// Names files that the application has written itself.
    pub fn written(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        self.files.extend(files);
    }

    /// Writes the picture of the application as SVG, if `--out` asks for files and there is one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn picture(&mut self, picture: impl FnOnce() -> Option<Picture>) -> Result<()> {
        let Some(picture) = self.common.out.as_ref().and_then(|_| picture()) else { return Ok(()) };
        let svg = picture.svg(self.app);
        self.file(&format!("{}.svg", self.app), |to| to.write_all(svg.as_bytes()))
    }

    /// Runs the sequential program, if `--check` asks for it: it returns whether both results are
    /// equal, its time and its checksum.
    ///
    /// # Errors
    /// The sequential program failed.
    pub fn check(
        &mut self,
        sequential: impl FnOnce() -> Result<(bool, Duration, u64)>,
    ) -> Result<()> {
        if self.common.check {
            let (pass, took, checksum) = sequential()?;
            self.check = Some(Check::new(pass, self.elapsed, took, checksum));
        }
        Ok(())
    }

    /// Prints the report: `summary` with the checks and the files written, or one JSON object with
    /// the figures of `result`.
    ///
    /// # Errors
    /// The report is no JSON.
    pub fn print(mut self, result: Value, summary: &str) -> Result<ExitCode> {
        self.result = result;
        if self.common.json {
            println!("{}", serde_json::to_string(&self)?);
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
