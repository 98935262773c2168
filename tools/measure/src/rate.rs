//! Small messages per second, one pair, one direction.

use super::pingpong::socket_of;
use super::rank::{Channel, Outcome, Probe, Rank, Task, TAG, TAG_ACK};
use super::table::{Better, Table};
use super::volley::per;
use super::{others, Bench, LinkName, Subject};
use anyhow::Result;
use std::time::Instant;
use weft::{Endpoint, OpError, PeerId};

/// Sends; makes progress while the queue is full.
pub fn send(endpoint: &Endpoint, to: PeerId, data: &[u8]) -> Result<(), OpError> {
    loop {
        match endpoint.send_blocking(to, TAG, data) {
            Err(OpError::Busy) => endpoint.progress(),
            other => return other,
        };
    }
}

/// Receives. If the table of operations is full (injected sends count), makes progress and tries
/// again.
pub fn recv(endpoint: &Endpoint, from: PeerId, tag: u64, into: &mut [u8]) -> Result<(), OpError> {
    loop {
        match endpoint.recv_blocking(Some(from), tag, 0, into) {
            Err(OpError::Busy) => endpoint.progress(),
            other => return other.map(|_| ()),
        };
    }
}

/// The ranks use blocking sends and receives on borrowed memory; the last message is answered.
pub fn rank(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let mut buffer = vec![1u8; task.size];
    rank.sync()?;
    if rank.me == 1 {
        for _ in 0..task.iters {
            recv(&endpoint, peer, TAG, &mut buffer)?;
        }
        endpoint.send_blocking(peer, TAG_ACK, &[1])?;
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    for _ in 0..task.iters {
        send(&endpoint, peer, &buffer)?;
    }
    recv(&endpoint, peer, TAG_ACK, &mut [0])?;
    Ok(per(start, task.iters))
}

/// Returns name and probe of the floor of a link between hosts: the least work per message.
pub fn floor_of(link: LinkName) -> (&'static str, Probe) {
    match socket_of(link) {
        Some(socket) => (socket.name(), Probe::WireRate(socket)),
        None => ("bare UDP", Probe::UdpRate),
    }
}

/// Returns a unit in which message rates at these sizes have digits, and its factor for one message
/// per second.
fn unit(sizes: &[usize]) -> (&'static str, f64) {
    match sizes.iter().max() {
        Some(0x10_0000..) => ("1/s", 1.0),
        Some(0x4000..) => ("k/s", 1e-3),
        _ => ("M/s", 1e-6),
    }
}

/// Returns the table.
pub fn table(bench: &mut Bench<'_>) -> Result<Table> {
    let (floor, channels): ((&'static str, Probe), &[Channel]) = match bench.link {
        LinkName::Shm => (("ring", Probe::Ring), &[Channel::Pipe, Channel::Unix]),
        link => (floor_of(link), &[Channel::Pipe, Channel::Tcp]),
    };
    let sizes = bench.sizes(&[8]);
    let (unit, scale) = unit(&sizes);
    let mut table = bench.table("rate", "messages", unit, Better::Higher);
    bench.plan(sizes.len() * (2 + channels.len()));
    for size in sizes {
        let mut subjects: Vec<Subject> = vec![Probe::WeftRate.into(), bench.bare(floor.1)];
        subjects.extend(channels.iter().map(|&c| bench.bare(Probe::Stream(c))));
        let got = bench.measure(size, &subjects, |s| scale / s)?;
        let peers = channels.iter().zip(&got[2..]).map(|(c, &s)| (c.name(), s));
        table.push("", size, got[0], others([(floor.0, got[1])].into_iter()), others(peers));
    }
    table.notes.push(match bench.link {
        LinkName::Shm => {
            "by send_blocking and recv_blocking; ring: a cache line a message and nothing else; \
                  pipe, unix: a write a message, read as many at once as there are"
                .into()
        }
        _ => format!(
            "by send_blocking and recv_blocking; {}: a call a message, counted where it arrives; \
             pipe, tcp: a write a message, read as many at once as there are",
            floor.0
        ),
    });
    Ok(table)
}
