//! Charm++'s own ping-pongs, from builds of it for libfabric and, as a peer, for UDP (netlrts).

use super::place::{Carrier, Place};
use super::{check, line, Figures, Line, Program, What};
use crate::pair::Sample;
use crate::table::Other;
use crate::target::Check;
use anyhow::{bail, ensure, Context, Result};
use std::path::PathBuf;

/// The variables that name the builds.
pub const VARIABLES: [&str; 2] = ["WEFT_CHARM", "WEFT_CHARM_NETLRTS"];

/// The programs, in the folder of a build.
const SIZES: &str = "benchmarks/charm++/zerocopy/p2pPingpong/megaZCPingpong";
const FIRST: &str = "benchmarks/charm++/pingpong/pingpong";

/// The figures: a message, and its first thousands; bytes by the zero-copy interface, sent and
/// fetched.
const MESSAGE: What = "charm++ message";
const START: What = "charm++ first messages";
const SEND: What = "charm++ zero-copy send";
const GET: What = "charm++ zero-copy get";
const BESIDE: What = "charm++ zero-copy beside message";
/// The size of which the two are compared, and the most that the former may take of the latter.
const COMPARED: (usize, f64) = (100_000, 1.5);

const BOTH: &[Carrier] = &[Carrier::Tcp, Carrier::Udp];
const TCP: &[Carrier] = &[Carrier::Tcp];
const UDP: &[Carrier] = &[Carrier::Udp];

/// The rows between two hosts. The sizes of the zero-copy interface are those of its target.
const BETWEEN: &[Line] = &[
    line(MESSAGE, 16, Some(0.4), BOTH),
    line(MESSAGE, 1 << 10, Some(0.4), BOTH),
    line(MESSAGE, 64 << 10, Some(0.8), BOTH),
    line(MESSAGE, 1 << 20, Some(0.7), BOTH),
    line(SEND, 100, Some(0.35), TCP),
    line(SEND, 100_000, Some(0.4), TCP),
    line(SEND, 10_000_000, Some(0.5), TCP),
    line(GET, 100, Some(0.35), TCP),
    line(GET, 100_000, Some(0.4), TCP),
    line(GET, 10_000_000, Some(0.5), TCP),
];

/// The rows inside a host.
const INSIDE: &[Line] = &[
    line(START, 100, Some(0.3), UDP),
    line(MESSAGE, 16, Some(0.3), UDP),
    line(MESSAGE, 1 << 10, Some(0.3), UDP),
    line(MESSAGE, 64 << 10, Some(0.3), UDP),
    line(MESSAGE, 1 << 20, Some(0.3), UDP),
];

/// The builds.
pub struct Charm {
    fabric: PathBuf,
    netlrts: Option<PathBuf>,
}

/// Returns the folder of a build that a variable names.
fn build(variable: &str, how: &str) -> Result<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    let folder = folder.with_context(|| format!("{variable} names no build of it ({how})"))?;
    let program = folder.join(SIZES);
    ensure!(program.is_file(), "{variable}: {} is not built", program.display());
    Ok(folder)
}

impl Charm {
    /// Finds the builds; a note says if the peer is left out.
    ///
    /// # Errors
    /// There is none for libfabric.
    pub fn find() -> Result<(Charm, Option<String>)> {
        let fabric = build(VARIABLES[0], "./build charm++ ofi-linux-x86_64 simplepmi")?;
        let netlrts = build(VARIABLES[1], "./build charm++ netlrts-linux-x86_64");
        let note = netlrts.as_ref().err().map(|why| format!("netlrts is left out: {why:#}"));
        Ok((Charm { fabric, netlrts: netlrts.ok() }, note))
    }
}

/// Returns the words of the program of all sizes: the least and the largest, and the repetitions
/// below and from 512 KiB. It warms up with half of the least.
fn words(size: usize) -> Vec<String> {
    let (small, big) = match size {
        0..=4096 => (2000, 1),
        4097..=100_000 => (500, 1),
        100_001..=1_048_576 => (100, 100),
        _ => (10, 10),
    };
    let words = [size, size, small, big, 0];
    words.iter().map(usize::to_string).collect()
}

/// Reads the row of a size, or the first line of the other program.
fn figures(said: &str, size: usize) -> Vec<(What, f64)> {
    let start = format!("{size},");
    let row = said.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
    let columns: Vec<f64> = row.split(',').filter_map(|word| word.trim().parse().ok()).collect();
    let of = [(MESSAGE, 2), (SEND, 4), (GET, 9)];
    of.into_iter().filter_map(|(what, at)| Some((what, *columns.get(at)?))).collect()
}

/// Reads the round trip of elements of an array, which comes first; returns half of it.
fn first(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.contains("1D Arrays is"))?;
    let mut words = line.split_whitespace().rev();
    let round: f64 = words.nth(1)?.parse().ok()?;
    Some(round / 2.0)
}

impl Program for Charm {
    fn lines(&self, place: &Place) -> &'static [Line] {
        if place.is_lab() {
            BETWEEN
        } else {
            INSIDE
        }
    }

    fn run(&self, place: &Place, carrier: Carrier, size: usize) -> Result<Vec<(What, f64)>> {
        let of_first = self.lines(place).iter().any(|line| line.what == START && line.size == size);
        let (program, words) = match of_first {
            true => (FIRST, vec![size.to_string()]),
            false => (SIZES, words(size)),
        };
        let said = match (carrier, &self.netlrts) {
            (Carrier::Udp, Some(build)) => place.charmrun(&build.join(program), &words)?,
            (Carrier::Udp, None) => bail!("no build"),
            _ => {
                let mut all = vec![self.fabric.join(program).display().to_string()];
                all.extend(words);
                // Charm++ does not retry a send of its exchange of addresses.
                all.extend((carrier == Carrier::Tcp).then(|| "+ofi_runtime_tcp".into()));
                place.fabric(carrier, &all)?
            }
        };
        let figures = match of_first {
            true => first(&said).map(|value| (START, value)).into_iter().collect(),
            false => figures(&said, size),
        };
        ensure!(!figures.is_empty(), "no figure: {}", said.lines().last().unwrap_or_default());
        Ok(figures)
    }

    fn compare(&self, place: &Place, ours: &Figures) -> Vec<Check> {
        let (size, most) = COMPARED;
        let of = |what| Sample::of(ours.get(&(what, size))?.clone());
        let (Some(send), true) = (of(SEND), place.is_lab()) else { return Vec::new() };
        let peers = vec![Other { name: "weft, message", sample: of(MESSAGE) }];
        vec![check((BESIDE, size, place.link()), send, peers, Some(most))]
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn figures__of_the_size_that_was_asked_for() {
        let said = "Size (Bytes),Iterations,Regular Send(us)\n\
                    50,10,1.0,2.0,3.0,4.0,5.0,6.0,7.0,8.0\n\
                    100,10,1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5\n";
        assert_eq!(figures(said, 100), [(MESSAGE, 1.5), (SEND, 3.5), (GET, 8.5)]);
        assert_eq!(figures("Charm++ fatal error", 100), []);
    }

    #[test]
    fn first__half_a_round_trip() {
        let said = "Pingpong with payload: 100 iterations: 1000\n\
                    Roundtrip time for 1D Arrays is 12.000000 us\n\
                    Roundtrip time for 2D Arrays is 10.0 us\n";
        assert_eq!(first(said), Some(6.0));
        assert_eq!(first(""), None);
    }

    #[test]
    fn lines__no_size_of_one_program_is_one_of_the_other() {
        for lines in [BETWEEN, INSIDE] {
            let of = |start: bool| {
                lines.iter().filter(move |line| (line.what == START) == start).map(|l| l.size)
            };
            assert!(of(true).all(|size| of(false).all(|other| other != size)));
        }
    }
}
