//! Ranks in two sets of namespaces, which the agent of the host has joined, beside ranks in one:
//! each target met or not.

use super::netns::Place;
use super::pair::{Kind, Subject};
use super::pingpong::floor_of;
use super::rank::Probe;
use super::table::Better;
use super::target::{self, Aim, Run};
use super::{Bench, LinkName, Options, CONFIG};
use anyhow::Result;
use std::io::Write;

/// The sizes of messages in bytes.
const SIZES: [usize; 2] = [8, 1 << 20];
/// The largest part of the time in one set of namespaces that a message may take.
const MOST: f64 = 1.1;
/// Name of the benchmark.
const NAME: &str = "containers";

/// Measures all sizes and prints the results.
///
/// # Errors
/// Namespaces cannot be made here, or no agent starts.
pub fn print(options: &Options, json: bool, out: &mut impl Write) -> Result<()> {
    let (link, notes) = (LinkName::Shm, Vec::new());
    let bench = Bench::start(link, options)?;
    let mut run = Run { name: NAME, bench, link, checks: Vec::new(), notes };
    let sizes: Vec<usize> = SIZES.into_iter().filter(|&size| run.wants(size)).collect();
    run.bench.plan(3 * sizes.len());
    run.bench.meter.title = "two sets of namespaces".into();
    let apart = Kind { link: link.links(), config: CONFIG, place: Place::Apart };
    let samples = run.bench.with(&[apart], |bench, pair| {
        let each = |&size: &usize| {
            let ours = Subject { pair, ..Probe::WeftPingPong.into() };
            let floor = bench.bare(floor_of(link, size).1);
            bench.measure(size, &[ours, floor, Probe::WeftPingPong.into()], |s| s * 1e6)
        };
        sizes.iter().map(each).collect::<Result<Vec<_>>>()
    })?;
    for (size, got) in sizes.into_iter().zip(samples) {
        let line = ("one way", size, "us", Better::Lower);
        let names = (floor_of(link, size).0, "shm in one");
        run.push(line, [got[0], got[1], got[2]], names, Aim { peer: Some(MOST), floor: None });
    }
    run.notes.append(&mut run.bench.meter.absent);
    run.notes.push(
        "weft: ranks in network and IPC namespaces (and, without root, user namespaces) of their \
         own, joined by the agent; peer: both ranks in those of this process"
            .into(),
    );
    target::show(NAME, &run, json, out)
}
