//! Ordered groups over each link.

use crate::ranks::{run, LINKS};
use std::sync::Mutex;
use weft_models::net::{Blocking, Net};
use weft_models::order::{Options, OrderedGroup, Style};

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
