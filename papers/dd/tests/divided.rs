//! The parallel program on simulated clusters: the bits of the sequential one, wherever rows are.
#![allow(non_snake_case)]

use std::cell::RefCell;
use std::net::TcpListener;
use std::rc::Rc;
use weft_dd::{
    run, run_objects, run_on, sequential, Device, Method, Objects, Outcome, Params, Ranks,
    RanksError, RunError, Sockets, DIODE, LASER,
};
use weft_models::actors::balance::{Costs, Strategy};
use weft_models::actors::ActorCause;
use weft_sim::{Fault, Sim, SimConfig};

/// Returns the parameters for a device of fewer rows and columns.
fn params(text: &str, to: &str) -> Params {
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("sweep")).collect();
    let text = format!("{}\nsweep anode {to}\n", text.join("\n"));
    let text = text.replace("columns 12", "columns 6").replace("rows 24", "rows 8");
    let text = text.replace("rows 30", "rows 10").replace("1.087", "1.27").replace("0.92", "0.79");
    Params { ns_per_unit: Some(5.0), ..Params::new(Device::read(&mut text.as_bytes()).unwrap()) }
}

fn simulate(params: &Params, config: SimConfig) -> Vec<Outcome> {
    let params = params.clone();
    let mut sim = Sim::new("dd", config).of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    let all = sim.results(move |env| {
        let params = params.clone();
        async move { run(&env.world(), &params, &|_| {}).await.expect("no rank fails") }
    });
    all.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn run__same_bits_as_sequential_on_any_number_of_ranks() {
    let params = params(DIODE, "from 0.1 to 0.2 step 0.1");
    let expected = sequential(&params, &|_| {});
    for (ranks, balance) in [(1, true), (2, false), (3, true), (7, true), (21, true)] {
        let params = Params { balance, ..params.clone() };
        let outcomes = simulate(&params, SimConfig::new(ranks, 3));
        assert_eq!(outcomes.len(), ranks as usize);
        for outcome in &outcomes {
            assert!(outcome.agrees_with(&expected), "{ranks} ranks: {outcome:?}");
        }
        assert_eq!(outcomes[0].maps, expected.maps);
        let work = |outcome: &Outcome| outcome.rows.iter().map(|row| row.work).collect::<Vec<_>>();
        assert_eq!(work(&outcomes[0]), work(&expected), "{ranks} ranks");
    }
}

#[test]
fn run__same_bits_by_jacobi_under_loss_and_while_rows_move() {
    let mut params = params(LASER, "from 0.1 to 0.1 step 0.1");
    params.tolerance = 1e-3;
    for method in [Method::RedBlack, Method::Jacobi] {
        let params = Params { method, ..params.clone() };
        let expected = sequential(&params, &|_| {});
        let outcomes = simulate(&params, SimConfig::new(3, 5).lossy());
        assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "{method:?}");
        assert!(outcomes.iter().all(|outcome| outcome.moved > 0));
    }
}

#[test]
fn run__balanced_rows_take_less_time() {
    // Most of the work is in the degenerate layer, a third of the rows.
    let mut params = params(LASER, "from 0 to 0 step 0.1");
    // Exponentials that take as long as a thousand: the messages do not count.
    params.ns_per_unit = Some(5000.0);
    let time = |ranks, balance| {
        let outcome = simulate(&Params { balance, ..params.clone() }, SimConfig::new(ranks, 1));
        (outcome[0].elapsed.as_secs_f64(), outcome[0].imbalance, outcome[0].moved)
    };
    let alone = time(1, true).0;
    let (even, imbalance, moved) = time(4, false);
    assert!(imbalance > 1.5 && moved == 0, "{imbalance}");
    let (balanced, imbalance, moved) = time(4, true);
    assert!(imbalance < 1.3 && moved > 0, "{imbalance}");
    assert!(balanced < 0.85 * even, "{balanced} after {even}");
    assert!(alone / balanced > 2.5, "{alone} to {balanced}");
}

#[test]
fn run__the_death_of_a_rank_ends_the_others() {
    for at in [200_000, 3_000_000] {
        let params = params(DIODE, "from 0.2 to 0.6 step 0.2");
        let mut config = SimConfig::new(3, 1).fault(Fault::Death { host: 1, at, visible: false });
        let patience = ["connect_timeout_ms", "peer_timeout_ms"];
        config.settings.extend(patience.map(|key| (key, "1000".to_string())));
        let errors = Rc::<RefCell<Vec<String>>>::default();
        let told = Rc::clone(&errors);
        let sim = Sim::new("dd", config);
        let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
        sim.spawn_all(move |env| {
            let (params, errors) = (params.clone(), Rc::clone(&told));
            async move {
                let error = run(&env.world(), &params, &|_| {}).await.expect_err("a rank is dead");
                errors.borrow_mut().push(error.to_string());
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("{failure}"));
        let errors = errors.take();
        assert_eq!(errors.len(), 2);
        assert!(errors.iter().all(|error| error.contains("rank 1")), "{errors:?}");
    }
}

fn simulate_objects(params: &Params, objects: Objects, config: SimConfig) -> Vec<Outcome> {
    let params = params.clone();
    let mut sim = Sim::new("dd", config).of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    let all = sim.results(move |env| {
        let params = params.clone();
        let net = env.net().expect("no agent is chosen");
        async move { run_objects(&net, &params, objects, &|_| {}).await.expect("no rank fails") }
    });
    all.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn run_objects__same_bits_as_sequential_by_each_way_of_balancing() {
    let costs = Costs::default();
    let cases = [
        (1, 3, None, false),
        (2, 1, None, true),
        (3, 4, Some(Strategy::Rotate), false),
        (3, 7, Some(Strategy::RefineComm(costs)), true),
        (4, 5, Some(Strategy::Greedy), true),
    ];
    let diode = params(DIODE, "from 0.1 to 0.2 step 0.1");
    let mut laser = params(LASER, "from 0.1 to 0.1 step 0.1");
    laser.tolerance = 1e-3;
    let jacobi = Params { method: Method::Jacobi, ..laser.clone() };
    for params in [diode, laser, jacobi] {
        let expected = sequential(&params, &|_| {});
        for (ranks, per_rank, strategy, balance) in cases {
            let params = Params { balance, ..params.clone() };
            let objects = Objects { per_rank, strategy };
            let outcomes = simulate_objects(&params, objects, SimConfig::new(ranks, 3).lossy());
            for outcome in &outcomes {
                assert!(outcome.agrees_with(&expected), "{ranks} ranks, {objects:?}: {outcome:?}");
            }
            assert_eq!(outcomes[0].maps, expected.maps);
            let work = |outcome: &Outcome| -> Vec<u64> {
                outcome.rows.iter().map(|row| row.work).collect()
            };
            assert_eq!(work(&outcomes[0]), work(&expected), "{ranks} ranks, {objects:?}");
            let moved = outcomes[0].moved;
            assert!(strategy.is_some() || balance || moved == 0, "{moved}: {objects:?}");
            assert!(strategy != Some(Strategy::Rotate) || moved > 0, "{objects:?}");
        }
    }
}

#[test]
fn run_objects__that_move_take_less_time() {
    let mut params = params(LASER, "from 0 to 0 step 0.1");
    params.ns_per_unit = Some(5000.0);
    let time = |strategy, balance| {
        let params = Params { balance, ..params.clone() };
        let outcomes =
            simulate_objects(&params, Objects { per_rank: 4, strategy }, SimConfig::new(3, 1));
        outcomes[0].elapsed.as_secs_f64()
    };
    let none = time(None, false);
    let objects = time(Some(Strategy::Refine), false);
    let rows = time(None, true);
    assert!(objects < 0.9 * none, "{objects} after {none}");
    assert!(rows < 0.9 * none, "{rows} after {none}");
}

#[test]
fn run_objects__the_death_of_a_rank_is_named() {
    let params = params(DIODE, "from 0.2 to 0.6 step 0.2");
    let mut config =
        SimConfig::new(3, 1).fault(Fault::Death { host: 1, at: 3_000_000, visible: false });
    let patience = ["connect_timeout_ms", "peer_timeout_ms"];
    config.settings.extend(patience.map(|key| (key, "1000".to_string())));
    let sim = Sim::new("dd", config);
    let mut sim = sim.of_test(env!("CARGO_PKG_NAME"), env!("CARGO_CRATE_NAME"));
    sim.spawn_all(move |env| {
        let params = params.clone();
        async move {
            let net = env.net().expect("no agent is chosen");
            let objects = Objects { per_rank: 2, strategy: Some(Strategy::Refine) };
            let error = run_objects(&net, &params, objects, &|_| {}).await.expect_err("it is dead");
            assert!(matches!(error.cause, ActorCause::Failed(_)) && error.rank == 1, "{error}");
        }
    });
    sim.run().unwrap_or_else(|failure| panic!("{failure}"));
}

/// Runs a function on threads that are ranks joined by sockets.
fn on_sockets<T: Send>(count: usize, rank: impl Fn(Sockets) -> T + Sync) -> Vec<T> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap()).collect();
    let (addresses, rank) = (&addresses, &rank);
    std::thread::scope(|scope| {
        let all = listeners.iter().enumerate().map(|(at, listener)| {
            scope.spawn(move || rank(Sockets::join(at, listener, addresses, 7).unwrap()))
        });
        let all: Vec<_> = all.collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn run_on__same_bits_over_sockets_while_rows_move() {
    let mut laser = params(LASER, "from 0.1 to 0.1 step 0.1");
    laser.tolerance = 1e-3;
    for (text, method, balance) in [
        (params(DIODE, "from 0.1 to 0.2 step 0.1"), Method::RedBlack, false),
        (laser.clone(), Method::RedBlack, true),
        (laser, Method::Jacobi, true),
    ] {
        let params = Params { method, balance, ns_per_unit: None, ..text };
        let expected = sequential(&params, &|_| {});
        for ranks in [1, 2, 3, 5] {
            let outcomes = on_sockets(ranks, |sockets| run_on(&sockets, &params, &|_| {}).unwrap());
            assert!(outcomes.iter().all(|outcome| outcome.agrees_with(&expected)), "{method:?}");
            assert_eq!(outcomes[0].maps, expected.maps);
            let moves = balance && ranks > 1;
            assert!(moves || outcomes.iter().all(|outcome| outcome.moved == 0));
        }
    }
}

#[test]
fn run_on__a_rank_that_ends_is_named() {
    let params = Params { ns_per_unit: None, ..params(DIODE, "from 0.1 to 0.2 step 0.1") };
    let ends = on_sockets(3, |sockets| match sockets.rank() {
        1 => None,
        _ => Some(run_on(&sockets, &params, &|_| {}).expect_err("a rank has ended")),
    });
    for error in ends.into_iter().flatten() {
        // Rank 0 hears of it, and ends; rank 2 may wait for it then.
        let RunError::Ranks(RanksError { rank: 0 | 1, .. }) = error else { panic!("{error}") };
    }
}
