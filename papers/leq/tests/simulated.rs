//! The parallel program on simulated clusters: the same bits as the sequential one.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::rc::Rc;
use weft_leq::{run, sequential, Outcome, Params, System};
use weft_models::net::Live;
use weft_sim::{test_sim, Fault, SimConfig, Span};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let sim = test_sim!("leq", config);
    sim.outcomes(params, move |net, params| async move { run(&net, &params, ns, &|_| {}).await })
}

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (n, ranks) in [(50, 1), (50, 2), (70, 5), (40, 6)] {
        let params = Params { system: System::random(n, 3), ..Params::default() };
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let outcomes = simulate(&params, config, 0.0);
            assert_eq!(outcomes.len(), ranks as usize);
            assert!(outcomes.iter().all(|o| o.agrees_with(&expected)), "{n} on {ranks}");
        }
    }
}

#[test]
fn run__ranks_without_rows_are_waited_for() {
    let params = Params { system: System::random(20, 3), ..Params::default() };
    let expected = sequential(&params, &|_| Ok(())).unwrap();
    // The last of them stands still for some iterations.
    let span = Span { from: 300_000, until: 3_000_000 };
    let config = SimConfig::new(4, 1).fault(Fault::Pause { host: 3, span });
    let outcomes = simulate(&params, config, 0.0);
    assert!(outcomes.len() == 4 && outcomes.iter().all(|o| o.agrees_with(&expected)));
}

#[test]
fn run__iterations_of_the_closed_form_and_less_time_on_more_ranks() {
    // The changes are ((n - 1) / n)^t, which is below 0.001 after 688 iterations.
    let params = Params { system: System::ones(100), ..Params::default() };
    let alone = simulate(&params, SimConfig::new(1, 1), 30.0);
    let four = simulate(&params, SimConfig::new(4, 1), 30.0);
    assert_eq!((alone[0].iterations, four[0].iterations), (689, 689));
    assert!(four[0].elapsed < alone[0].elapsed / 2, "{:?}", four[0].elapsed);
}

#[test]
fn run__the_death_of_a_rank_ends_the_others() {
    let params = Params { system: System::random(40, 3), ..Params::default() };
    // While ranks find each other; and later, when all others wait for its part of the vector.
    for (at, ns) in [(20_000, 0.0), (400_000, 1000.0)] {
        let params = params.clone();
        let death = Fault::Death { host: 2, at, visible: false };
        let mut config = SimConfig::new(4, 1).fault(death);
        let patience = ["connect_timeout_ms", "peer_timeout_ms"];
        config.settings.extend(patience.map(|key| (key, "1000".to_string())));
        let errors = Rc::<RefCell<Vec<String>>>::default();
        let told = Rc::clone(&errors);
        let mut sim = test_sim!("leq", config);
        sim.spawn_all(move |env| {
            let (params, errors) = (params.clone(), Rc::clone(&told));
            async move {
                let net: Live = env.net().expect("no agent is chosen");
                let error = run(&net, &params, ns, &|_| {}).await.expect_err("a rank is dead");
                errors.borrow_mut().push(error.to_string());
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
        let errors = errors.take();
        assert_eq!(errors.len(), 3);
        let name = |error: &String| error.starts_with("rank 2 over sim (host 2) failed");
        assert!(errors.iter().any(name), "{errors:?}");
    }
}
