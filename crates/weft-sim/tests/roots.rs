//! Ranks that name different roots in a broadcast, of which none needs a message.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft_sim::{Sim, SimConfig};

#[test]
fn broadcast__two_roots_are_noticed_by_the_barrier_behind_it() {
    for seed in 0..20 {
        let config = SimConfig::new(2, seed);
        let sim = Sim::new("roots", config);
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        let said = Rc::new(RefCell::new(Vec::new()));
        let errors = Rc::clone(&said);
        sim.spawn_all(move |env| {
            let errors = Rc::clone(&errors);
            async move {
                let world = env.world();
                // All messages of the broadcast come later than its end.
                world.broadcast(world.rank(), vec![7; 32]).await.unwrap();
                let ended = world.barrier().await;
                errors.borrow_mut().extend(ended.err().map(|error| error.to_string()));
                world.barrier().await.unwrap();
                env.leave();
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        let said = said.borrow();
        assert_eq!(said.len(), 2, "seed {seed}: {said:?}");
        for said in said.iter() {
            assert!(said.contains("in the operation before this one: rank "), "{said}");
            let both = ["a broadcast from 0 ", "a broadcast from 1 "];
            assert!(both.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
