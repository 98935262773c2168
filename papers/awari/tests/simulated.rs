//! The parallel program on simulated clusters: the same scores as the sequential one.
#![allow(non_snake_case)]

use std::cell::Cell;
use std::rc::Rc;
use weft_apps::Failure;
use weft_awari::{positions, run, run_by_calls, run_level_by_calls, sequential, Outcome, Params};
use weft_models::net::{Live, Net};
use weft_sim::{test_sim, Fault, Rng, SimConfig, Span};

/// Runs on all hosts; returns the outcomes by rank.
fn simulate(params: &Params, config: SimConfig, ns: f64) -> Vec<Outcome> {
    let sim = test_sim!("awari", config);
    sim.outcomes(params, move |net, params| async move { run(&net, &params, ns, &|_| {}).await })
}

#[test]
fn run__same_scores_as_sequential_on_any_number_of_ranks_and_under_loss() {
    for (stones, ranks) in [(5, 1), (5, 2), (5, 3), (4, 7)] {
        let params = Params { stones, ..Params::default() };
        let expected = sequential(&params, &|_| Ok(())).unwrap();
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let outcomes = simulate(&params, config, 0.0);
            assert_eq!(outcomes.len(), ranks as usize);
            assert!(outcomes.iter().all(|o| o.agrees_with(&expected)), "{stones} on {ranks}");
            assert_eq!(outcomes[0].database.len(), (0..=stones).map(positions).sum::<u64>());
        }
    }
}

/// Runs by calls on all hosts; returns the outcomes by rank.
fn simulate_calls(params: &Params, config: SimConfig, per_call: usize, ns: f64) -> Vec<Outcome> {
    let (params, seed) = (*params, config.seed);
    let mut sim = test_sim!("awari by calls", config);
    let all = sim.results(move |env| async move {
        let net: Live = env.net().expect("no agent is chosen");
        let done = run_by_calls(&net, &params, per_call, ns, &|_| {}).await;
        done.unwrap_or_else(|why| panic!("seed {seed}: {why}"))
    });
    all.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

/// A cluster with loss, copies, disorder and a pause, all of a seed.
fn rough(ranks: u32, seed: u64) -> SimConfig {
    let mut rng = Rng::stream(seed, 5);
    let (ppm, by_ns) = (rng.below(40_000) as u32, 1 + rng.below(300_000));
    let (host, from) = (rng.below(ranks.into()) as u32, rng.below(20));
    SimConfig::new(ranks, seed)
        .fault(Fault::loss(ppm))
        .fault(Fault::Duplicate { ppm: ppm / 2, by_ns, span: Span::ALWAYS })
        .fault(Fault::reorder(10 * ppm, by_ns))
        .fault(Fault::Pause { host, span: Span::ms(from, from + 1 + rng.below(50)) })
}

#[test]
fn run_by_calls__same_databases_as_sequential_and_by_jobs_on_one_to_five_ranks() {
    let params = Params { stones: 6, ..Params::default() };
    let expected = sequential(&params, &|_| Ok(())).unwrap();
    for ranks in 1..=5 {
        let by_calls = simulate_calls(&params, SimConfig::new(ranks, 3), 20, 0.0);
        let by_jobs = simulate(&params, SimConfig::new(ranks, 3), 0.0);
        assert_eq!(by_calls.len(), ranks as usize);
        for outcome in by_calls.iter().chain(&by_jobs) {
            assert!(outcome.agrees_with(&expected), "{ranks} ranks");
            assert!(outcome.database == expected.database, "{ranks} ranks");
            assert_eq!(outcome.ranks, ranks as usize);
        }
    }
}

/// The end of a round is found too early or never if wakings are counted wrongly: many orders of
/// calls and reports, by many seeds.
#[test]
fn run_by_calls__same_databases_under_loss_delay_and_pauses() {
    let params = [3, 4, 5].map(|stones| Params { stones, ..Params::default() });
    let expected = params.map(|params| sequential(&params, &|_| Ok(())).unwrap());
    for seed in 0..120 {
        let mut rng = Rng::stream(seed, 6);
        let case = rng.below(3) as usize;
        let (ranks, per_call) = (1 + rng.below(6) as u32, 1 + rng.below(30) as usize);
        // Without computations, with short ones, and with some as long as messages take.
        let ns = [0.0, 50.0, 3_000.0][rng.below(3) as usize];
        let outcomes = simulate_calls(&params[case], rough(ranks, seed), per_call, ns);
        let agree = outcomes.iter().all(|outcome| outcome.agrees_with(&expected[case]));
        assert!(agree, "seed {seed}, {ranks} ranks");
    }
}

#[test]
fn run_by_calls__the_death_of_a_rank_ends_the_run_of_all_with_an_error() {
    let params = Params { stones: 6, ..Params::default() };
    for seed in 0..20 {
        let mut rng = Rng::stream(seed, 7);
        let host = rng.below(4) as u32;
        let (at, visible) = (rng.below(30_000_000), rng.below(2) == 0);
        let mut config = SimConfig::new(4, seed).fault(Fault::Death { host, at, visible });
        for (key, ms) in
            [("peer_timeout_ms", 400), ("connect_timeout_ms", 400), ("keepalive_ms", 20)]
        {
            config.settings.push((key, ms.to_string()));
        }
        let ends = Rc::new(Cell::new(0));
        let ended = Rc::clone(&ends);
        let mut sim = test_sim!("awari by calls, a death", config);
        sim.spawn_all(move |env| {
            let ended = Rc::clone(&ended);
            async move {
                let net: Live = env.net().expect("no agent is chosen");
                // Two stones take 0.1 s: the rank dies before.
                let end = run_by_calls(&net, &params, 20, 100_000.0, &|_| {}).await;
                let why: Failure = end.expect_err("a rank has died");
                assert!(!why.to_string().is_empty());
                ended.set(ended.get() + 1);
                while ended.get() < 3 {
                    net.sleep(std::time::Duration::from_millis(1)).await;
                }
            }
        });
        sim.run().unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert_eq!(ends.get(), 3, "seed {seed}");
    }
}

#[test]
fn run_by_calls__less_time_on_more_ranks() {
    let params = Params { stones: 6, ..Params::default() };
    let alone = simulate_calls(&params, SimConfig::new(1, 1), 20, 2_000.0);
    let four = simulate_calls(&params, SimConfig::new(4, 1), 20, 2_000.0);
    let (one, four) = (alone[0].elapsed, four[0].elapsed);
    assert!(four < one / 2, "{four:?} of {one:?}");
}

#[test]
fn run__less_time_on_more_ranks() {
    let params = Params { stones: 6, ..Params::default() };
    let alone = simulate(&params, SimConfig::new(1, 1), 500.0);
    let four = simulate(&params, SimConfig::new(4, 1), 500.0);
    let (one, four) = (alone[0].elapsed, four[0].elapsed);
    assert!(four < one / 2, "{four:?} of {one:?}");
}

#[test]
fn run_level_by_calls__same_scores_as_sequential_and_under_loss() {
    let params = Params { stones: 5, ..Params::default() };
    let expected = Rc::new(sequential(&params, &|_| Ok(())).unwrap().database);
    for (ranks, per_call) in [(1, 20), (3, 1), (4, 20)] {
        for config in [SimConfig::new(ranks, 1), SimConfig::new(ranks, 2).lossy()] {
            let mut sim = test_sim!("awari by calls", config);
            let known = Rc::clone(&expected);
            let times = sim.results(move |env| {
                let known = Rc::clone(&known);
                async move {
                    let net: Live = env.net().expect("no agent is chosen");
                    let level = run_level_by_calls(&net, 5, &known, per_call, 100.0).await;
                    let (scores, time) = level.expect("no rank fails");
                    let all = known.scores(5).expect("it is there");
                    let mine = all.iter().copied().skip(net.rank()).step_by(net.size());
                    assert_eq!(scores, mine.collect::<Vec<i8>>(), "rank {}", net.rank());
                    time
                }
            });
            let times = times.unwrap_or_else(|failure| panic!("{failure}"));
            assert!(times.iter().all(|time| !time.is_zero()));
        }
    }
}
