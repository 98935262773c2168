//! Operations of both ranks at once, as Table 1 of paper 001 has them: over `myriexpress.h`, and
//! over TCP in the same steps.

use super::sys::Mx;
use super::Faces;
use crate::own::opened;
use crate::peers::Spinning;
use crate::rank::{Outcome, Rank, Task};
use crate::volley::{pause, per, warm_up};
use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Both send and both receive. Of two ranks `Alltoall` and `Allgather` are the same.
    SendRecv,
    /// Both send to and receive from two neighbours, which both are the other rank.
    Exchange,
    /// Both have the sum.
    Allreduce,
    /// One has the sum, in turn. Without the sum, `Gather` of two ranks is the same.
    Reduce,
    /// One has the data, in turn. Of two ranks `Scatter` is the same.
    Bcast,
    /// Each waits for the other.
    Barrier,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 6] = [
        Operation::SendRecv,
        Operation::Exchange,
        Operation::Allreduce,
        Operation::Reduce,
        Operation::Bcast,
        Operation::Barrier,
    ];

    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::SendRecv => "SendRecv",
            Operation::Exchange => "Exchange",
            Operation::Allreduce => "Allreduce",
            Operation::Reduce => "Reduce",
            Operation::Bcast => "Bcast",
            Operation::Barrier => "Barrier",
        }
    }

    /// Returns the paper's gains over TCP in percent at 16 B, 4 KiB, 64 KiB and 4 MiB.
    pub const fn paper(self) -> [f64; 4] {
        match self {
            Operation::SendRecv => [107.0, 4.66, 8.88, 32.7],
            Operation::Exchange => [143.0, 8.38, 24.2, 29.0],
            Operation::Allreduce => [87.9, 2.51, 11.6, 4.77],
            Operation::Reduce => [64.7, 23.1, 26.5, -23.6],
            Operation::Bcast => [44.6, 20.1, -26.9, -39.6],
            Operation::Barrier => [73.7; 4],
        }
    }
}

/// The carrier of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// `myriexpress.h`.
    Mx,
    /// TCP.
    Tcp,
}

/// A way to the other rank.
trait Lane {
    fn send(&mut self, data: &[u8]) -> Result<()>;
    fn recv(&mut self, into: &mut [u8]) -> Result<()>;
    /// Sends and receives at once.
    fn trade(&mut self, data: &[u8], into: &mut [u8]) -> Result<()>;
}

impl Lane for Mx {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        self.send_from(data)
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        self.recv_into(into)
    }

    fn trade(&mut self, data: &[u8], into: &mut [u8]) -> Result<()> {
        Mx::trade(self, data, into)
    }
}

impl Lane for Spinning {
    fn send(&mut self, data: &[u8]) -> Result<()> {
        Ok(self.write_all(data)?)
    }

    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        Ok(self.read_exact(into)?)
    }

    fn trade(&mut self, data: &[u8], into: &mut [u8]) -> Result<()> {
        both_ways((&self.0, data), (&self.0, into), || pause(self.1))
    }
}

/// Sends to one stream and receives from one at once; neither blocks. `idle` is called where
/// nothing moves.
pub fn both_ways(
    (mut to, data): (&TcpStream, &[u8]),
    (mut from, into): (&TcpStream, &mut [u8]),
    idle: impl Fn(),
) -> Result<()> {
    let (mut sent, mut got) = (0, 0);
    let tried = |result: std::io::Result<usize>| match result {
        Err(why) if why.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    };
    while sent < data.len() || got < into.len() {
        let mut moved = 0;
        if sent < data.len() {
            let wrote = tried(to.write(&data[sent..]))?;
            (sent, moved) = (sent + wrote, moved + wrote);
        }
        if got < into.len() {
            let read = from.read(&mut into[got..]);
            ensure!(!matches!(read, Ok(0)), "the other rank has ended");
            let read = tried(read)?;
            (got, moved) = (got + read, moved + read);
        }
        if moved == 0 {
            idle();
        }
    }
    Ok(())
}

/// Adds numbers of 64 bits to those of `ours`.
pub fn add(ours: &mut [u8], theirs: &[u8]) {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    for (ours, theirs) in ours.chunks_exact_mut(8).zip(theirs.chunks_exact(8)) {
        let sum = number(ours).wrapping_add(number(theirs));
        ours.copy_from_slice(&sum.to_le_bytes());
    }
}

/// The memory of a rank.
struct Memory {
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

/// Does the operation once; `is_root` in turn.
fn once(
    lane: &mut impl Lane,
    operation: Operation,
    memory: &mut Memory,
    is_root: bool,
) -> Result<()> {
    let Memory { ours, theirs } = memory;
    match operation {
        Operation::SendRecv | Operation::Barrier => lane.trade(ours, theirs)?,
        Operation::Exchange => {
            lane.trade(ours, theirs)?;
            lane.trade(ours, theirs)?;
        }
        Operation::Allreduce => {
            lane.trade(ours, theirs)?;
            add(ours, theirs);
        }
        Operation::Reduce if is_root => {
            lane.recv(theirs)?;
            add(ours, theirs);
        }
        Operation::Reduce => lane.send(ours)?,
        Operation::Bcast if is_root => lane.send(ours)?,
        Operation::Bcast => lane.recv(ours)?,
    }
    Ok(())
}

fn run(
    rank: &mut Rank,
    task: &Task,
    lane: &mut impl Lane,
    operation: Operation,
) -> Result<Outcome> {
    let size = if operation == Operation::Barrier { 1 } else { task.size };
    let mut memory = Memory { ours: vec![1; size], theirs: vec![0; size] };
    let (warm, mut start) = (warm_up(task.iters), Instant::now());
    rank.sync()?;
    for turn in 0..warm + task.iters {
        if turn == warm {
            start = Instant::now();
        }
        let is_root = turn % 2 == rank.me as u64;
        once(lane, operation, &mut memory, is_root)?;
    }
    let outcome = per(start, task.iters);
    rank.sync()?;
    Ok(if rank.me == 0 { outcome } else { Outcome::Elsewhere })
}

/// Measures an operation.
pub fn measure(rank: &mut Rank, task: &Task, over: Over, of: Operation) -> Result<Outcome> {
    match over {
        Over::Mx => {
            let mut mx = super::mx(rank)?;
            let outcome = run(rank, task, &mut mx, of);
            opened::<Faces>(rank)?.mx = Some(mx);
            outcome
        }
        Over::Tcp => {
            let stream = rank.tcp(false)?;
            stream.set_nonblocking(true)?;
            let alone = rank.alone;
            run(rank, task, &mut Spinning(stream, alone), of)
        }
    }
}
