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
    format!(
        "Awari, all positions of at most {stones} stones, {} rank{}\n\
         positions        {}\n\
         of {stones} stones     {}\n\
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

/// Writes the histogram of a number of stones as a picture in SVG: a bar for each score, its height
/// the share of positions.
///
/// # Errors
/// The writer failed, or the database has no positions of so many stones.
pub fn write_histogram_svg(to: &mut dyn Write, database: &Database, stones: u8) -> io::Result<()> {
    const LEFT: usize = 70;
    const TOP: usize = 50;
    const HEIGHT: f64 = 300.0;
    const BAR: usize = 24;
    let counts = database.histogram(stones).ok_or_else(|| {
        let reason = format!("the database has no positions of {stones} stones");
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    })?;
    let (all, most) = (counts.iter().sum::<u64>() as f64, *counts.iter().max().unwrap_or(&1));
    // Room for the heading, where there are few bars.
    let width = (LEFT + counts.len() * BAR + 20).max(480);
    let bottom = TOP as f64 + HEIGHT;
    writeln!(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">Awari: scores of the {all} positions with \
         {stones} stones</text>",
        bottom + 60.0
    )?;
    for part in 0..=4 {
        let y = bottom - HEIGHT * f64::from(part) / 4.0;
        let share = 100.0 * most as f64 / all * f64::from(part) / 4.0;
        writeln!(
            to,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{share:.1} %</text>",
            width - 20,
            LEFT - 8,
            y + 4.0
        )?;
    }
    for (at, count) in counts.iter().enumerate() {
        let score = at as i32 - i32::from(stones);
        let (x, height) = (LEFT + at * BAR, HEIGHT * *count as f64 / most as f64);
        let fill = ["#c33", "#888", "#36a"][(score.signum() + 1) as usize];
        writeln!(
            to,
            "<rect x=\"{}\" y=\"{:.2}\" width=\"{}\" height=\"{height:.2}\" fill=\"{fill}\">\
             <title>score {score}: {count}</title></rect>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{score}</text>",
            x + 2,
            bottom - height,
            BAR - 4,
            x + BAR / 2,
            bottom + 18.0
        )?;
    }
    writeln!(
        to,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">score of the player to move</text>\n\
         </svg>",
        LEFT + counts.len() * BAR / 2,
        bottom + 44.0
    )
}
