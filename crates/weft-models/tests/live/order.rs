//! Ordered groups over each link.

use crate::ranks::{run, LINKS};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;
use weft_models::net::{Blocking, Net};
use weft_models::order::{Options, OrderError, OrderedGroup, Style, View};
use weft_models::MESSAGE_MAX;

#[test]
fn order__the_same_order_at_all_ranks_over_each_link() {
    const RANKS: usize = 3;
    const COUNT: usize = 300;
    for link in LINKS {
        for style in [Style::Ticket, Style::Sequencer, Style::Broadcast] {
            let all = Mutex::new(vec![Vec::new(); RANKS]);
            run(link, RANKS, |net, world| {
                let ranks: Vec<usize> = (0..RANKS).collect();
                let options = Options { style, ..Options::default() };
                let group = OrderedGroup::open(&net, 0, &ranks, options);
                let sent: Vec<_> = (0..COUNT)
                    .map(|n| group.send(vec![n as u8; if n % 50 == 0 { 100_000 } else { n }]))
                    .collect();
                let mut got = Vec::new();
                net.block_on(async {
                    while got.len() < RANKS * COUNT {
                        let message = group.recv().await.expect("no rank fails");
                        assert_eq!(message.place, got.len() as u64);
                        got.push((
                            message.from,
                            message.bytes.len(),
                            message.bytes.first().copied(),
                        ));
                    }
                    for sent in sent {
                        sent.await.expect("no rank fails");
                    }
                });
                world.barrier_blocking().expect("no rank fails");
                all.lock().expect("no panic")[net.rank()] = got;
            });
            let all = all.into_inner().expect("no panic");
            assert!(all.windows(2).all(|two| two[0] == two[1]), "{link}, {style:?}");
        }
    }
}

#[test]
fn join__with_a_state_that_is_too_long_is_an_error() {
    run("shm", 2, |net, world| {
        if net.rank() == 0 {
            let group = OrderedGroup::open(&net, 0, &[0], Options::default());
            group.on_snapshot(|| vec![0; MESSAGE_MAX]);
            // The joiner has been a member, and is none.
            let seen = Rc::new(Cell::new(0));
            let most = Rc::clone(&seen);
            group.on_view(move |view| most.set(view.members.len().max(most.get())));
            let alone = |view: &View| seen.get() == 2 && view.members == [0];
            net.block_on(group.view_when(alone)).expect("this rank goes on");
            let sent = group.send("goes on");
            net.block_on(sent).expect("it is alone");
            world.barrier_blocking().expect("no rank fails");
        } else {
            let group = OrderedGroup::join(&net, 0, &[0], Options::default(), |_| ());
            let error = net.block_on(group.view_when(|_| true)).unwrap_err();
            assert_eq!(error, OrderError::TooLong);
            world.barrier_blocking().expect("no rank fails");
        }
    });
}

/// A program that drops the futures of its messages, and hands calls its own.
#[test]
fn room__comes_back_though_nobody_waits_for_the_messages() {
    const RANKS: usize = 2;
    const COUNT: usize = 6_000;
    run("shm", RANKS, |net, world| {
        let group = OrderedGroup::open(&net, 0, &[0, 1], Options::default());
        let come = Rc::new(Cell::new(0));
        let count = Rc::clone(&come);
        group.on_deliver(move |_| count.set(count.get() + 1));
        net.block_on(async {
            for _ in 0..COUNT {
                // More than half of what may be on its way is sent before the first is delivered.
                group.room().await.expect("no rank fails");
                drop(group.send(vec![1; 1024]));
            }
        });
        while come.get() < RANKS * COUNT {
            net.wait(Some(Duration::from_millis(100)));
        }
        world.barrier_blocking().expect("no rank fails");
    });
}
