//! Regions over each link.

use crate::ranks::{run, LINKS};
use weft_models::net::{Blocking, Net};
use weft_models::regions::Regions;

#[test]
fn regions__counts_of_all_ranks_add_up_over_each_link() {
    const RANKS: usize = 3;
    const COUNT: u64 = 60;
    for link in LINKS {
        run(link, RANKS, |net, _| {
            let regions = Regions::open(&net);
            let mine = regions.create(vec![0u64; 2_000]).expect("it is small");
            let names = net.block_on(regions.gather(&[mine.id()])).expect("no rank fails");
            let all: Vec<_> = names
                .iter()
                .map(|name| net.block_on(regions.map::<u64>(*name)).expect("no rank fails"))
                .collect();
            for n in 0..COUNT {
                let region = &all[(net.rank() + n as usize) % RANKS];
                region.write_blocking().expect("no rank fails")[1_999] += n;
                assert!(region.read_blocking().expect("no rank fails")[1_999] >= n);
            }
            regions.barrier_blocking().expect("no rank fails");
            let sums = all.iter().map(|region| region.read_blocking().expect("it lives")[1_999]);
            assert_eq!(sums.sum::<u64>(), RANKS as u64 * COUNT * (COUNT - 1) / 2, "{link}");
            regions.barrier_blocking().expect("no rank fails");
        });
    }
}
