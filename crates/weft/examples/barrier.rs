//! Time of a barrier, and of one of its rounds: `weft run -n 4 barrier`.

use std::time::Instant;
use weft::Job;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let job = Job::init()?;
    let world = job.world();
    job.block_on(async {
        for _ in 0..100 {
            world.barrier().await?;
        }
        let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2_000);
        let start = Instant::now();
        for _ in 0..rounds {
            world.barrier().await?;
        }
        if world.rank() == 0 {
            let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds);
            let hops = world.size().next_power_of_two().trailing_zeros().max(1);
            println!("{} ranks: {us:.2} us, {:.2} us a hop", world.size(), us / f64::from(hops));
        }
        Ok::<_, weft::OpError>(())
    })?;
    Ok(())
}
