//! Operations of all ranks, whose hosts end as soon as they are done.

use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::together::Together;
use weft_sim::{Fault, Sim, SimConfig, Span};

#[test]
fn barrier__ranks_that_end_at_once_cause_no_failure() {
    // Host 2 passes the end of the barrier on to host 3, and stands still for a while before.
    for from in (0..500_000).step_by(3_000) {
        let span = Span { from, until: from + 5_000_000 };
        let config = SimConfig::new(4, 1).fault(Fault::Pause { host: 2, span });
        let sim = Sim::new("early end", config);
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| async move {
            let net: Live = env.net().expect("no agent is chosen");
            // All know each other, so that each notices the end of all.
            net.handle(1, |_| {});
            for to in (0..net.size()).filter(|&to| to != net.rank()) {
                net.try_send(to, 1, 0, b"hello").expect("there is room");
            }
            let together = Together::open(&net, 0);
            for round in 0..3 {
                let ended = together.barrier().await;
                assert_eq!(ended, Ok(()), "host {}, round {round}, pause {from}", env.host);
            }
            env.endpoint.closed(Duration::from_millis(1)).await;
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}
