//! Half round trip and message rate between ranks 0 and 1: `weft run -n 2 pingpong [BYTES...]`.

use std::time::Instant;
use weft::Job;

fn main() {
    let job = Job::init().unwrap_or_else(|e| {
        eprintln!("pingpong: {e}");
        std::process::exit(1);
    });
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
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
        let rounds = (20_000_000 / (len + 200)).clamp(20, 200_000);
        for round in 0..rounds + rounds / 10 {
            if round == rounds / 10 && rank == 0 {
                START.with(|s| s.set(Some(Instant::now())));
            }
            if rank == 0 {
                ep.send_blocking(peer, 1, &buffer).unwrap();
                ep.recv_blocking(Some(peer), 1, 0, &mut buffer).unwrap();
            } else {
                ep.recv_blocking(Some(peer), 1, 0, &mut buffer).unwrap();
                ep.send_blocking(peer, 1, &buffer).unwrap();
            }
        }
        if let Some(start) = START.with(|s| s.take()) {
            let ns = start.elapsed().as_nanos() as f64 / rounds as f64 / 2.0;
            println!("{len:>9} B  {:>10.3} us  {:>8.2} GB/s", ns / 1e3, len as f64 / ns);
        }
    }
}

thread_local! {
    static START: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}
