//! Collective operations of more than two ranks, as Table 1 of paper 001 has them: over
//! `myriexpress.h`, and over TCP in the same steps. Each of the two processes has every other rank
//! as a thread.

use super::sys::Mx;
use super::together::{add, both_ways, Operation, Over};
use super::v4;
use crate::rank::{Outcome, Rank, Task};
use crate::volley::{per, warm_up};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Instant;

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// Each sends to the next and receives from the one before.
    SendRecv,
    /// Each sends to both neighbours and receives from both.
    Exchange,
    /// All have the sum (recursive doubling).
    Allreduce,
    /// One has the sum (binomial tree); the root in turn.
    Reduce,
    /// All have the data of all (ring).
    Allgather,
    /// One has the data of all; the root in turn.
    Gather,
    /// Each has its part of one's data; the root in turn.
    Scatter,
    /// Each has its part of the data of all (pairwise exchange).
    Alltoall,
    /// All have one's data (binomial tree); the root in turn.
    Bcast,
    /// Each waits for all (dissemination).
    Barrier,
}

impl Collective {
    /// All of them.
    pub const ALL: [Collective; 10] = [
        Collective::SendRecv,
        Collective::Exchange,
        Collective::Allreduce,
        Collective::Reduce,
        Collective::Allgather,
        Collective::Gather,
        Collective::Scatter,
        Collective::Alltoall,
        Collective::Bcast,
        Collective::Barrier,
    ];

    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::SendRecv => "SendRecv, 4 ranks",
            Collective::Exchange => "Exchange, 4 ranks",
            Collective::Allreduce => "Allreduce, 4 ranks",
            Collective::Reduce => "Reduce, 4 ranks",
            Collective::Allgather => "Allgather, 4 ranks",
            Collective::Gather => "Gather, 4 ranks",
            Collective::Scatter => "Scatter, 4 ranks",
            Collective::Alltoall => "Alltoall, 4 ranks",
            Collective::Bcast => "Bcast, 4 ranks",
            Collective::Barrier => "Barrier, 4 ranks",
        }
    }

    /// Returns the paper's gains over TCP in percent at 16 B, 4 KiB, 64 KiB and 4 MiB, of 16
    /// processes on two nodes.
    pub const fn paper(self) -> [f64; 4] {
        match self {
            Collective::SendRecv => Operation::SendRecv.paper(),
            Collective::Exchange => Operation::Exchange.paper(),
            Collective::Allreduce => Operation::Allreduce.paper(),
            Collective::Reduce => Operation::Reduce.paper(),
            Collective::Allgather => [79.2, -7.1, 21.5, 56.0],
            Collective::Gather => [72.5, 52.6, 4.57, 76.4],
            Collective::Scatter => [86.3, 51.6, 18.4, 80.9],
            Collective::Alltoall => [47.0, 15.2, 47.2, 54.7],
            Collective::Bcast => Operation::Bcast.paper(),
            Collective::Barrier => Operation::Barrier.paper(),
        }
    }
}

/// Number of ranks.
pub const RANKS: usize = 4;

/// The ways to all other ranks.
trait World {
    fn me(&self) -> usize;
    fn send(&mut self, to: usize, data: &[u8]) -> Result<()>;
    fn recv(&mut self, from: usize, into: &mut [u8]) -> Result<()>;
    /// Sends to one and receives from one at once.
    fn trade(&mut self, to: usize, data: &[u8], from: usize, into: &mut [u8]) -> Result<()>;
}

/// The ways over `myriexpress.h`.
pub struct MxWorld {
    me: usize,
    mx: Mx,
}

impl World for MxWorld {
    fn me(&self) -> usize {
        self.me
    }

    fn send(&mut self, to: usize, data: &[u8]) -> Result<()> {
        self.mx.send_to(self.me, to, data)
    }

    fn recv(&mut self, from: usize, into: &mut [u8]) -> Result<()> {
        self.mx.recv_of(from, into)
    }

    fn trade(&mut self, to: usize, data: &[u8], from: usize, into: &mut [u8]) -> Result<()> {
        self.mx.trade_with((self.me, to, data), (from, into))
    }
}

/// The ways over TCP.
struct TcpWorld {
    me: usize,
    streams: Vec<Option<TcpStream>>,
}

impl TcpWorld {
    fn stream(&self, of: usize) -> Result<&TcpStream> {
        self.streams.get(of).and_then(|stream| stream.as_ref()).context("no such rank")
    }
}

impl World for TcpWorld {
    fn me(&self) -> usize {
        self.me
    }

    fn send(&mut self, to: usize, data: &[u8]) -> Result<()> {
        self.trade(to, data, to, &mut [])
    }

    fn recv(&mut self, from: usize, into: &mut [u8]) -> Result<()> {
        self.trade(from, &[], from, into)
    }

    fn trade(&mut self, to: usize, data: &[u8], from: usize, into: &mut [u8]) -> Result<()> {
        // There are more ranks than processors.
        let streams = (self.stream(to)?, self.stream(from)?);
        both_ways((streams.0, data), (streams.1, into), std::thread::yield_now)
    }
}

/// The memory of a rank: what it has, what it gets, and a piece of each rank.
struct Memory {
    ours: Vec<u8>,
    theirs: Vec<u8>,
    all: Vec<u8>,
}

impl Memory {
    /// Adds numbers of 64 bits.
    fn add(&mut self) {
        add(&mut self.ours, &self.theirs);
    }
}

/// Does the operation once, with a root.
fn once(world: &mut impl World, of: Collective, memory: &mut Memory, root: usize) -> Result<()> {
    let (me, size) = (world.me(), memory.ours.len());
    let (next, before) = ((me + 1) % RANKS, (me + RANKS - 1) % RANKS);
    // The place behind the root.
    let place = (me + RANKS - root) % RANKS;
    let rank_at = |place: usize| (place + root) % RANKS;
    match of {
        Collective::SendRecv => world.trade(next, &memory.ours, before, &mut memory.theirs)?,
        Collective::Exchange => {
            world.trade(next, &memory.ours, before, &mut memory.theirs)?;
            world.trade(before, &memory.ours, next, &mut memory.theirs)?;
        }
        Collective::Allreduce => {
            for bit in [1, 2] {
                world.trade(me ^ bit, &memory.ours, me ^ bit, &mut memory.theirs)?;
                memory.add();
            }
        }
        Collective::Reduce => {
            for bit in [1, 2] {
                if place & bit != 0 {
                    return world.send(rank_at(place - bit), &memory.ours);
                }
                world.recv(rank_at(place + bit), &mut memory.theirs)?;
                memory.add();
            }
        }
        Collective::Bcast => {
            for bit in [2, 1] {
                if place.is_multiple_of(2 * bit) {
                    world.send(rank_at(place + bit), &memory.ours)?;
                } else if place % (2 * bit) == bit {
                    world.recv(rank_at(place - bit), &mut memory.ours)?;
                }
            }
        }
        Collective::Allgather => {
            for step in 0..RANKS - 1 {
                let from = (me + RANKS - step - 1) % RANKS;
                world.trade(next, &memory.ours, before, &mut memory.theirs)?;
                memory.all[from * size..][..size].copy_from_slice(&memory.theirs);
                std::mem::swap(&mut memory.ours, &mut memory.theirs);
            }
        }
        Collective::Gather if me == root => {
            for from in (0..RANKS).filter(|&from| from != root) {
                world.recv(from, &mut memory.all[from * size..][..size])?;
            }
        }
        Collective::Gather => world.send(root, &memory.ours)?,
        Collective::Scatter if me == root => {
            for to in (0..RANKS).filter(|&to| to != root) {
                world.send(to, &memory.all[to * size..][..size])?;
            }
        }
        Collective::Scatter => world.recv(root, &mut memory.ours)?,
        Collective::Alltoall => {
            for step in 1..RANKS {
                let (to, from) = ((me + step) % RANKS, (me + RANKS - step) % RANKS);
                let part = memory.all[to * size..][..size].to_vec();
                world.trade(to, &part, from, &mut memory.theirs)?;
            }
        }
        Collective::Barrier => barrier(world)?,
    }
    Ok(())
}

/// Waits for all.
fn barrier(world: &mut impl World) -> Result<()> {
    let me = world.me();
    for step in [1, 2] {
        let (to, from) = ((me + step) % RANKS, (me + RANKS - step) % RANKS);
        world.trade(to, &[1], from, &mut [0])?;
    }
    Ok(())
}

/// Does the operation so often; returns the time of one.
fn run(world: &mut impl World, of: Collective, task: &Task) -> Result<Outcome> {
    let size = task.size.max(1);
    let (ours, theirs) = (vec![1; size], vec![0; size]);
    let mut memory = Memory { ours, theirs, all: vec![1; RANKS * size] };
    let (warm, mut start) = (warm_up(task.iters), Instant::now());
    barrier(world)?;
    for turn in 0..warm + task.iters {
        if turn == warm {
            barrier(world)?;
            start = Instant::now();
        }
        once(world, of, &mut memory, turn as usize % RANKS)?;
    }
    barrier(world)?;
    Ok(per(start, task.iters))
}

/// Runs `body` as the ranks of this process, each on a thread but for the first one.
fn ranks(me: usize, body: impl Fn(usize) -> Result<Outcome> + Send + Sync) -> Result<Outcome> {
    std::thread::scope(|scope| {
        let body = &body;
        let other = scope.spawn(move || body(me + 2));
        let outcome = body(me);
        let joined = other.join().map_err(|_| anyhow::anyhow!("a rank panicked"))?;
        joined?;
        outcome
    })
}

/// Measures an operation.
pub fn measure(rank: &mut Rank, task: &Task, over: Over, of: Collective) -> Result<Outcome> {
    super::adopt(rank);
    rank.locate()?;
    let (hosts, me) = (rank.hosts(), rank.me);
    let outcome = match over {
        Over::Mx => over_mx(rank, task, of, hosts),
        Over::Tcp => over_tcp(rank, task, of, hosts),
    };
    rank.sync()?;
    Ok(if me == 0 { outcome? } else { outcome.map(|_| Outcome::Elsewhere)? })
}

fn over_mx(rank: &mut Rank, task: &Task, of: Collective, hosts: [IpAddr; 2]) -> Result<Outcome> {
    let hosts = [v4(hosts[0])?, v4(hosts[1])?];
    // Numbers that the endpoints of two ranks do not have.
    let first = (u32::from(rank.key()[0]) & !3) ^ 0x80;
    let number = move |of: usize| first + of as u32;
    ranks(rank.me, |me| {
        let mut mx = Mx::open(hosts[me % 2], number(me))?;
        for other in 0..RANKS {
            mx.meet((other != me).then_some((hosts[other % 2], number(other))))?;
        }
        run(&mut MxWorld { me, mx }, of, task)
    })
}

fn over_tcp(rank: &mut Rank, task: &Task, of: Collective, hosts: [IpAddr; 2]) -> Result<Outcome> {
    let (own, me) = (hosts[rank.me], rank.me);
    let listen = || TcpListener::bind((own, 0)).context("a listener");
    let listeners = [listen()?, listen()?];
    let port = |of: &TcpListener| of.local_addr().map(|at| at.port());
    let ours = [port(&listeners[0])?, port(&listeners[1])?];
    let theirs: [u16; 2] = serde_json::from_slice(&rank.exchange(&serde_json::to_vec(&ours)?)?)?;
    let port_of = |of: usize| if of % 2 == me { ours[of / 2] } else { theirs[of / 2] };
    ranks(me, |me| {
        let (told, heard) = channel();
        let listener = &listeners[me / 2];
        std::thread::scope(|scope| {
            // Ranks with greater numbers call.
            scope.spawn(move || {
                for _ in me + 1..RANKS {
                    let accepted = listener.accept().and_then(|(mut stream, _)| {
                        let mut from = [0];
                        stream.read_exact(&mut from)?;
                        Ok((usize::from(from[0]), stream))
                    });
                    let _gone = told.send(accepted);
                }
            });
            let mut streams: Vec<Option<TcpStream>> = (0..RANKS).map(|_| None).collect();
            for (other, place) in streams.iter_mut().enumerate().take(me) {
                let mut stream = TcpStream::connect((hosts[other % 2], port_of(other)))?;
                stream.write_all(&[me as u8])?;
                *place = Some(stream);
            }
            for accepted in heard {
                let (from, stream) = accepted?;
                *streams.get_mut(from).context("no such rank")? = Some(stream);
            }
            for stream in streams.iter().flatten() {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
            }
            run(&mut TcpWorld { me, streams }, of, task)
        })
    })
}
