//! All-pairs shortest paths (ASP) with the algorithm of Floyd and Warshall.
//!
//! The distance matrix is distributed in blocks of rows. In step `k` the owner of row `k`
//! broadcasts it and every rank improves its rows with paths through node `k`: the pipelined
//! broadcast of paper 004, section 7. There is no barrier between steps. The owner of row `k + 1`
//! updates that row first and passes it to the broadcast, which proceeds while all ranks compute.
//!
//! All ranks do the operations of the sequential program in its order, on integers: [`run`] and
//! [`sequential()`] agree exactly.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod csv;
mod graph;
mod matrix;
mod over;
mod parallel;
mod params;
mod pipe;
mod read;
mod sequential;
mod summary;

pub use csv::{write_rows, write_summary};
pub use graph::{Arc, Graph};
pub use matrix::UNREACHABLE;
pub use over::run_over;
pub use parallel::run;
pub use params::{Keep, Params, ParamsError};
pub use read::{parse, Base, Format, ReadError, ReadErrorKind, ReadOptions};
pub use sequential::sequential;
pub use summary::{Centre, Summary};

use std::time::Duration;

/// The result of a run. Equal on every rank, except for [`Outcome::rows`].
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Nodes of the graph.
    pub nodes: usize,
    /// Arcs of the graph as given, parallel ones and loops included.
    pub arcs: usize,
    /// The number of the first node in the input.
    pub first_id: u32,
    /// Ranks that took part; 1 for the sequential program.
    pub ranks: usize,
    /// Figures over all pairs of nodes.
    pub summary: Summary,
    /// Exact hash of the distance matrix, independent of the order of evaluation.
    pub checksum: u64,
    /// Time of the computation, without distributing the graph and gathering results; virtual time
    /// in the simulator.
    pub elapsed: Duration,
    /// On rank 0 the rows of the distance matrix that [`Params::keep`] asks for, by ascending
    /// source: the source's index (from 0) and the distances to all nodes, [`UNREACHABLE`] where
    /// none.
    pub rows: Vec<(u32, Vec<u32>)>,
}

impl Outcome {
    /// Returns true if both runs computed the same distances.
    pub fn agrees_with(&self, other: &Outcome) -> bool {
        let key = |o: &Outcome| (o.nodes, o.arcs, o.summary, o.checksum);
        key(self) == key(other)
    }
}

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let s = &o.summary;
    let seconds = o.elapsed.as_secs_f64();
    let rate = (o.nodes as f64).powi(3) / seconds.max(1e-9) / 1e6;
    let pairs = o.nodes as u64 * (o.nodes as u64).saturating_sub(1);
    let centre = match s.centre {
        Some(c) => format!(
            "node {}, eccentricity {}, reaches {} nodes",
            u64::from(c.node) + u64::from(o.first_id),
            c.eccentricity,
            c.reaches
        ),
        None => "none".to_string(),
    };
    format!(
        "ASP, {} nodes, {} arcs, {} rank{}\n\
         reachable pairs  {} of {pairs}\n\
         diameter         {}\n\
         centre           {centre}\n\
         mean distance    {:.3}\n\
         time             {seconds:.3} s, {rate:.1} million paths compared/s\n\
         checksum         {:016x}\n",
        o.nodes,
        o.arcs,
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        s.reachable,
        s.diameter,
        s.mean(),
        o.checksum,
    )
}
