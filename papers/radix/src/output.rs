//! Results for people and for other programs.

use crate::Outcome;
use std::io::{self, Write};

/// Returns a summary for people, one screen, lines ended by `\n`.
pub fn report(outcome: &Outcome) -> String {
    let o = outcome;
    let seconds = o.elapsed.as_secs_f64();
    let rate = o.keys.len() as f64 / seconds.max(1e-9) / 1e6;
    let ends = match (o.keys.first(), o.keys.last()) {
        (Some(first), Some(last)) => format!("{first} to {last}"),
        _ => "none".to_string(),
    };
    format!(
        "Radix sort, {} keys, radix {}, {} rank{}\n\
         keys             {ends}\n\
         passes           {}\n\
         sorted           {}\n\
         time             {seconds:.3} s, {rate:.1} million keys/s\n\
         checksum         {:016x}\n",
        o.keys.len(),
        o.radix,
        o.ranks,
        if o.ranks == 1 { "" } else { "s" },
        o.passes,
        if o.is_sorted() { "yes" } else { "no" },
        o.checksum,
    )
}

/// Writes the sorted keys, one a line.
///
/// # Errors
/// The writer failed. It is not buffered here.
pub fn write_text(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    outcome.keys.iter().try_for_each(|key| writeln!(to, "{key}"))
}

/// Writes the sorted keys in four bytes each, the lowest byte first.
///
/// # Errors
/// The writer failed.
pub fn write_binary(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    for piece in outcome.keys.chunks(1 << 14) {
        let bytes: Vec<u8> = piece.iter().flat_map(|key| key.to_le_bytes()).collect();
        to.write_all(&bytes)?;
    }
    Ok(())
}

/// Returns the number of keys in each of about `bins` ranges of equal width: the first number of a
/// range, its last one, and its keys.
pub fn key_ranges(outcome: &Outcome, bins: u32) -> Vec<(u64, u64, usize)> {
    let span = u64::from(outcome.keys.last().copied().unwrap_or(0)) + 1;
    let width = span.div_ceil(u64::from(bins.max(1)));
    let (mut rest, mut from, mut all) = (&outcome.keys[..], 0, Vec::new());
    while from < span {
        let (inside, behind) =
            rest.split_at(rest.partition_point(|key| u64::from(*key) < from + width));
        all.push((from, (from + width - 1).min(span - 1), inside.len()));
        (rest, from) = (behind, from + width);
    }
    all
}

/// Writes the number of keys in each of about `bins` ranges of equal width.
///
/// # Errors
/// The writer failed.
pub fn write_histogram(to: &mut dyn Write, outcome: &Outcome, bins: u32) -> io::Result<()> {
    writeln!(to, "from,to,keys")?;
    let mut all = key_ranges(outcome, bins).into_iter();
    all.try_for_each(|(from, end, keys)| writeln!(to, "{from},{end},{keys}"))
}

/// Writes the figures of the run as lines `name,value`; the names are the same in all releases.
///
/// # Errors
/// The writer failed.
pub fn write_summary(to: &mut dyn Write, outcome: &Outcome) -> io::Result<()> {
    writeln!(to, "name,value")?;
    writeln!(to, "keys,{}", outcome.keys.len())?;
    writeln!(to, "radix,{}", outcome.radix)?;
    writeln!(to, "passes,{}", outcome.passes)?;
    writeln!(to, "checksum,{:016x}", outcome.checksum)
}
