//! Agents and ranks that stand still, each while the other goes on: operations that wait for them
//! end with a failure that says so, or go on when the standstill ends.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use weft::{OpError, PeerFailure};
use weft_sim::{test_sim, Env, Fault, SimConfig, Span};

/// Milliseconds of silence after which a peer counts as dead.
const PATIENCE_MS: u64 = 2_000;
const MS: u64 = 1_000_000;
/// Start of the standstill.
const FROM_MS: u64 = 50;
const FOREVER: Span = Span { from: FROM_MS * MS, until: u64::MAX };

/// A host, its partner, the result of its messages, and the end time in milliseconds.
type Ends = Rc<RefCell<Vec<(u32, u32, Result<(), OpError>, u64)>>>;

/// Exchanges messages with one other host for a while.
async fn talk(env: Env, with: u32, ends: Ends) {
    let peer = env.peer(with);
    let mut end = Ok(());
    for round in 0..100u64 {
        let sent = env.endpoint.send(peer, round, vec![round as u8; 3_000]);
        let (got, _) = env.endpoint.recv(Some(peer), round, 0, vec![0; 3_000]).await;
        end = sent.await.0.and(got).map(drop);
        if end.is_err() {
            break;
        }
        env.sleep(2 * MS).await;
    }
    ends.borrow_mut().push((env.host, with, end, env.now().0 / MS));
}

/// Runs three hosts with agents: hosts 0 and 1 exchange messages, and hosts 0 and 2.
fn ends(fault: Fault) -> Vec<(u32, u32, Result<(), OpError>, u64)> {
    let mut config = SimConfig::new(3, 3).fault(fault);
    config.served = true;
    let patience = PATIENCE_MS.to_string();
    config.settings = vec![("peer_timeout_ms", patience.clone()), ("connect_timeout_ms", patience)];
    let mut sim = test_sim!("still", config);
    let log = Ends::default();
    let ends = Rc::clone(&log);
    sim.spawn_all(move |env| {
        let ends = Rc::clone(&ends);
        async move {
            match env.host {
                0 => {
                    let one = Box::pin(talk(env.clone(), 1, Rc::clone(&ends)));
                    let two = Box::pin(talk(env, 2, ends));
                    both(one, two).await;
                }
                _ => talk(env, 0, ends).await,
            }
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mut ends = log.borrow().clone();
    ends.sort_by_key(|end| (end.0, end.1));
    ends
}

/// Runs two futures to their ends.
async fn both(one: impl Future<Output = ()> + Unpin, two: impl Future<Output = ()> + Unpin) {
    let mut parts =
        [Some(Box::new(one) as Box<dyn Future<Output = ()> + Unpin>), Some(Box::new(two))];
    std::future::poll_fn(move |cx| {
        for part in &mut parts {
            let over =
                |f: &mut Box<dyn Future<Output = ()> + Unpin>| Pin::new(f).poll(cx).is_ready();
            if part.as_mut().is_some_and(over) {
                *part = None;
            }
        }
        if parts.iter().all(Option::is_none) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn failure(end: &Result<(), OpError>) -> Option<PeerFailure> {
    match end {
        Err(OpError::Peer { failure, .. }) => Some(*failure),
        _ => None,
    }
}

/// Returns true if `at` is not before the timeout, nor long after it.
fn in_time(at: u64) -> bool {
    (FROM_MS + PATIENCE_MS..FROM_MS + 2 * PATIENCE_MS).contains(&at)
}

#[test]
fn still__a_rank_that_is_stopped_for_ever_behind_its_agent_is_named() {
    let ends = ends(Fault::StillRank { host: 1, span: FOREVER });
    let [(0, 1, stopped, at), (0, 2, Ok(()), _), (2, 0, Ok(()), _)] = &ends[..] else {
        panic!("{ends:?}");
    };
    assert!(matches!(failure(stopped), Some(PeerFailure::Stopped { .. })), "{ends:?}");
    assert!(in_time(*at), "{ends:?}");
}

#[test]
fn still__an_agent_that_stands_still_for_ever_is_noticed_on_both_sides() {
    let ends = ends(Fault::StillAgent { host: 1, span: FOREVER });
    let [(0, 1, far, at), (0, 2, Ok(()), _), (1, 0, near, then), (2, 0, Ok(()), _)] = &ends[..]
    else {
        panic!("{ends:?}");
    };
    assert!(failure(far).is_some() && failure(near).is_some(), "{ends:?}");
    assert!(in_time(*at) && in_time(*then), "{ends:?}");
}

#[test]
fn still__for_less_than_peers_wait_all_goes_on() {
    let span = Span::ms(FROM_MS, FROM_MS + PATIENCE_MS * 3 / 4);
    for fault in [Fault::StillRank { host: 1, span }, Fault::StillAgent { host: 1, span }] {
        let ends = ends(fault.clone());
        assert_eq!(ends.len(), 4, "{fault}: {ends:?}");
        assert!(ends.iter().all(|(_, _, end, _)| end.is_ok()), "{fault}: {ends:?}");
    }
}
