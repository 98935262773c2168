//! Agents that own the queues of an interface, which their ranks share.
#![allow(non_snake_case)]

mod common;

use common::*;
use weft::{AtomicCode, PeerId};
use weft_conformance::{cable, skip};

/// Returns two agents at the ends of a cable, each for so many ranks. `None`, with the reason
/// printed, if that cannot be.
fn agents(sessions: usize) -> Option<[Served; 2]> {
    if let Err(why) = cable::lay(1500) {
        skip(&why);
        return None;
    }
    let start = |end: &str| {
        let words = format!("--links xdp --interfaces {end} --sessions {sessions}");
        let opened = weftd::Agent::open(options(&words));
        // Closed at once, and with it the queue.
        opened.map(drop).map_err(|e| e.to_string())
    };
    if let Err(why) = start(cable::ENDS[0]) {
        skip(&why);
        return None;
    }
    Some(
        cable::ENDS.map(|end| {
            Served::start(&format!("--links xdp --interfaces {end} --sessions {sessions}"))
        }),
    )
}

#[test]
fn xdp__ranks_of_two_hosts_share_a_queue_each() {
    let Some([here, there]) = agents(3) else { return };
    let left: Vec<Rank> = (0..3).map(|_| here.rank(1)).collect();
    let right: Vec<Rank> = (0..3).map(|_| there.rank(1)).collect();
    let all: Vec<&Rank> = left.iter().chain(&right).collect();
    // All connect at once, so that each receives packets for others.
    let ways: Vec<(usize, usize, PeerId)> =
        (0..9).map(|at| (at / 3, at % 3, left[at / 3].connect(&right[at % 3]))).collect();
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for round in 0..40u64 {
        for &(a, b, peer) in &ways {
            let tag = round << 8 | (a * 3 + b) as u64;
            let data = pattern(tag as usize, 700 + 100 * a);
            sent.push(left[a].endpoint.send(peer, tag, data));
            let room = vec![0; 2000];
            got.push((tag, (a, b), right[b].endpoint.recv(None, tag, 0, room)));
        }
        until(&all, || sent.iter().all(|op| op.is_done()));
        until(&all, || got.iter().all(|(.., op)| op.is_done()));
        sent.clear();
        for (tag, (a, b), op) in got.drain(..) {
            let (status, data) = right[b].endpoint.block_on(op);
            let len = status.unwrap().len;
            assert!(data[..len] == pattern(tag as usize, 700 + 100 * a), "tag {tag:x}");
        }
    }
    // A long message, in many frames, beside short ones of others.
    let (a, b, peer) = ways[4];
    pass(&left[a], peer, &right[b], 1, &pattern(7, 300_000));
}

/// Returns a rank, after the rank before it has left its session.
fn soon(agent: &Served, key: u8) -> Rank {
    let mut rank = None;
    until(&[], || {
        rank = agent.try_rank(key).ok();
        rank.is_some()
    });
    rank.expect("it was served")
}

#[test]
fn xdp__a_session_goes_to_the_next_rank_and_no_other_notices() {
    let Some([here, there]) = agents(2) else { return };
    let (kept, other, to_other) = joined(&here, &there, b"before");
    for n in 0..4u8 {
        // Another job each time: packets for the last one must not reach this.
        let (guest, host) = (soon(&here, 2 + n), soon(&there, 2 + n));
        let peer = guest.connect(&host);
        pass(&guest, peer, &host, 1, &pattern(n.into(), 3000));
        drop(guest);
        drop(host);
        pass(&kept, to_other, &other, 2, b"between");
    }
}

#[test]
fn xdp__the_agent_counts_while_its_rank_does_nothing() {
    let Some([here, there]) = agents(2) else { return };
    let (a, b, to_b) = joined(&here, &there, b"the session is open");
    b.services.borrow_mut().open_counter(77, 1, 0, false);
    let mut opened = false;
    until(&[&b], || {
        opened |= b.services.borrow_mut().counter(77, 0).is_some();
        opened
    });
    for round in 0..20 {
        let add = a.endpoint.atomic(to_b, 77, 0, AtomicCode::FetchAdd, 3, 0);
        until(&[&a], || add.is_done());
        assert_eq!(a.endpoint.block_on(add).0.unwrap().value, round * 3);
    }
}
