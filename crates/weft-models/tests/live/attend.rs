//! A rank whose operations all end at once serves the others all the same.

use crate::ranks::{run, LINKS};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weft_models::net::{Blocking, Live, Net};
use weft_models::objects::{Object, Objects, Placement, Read};
use weft_models::order::{Options, OrderedGroup, Style};
use weft_models::regions::Regions;

const RANKS: usize = 3;
/// The bound of each wait.
const LIMIT: Duration = Duration::from_secs(120);

/// Repeats an operation, with pauses, until the other ranks are done; never waits for them.
fn repeat(done: &AtomicUsize, what: &str, mut operation: impl FnMut()) {
    let start = Instant::now();
    // The operations are so few that no window is ever full, which would make the rank wait.
    for _ in 0..500 {
        if done.load(Ordering::SeqCst) == RANKS - 1 {
            return;
        }
        operation();
        // tidy-allow(sleep): the pauses of the program that this test is about.
        std::thread::sleep(Duration::from_millis(4));
        assert!(start.elapsed() < LIMIT, "{what}: the others are not served");
    }
    assert_eq!(done.load(Ordering::SeqCst), RANKS - 1, "{what}: the others are not served");
}

#[derive(Default, Serialize, Deserialize)]
struct Count(u64);

#[derive(Serialize, Deserialize)]
enum Op {
    Add,
    Get,
}

impl Object for Count {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::Add => Read::Write,
            Op::Get => Read::Value(self.0),
        }
    }

    fn apply(&mut self, _: Op) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Runs ranks of which rank 0 repeats an operation while the others do theirs once.
fn serve<T>(
    link: &str,
    what: &str,
    open: impl Fn(&Live) -> T + Sync,
    at_zero: impl Fn(&Live, &T) + Sync,
    elsewhere: impl Fn(&Live, &T) + Sync,
) {
    let done = AtomicUsize::new(0);
    run(link, RANKS, |net, world| {
        let opened = open(&net);
        world.barrier_blocking().expect("no rank fails");
        if net.rank() == 0 {
            repeat(&done, &format!("{what} over {link}"), || at_zero(&net, &opened));
        } else {
            elsewhere(&net, &opened);
            done.fetch_add(1, Ordering::SeqCst);
        }
        world.barrier_blocking().expect("no rank fails");
    });
}

#[test]
fn attend__reads_of_a_replica_let_the_writes_of_others_be_done() {
    for link in LINKS {
        let open = |net: &Live| {
            let objects = Objects::open(net);
            let class = objects.class::<Count>(1);
            let opened = class.open(0, Placement::Replicated, Count::default);
            let count = net.block_on(opened).expect("no rank fails");
            (objects, count)
        };
        serve(
            link,
            "reads",
            open,
            |_, (_, count)| _ = count.call_blocking(Op::Get).expect("no rank fails"),
            |_, (_, count)| _ = count.call_blocking(Op::Add).expect("no rank fails"),
        );
        serve(
            link,
            "reads in a future",
            open,
            |net, (_, count)| _ = net.block_on(count.call(Op::Get)).expect("no rank fails"),
            |_, (_, count)| _ = count.call_blocking(Op::Add).expect("no rank fails"),
        );
    }
}

#[test]
fn attend__an_ordered_group_reaches_others_while_its_first_member_only_sends() {
    for style in [Style::Ticket, Style::Sequencer, Style::Broadcast] {
        for link in LINKS {
            serve(
                link,
                &format!("{style:?}"),
                |net| {
                    let all: Vec<usize> = (0..RANKS).collect();
                    let options = Options { style, ..Options::default() };
                    let group = OrderedGroup::open(net, 0, &all, options);
                    net.block_on(group.view_when(|_| true)).expect("no rank fails");
                    group
                },
                |net, group| _ = net.block_on(group.send(b"again".to_vec())),
                |net, group| {
                    _ = net.block_on(group.send(b"mine".to_vec())).expect("no rank fails");
                },
            );
        }
    }
}

#[test]
fn attend__operations_on_copies_of_regions_let_others_have_their_own() {
    for link in LINKS {
        serve(
            link,
            "regions",
            |net| {
                let regions = Regions::open(net);
                let mine = regions.create(vec![0u64; 4]).expect("it is small");
                let names = net.block_on(regions.gather(&[mine.id()])).expect("no rank fails");
                let zero = net.block_on(regions.map::<u64>(names[0])).expect("no rank fails");
                (regions, mine, zero)
            },
            // Its own region, whose only copy is here until another rank asks for the first one.
            |net, (_, mine, zero)| {
                let region = if net.rank() == 0 { mine } else { zero };
                assert!(region.read_blocking().expect("no rank fails")[0] < 100);
            },
            |_, (_, _, zero)| zero.write_blocking().expect("no rank fails")[0] += 1,
        );
    }
}

#[test]
fn attend__short_sends_let_the_memory_of_this_rank_be_used() {
    for link in LINKS {
        let done = AtomicUsize::new(0);
        run(link, RANKS, |net, world| {
            let endpoint = world.endpoint();
            let key = endpoint.regions().register(64, weft::Rights::ALL).expect("there are keys");
            let keys = world.allgather_blocking(key.to_le_bytes().to_vec()).expect("all live");
            let key = u64::from_le_bytes(keys[0][..].try_into().expect("8 bytes"));
            if net.rank() == 0 {
                repeat(&done, &format!("sends over {link}"), || {
                    for to in 1..RANKS {
                        world.send_blocking(to, 7, b"short").expect("no rank fails");
                    }
                });
            } else {
                let peer = world.peer(0).expect("there is rank 0");
                let code = weft::AtomicCode::FetchAdd;
                let (added, _) = endpoint.atomic(peer, key, 8, code, 1, 0).wait();
                assert!(added.expect("no rank fails").value < RANKS as u64);
                done.fetch_add(1, Ordering::SeqCst);
            }
            world.barrier_blocking().expect("no rank fails");
        });
    }
}
