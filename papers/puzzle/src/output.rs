//! Results for people.

use crate::{Move, Outcome};
use std::io::{self, Write};

/// Returns the letter of a move.
fn letter(step: Move) -> char {
    match step {
        Move::Up => 'U',
        Move::Left => 'L',
        Move::Right => 'R',
        Move::Down => 'D',
    }
}

impl Outcome {
    /// Returns the moves of the blank as letters: `U` up, `L` left, `R` right, `D` down.
    pub fn letters(&self) -> String {
        self.moves.iter().map(|step| letter(*step)).collect()
    }
}

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let seconds = o.elapsed.as_secs_f64();
    let moves = o.letters();
    let (first, rest) = moves.split_at(moves.len().min(60));
    let rest = if rest.is_empty() { String::new() } else { format!("\n                 {rest}") };
    let last = o.iterations.last();
    let end = match (o.whole, last) {
        (true, Some(last)) => {
            format!("{} solutions, the last iteration searched whole", last.solutions)
        }
        _ => "the last iteration ended at the first solution".to_string(),
    };
    format!(
        "15-puzzle {}, {} rank{}\n\
         shortest         {} moves of the blank\n\
         moves            {first}{rest}\n\
         positions        {} in {} iterations\n\
         end              {end}\n\
         time             {seconds:.3} s, {:.1} million positions/s\n",
        o.start,
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.length(),
        o.nodes(),
        o.iterations.len(),
        o.nodes() as f64 / seconds.max(1e-9) / 1e6,
    )
}

/// Writes the solution: a line for each position with number, move of the blank, tile that moves,
/// and the tiles row by row.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_solution(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "step,move,tile,position")?;
    let mut board = outcome.start;
    writeln!(to, "0,,,{board}")?;
    for (step, number) in outcome.moves.iter().zip(1..) {
        let blank = board.blank();
        let Some(next) = board.after(*step) else { break };
        writeln!(to, "{number},{},{},{next}", letter(*step), next.tile(blank))?;
        board = next;
    }
    Ok(())
}

/// Writes the iterations as lines `threshold,positions,solutions`.
///
/// # Errors
/// The writer failed.
pub fn write_iterations(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "threshold,positions,solutions")?;
    outcome
        .iterations
        .iter()
        .try_for_each(|i| writeln!(to, "{},{},{}", i.threshold, i.nodes, i.solutions))
}
