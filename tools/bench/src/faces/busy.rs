//! Processor time of a receiver of MX in frames of MXoE: the analogue of Figure 11 of paper 001.

use super::wired::{self, TUNINGS};
use super::Face;
use crate::netns::Place;
use crate::pair::{Sample, Subject};
use crate::rank::{Outcome, Rank, Task};
use crate::sys::busy;
use crate::table::Better;
use crate::target::{Aim, Run};
use anyhow::Result;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Sizes of the messages of a stream.
pub const SIZES: [usize; 3] = [64 << 10, 1 << 20, 4 << 20];
/// Bytes of a stream, and least messages.
const STREAM: usize = 256 << 20;
const LEAST: u64 = 32;
/// Lines by the tuning.
const LINES: [&str; TUNINGS.len()] = [
    "processor use of a receiver, copied",
    "processor use of a receiver, gathered",
    "processor use of a receiver, a second core copies",
];

/// Measures the share of one core that a process uses while it receives a stream: the first rank
/// sends with `send`, the second one receives with `recv`.
fn share<S>(
    rank: &mut Rank,
    task: &Task,
    state: &mut S,
    mut send: impl FnMut(&mut S) -> Result<()>,
    mut recv: impl FnMut(&mut S) -> Result<()>,
) -> Result<Outcome> {
    let used = || busy().iter().sum::<Duration>();
    rank.sync()?;
    let (begin, before) = (Instant::now(), used());
    for _ in 0..task.iters {
        match rank.me {
            0 => send(state)?,
            _ => recv(state)?,
        }
    }
    let share = (used() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
    if rank.me == 1 {
        rank.tell(&share.to_bits().to_le_bytes())?;
        return Ok(Outcome::Elsewhere);
    }
    Ok(Outcome::Value(f64::from_bits(rank.hear_u64()?)))
}

/// The share of one core that a receiver of a stream uses, in frames of MXoE with one of the
/// tunings.
pub fn mx(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let mut mx = wired::open(rank, task.arg)?;
    mx.prepare(task.size);
    let outcome = share(rank, task, &mut mx, |mx| mx.send_whole(), |mx| mx.recv())?;
    wired::keep(rank, task.arg, mx)?;
    Ok(outcome)
}

/// The share of one core that a receiver of a stream over TCP uses, by calls that wait.
pub fn tcp(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let stream = rank.tcp(false)?;
    stream.set_nonblocking(false)?;
    let mut both = (stream, vec![1; task.size]);
    let send = |both: &mut (TcpStream, Vec<u8>)| Ok(both.0.write_all(&both.1)?);
    share(rank, task, &mut both, send, |both| Ok(both.0.read_exact(&mut both.1)?))
}

impl Run<'_> {
    /// Processor use of receivers, by the tuning.
    pub(super) fn busy_lines(&mut self) -> Result<()> {
        if self.bench.place == Place::Here {
            return Ok(());
        }
        let mut long: [Option<Sample>; TUNINGS.len()] = [None; TUNINGS.len()];
        for (name, arg) in LINES.into_iter().zip(0..) {
            for size in SIZES.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
                self.begin(name);
                let iters = ((STREAM / size) as u64).max(LEAST);
                let ours = Subject { arg, iters, ..Face::MxBusy.into() };
                let tcp = Subject { iters, ..self.bench.bare(Face::TcpBusy) };
                let got = self.bench.measure(size, &[ours, tcp], |share| share * 100.0)?;
                if size == SIZES[1] {
                    long[arg as usize] = got[0];
                }
                let line = (name, size, "%", Better::Lower);
                self.push(line, [got[0], None, got[1]], ("", "tcp"), Aim::default());
            }
        }
        if let [_, Some(one), Some(two)] = long {
            let stands = if two.median < one.median * 0.8 { "stands" } else { "does not stand" };
            self.notes.push(format!(
                "paper 001, Figure 11: a copy engine lowers the processor use of a receiver from \
                 95 to 60 %; here, with a second core as the engine, both cores use {:.0} % where \
                 one uses {:.0} %: {stands}",
                two.median, one.median
            ));
        }
        Ok(())
    }
}
