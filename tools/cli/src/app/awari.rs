//! `weft app awari`.

use super::progress::Progress;
use super::{all_done, prepare_out, write_file, Check, Common, Report};
use anyhow::{bail, Context, Result};
use std::process::ExitCode;
use weft::Job;
use weft_awari::{
    read_positions, report, sequential, write_answer, write_histogram, write_histogram_svg, Params,
    Step,
};
use weft_models::net::{Blocking, Live};
use weft_run::misuse;

/// Endgame databases of Awari, positions at their owners (Awari)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Most stones of a position
    #[arg(long, value_name = "N", default_value_t = 13)]
    stones: u8,
    /// Most memory that a rank may use for scores, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,
    /// Print score and moves of this position: the stones of 12 pits, those of the player to move
    /// first, as in "1,1,1,1,1,2,4,2,3,0,0,0"
    #[arg(long, value_name = "PITS")]
    position: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    let memory_limit = args.memory.saturating_mul(1 << 20);
    let params = Params { stones: args.stones, memory_limit };
    params.check().map_err(misuse::of)?;
    let asked = args.position.as_ref().map(|text| {
        let text = text.replace(',', " ");
        read_positions(&mut text.as_bytes()).map_err(misuse::of)
    });
    let asked = asked.transpose()?.unwrap_or_default();
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let net = Live::new(world).context("the packet interface")?;
    let progress = Progress::new(rank, "Awari");
    let tell = |s: Step| progress.at(s.done, s.positions);
    let outcome = net.block_on(weft_awari::run(&net, &params, 0.0, &tell))?;
    all_done(world)?;
    drop(progress);
    if rank != 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let (mut files, database) = (Vec::new(), &outcome.database);
    if let Some(dir) = &common.out {
        files.push(write_file(dir, "awari.csv", |to| write_histogram(to, database))?);
        let draw = |to: &mut dyn std::io::Write| write_histogram_svg(to, database, args.stones);
        files.push(write_file(dir, "awari.svg", draw)?);
    }
    let mut summary = report(&outcome);
    for board in &asked {
        let Some(answer) = database.answer(board) else {
            bail!("the position has {} stones, more than --stones", board.stones());
        };
        let mut text = Vec::new();
        write_answer(&mut text, &answer)?;
        summary += &String::from_utf8_lossy(&text);
    }
    let check = match common.check {
        false => None,
        true => {
            let progress = Progress::new(0, "sequential Awari");
            let alone = sequential(&params, &|s| {
                progress.at(s.done, s.positions);
                Ok(())
            })?;
            let pass = outcome.agrees_with(&alone);
            Some(Check::new(pass, outcome.elapsed, alone.elapsed, alone.checksum))
        }
    };
    let end = Report {
        app: "awari",
        ranks: outcome.ranks,
        seconds: outcome.elapsed.as_secs_f64(),
        checksum: format!("{:016x}", outcome.checksum),
        check,
        files,
    };
    end.print(common, &summary)
}
