//! Programs that end: closing takes no longer because a last packet is lost.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weft::{Op, OpError, PeerFailure};
use weft_sim::{test_sim, Env, Fault, SimConfig};

const MS: u64 = 1_000_000;
/// Time that a program allows for closing, and the most that closing may need.
const GIVEN: Duration = Duration::from_secs(5);
const ENOUGH: Duration = Duration::from_secs(1);

/// Closes, returns the time that took, and ends as a process does.
async fn end(env: &Env) -> Duration {
    let start = env.now();
    assert!(env.endpoint.closed(GIVEN).await, "host {} closed in vain", env.host);
    env.leave();
    env.now().since(start)
}

/// Runs ranks that end together, after an exchange of all with all.
fn ended_together(config: SimConfig) -> Duration {
    let mut sim = test_sim!("closing", config);
    let longest = Rc::new(RefCell::new(Duration::ZERO));
    let note = Rc::clone(&longest);
    sim.spawn_all(move |env| {
        let longest = Rc::clone(&note);
        async move {
            let world = env.world();
            for round in 0..3 {
                let sum = world.allreduce(vec![u64::from(env.host) + round], Op::Sum);
                sum.await.expect("all live");
            }
            let took = end(&env).await;
            let mut longest = longest.borrow_mut();
            *longest = took.max(*longest);
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    longest.take()
}

#[test]
fn closing__loss_of_the_last_packets_costs_little() {
    for seed in 0..200 {
        let config = SimConfig::new(2 + seed as u32 % 3, seed).fault(Fault::loss(200_000));
        let took = ended_together(config);
        assert!(took < ENOUGH, "seed {seed}: {took:?}");
    }
}

#[test]
fn closing__a_long_way_costs_a_few_times_its_length() {
    let mut config = SimConfig::new(2, 1);
    config.wire.latency_ns = 10 * MS;
    let took = ended_together(config);
    assert!(took < ENOUGH, "{took:?}");
}

#[test]
fn closing__a_rank_that_waits_for_one_that_ends_learns_of_it_although_the_packet_is_lost() {
    for seed in 0..100 {
        let config = SimConfig::new(2, seed).fault(Fault::loss(200_000));
        let mut sim = test_sim!("closing", config);
        sim.spawn_all(move |env| async move {
            let world = env.world();
            if env.host == 0 {
                world.send(1, 1, vec![1]).await.expect("it lives");
                let took = end(&env).await;
                assert!(took < ENOUGH, "seed {seed}: {took:?}");
                return;
            }
            world.recv(0, 1, 10).await.expect("it was sent");
            // The peer answers nothing any more: only BYE ends this before the peer's timeout.
            let start = env.now();
            let error = world.recv(0, 2, 10).await.expect_err("it has ended");
            let closed =
                matches!(error.cause(), OpError::Peer { failure: PeerFailure::Closed, .. });
            assert!(closed, "seed {seed}: {error}");
            assert!(env.now().since(start) < ENOUGH, "seed {seed}");
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}
