//! Results for people.

use crate::{Answer, Database, Outcome};
use std::io::{self, Write};

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let seconds = o.elapsed.as_secs_f64();
    let stones = o.database.stones().unwrap_or(0);
    let counts = o.database.histogram(stones).unwrap_or_default();
    let (lost, rest) = counts.split_at(usize::from(stones).min(counts.len()));
    let (drawn, won) = rest.split_at(1.min(rest.len()));
    let share = |counts: &[u64]| {
        let sum = counts.iter().sum::<u64>();
        let all = o.database.scores(stones).map_or(1, |scores| scores.len().max(1));
        format!("{sum} ({:.1} %)", 100.0 * sum as f64 / all as f64)
    };
    let largest = format!("of {stones} stones");
    format!(
        "Awari, all positions of at most {stones} stones, {} rank{}\n\
         positions        {}\n\
         {largest:<16} {}\n\
         player to move   wins {}\n\
         \x20                draws {}\n\
         \x20                loses {}\n\
         updates          {}\n\
         time             {seconds:.3} s, {:.1} million positions/s\n\
         checksum         {:016x}\n",
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.database.len(),
        counts.iter().sum::<u64>(),
        share(won),
        share(drawn),
        share(lost),
        o.updates,
        o.database.len() as f64 / seconds.max(1e-9) / 1e6,
        o.checksum,
    )
}

/// Writes the answer to a question about a position, for people. Pits count from 1.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_answer(to: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    let pits = answer.board.0;
    let row = |pits: &mut dyn Iterator<Item = &u8>| -> String {
        pits.map(|stones| format!("{stones:4}")).collect()
    };
    writeln!(to, "opponent    {}", row(&mut pits[6..].iter().rev()))?;
    writeln!(to, "to move     {}", row(&mut pits[..6].iter()))?;
    writeln!(to, "score       {:+}, of {} stones", answer.score, answer.board.stones())?;
    for played in &answer.moves {
        let best = if played.score == answer.score { ", best" } else { "" };
        let captured = match played.captured {
            0 => String::new(),
            captured => format!(", captures {captured}"),
        };
        writeln!(to, "pit {}       {:+}{captured}{best}", played.pit + 1, played.score)?;
    }
    Ok(())
}

/// Writes how many positions have each score, as lines `stones,score,positions`.
///
/// # Errors
/// The writer failed.
pub fn write_histogram(to: &mut dyn Write, database: &Database) -> io::Result<()> {
    writeln!(to, "stones,score,positions")?;
    for stones in 0..=database.stones().unwrap_or(0) {
        let counts = database.histogram(stones).unwrap_or_default();
        for (count, score) in counts.into_iter().zip(-i16::from(stones)..) {
            writeln!(to, "{stones},{score},{count}")?;
        }
    }
    Ok(())
}
