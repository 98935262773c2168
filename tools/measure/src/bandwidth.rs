//! Bytes per second in one direction with several messages in flight.

use super::rank::{Channel, Outcome, Probe, Rank, Task, TAG, TAG_ACK};
use super::table::{Better, Table};
use super::volley::per;
use super::{others, Bench, LinkName, Subject};
use anyhow::Result;
use std::collections::VecDeque;
use std::time::Instant;
use weft::{Endpoint, OpError, PeerId};

/// Returns the number of messages in flight: at least two, so that they overlap as writes to a
/// socket do; few enough that their buffers stay in the cache where they fit.
fn window(size: usize) -> usize {
    ((1 << 20) / size.max(1)).clamp(2, 32)
}

/// Returns the buffers of one rank. Each was written to once, so that page faults come before the
/// clock starts.
fn buffers(size: usize) -> Vec<Vec<u8>> {
    (0..window(size)).map(|_| vec![1u8; size]).collect()
}

async fn source(
    endpoint: &Endpoint,
    to: PeerId,
    task: &Task,
    mut free: Vec<Vec<u8>>,
) -> Result<(), OpError> {
    let mut flying = VecDeque::new();
    for _ in 0..task.iters {
        let mut buffer = match free.pop() {
            Some(buffer) => buffer,
            None => finish(flying.pop_front()).await?,
        };
        loop {
            let operation = endpoint.send(to, TAG, buffer);
            if !operation.is_done() {
                flying.push_back(operation);
                break;
            }
            let (result, back) = operation.await;
            match result {
                Ok(_) => {
                    free.push(back);
                    break;
                }
                Err(OpError::Busy) => endpoint.yield_now().await,
                Err(e) => return Err(e),
            }
            buffer = back;
        }
    }
    while let Some(operation) = flying.pop_front() {
        operation.await.0?;
    }
    Ok(())
}

async fn finish(oldest: Option<weft::Operation>) -> Result<Vec<u8>, OpError> {
    let Some(oldest) = oldest else { return Err(OpError::Refused) };
    let (result, buffer) = oldest.await;
    result.map(|_| buffer)
}

async fn sink(
    endpoint: &Endpoint,
    from: PeerId,
    task: &Task,
    free: Vec<Vec<u8>>,
) -> Result<(), OpError> {
    let posted = (free.len() as u64).min(task.iters);
    let mut flying = VecDeque::new();
    for buffer in free.into_iter().take(posted as usize) {
        flying.push_back(endpoint.recv(Some(from), TAG, 0, buffer));
    }
    for i in 0..task.iters {
        let buffer = finish(flying.pop_front()).await?;
        if i + posted < task.iters {
            flying.push_back(endpoint.recv(Some(from), TAG, 0, buffer));
        }
    }
    Ok(())
}

/// Rank 0 sends. Rank 1 posts receives ahead and answers the last message.
pub fn rank(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let buffers = buffers(task.size);
    rank.sync()?;
    if rank.me == 1 {
        endpoint.block_on(sink(&endpoint, peer, task, buffers))?;
        endpoint.send_blocking(peer, TAG_ACK, &[1])?;
        return Ok(Outcome::Elsewhere);
    }
    let start = Instant::now();
    endpoint.block_on(source(&endpoint, peer, task, buffers))?;
    super::rate::recv(&endpoint, peer, TAG_ACK, &mut [0])?;
    Ok(per(start, task.iters))
}

/// Returns the table.
pub fn table(bench: &mut Bench<'_>) -> Result<Table> {
    type Named = (&'static str, Probe);
    const fn channel(channel: Channel) -> Named {
        (channel.name(), Probe::Stream(channel))
    }
    let (floors, peers): (&[Named], &[Named]) = match bench.link {
        LinkName::Shm => (
            &[("vm_readv", Probe::RemoteCopy), ("memcpy", Probe::Copy)],
            &[channel(Channel::Pipe), channel(Channel::Unix)],
        ),
        _ => (&[("UDP GSO", Probe::UdpStream)], &[channel(Channel::Tcp), ("iperf3", Probe::Iperf)]),
    };
    let mut table = bench.table("bandwidth", "rate", "GB/s", Better::Higher);
    let sizes = bench.sizes(&[4 << 10, 64 << 10, 1 << 20, 16 << 20]);
    bench.plan(sizes.len() * (1 + floors.len() + peers.len()));
    for size in sizes {
        let mut subjects: Vec<Subject> = vec![Probe::WeftBandwidth.into()];
        subjects.extend(floors.iter().chain(peers).map(|&(_, probe)| bench.bare(probe)));
        let got = bench.measure(size, &subjects, |s| size as f64 / s / 1e9)?;
        let (first, rest) = got[1..].split_at(floors.len());
        let floors = floors.iter().zip(first).map(|(f, &s)| (f.0, s));
        let peers = peers.iter().zip(rest).map(|(p, &s)| (p.0, s));
        table.push("", size, got[0], others(floors), others(peers));
    }
    table.notes.push(format!(
        "receives posted ahead, as many as fit 1 MiB ({} to {}), by futures; {}",
        window(usize::MAX),
        window(0),
        match bench.link {
            LinkName::Shm => "floor: process_vm_readv of one buffer into one, again and again",
            _ => "floor: 44 x 1472 B a send by UDP GSO and GRO, counted where it arrives",
        }
    ));
    Ok(table)
}
