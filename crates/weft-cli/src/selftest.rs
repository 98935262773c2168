//! Hidden checks that the integration tests start as ranks.

use anyhow::{ensure, Context, Result};
use std::process::ExitCode;
use weft::launch::{self, wire, Bootstrap};

/// Check a part of weft from inside a rank.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Publish a value, get everyone's, and print what was learnt
    Bootstrap {
        /// Bytes of the value
        #[arg(long, default_value_t = 160)]
        bytes: usize,
        /// This rank stays away
        #[arg(long)]
        absent: Option<usize>,
        /// This rank aborts the job with status 5 once all have joined
        #[arg(long)]
        aborts: Option<usize>,
    },
}

fn value_of(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (rank * 31 + at) as u8).collect()
}

/// Runs the check.
pub fn run(args: Args) -> Result<ExitCode> {
    let What::Bootstrap { bytes, absent, aborts } = args.what;
    if absent.is_some_and(|rank| std::env::var("PMI_RANK") == Ok(rank.to_string())) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut joined = launch::join().context("joining the job")?;
    let boot = joined.boot.as_mut();
    boot.put("address", &value_of(boot.rank(), bytes))?;
    boot.fence().context("fence")?;
    for rank in 0..boot.size() {
        let got = boot.get(rank, "address")?;
        ensure!(got == value_of(rank, bytes), "the value of rank {rank} came back changed");
    }
    if aborts == Some(boot.rank()) {
        boot.abort(5, "asked to by the test");
    }
    report(boot, &joined.key);
    joined.boot.fence()?;
    joined.boot.finalize()?;
    Ok(ExitCode::SUCCESS)
}

fn report(boot: &dyn Bootstrap, key: &[u8]) {
    // A digest of the key shows that all have the same one without showing it.
    let digest = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let digest = wire::to_hex(&digest.to_be_bytes());
    let (rank, size, launcher) = (boot.rank(), boot.size(), boot.launcher());
    println!("rank {rank} of {size} by {launcher}, job {}, key {digest}", boot.job_id());
}
