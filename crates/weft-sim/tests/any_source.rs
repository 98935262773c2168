//! Receives from any rank, when ranks die.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use weft::{OpError, PeerFailure};
use weft_sim::{test_sim, Env, Fault, SimConfig};

const MS: u64 = 1_000_000;

type Log = Rc<RefCell<Vec<String>>>;

fn death(host: u32, at_ms: u64, visible: bool) -> Fault {
    Fault::Death { host, at: at_ms * MS, visible }
}

/// Returns the results of `count` receives of rank 0; the other ranks run `program`.
fn heard<F, Fut>(hosts: u32, faults: Vec<Fault>, count: usize, program: F) -> Vec<String>
where
    F: Fn(Env) -> Fut + Clone + 'static,
    Fut: std::future::Future<Output = ()> + 'static,
{
    let config = SimConfig { faults, ..SimConfig::new(hosts, 1) };
    let mut sim = test_sim!("any source", config);
    let log = Log::default();
    let note = Rc::clone(&log);
    sim.spawn(0, move |env| {
        let log = Rc::clone(&note);
        async move {
            let world = env.world();
            for _ in 0..count {
                let text = match world.recv_any(1, 100).await.map_err(OpError::from) {
                    Ok((rank, data)) => format!("{rank}: {}", String::from_utf8_lossy(&data)),
                    Err(OpError::Peer { failure, .. }) => match failure {
                        PeerFailure::Silent { .. } => "silent".into(),
                        PeerFailure::Unreachable { .. } => "unreachable".into(),
                        other => other.to_string(),
                    },
                    Err(other) => other.to_string(),
                };
                log.borrow_mut().push(text);
            }
        }
    });
    (1..hosts).for_each(|host| sim.spawn(host, program.clone()));
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    log.take()
}

async fn say(env: &Env, text: &str) {
    env.world().send(0, 1, text.into()).await.expect("rank 0 lives");
}

#[test]
fn recv_any__a_silent_death_is_reported_once_and_the_living_are_received_from() {
    let got = heard(4, vec![death(2, 10, false)], 5, |env| async move {
        say(&env, "here").await;
        env.sleep(400_000 * MS).await;
        say(&env, "later").await;
    });
    let mut first = got[..3].to_vec();
    first.sort();
    assert_eq!(first, ["1: here", "2: here", "3: here"]);
    assert_eq!(got[3], "silent");
    assert!(got[4].ends_with("later"), "{got:?}");
}

#[test]
fn recv_any__ranks_that_never_sent_anything_are_found_dead() {
    let faults = (1..4).map(|host| death(host, 0, false)).collect();
    let got = heard(4, faults, 6, |env| async move {
        env.sleep(MS).await;
    });
    assert_eq!(got, ["unreachable"; 6]);
}

#[test]
fn recv_any__a_visible_death_is_reported_at_once() {
    let got = heard(3, vec![death(2, 10, true)], 3, |env| async move {
        say(&env, "here").await;
        env.sleep(1000 * MS).await;
    });
    assert_eq!(got[2], "its process ended");
}

#[test]
fn recv_any__every_receive_that_had_begun_learns_of_a_death() {
    let config = SimConfig { faults: vec![death(1, 10, true)], ..SimConfig::new(3, 1) };
    let mut sim = test_sim!("any source", config);
    let log = Log::default();
    let note = Rc::clone(&log);
    sim.spawn_all(move |env| {
        let log = Rc::clone(&note);
        async move {
            let world = env.world();
            match env.host {
                0 => {
                    // A message makes the rank known, so that its death is noticed.
                    world.recv(1, 9, 10).await.expect("it came before the end");
                    let both = [world.recv_any(1, 10), world.recv_any(2, 10)];
                    let ended = weft_sim::tasks::join_all(both).await;
                    let mut log = log.borrow_mut();
                    log.extend(ended.into_iter().map(|end| end.expect_err("death").to_string()));
                }
                1 => {
                    world.send(0, 9, vec![1]).await.expect("rank 0 lives");
                    env.sleep(1000 * MS).await;
                }
                _ => env.sleep(1000 * MS).await,
            }
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    let log = log.take();
    assert_eq!(log.len(), 2);
    assert!(log.iter().all(|text| text.contains("its process ended")), "{log:?}");
}

#[test]
fn recv_any__ranks_that_end_in_good_order_are_no_failure() {
    let got = heard(3, vec![], 3, |env| async move {
        let wait = u64::from(env.host) * 1000 * MS;
        env.sleep(wait).await;
        say(&env, "done").await;
        env.sleep(10 * MS).await;
        env.endpoint.close(Duration::ZERO);
        env.sleep(10_000 * MS).await;
    });
    assert_eq!(got, ["1: done", "2: done", "it closed its endpoint"]);
}
