//! Operations of all ranks.

use crate::ranks::run;
use weft_models::net::{Blocking, Net};
use weft_models::together::Together;
use weft_models::MESSAGE_MAX;

#[test]
fn together__bytes_that_are_too_long_are_an_error_on_all_ranks() {
    run("shm", 3, |net, world| {
        let together = Together::open(&net, 0);
        let mine = if net.rank() == 1 { vec![0; MESSAGE_MAX + 1] } else { Vec::new() };
        let all = net.block_on(together.reduce(mine, |all, _| all));
        let error = all.unwrap_err();
        assert_eq!(error.rank, 1);
        assert!(error.why.contains("268435457 bytes for all ranks are longer than"), "{error}");
        world.barrier_blocking().expect("no rank fails");
    });
}
