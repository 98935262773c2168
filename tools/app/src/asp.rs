//! `weft app asp`.

use super::progress::Progress;
use super::{open, pictures, prepare_out, Common, Ran, Report, Room};
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weft::Job;
use weft_apps::Memory;
use weft_asp::{
    parse, report, sequential, write_rows, write_summary, Base, Format, Graph, Keep, Outcome,
    Params, ReadOptions,
};
use weft_run::misuse;

/// All-pairs shortest paths by pipelined broadcast (ASP)
#[derive(Debug, clap::Args)]
#[command(mut_args(super::numbers))]
pub struct Args {
    #[command(flatten)]
    input: Input,
    /// Seed of the random graph
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "graph")]
    seed: u64,
    /// Rows of the distance matrix that --out writes: none, all or node numbers such as 1,5,9
    #[arg(long, value_name = "NODES", default_value = "none", requires = "out")]
    keep: Keep,
    #[command(flatten)]
    room: Room,
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

/// The graph.
#[derive(Debug, clap::Args)]
pub struct Input {
    /// Read the graph from this file, DIMACS if its name ends in .gr, otherwise an edge list
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "degree"])]
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
}

impl Input {
    fn read(&self, path: &Path) -> Result<Graph> {
        let format = match self.format {
            FormatChoice::Auto => Format::of_path(path),
            FormatChoice::Dimacs => Format::Dimacs,
            FormatChoice::Edges => Format::EdgeList,
        };
        let options = ReadOptions { format, base: self.base, directed: !self.undirected };
        parse(&mut open(path)?, options).with_context(|| format!("graph {}", path.display()))
    }

    /// Returns a random graph, if it and its distances fit.
    fn random(&self, seed: u64, ranks: usize, memory: Memory) -> Result<Graph> {
        let &Input { nodes, degree, .. } = self;
        let rows = weft_apps::owned(0, ranks, nodes as usize).len();
        let distances = rows as u128 * u128::from(nodes) * size_of::<u32>() as u128;
        let what = format!("a graph of {nodes} nodes with {degree} arcs each");
        let bytes = distances + Graph::bytes_needed(nodes, degree);
        memory.check(what, bytes).map_err(misuse::of)?;
        Ok(Graph::random(nodes, degree, 100, seed))
    }

    /// Returns the graph, whose distances are divided among so many ranks; a random one is that of
    /// the seed.
    pub fn graph(&self, seed: u64, ranks: usize, memory: Memory) -> Result<Graph> {
        match &self.graph {
            Some(path) => self.read(path),
            None => self.random(seed, ranks, memory),
        }
    }
}

/// Returns the parameters. Only rank 0 reads or makes the graph; it sends the others their parts.
fn params(args: &Args, (rank, ranks): (usize, usize), memory: Memory) -> Result<Params> {
    let graph = match rank {
        0 => args.input.graph(args.seed, ranks, memory)?,
        _ => Graph { nodes: 0, arcs: Vec::new(), first_id: 0 },
    };
    let keep = match rank {
        0 if args.common.out.is_some() => drawn(args.keep.clone(), &graph),
        0 => args.keep.clone(),
        _ => Keep::None,
    };
    let params = Params { graph, keep, memory_limit: memory.bytes(), ns_per_cell: None };
    params.check(ranks).map_err(misuse::of)?;
    Ok(params)
}

/// Sources whose distances are drawn.
const DRAWN: usize = 64;

/// Returns the sources that are drawn beside those that are kept, in the numbers of the input.
fn drawn(keep: Keep, graph: &Graph) -> Keep {
    let each = graph.nodes.div_ceil(DRAWN).max(1);
    let all = (graph.first_id..).take(graph.nodes).step_by(each);
    match keep {
        Keep::All => Keep::All,
        Keep::None => Keep::Sources(all.collect()),
        Keep::Sources(kept) => {
            let new = all.filter(|source| !kept.contains(source));
            Keep::Sources(kept.iter().copied().chain(new).collect())
        }
    }
}

/// Returns true if the distances from a source are wanted in a file.
fn is_kept(keep: &Keep, source: u32) -> bool {
    match keep {
        Keep::All => true,
        Keep::None => false,
        Keep::Sources(kept) => kept.contains(&source),
    }
}

/// Draws the distances, and writes those that are kept.
fn write_files(end: &mut Report<'_>, outcome: &mut Outcome, keep: &Keep) -> Result<()> {
    end.file("asp.csv", |to| write_summary(to, outcome))?;
    end.picture(|| pictures::distances(outcome, outcome.rows.len()))?;
    let first = outcome.first_id;
    outcome.rows.retain(|(source, _)| is_kept(keep, source + first));
    if !outcome.rows.is_empty() {
        end.file("asp-distances.csv", |to| write_rows(to, outcome))?;
    }
    Ok(())
}

/// Returns the figures of a result.
pub fn result(outcome: &Outcome) -> Value {
    let summary = &outcome.summary;
    let centre = summary.centre.map(|centre| {
        json!({
            "node": u64::from(centre.node) + u64::from(outcome.first_id),
            "eccentricity": centre.eccentricity, "reaches": centre.reaches,
        })
    });
    json!({
        "nodes": outcome.nodes, "arcs": outcome.arcs, "reachable_pairs": summary.reachable,
        "diameter": summary.diameter, "centre": centre, "mean_distance": summary.mean(),
    })
}

/// Runs the part of this rank; rank 0 reports the result.
pub fn run(job: &Job, args: &Args) -> Result<ExitCode> {
    let (world, common) = (job.world(), &args.common);
    let rank = world.rank();
    if rank == 0 {
        prepare_out(common.out.as_deref())?;
    }
    let params = params(args, (rank, world.size()), args.room.of(world)?)?;
    let progress = Progress::new(rank, "ASP");
    let done = job.block_on(weft_asp::run(world, &params, &|done, of| progress.at(done, of)));
    let mut outcome = done?;
    drop(progress);
    let Outcome { ranks, elapsed, checksum, .. } = outcome;
    let ran = Ran { app: "asp", ranks, elapsed, checksum };
    let Some(mut end) = Report::begin(world, common, ran)? else { return Ok(ExitCode::SUCCESS) };
    write_files(&mut end, &mut outcome, &args.keep).context("writing results")?;
    end.check(|| {
        let progress = Progress::new(0, "sequential ASP");
        let params = Params { keep: Keep::None, memory_limit: u64::MAX, ..params };
        let alone = sequential(&params, &|done, of| progress.at(done, of));
        let pass = outcome.agrees_with(&alone);
        Ok((pass, alone.elapsed, alone.checksum))
    })?;
    end.print(result(&outcome), &report(&outcome))
}
