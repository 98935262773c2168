//! Operations of all ranks, and jobs, that are opened again under their number.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weft_models::jobs::Jobs;
use weft_models::net::{Live, Net};
use weft_models::together::Together;
use weft_sim::{Sim, SimConfig};

/// Uses modules that all ranks open in their own time, and drop at the end.
async fn use_all(net: &Live, round: u64) {
    let (me, size) = (net.rank(), net.size());
    // In each round another rank is the last one to open its modules.
    let late = (me as u64 + round) % size as u64;
    net.sleep(Duration::from_micros(40 * late)).await;
    let together = Together::open(net, 0);
    together.barrier().await.expect("no rank fails");

    let jobs = Jobs::<_, u64>::open(net, 0, 4);
    (0..10).for_each(|n| jobs.push((me + n as usize) % size, &n));
    let sum = Rc::new(RefCell::new(0));
    let done = jobs.run(|job, _| *sum.borrow_mut() += job).await.expect("no rank fails");
    assert!(done.jobs > 0);

    together.barrier().await.expect("no rank fails");
}

#[test]
fn open__again_after_all_ranks_have_dropped_theirs() {
    for seed in 0..20 {
        let sim = Sim::new("again", SimConfig::new(4, seed));
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| async move {
            let net: Live = env.net().expect("no agent is chosen");
            let gate = Together::open(&net, 2);
            for round in 0..4 {
                use_all(&net, round).await;
                gate.barrier().await.expect("no rank fails");
            }
            env.endpoint.closed(Duration::from_millis(1)).await;
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}
