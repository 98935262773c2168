//! Reading graphs: DIMACS shortest-path files and edge lists.

use crate::{Arc, Graph, UNREACHABLE};
use std::fmt;
use std::io::BufRead;
use std::path::Path;
use std::str::FromStr;
use weft_apps::Lines;

/// The notation of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// DIMACS challenge 9: `c` comments, one line `p sp NODES ARCS`, lines `a FROM TO WEIGHT`;
    /// nodes from 1.
    Dimacs,
    /// Lines `FROM TO [WEIGHT]`, separated by blanks or commas, weight 1 when absent; `#` and `%`
    /// start comments.
    EdgeList,
}

impl Format {
    /// Returns the usual format of a file: DIMACS for names ending in `.gr`, otherwise an edge
    /// list.
    pub fn of_path(path: &Path) -> Format {
        let is_gr = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gr"));
        if is_gr {
            Format::Dimacs
        } else {
            Format::EdgeList
        }
    }
}

/// The number of the first node in an edge list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// 0 if node 0 occurs, otherwise 1.
    #[default]
    Detect,
    /// Nodes are numbered from 0.
    Zero,
    /// Nodes are numbered from 1.
    One,
}

impl FromStr for Base {
    type Err = String;

    /// Reads `auto`, `0` or `1`.
    fn from_str(text: &str) -> Result<Base, String> {
        match text {
            "auto" => Ok(Base::Detect),
            "0" => Ok(Base::Zero),
            "1" => Ok(Base::One),
            _ => Err(format!("`{text}` is not auto, 0 or 1")),
        }
    }
}

/// Options of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The format.
    pub format: Format,
    /// The number of the first node; only for edge lists.
    pub base: Base,
    /// True if lines are arcs. If false, each line is an arc in both directions.
    pub directed: bool,
}

/// The place and reason of a failed reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The line, from 1.
    pub line: u64,
    /// The fault in it.
    pub kind: ReadErrorKind,
}

/// The fault in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadErrorKind {
    /// The input could not be read, is not text, or has too long a line.
    Input(String),
    /// The line does not begin with a known letter.
    UnknownLine(String),
    /// Too few or too many fields; contains the expected ones.
    Fields(&'static str),
    /// A field is not a number from 0 to 4294967294.
    Number(String),
    /// A node number is outside the graph: below the first or above the last.
    Node {
        /// The number.
        id: u32,
        /// The first node's number.
        first: u32,
        /// The number of nodes, where the input declares it.
        nodes: Option<usize>,
    },
    /// A second `p` line.
    SecondProblem,
    /// An arc, or the end of the input, before the `p` line.
    NoProblem,
    /// The file has another number of arcs than its `p` line says.
    ArcCount {
        /// The number in the `p` line.
        declared: u64,
        /// The number found.
        found: u64,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            ReadErrorKind::Input(e) => write!(f, "{e}"),
            ReadErrorKind::UnknownLine(s) => {
                write!(f, "`{s}` is none of the line types c, p and a")
            }
            ReadErrorKind::Fields(expected) => write!(f, "expected `{expected}`"),
            ReadErrorKind::Number(s) => {
                write!(f, "`{s}` is not a whole number from 0 to {}", UNREACHABLE - 1)
            }
            ReadErrorKind::Node { id, first, nodes: Some(nodes) } => {
                write!(f, "node {id} is not one of the {nodes} nodes from {first}")
            }
            ReadErrorKind::Node { id, first, nodes: None } => {
                write!(f, "node {id} is below the first node, {first}")
            }
            ReadErrorKind::SecondProblem => write!(f, "a second `p` line"),
            ReadErrorKind::NoProblem => write!(f, "no `p sp NODES ARCS` line up to here"),
            ReadErrorKind::ArcCount { declared, found } => {
                write!(f, "{found} arcs, but the `p` line says {declared}")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a graph.
///
/// # Errors
/// The first line that is invalid, with its number.
pub fn parse(input: &mut dyn BufRead, options: ReadOptions) -> Result<Graph, ReadError> {
    let mut reader = match options.format {
        Format::Dimacs => Reader::Dimacs(Dimacs::default()),
        Format::EdgeList => Reader::EdgeList(EdgeList::default()),
    };
    let mut lines = Lines::new(input);
    let input_fault =
        |e: weft_apps::ReadError| ReadError { line: e.line, kind: ReadErrorKind::Input(e.reason) };
    while let Some((line, text)) = lines.next_line().map_err(input_fault)? {
        match &mut reader {
            Reader::Dimacs(dimacs) => dimacs.line(text),
            Reader::EdgeList(list) => list.line(text, options.base),
        }
        .map_err(|kind| ReadError { line, kind })?;
    }
    let line = lines.fault("").line;
    let graph = match reader {
        Reader::Dimacs(dimacs) => dimacs.finish(),
        Reader::EdgeList(list) => Ok(list.finish(options.base)),
    };
    let mut graph = graph.map_err(|kind| ReadError { line, kind })?;
    if !options.directed {
        let back = |a: &Arc| Arc { from: a.to, to: a.from, weight: a.weight };
        graph.arcs.extend_from_within(..);
        let half = graph.arcs.len() / 2;
        graph.arcs[half..].iter_mut().for_each(|arc| *arc = back(arc));
    }
    Ok(graph)
}

enum Reader {
    Dimacs(Dimacs),
    EdgeList(EdgeList),
}

#[derive(Default)]
struct Dimacs {
    /// Nodes and arcs of the `p` line.
    problem: Option<(u32, u64)>,
    arcs: Vec<Arc>,
}

impl Dimacs {
    fn line(&mut self, text: &str) -> Result<(), ReadErrorKind> {
        let mut fields = text.split_ascii_whitespace();
        match fields.next() {
            None | Some("c") => Ok(()),
            Some("p") => {
                let expected = ReadErrorKind::Fields("p sp NODES ARCS");
                let fields: Vec<&str> = fields.collect();
                let ["sp", nodes, arcs] = fields[..] else { return Err(expected) };
                if self.problem.is_some() {
                    return Err(ReadErrorKind::SecondProblem);
                }
                let count = arcs.parse().map_err(|_| ReadErrorKind::Number(arcs.into()))?;
                self.problem = Some((number(nodes)?, count));
                Ok(())
            }
            Some("a") => {
                let expected = ReadErrorKind::Fields("a FROM TO WEIGHT");
                let fields: Vec<&str> = fields.collect();
                let [from, to, weight] = fields[..] else { return Err(expected) };
                let (nodes, _) = self.problem.ok_or(ReadErrorKind::NoProblem)?;
                let node = |text: &str| {
                    let id = number(text)?;
                    let inside = (1..=nodes).contains(&id);
                    let nodes = Some(nodes as usize);
                    inside.then(|| id - 1).ok_or(ReadErrorKind::Node { id, first: 1, nodes })
                };
                self.arcs.push(Arc { from: node(from)?, to: node(to)?, weight: number(weight)? });
                Ok(())
            }
            // Some programs write the comment right after the letter.
            Some(word) if word.starts_with('c') => Ok(()),
            Some(word) => Err(ReadErrorKind::UnknownLine(word.chars().take(20).collect())),
        }
    }

    fn finish(self) -> Result<Graph, ReadErrorKind> {
        let (nodes, declared) = self.problem.ok_or(ReadErrorKind::NoProblem)?;
        let found = self.arcs.len() as u64;
        if found != declared {
            return Err(ReadErrorKind::ArcCount { declared, found });
        }
        Ok(Graph { nodes: nodes as usize, arcs: self.arcs, first_id: 1 })
    }
}

#[derive(Default)]
struct EdgeList {
    /// Arcs with the input's node numbers.
    arcs: Vec<Arc>,
}

impl EdgeList {
    fn line(&mut self, text: &str, base: Base) -> Result<(), ReadErrorKind> {
        let text = text.split(['#', '%']).next().unwrap_or_default();
        let separators = |c: char| c.is_ascii_whitespace() || c == ',';
        let fields: Vec<&str> = text.split(separators).filter(|f| !f.is_empty()).collect();
        let (from, to, weight) = match fields[..] {
            [] => return Ok(()),
            [from, to] => (from, to, 1),
            [from, to, weight] => (from, to, number(weight)?),
            _ => return Err(ReadErrorKind::Fields("FROM TO [WEIGHT]")),
        };
        let arc = Arc { from: number(from)?, to: number(to)?, weight };
        if base == Base::One && arc.from.min(arc.to) == 0 {
            return Err(ReadErrorKind::Node { id: 0, first: 1, nodes: None });
        }
        self.arcs.push(arc);
        Ok(())
    }

    fn finish(self, base: Base) -> Graph {
        let mut arcs = self.arcs;
        let lowest = arcs.iter().map(|arc| arc.from.min(arc.to)).min();
        let first_id = match base {
            Base::Zero => 0,
            Base::One => 1,
            Base::Detect => lowest.unwrap_or(0).min(1),
        };
        for arc in &mut arcs {
            arc.from -= first_id;
            arc.to -= first_id;
        }
        let highest = arcs.iter().map(|arc| arc.from.max(arc.to)).max();
        Graph { nodes: highest.map_or(0, |node| node as usize + 1), arcs, first_id }
    }
}

/// Parses a number below `UNREACHABLE`.
fn number(text: &str) -> Result<u32, ReadErrorKind> {
    let value = text.parse().ok().filter(|value| *value != UNREACHABLE);
    value.ok_or_else(|| ReadErrorKind::Number(text.chars().take(40).collect()))
}
