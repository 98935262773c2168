//! `weft app radix`.

use super::progress::Progress;
use super::{open, pictures, prepare_out, Measured, Ran, Report};
use anyhow::{Context, Result};
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Job;
use weft_apps::Memory;
use weft_models::net::{Blocking, Live};
use weft_radix::{
    bytes_needed, read_binary, read_text, report, sequential, write_binary, write_histogram,
    write_summary, write_text, Division, Generator, Outcome, Params, Step, SEED,
};
use weft_run::misuse;

/// The options.
pub type Args = Measured<Input>;

/// Keys of a region: 4 KiB, a page.
const REGION: usize = 1024;
/// Most keys that are read.
const MOST: usize = 1 << 30;
/// Ranges of the histogram of keys.
const BINS: u32 = 64;

fn whole(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1 << 20).contains(number));
    number.ok_or_else(|| "a region has from 1 to 1048576 keys".to_string())
}

fn is_binary(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "bin")
}

/// The keys, and their division.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Read keys from this file: whole numbers below 2^32 as text, or of four bytes each if its
    /// name ends in .bin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "below"])]
    input: Option<PathBuf>,
    /// Number of keys of the Splash benchmark
    #[arg(long, value_name = "N", default_value_t = 3_000_000)]
    keys: usize,
    /// All keys are below this number
    #[arg(long, value_name = "N", default_value_t = 1 << 26)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    below: u32,
    /// Values of a digit: a power of two from 2 to 65536
    #[arg(long, value_name = "N", default_value_t = 128)]
    radix: u32,
    /// Keys of a region; the paper has 256
    #[arg(long, value_name = "N", default_value_t = REGION, value_parser = whole)]
    region: usize,
}

impl Input {
    /// Returns the parameters; each rank has all keys.
    pub fn params(&self, memory: Memory) -> Result<Params> {
        let each = bytes_needed(self.region, self.region).div_ceil(self.region as u128);
        let most = memory.most(each as u64).min(MOST);
        let keys = match &self.input {
            Some(path) if is_binary(path) => {
                read_binary(&mut open(path)?, most).with_context(|| path.display().to_string())?
            }
            Some(path) => {
                read_text(&mut open(path)?, most).with_context(|| path.display().to_string())?
            }
            None => {
                let what = format!("the sorting of {} keys", self.keys);
                memory.check(what, bytes_needed(self.keys, self.region)).map_err(misuse::of)?;
                let mut keys = Vec::with_capacity(self.keys);
                keys.extend(Generator::new(0, self.below, SEED).take(self.keys));
                keys
            }
        };
        let params = Params { keys, radix: self.radix };
        params.check().map_err(misuse::of)?;
        Ok(params)
    }

    /// Returns the division of the keys.
    pub fn division(&self) -> Division {
        Division { region: self.region, ns_per_key: 0.0, one_by_one: false }
    }
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    json!({
        "keys": outcome.keys.len(), "radix": outcome.radix, "passes": outcome.passes,
        "sorted": outcome.is_sorted(), "least": outcome.keys.first(),
        "greatest": outcome.keys.last(),
    })
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    let (params, division) = (args.input.params(args.room.of(world)?)?, args.input.division());
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Progress::new(rank, "Radix");
    let tell = |s: Step| progress.at(s.passes.into(), s.of.into());
    let outcome = net.block_on(weft_radix::run(&net, &params, &division, &tell))?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "radix", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    end.file("radix.csv", |to| write_summary(to, &outcome))?;
    let histogram = |to: &mut dyn std::io::Write| write_histogram(to, &outcome, BINS);
    end.file("radix-histogram.csv", histogram)?;
    end.picture(|| pictures::keys(&outcome))?;
    match args.input.input.as_deref().is_some_and(is_binary) {
        true => end.file("radix-keys.bin", |to| write_binary(to, &outcome))?,
        false => end.file("radix-keys.txt", |to| write_text(to, &outcome))?,
    }
    end.check(|| {
        let progress = Progress::new(0, "sequential Radix");
        let alone = sequential(&params, &|s| {
            progress.at(s.passes.into(), s.of.into());
            Ok(())
        })?;
        let pass = outcome.agrees_with(&alone) && outcome.keys == alone.keys;
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    end.print(result(&outcome), &report(&outcome))
}
