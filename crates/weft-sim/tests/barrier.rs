//! A barrier whose ranks end at once behind it.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::rc::Rc;
use weft_sim::{test_sim, Fault, SimConfig, Span};

/// Ranks that have not met before. In its last round rank 0 sends to rank 4, of which it has heard
/// nothing before, and hears of ranks 2 and 6.
const HOSTS: u32 = 10;

#[test]
fn barrier__a_rank_that_ends_behind_it_has_sent_all_its_messages() {
    // Rank 4 is away from a time on at which it has sent its own messages, in one of the runs.
    for from in (1_000..60_000).step_by(500) {
        let away = Fault::Pause { host: 4, span: Span { from, until: 50_000_000 } };
        let mut config = SimConfig::new(HOSTS, 1).fault(away);
        config.settings = vec![("peer_timeout_ms", "2000".into())];
        let mut sim = test_sim!("barrier", config);
        let done = Rc::new(Cell::new(0));
        let count = Rc::clone(&done);
        sim.spawn_all(move |env| {
            let count = Rc::clone(&count);
            async move {
                let met = env.world().barrier().await;
                met.unwrap_or_else(|error| panic!("host {}: {error}", env.host));
                count.set(count.get() + 1);
                env.leave();
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("away from {from} ns: {failure}"));
        assert_eq!(done.get(), HOSTS);
    }
}
