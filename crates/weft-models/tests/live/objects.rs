//! Objects over each link.

use crate::ranks::{run, LINKS};
use serde::{Deserialize, Serialize};
use weft_models::net::Blocking;
use weft_models::objects::{Object, Objects, Placement, Read};

#[derive(Default, Serialize, Deserialize)]
struct Sum(u64);

#[derive(Serialize, Deserialize)]
enum Op {
    Add(u64),
    Get,
    /// Waits until the sum is as large.
    Reach(u64),
}

impl Object for Sum {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::Add(_) => Read::Write,
            Op::Reach(least) if self.0 < *least => Read::Wait,
            Op::Get | Op::Reach(_) => Read::Value(self.0),
        }
    }

    fn apply(&mut self, op: Op) -> u64 {
        if let Op::Add(n) = op {
            self.0 += n;
        }
        self.0
    }
}

#[test]
fn objects__sums_of_all_ranks_over_each_link_and_in_each_place() {
    const RANKS: usize = 3;
    const COUNT: u64 = 100;
    for link in LINKS {
        run(link, RANKS, |net, world| {
            let objects = Objects::open(&net);
            let class = objects.class::<Sum>(1);
            let places = [Placement::Replicated, Placement::At(1), Placement::Adaptive];
            for (number, placement) in (0..).zip(places) {
                let open = class.open(number, placement, Sum::default);
                let sum = net.block_on(open).expect("no rank fails");
                for n in 0..COUNT {
                    let before = sum.call_blocking(Op::Get).expect("no rank fails");
                    let after = sum.call_blocking(Op::Add(n)).expect("no rank fails");
                    assert!(after >= before + n, "{link}, {placement:?}");
                    sum.post(&Op::Add(1)).expect("there is room");
                }
                let all = RANKS as u64 * (COUNT * (COUNT - 1) / 2 + COUNT);
                let reached = sum.call_blocking(Op::Reach(all)).expect("no rank fails");
                assert_eq!(reached, all, "{link}, {placement:?}");
            }
            assert_eq!(objects.group().view().map(|view| view.members.len()), Some(RANKS));
            world.barrier_blocking().expect("no rank fails");
        });
    }
}
