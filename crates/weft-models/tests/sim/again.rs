//! Operations of all ranks, and jobs, that are opened again under their number.

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::time::Duration;
use weft_models::jobs::Jobs;
use weft_models::net::{Live, Net};
use weft_models::order::{Options, OrderedGroup};
use weft_models::regions::Regions;
use weft_models::together::Together;
use weft_sim::{test_sim, SimConfig};

/// Uses modules that all ranks open in their own time, and drop at the end.
async fn use_all(net: &Live, round: u64) {
    let (me, size) = (net.rank(), net.size());
    // In each round another rank is the last one to open its modules.
    let late = (me as u64 + round) % size as u64;
    net.sleep(Duration::from_micros(40 * late)).await;
    let together = Together::open(net, 0);
    together.barrier().await.expect("no rank fails");

    let jobs = Jobs::<_, u64>::open(net, 0, 4);
    (0..10).for_each(|n| jobs.push((me + n as usize) % size, &n));
    let sum = Rc::new(RefCell::new(0));
    let done = jobs.run(|job, _| *sum.borrow_mut() += job).await.expect("no rank fails");
    assert!(done.jobs > 0);

    together.barrier().await.expect("no rank fails");
}

#[test]
fn open__again_after_all_ranks_have_dropped_theirs() {
    for seed in 0..20 {
        let mut sim = test_sim!("again", SimConfig::new(4, seed));
        sim.spawn_all(move |env| async move {
            let net: Live = env.net().expect("no agent is chosen");
            let gate = Together::open(&net, 2);
            for round in 0..4 {
                use_all(&net, round).await;
                gate.barrier().await.expect("no rank fails");
            }
            env.endpoint.closed(Duration::from_millis(1)).await;
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Does something that panics; returns the text.
fn panic_of<T>(act: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(act)).err().expect("a panic");
    panic
        .downcast_ref::<String>()
        .cloned()
        .or(panic.downcast_ref::<&str>().map(|s| s.to_string()))
        .expect("a text")
}

/// Things whose late messages would reach others are refused, and things beside those of their
/// number.
#[test]
fn open__of_what_is_open_or_may_be_opened_once_is_refused_and_named() {
    let mut sim = test_sim!("twice", SimConfig::new(2, 1));
    sim.spawn_all(move |env| async move {
        let net: Live = env.net().expect("no agent is chosen");
        let together = Together::open(&net, 2);
        assert!(panic_of(|| Together::open(&net, 2)).contains("operations of all ranks"));
        let jobs = Jobs::<_, u64>::open(&net, 3, 4);
        assert!(panic_of(|| Jobs::<_, u64>::open(&net, 3, 4)).contains("jobs of queue 3"));
        let opens = || OrderedGroup::open(&net, 5, &[0, 1], Options::default());
        let joins = || OrderedGroup::join(&net, 5, &[0, 1], Options::default(), drop);
        let group = opens();
        assert!(panic_of(joins).contains("messages of ordered group 5"));
        drop(group);
        assert!(panic_of(opens).contains("ordered group 5"));
        drop(Regions::open(&net));
        assert!(panic_of(|| Regions::open(&net)).contains("regions once"));
        together.barrier().await.expect("no rank fails");
        drop(jobs);
        env.endpoint.closed(Duration::from_millis(1)).await;
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
}
