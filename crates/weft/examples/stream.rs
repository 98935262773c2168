//! Bandwidth from rank 0 to rank 1, turn by turn, two messages in flight: `weft run -n 2 stream
//! [BYTES [TURNS [MESSAGES]]]`. With `STATS` set, each turn prints the changes of the counters.

use std::collections::VecDeque;
use std::time::Instant;
use weft::{Endpoint, Job, OpError, Operation, PeerId};

const IN_FLIGHT: usize = 2;

async fn turn(ep: &Endpoint, peer: PeerId, sends: bool, n: usize, free: &mut Vec<Vec<u8>>) {
    let start = |buffer| match sends {
        true => ep.send(peer, 1, buffer),
        false => ep.recv(Some(peer), 1, 0, buffer),
    };
    let mut flying: VecDeque<Operation> = VecDeque::new();
    for _ in 0..n {
        if free.is_empty() {
            let (result, buffer) = flying.pop_front().expect("all buffers are in flight").await;
            result.expect("a message arrives");
            free.push(buffer);
        }
        flying.push_back(start(free.pop().expect("there is one")));
    }
    for operation in flying {
        let (result, buffer) = operation.await;
        result.expect("a message arrives");
        free.push(buffer);
    }
}

fn counters(ep: &Endpoint) -> Vec<(String, u64)> {
    let names = weft::Stats::NAMES.iter().map(|(name, _)| name.to_string());
    let mut all: Vec<_> = names.zip(ep.stats().values()).collect();
    for (link, name, value) in ep.counters().links() {
        all.push((format!("{link}.{name}"), value));
    }
    all
}

fn main() -> Result<(), OpError> {
    let job = Job::init().unwrap_or_else(|e| {
        eprintln!("stream: {e}");
        std::process::exit(1);
    });
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let len = args.next().unwrap_or(1 << 20);
    let turns = args.next().unwrap_or(10);
    let messages = args.next().unwrap_or((100 << 20) / len.max(1)).max(1);
    let (ep, rank) = (job.endpoint(), job.world().rank());
    if rank > 1 || job.world().size() < 2 {
        return Ok(());
    }
    let peer = job.world().peer(1 - rank).expect("there are two ranks");
    let mut free = vec![vec![1u8; len]; IN_FLIGHT];
    let stats = std::env::var_os("STATS").is_some();
    let mut before = counters(ep);
    for number in 0..turns {
        let start = Instant::now();
        ep.block_on(turn(ep, peer, rank == 0, messages, &mut free));
        // The receiver reports when it has all messages.
        match rank {
            0 => drop(ep.recv_blocking(Some(peer), 2, 0, &mut [0])?),
            _ => ep.send_blocking(peer, 2, &[1])?,
        }
        let ns = start.elapsed().as_nanos() as f64;
        if rank == 0 {
            println!("{number:>4} {:>8.3} GB/s", (messages * len) as f64 / ns);
        }
        if stats {
            let now = counters(ep);
            let moved = now.iter().zip(&before).filter(|(n, b)| n.1 > b.1);
            let moved: Vec<_> = moved.map(|(n, b)| format!("{} {}", n.0, n.1 - b.1)).collect();
            println!("{number:>4} rank {rank}: {}", moved.join(", "));
            before = now;
        }
    }
    Ok(())
}
