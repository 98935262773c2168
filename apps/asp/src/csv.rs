//! Results as comma-separated values.

use crate::{Outcome, UNREACHABLE};
use std::io::{self, Write};

/// Writes the kept rows of the distance matrix: a header line with the target nodes, then a line
/// for each source. Nodes have the numbers of the input; unreachable ones are `inf`.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_rows(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let id = |index: u64| index + u64::from(outcome.first_id);
    let mut line = String::from("from");
    for node in 0..outcome.nodes as u64 {
        line.push_str(&format!(",{}", id(node)));
    }
    writeln!(to, "{line}")?;
    for (source, row) in &outcome.rows {
        line = id(u64::from(*source)).to_string();
        for distance in row {
            if *distance == UNREACHABLE {
                line.push_str(",inf");
            } else {
                line.push_str(&format!(",{distance}"));
            }
        }
        writeln!(to, "{line}")?;
    }
    Ok(())
}

/// Writes the figures of the whole matrix as lines `name,value`; the names are the same in all
/// releases. Figures about a centre are empty for a graph without nodes.
///
/// # Errors
/// The writer failed.
pub fn write_summary(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    let summary = &outcome.summary;
    let centre = summary.centre.map(|c| {
        let id = u64::from(c.node) + u64::from(outcome.first_id);
        [id.to_string(), c.eccentricity.to_string(), c.reaches.to_string()]
    });
    let [centre, eccentricity, reaches] = centre.unwrap_or_default();
    writeln!(to, "name,value")?;
    writeln!(to, "nodes,{}", outcome.nodes)?;
    writeln!(to, "arcs,{}", outcome.arcs)?;
    writeln!(to, "reachable_pairs,{}", summary.reachable)?;
    writeln!(to, "diameter,{}", summary.diameter)?;
    writeln!(to, "centre,{centre}")?;
    writeln!(to, "centre_eccentricity,{eccentricity}")?;
    writeln!(to, "centre_reaches,{reaches}")?;
    writeln!(to, "mean_distance,{:.6}", summary.mean())?;
    writeln!(to, "checksum,{:016x}", outcome.checksum)
}
