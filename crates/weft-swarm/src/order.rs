//! Ordered groups under faults: there is at most one view of each number, and its members deliver
//! the same messages in the same order.

use crate::cluster::{Cluster, Ends, MS};
use crate::views::Views;
use crate::Report;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_models::net::{Live, Net};
use weft_models::order::{Options, OrderError, OrderedGroup, Style};
use weft_sim::Env;

/// Messages of each member.
const COUNT: u64 = 25;

/// The messages that were delivered at each rank, in order: sender, and its number.
type Logs = Rc<RefCell<BTreeMap<usize, Vec<(usize, u64)>>>>;

/// Sends messages, and waits until as many of each member have come.
async fn member(env: &Env, group: &OrderedGroup<Live>, logs: &Logs) -> Result<(), OrderError> {
    let (me, mut rng) = (group.net().rank(), env.rng());
    for number in 0..COUNT {
        let len = [0, 100, 6_000][rng.below(3) as usize];
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.resize(8 + len, number as u8);
        group.send(bytes).await?;
        if rng.below(3) == 0 {
            env.sleep(rng.below(MS)).await;
        }
    }
    group.expect(true);
    loop {
        let members = group.view().map(|view| view.members).unwrap_or_default();
        let done = {
            let logs = logs.borrow();
            let log = logs.get(&me).map(Vec::as_slice).unwrap_or_default();
            let of = |rank: usize| log.iter().filter(|(from, _)| *from == rank).count() as u64;
            members.iter().all(|&rank| of(rank) == COUNT)
        };
        if let Some(error) = group.ended() {
            return Err(error);
        }
        if done {
            return Ok(());
        }
        env.sleep(MS).await;
    }
}

/// Runs a group of all ranks.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, ends: Ends) -> Report {
    let seed = cluster.config.seed;
    let style = [Style::Ticket, Style::Sequencer, Style::Broadcast][seed as usize % 3];
    let window = [4, 16, 256][seed as usize / 3 % 3];
    let options = Options { style, window, safe: (seed / 2).is_multiple_of(2) };
    let (logs, views, failed) = (Logs::default(), Views::default(), Rc::new(Cell::new(0)));
    // The ranks that have ended well, with the number of their last view.
    let fine = Rc::<RefCell<Vec<(usize, u32)>>>::default();
    let (all, seen, errors, good) =
        (Rc::clone(&logs), views.clone(), Rc::clone(&failed), Rc::clone(&fine));
    let outcome = cluster.run_to(ends, "order cut off", move |env, net| {
        let (logs, seen) = (Rc::clone(&all), seen.clone());
        let (errors, good) = (Rc::clone(&errors), Rc::clone(&good));
        async move {
            let (me, ranks) = (net.rank(), (0..net.size()).collect::<Vec<_>>());
            let group = OrderedGroup::open(&net, 0, &ranks, options);
            let log = Rc::clone(&logs);
            group.on_deliver(move |message| {
                let number = message.bytes.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
                log.borrow_mut().entry(me).or_default().push((message.from, number));
            });
            seen.watch(&net, &group);
            match member(&env, &group, &logs).await {
                Ok(()) => {
                    let number = group.view().map_or(0, |view| view.number);
                    good.borrow_mut().push((me, number));
                    // Half of the ranks leave, and the others end without a word.
                    if ends == Ends::AtOnce && seed.is_multiple_of(2) {
                        _ = group.leave().await;
                    }
                }
                Err(_) => errors.set(errors.get() + 1),
            }
            seen.note(me, &group);
            group
        }
    });
    views.check(seed);
    let (logs, fine) = (logs.borrow(), fine.borrow());
    check_senders(&logs, seed);
    let newest = fine.iter().map(|(_, number)| *number).max();
    let whole = fine.iter().filter(|(_, number)| Some(*number) == newest);
    let mut whole: Vec<_> = whole.filter_map(|(rank, _)| logs.get(rank)).collect();
    whole.sort_by_key(|log| log.len());
    for pair in whole.windows(2) {
        assert_eq!(pair[0][..], pair[1][..pair[0].len()], "seed {seed}: two orders");
    }
    let operations = logs.values().map(Vec::len).sum::<usize>() as u64;
    Report { operations, errors: failed.get(), outcome }
}

/// Checks that each rank has got the messages of a sender once and in order.
fn check_senders(logs: &BTreeMap<usize, Vec<(usize, u64)>>, seed: u64) {
    for (rank, log) in logs {
        let mut last = BTreeMap::new();
        for (from, number) in log {
            let before = last.insert(*from, *number);
            let is_next = before.is_none_or(|before| before < *number);
            assert!(is_next, "seed {seed}: rank {rank} got {number} of {from} after {before:?}");
        }
    }
}
