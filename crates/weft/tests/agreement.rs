//! Ranks that call different collective operations, or the same with other arguments: all end with
//! an error that names two ranks and the difference.
#![allow(non_snake_case)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use weft::{
    Clock, Config, Endpoint, EndpointId, Group, GroupError, Op, OpError, PeerFailure, Tree,
};
use weft_link::{ShmConfig, ShmLink};

/// The bits of a tag with the kind of a message of a group, and the kind of collective operations.
const KIND: u64 = 0xffff << 32;
const COLLECTIVE: u64 = 1 << 32;

/// The end of an operation: nothing, or its error.
type Ended = Result<(), GroupError>;

/// Runs `program` as each of `size` ranks, each in a thread, and returns the ends in order of rank.
fn ranks(size: usize, program: impl Fn(&Group) -> Ended + Sync) -> Vec<Ended> {
    run(size, true, program)
}

/// Runs `program` as each of `size` ranks, each in a thread, and returns the ends in order of rank.
/// If `again`, all ranks meet in a barrier afterwards.
fn run(size: usize, again: bool, program: impl Fn(&Group) -> Ended + Sync) -> Vec<Ended> {
    let (addresses, met) = (Mutex::new(vec![None; size]), Barrier::new(size));
    let ends = Mutex::new((0..size).map(|_| None).collect::<Vec<_>>());
    let (empty, kept) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let rank = |me: usize| {
        let id = EndpointId(weft_link::random_u64());
        let link = Box::new(ShmLink::new(ShmConfig::new(id)).unwrap());
        // A rank that waits in vain asks soon.
        let config = Config { spin_us: 0, warn_after_ms: 100, ..Config::default() };
        let endpoint = Endpoint::with_links(config, id, Clock::system(), vec![link]);
        addresses.lock().unwrap()[me] = Some(endpoint.address());
        met.wait();
        let all: Option<Vec<_>> = addresses.lock().unwrap().iter().cloned().collect();
        let group = Group::new(endpoint.clone(), all.unwrap(), me);
        let ended = program(&group);
        ends.lock().unwrap()[me] = Some(ended);
        // The rank answers questions until all have ended.
        let all_there = || ends.lock().unwrap().iter().all(Option::is_some);
        while !all_there() {
            endpoint.wait(Some(Duration::from_millis(5)));
        }
        if again {
            // No message remains of what has failed.
            let start = Instant::now();
            while let Some(left) = endpoint.probe(None, COLLECTIVE, !KIND) {
                let is_late = start.elapsed() > Duration::from_secs(60);
                kept.lock().unwrap().extend(is_late.then(|| format!("rank {me}: {left:?}")));
                if is_late {
                    break;
                }
                endpoint.wait(Some(Duration::from_millis(5)));
            }
            empty.fetch_add(1, Ordering::SeqCst);
            while empty.load(Ordering::SeqCst) < size {
                endpoint.wait(Some(Duration::from_millis(5)));
            }
            // The next operation is not disturbed by the one that failed.
            group.barrier_blocking().unwrap();
        }
        met.wait();
        endpoint.close(Duration::ZERO);
    };
    std::thread::scope(|s| {
        (0..size).for_each(|me| {
            s.spawn(move || rank(me));
        });
    });
    let kept = kept.into_inner().unwrap();
    assert!(kept.is_empty(), "messages are left: {kept:?}");
    ends.into_inner().unwrap().into_iter().flatten().collect()
}

/// Checks that every rank has an error, each with one of these texts, and that all texts occur.
fn all_say(ends: &[Ended], texts: &[&str]) {
    for (rank, ended) in ends.iter().enumerate() {
        let error = ended.as_ref().expect_err(&format!("rank {rank} has noticed nothing"));
        assert!(matches!(error.cause(), OpError::Mismatch { .. }), "{rank}: {error}");
    }
    let said: Vec<String> =
        ends.iter().flat_map(|e| e.as_ref().err()).map(|e| e.to_string()).collect();
    for text in texts {
        assert!(said.iter().any(|said| said.contains(text)), "no {text:?} in {said:#?}");
    }
}

#[test]
fn kind__one_rank_in_another_operation() {
    let ends = ranks(4, |group| match group.rank() {
        3 => group.broadcast_blocking(0, vec![7; 32]).map(drop),
        _ => group.allreduce_blocking(vec![1.0; 8], Op::Sum).map(drop),
    });
    all_say(&ends, &["rank 3", "a broadcast from 0", "an allreduce, sum of 8 f64"]);
}

#[test]
fn kind__each_against_each() {
    type Begin = fn(&Group) -> Ended;
    let all: [Begin; 8] = [
        |group| group.barrier_blocking(),
        |group| group.broadcast_blocking(0, vec![7; 200_000]).map(drop),
        |group| group.reduce_blocking(0, vec![1u64], Op::Sum).map(drop),
        |group| group.allreduce_blocking(vec![1u64], Op::Sum).map(drop),
        |group| group.gather_blocking(0, vec![7; 200_000]).map(drop),
        |group| {
            let all = if group.rank() == 0 { vec![vec![7; 200_000]; 3] } else { Vec::new() };
            group.scatter_blocking(0, all).map(drop)
        },
        |group| group.allgather_blocking(vec![7; 8]).map(drop),
        |group| group.alltoall_blocking(vec![vec![7; 8]; 3]).map(drop),
    ];
    for most in 0..all.len() {
        for one in (0..all.len()).filter(|&one| one != most) {
            // A rank that only sends short messages, or that has all that it needs, may have ended.
            let ends = ranks(3, |group| match group.rank() {
                2 => all[one](group),
                _ => all[most](group),
            });
            let errors: Vec<_> = ends.iter().flat_map(|ended| ended.as_ref().err()).collect();
            assert!(!errors.is_empty(), "{most} and {one}: nobody has noticed");
            for error in errors {
                assert!(matches!(error.cause(), OpError::Mismatch { .. }), "{error}");
                assert!(error.to_string().contains("rank 2 "), "{most} and {one}: {error}");
            }
        }
    }
}

#[test]
fn reduction__of_another_type_or_by_another_operation() {
    let ends = ranks(4, |group| match group.rank() {
        1 => group.allreduce_blocking(vec![1f32; 4], Op::Sum).map(drop),
        _ => group.allreduce_blocking(vec![1u32; 4], Op::Sum).map(drop),
    });
    all_say(&ends, &["rank 1", "sum of 4 f32", "sum of 4 u32"]);
    let ends = ranks(4, |group| {
        let op = if group.rank() == 2 { Op::Max } else { Op::Sum };
        group.allreduce_blocking(vec![1u32; 4], op).map(drop)
    });
    all_say(&ends, &["rank 2", "sum of 4 u32", "maximum of 4 u32"]);
}

#[test]
fn reduction__of_another_length_ends_on_ranks_that_are_no_neighbours() {
    let ends = ranks(16, |group| {
        let len = if group.rank() == 5 { 3 } else { 4 };
        group.allreduce_blocking(vec![1u32; len], Op::Sum).map(drop)
    });
    for ended in ends {
        let error = ended.unwrap_err();
        let cause = error.cause();
        assert!(matches!(cause, OpError::Uneven { .. } | OpError::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("gave a vector of"), "{error}");
    }
}

#[test]
fn root__that_one_rank_waits_for_while_the_others_have_ended() {
    // Rank 2 waits for a rank that sends nothing: it asks, and learns why.
    let ends = ranks(3, |group| {
        let root = if group.rank() == 2 { 1 } else { 0 };
        group.broadcast_blocking(root, vec![7; 32]).map(drop)
    });
    let error = ends[2].as_ref().unwrap_err().to_string();
    for part in ["rank 2 is in a broadcast from 1", "rank 1 in a broadcast from 0"] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
}

#[test]
fn root__two_ranks_that_wait_for_each_other() {
    let ends = ranks(2, |group| group.broadcast_blocking(1 - group.rank(), Vec::new()).map(drop));
    all_say(&ends, &["rank 0 ", "rank 1 ", "in a broadcast from 0", "in a broadcast from 1"]);
}

/// Runs an operation that ranks begin with different roots and that each may end well, and a
/// barrier. Returns what the errors say, of which there is one at least.
fn noticed(size: usize, begin: impl Fn(&Group) -> Ended + Sync) -> Vec<String> {
    let ends = ranks(size, |group| {
        let first = begin(group);
        first.and(group.barrier_blocking())
    });
    let errors = ends.into_iter().filter_map(Result::err);
    let said: Vec<String> = errors
        .map(|error| {
            assert!(matches!(error.cause(), OpError::Mismatch { .. }), "{error}");
            error.to_string()
        })
        .collect();
    assert!(!said.is_empty(), "nobody has noticed");
    said
}

#[test]
fn root__two_ranks_that_need_nothing_from_each_other() {
    let all = |text: &str, said: Vec<String>| {
        for said in said {
            let both = [0, 1].map(|root| format!("{text} {root}"));
            assert!(both.iter().all(|part| said.contains(part)), "{said}");
        }
    };
    // Each sends to the other, and ends.
    all("a broadcast from", noticed(2, |g| g.broadcast_blocking(g.rank(), vec![7; 32]).map(drop)));
    all("a scatter from", noticed(2, |g| g.scatter_blocking(g.rank(), vec![vec![7]; 2]).map(drop)));
    let reduced = noticed(2, |g| g.reduce_blocking(1 - g.rank(), vec![1u64], Op::Sum).map(drop));
    all("a reduce to", reduced);
    all("a gather to", noticed(2, |g| g.gather_blocking(1 - g.rank(), vec![7]).map(drop)));
}

#[test]
fn root__that_two_of_three_ranks_are() {
    // Rank 2 takes the message of rank 0, and has another one of rank 1.
    let said = noticed(3, |group| {
        let root = if group.rank() == 1 { 1 } else { 0 };
        let flat = group.over(Tree::Flat).broadcast(root, vec![7; 32]);
        group.endpoint().block_on(flat).map(drop)
    });
    assert!(said.iter().all(|said| said.contains("a broadcast from 1 ")), "{said:?}");
}

#[test]
fn root__a_difference_some_operations_ago() {
    // No rank needs a message of another before the barrier.
    let said = noticed(2, |group| {
        let all = (0..5).map(|_| group.broadcast_blocking(group.rank(), vec![7]).map(drop));
        all.fold(Ok(()), Result::and)
    });
    assert!(said.iter().all(|said| said.contains("a broadcast from 1 ")), "{said:?}");
}

#[test]
fn tree__of_another_shape() {
    let ends = ranks(5, |group| {
        let tree = if group.rank() == 4 { Tree::Chain } else { Tree::Flat };
        group.endpoint().block_on(group.over(tree).barrier())
    });
    all_say(&ends, &["rank 4", "over the chain tree", "over the flat tree"]);
}

#[test]
fn members__in_another_order() {
    let ends = ranks(4, |group| {
        let list: &[usize] = if group.rank() == 3 { &[0, 2, 1, 3] } else { &[0, 1, 2, 3] };
        let some = group.subset(list, 1).unwrap();
        let ended = some.allreduce_blocking(vec![1u64], Op::Sum).map(drop);
        // A group that has ended discards nothing any more.
        std::mem::forget(some);
        ended
    });
    all_say(&ends, &["rank 3", "in a group of other members or in another order"]);
}

#[test]
fn count__of_operations_that_a_rank_has_left_out() {
    let ends = ranks(4, |group| {
        if group.rank() != 1 {
            group.barrier_blocking()?;
        }
        group.allgather_blocking(vec![1]).map(drop)?;
        match group.rank() {
            // Rank 1 calls the barrier that it has left out, so that all have called as many.
            1 => group.barrier_blocking(),
            _ => Ok(()),
        }
    });
    assert!(ends.iter().any(|ended| ended.is_err()));
    for error in ends.iter().flat_map(|ended| ended.as_ref().err()) {
        assert!(error.to_string().contains("a barrier"), "{error}");
    }
}

#[test]
fn failure__of_a_rank_ends_the_operation_on_all_others() {
    let ends = run(16, false, |group| {
        group.barrier_blocking()?;
        match group.rank() {
            5 => {
                group.endpoint().close(Duration::from_secs(60));
                Ok(())
            }
            _ => group.allreduce_blocking(vec![1u64], Op::Sum).map(drop),
        }
    });
    let mut reported = 0;
    for (rank, ended) in ends.iter().enumerate().filter(|&(rank, _)| rank != 5) {
        let error = ended.as_ref().expect_err(&format!("rank {rank}"));
        let OpError::Peer { failure, .. } = error.cause() else { panic!("{error}") };
        assert_eq!(error.rank(), Some(5), "{error}");
        reported += usize::from(failure == PeerFailure::Reported);
    }
    assert!(reported > 0, "all others are its neighbours");
}
