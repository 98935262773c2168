//! Ranks that name different roots in a broadcast, of which none needs a message.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft::Op;
use weft_sim::{test_sim, SimConfig};

#[test]
fn broadcast__two_roots_are_noticed_by_the_barrier_behind_it() {
    for seed in 0..20 {
        let config = SimConfig::new(2, seed);
        let mut sim = test_sim!("roots", config);
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

/// A faster rank may be in the next group while another one ends the last operation of this one.
#[test]
fn subset__groups_made_anew_with_one_context_do_not_disturb_each_other() {
    for seed in 0..40 {
        let mut sim = test_sim!("groups anew", SimConfig::new(5, seed).lossy());
        sim.spawn_all(|env| async move {
            let all: Vec<usize> = (0..5).collect();
            for round in 0..8 {
                let group = env.world().subset(&all, 7).expect("it names this host");
                let sum = group.allreduce(vec![round], Op::Sum).await.expect("a sum");
                assert_eq!(sum, [5 * round]);
                group.barrier().await.expect("a barrier");
                let data = if group.rank() == 2 { vec![9; 40] } else { Vec::new() };
                assert_eq!(group.broadcast(2, data).await.expect("bytes"), [9; 40]);
            }
            env.world().barrier().await.expect("the end");
        });
        sim.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
