//! `weft app asp`.

use super::progress::Progress;
use super::{prepare_out, Check, Common, Report};
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Job;
use weft_asp::{
    parse, report, sequential, write_rows, write_summary, Base, Format, Graph, Keep, Outcome,
    Params, ReadOptions,
};
use weft_run::misuse;

/// All-pairs shortest paths by pipelined broadcast (ASP)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Read the graph from this file, DIMACS if its name ends in .gr, otherwise an edge list
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "degree", "seed"])]
    graph: Option<PathBuf>,
    /// Format of the file
    #[arg(long, value_enum, default_value = "auto")]
    format: FormatChoice,
    /// Number of the first node of an edge list: auto, 0 or 1
    #[arg(long, default_value = "auto")]
    base: Base,
    /// Each edge has both directions
    #[arg(long)]
    undirected: bool,
    /// Nodes of a random graph, used without --graph
    #[arg(long, value_name = "N", default_value_t = 1024)]
    nodes: u32,
    /// Arcs that leave each node of the random graph
    #[arg(long, value_name = "N", default_value_t = 16)]
    degree: u32,
    /// Seed of the random graph
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Rows of the distance matrix to write: none, all or node numbers such as 1,5,9
    #[arg(long, value_name = "NODES", default_value = "none")]
    keep: Keep,
    /// Most memory that a rank may use for distances, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatChoice {
    /// Chosen by the name of the file.
    Auto,
    /// DIMACS shortest-path challenge.
    Dimacs,
    /// One edge per line.
    Edges,
}

fn read_graph(path: &Path, args: &Args) -> Result<Graph> {
    let name = path.display();
    let file = File::open(path).with_context(|| format!("graph {name}"))?;
    let format = match args.format {
        FormatChoice::Auto => Format::of_path(path),
        FormatChoice::Dimacs => Format::Dimacs,
        FormatChoice::Edges => Format::EdgeList,
    };
    let options = ReadOptions { format, base: args.base, directed: !args.undirected };
    parse(&mut BufReader::new(file), options).with_context(|| format!("graph {name}"))
}

/// Returns the parameters. Only rank 0 reads or makes the graph; it sends the others their parts.
fn params(args: &Args, rank: usize, ranks: usize) -> Result<Params> {
    let graph = match &args.graph {
        _ if rank != 0 => Graph { nodes: 0, arcs: Vec::new(), first_id: 0 },
        Some(path) => read_graph(path, args)?,
        None => Graph::random(args.nodes, args.degree, 100, args.seed),
    };
    let keep = if rank == 0 { args.keep.clone() } else { Keep::None };
    let memory_limit = args.memory.saturating_mul(1 << 20);
    let params = Params { graph, keep, memory_limit, ns_per_cell: None };
    params.check(ranks).map_err(misuse::of)?;
    Ok(params)
}

fn write_file(
    path: PathBuf,
    outcome: &Outcome,
    write: fn(&mut dyn Write, &Outcome) -> std::io::Result<()>,
) -> Result<PathBuf> {
    let mut to = BufWriter::new(File::create(&path).with_context(|| path.display().to_string())?);
    write(&mut to, outcome)
        .and_then(|()| to.flush())
        .with_context(|| path.display().to_string())?;
    Ok(path)
}

fn write_files(dir: &Path, outcome: &Outcome) -> Result<Vec<PathBuf>> {
    let mut files = vec![write_file(dir.join("asp.csv"), outcome, write_summary)?];
    if !outcome.rows.is_empty() {
        files.push(write_file(dir.join("asp-distances.csv"), outcome, write_rows)?);
    }
    Ok(files)
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let params = params(args, rank, world.size())?;
    let progress = Progress::new(rank, "ASP");
    let done = job.block_on(weft_asp::run(world, &params, &|done, of| progress.at(done, of)));
    let outcome = done?;
    drop(progress);
    if rank != 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let files = match &common.out {
        Some(dir) => write_files(dir, &outcome).context("writing results")?,
        None => Vec::new(),
    };
    let check = common.check.then(|| {
        let progress = Progress::new(0, "sequential ASP");
        let params = Params { keep: Keep::None, memory_limit: u64::MAX, ..params };
        let alone = sequential(&params, &|done, of| progress.at(done, of));
        let pass = outcome.agrees_with(&alone);
        Check::new(pass, outcome.elapsed, alone.elapsed, alone.checksum)
    });
    let end = Report {
        app: "asp",
        ranks: outcome.ranks,
        seconds: outcome.elapsed.as_secs_f64(),
        checksum: format!("{:016x}", outcome.checksum),
        check,
        files,
    };
    end.print(common, &report(&outcome))
}
