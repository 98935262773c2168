//! Half round trip and message rate between ranks 0 and 1: `weft run -n 2 pingpong [BYTES...]`.

use std::time::Instant;
use weft::Job;

fn main() {
    let job = Job::init().unwrap_or_else(|e| {
        eprintln!("pingpong: {e}");
        std::process::exit(1);
    });
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    // One direction, one message at a time, instead of back and forth.
    let stream = std::env::var_os("STREAM").is_some();
    let (ep, rank) = (job.endpoint(), job.world().rank());
    if job.world().size() < 2 {
        eprintln!(
            "pingpong: two ranks are needed: weft run -n 2 {}",
            std::env::args().next().unwrap()
        );
        std::process::exit(1);
    }
    if rank > 1 {
        return;
    }
    let peer = job.world().peer(1 - rank).unwrap();
    for len in if sizes.is_empty() { vec![8, 1024, 65536, 1 << 20] } else { sizes } {
        let mut buffer = vec![1; len];
        let rounds = (400_000_000 / (len + 2000)).clamp(50, 200_000);
        for round in 0..rounds + rounds / 10 {
            if round == rounds / 10 && rank == 0 {
                START.with(|s| s.set(Some(Instant::now())));
            }
            if stream && rank == 0 {
                ep.send_blocking(peer, 1, &buffer).unwrap();
            } else if stream {
                ep.recv_blocking(Some(peer), 1, 0, &mut buffer).unwrap();
            } else if rank == 0 {
                ep.send_blocking(peer, 1, &buffer).unwrap();
                ep.recv_blocking(Some(peer), 1, 0, &mut buffer).unwrap();
            } else {
                ep.recv_blocking(Some(peer), 1, 0, &mut buffer).unwrap();
                ep.send_blocking(peer, 1, &buffer).unwrap();
            }
        }
        if let Some(start) = START.with(|s| s.take()) {
            let one_way = if stream { 1.0 } else { 2.0 };
            let ns = start.elapsed().as_nanos() as f64 / rounds as f64 / one_way;
            println!("{len:>9} B  {:>10.3} us  {:>8.2} GB/s", ns / 1e3, len as f64 / ns);
        }
    }
    if std::env::var_os("STATS").is_some() {
        let values = ep.stats().values();
        for ((name, _), value) in weft::Stats::NAMES.iter().zip(values).filter(|(_, v)| *v > 0) {
            println!("rank {rank} {name} {value}");
        }
        for (link, name, value) in ep.counters().links().into_iter().filter(|c| c.2 > 0) {
            println!("rank {rank} {link} {name} {value}");
        }
    }
}

thread_local! {
    static START: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}
