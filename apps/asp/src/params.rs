//! Parameters of a run and their checks.

use crate::Graph;
use std::fmt;
use std::str::FromStr;
use weft_apps::owned;

/// Default of [`Params::memory_limit`].
const MEMORY_LIMIT: u64 = 4 << 30;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Params {
    /// The graph. A distributed run uses rank 0's only, which sends the others their part. Default:
    /// 1024 nodes, as in paper 004, with 16 random arcs leaving each.
    pub graph: Graph,
    /// The rows of the distance matrix to gather at rank 0. Only rank 0's value is used.
    pub keep: Keep,
    /// The most memory a rank may need for distances, in bytes.
    pub memory_limit: u64,
    /// Nanoseconds to wait for each computed cell; equal on all ranks. For the simulator, whose
    /// clock does not advance while the host computes; `None` in real runs.
    pub ns_per_cell: Option<f64>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            graph: Graph::random(1024, 16, 100, 1),
            keep: Keep::None,
            memory_limit: MEMORY_LIMIT,
            ns_per_cell: None,
        }
    }
}

/// The rows of the distance matrix to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// No row: the summary and the checksum are enough.
    #[default]
    None,
    /// The whole matrix.
    All,
    /// The distances from these nodes, in the numbers of the input.
    Sources(Vec<u32>),
}

impl FromStr for Keep {
    type Err = ParamsError;

    /// Reads `none`, `all`, or node numbers separated by commas.
    fn from_str(text: &str) -> Result<Keep, ParamsError> {
        match text.trim() {
            "none" => Ok(Keep::None),
            "all" => Ok(Keep::All),
            list => {
                let ids = list.split(',').map(|id| id.trim().parse());
                let ids: Result<_, _> = ids.collect();
                ids.map(Keep::Sources).map_err(|_| ParamsError::Sources(text.to_string()))
            }
        }
    }
}

/// The reason why parameters were refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ParamsError {
    /// The distance matrix does not fit.
    TooLarge {
        /// Nodes of the graph.
        nodes: usize,
        /// Ranks that share the matrix.
        ranks: usize,
        /// Bytes that the rank with the most rows would need.
        bytes: u128,
        /// Bytes a rank may use.
        limit: u64,
    },
    /// An arc ends at a node that does not exist, or has the weight reserved for unreachable nodes.
    Arc {
        /// Its index in [`Graph::arcs`].
        index: usize,
    },
    /// A source to keep is not a node of the graph.
    UnknownSource(u32),
    /// Not `none`, `all` or a list of node numbers.
    Sources(String),
    /// The computing time of a cell is negative or not a number.
    Cost(f64),
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamsError::TooLarge { nodes, ranks, bytes, limit } => write!(
                f,
                "the distances of {nodes} nodes on {ranks} rank(s) need {} MiB on one rank, \
                 above the limit of {} MiB: use more ranks, keep fewer rows or raise the limit",
                bytes.div_ceil(1 << 20),
                limit >> 20
            ),
            ParamsError::Arc { index } => {
                write!(f, "arc {index} has an end outside the graph or too large a weight")
            }
            ParamsError::UnknownSource(id) => write!(f, "node {id} is not in the graph"),
            ParamsError::Sources(text) => {
                write!(f, "`{text}` is not `none`, `all` or node numbers such as 1,5,9")
            }
            ParamsError::Cost(c) => write!(f, "{c} ns per cell is not a number from 0 up"),
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// Refuses parameters that are invalid or need too much memory on `ranks` ranks.
    /// [`run`](crate::run) on rank 0 and [`sequential`](crate::sequential()) call it.
    pub fn check(&self, ranks: usize) -> Result<(), ParamsError> {
        let nodes = self.graph.nodes;
        let kept = match &self.keep {
            Keep::None => 0,
            Keep::All => nodes,
            Keep::Sources(ids) => ids.len(),
        };
        let rows = owned(0, ranks.max(1), nodes).len().saturating_add(kept);
        let bytes = (rows as u128).saturating_mul(nodes as u128).saturating_mul(4);
        // Node numbers are 32 bits wide, and the largest number is no node.
        if bytes > u128::from(self.memory_limit) || nodes >= u32::MAX as usize {
            let limit = self.memory_limit;
            return Err(ParamsError::TooLarge { nodes, ranks, bytes, limit });
        }
        let bad = |arc: &crate::Arc| {
            arc.from.max(arc.to) as usize >= nodes || arc.weight == crate::UNREACHABLE
        };
        if let Some(index) = self.graph.arcs.iter().position(bad) {
            return Err(ParamsError::Arc { index });
        }
        if let Some(ns) = self.ns_per_cell.filter(|ns| !(*ns >= 0.0 && ns.is_finite())) {
            return Err(ParamsError::Cost(ns));
        }
        self.kept_rows().map(|_| ())
    }

    /// Returns the indices of the rows to keep, ascending.
    pub(crate) fn kept_rows(&self) -> Result<Vec<u32>, ParamsError> {
        let nodes = self.graph.nodes as u32;
        let ids = match &self.keep {
            Keep::None => return Ok(Vec::new()),
            Keep::All => return Ok((0..nodes).collect()),
            Keep::Sources(ids) => ids,
        };
        let index = |id: &u32| {
            let index = id.checked_sub(self.graph.first_id).filter(|index| *index < nodes);
            index.ok_or(ParamsError::UnknownSource(*id))
        };
        let mut rows = ids.iter().map(index).collect::<Result<Vec<u32>, ParamsError>>()?;
        rows.sort_unstable();
        rows.dedup();
        Ok(rows)
    }
}
