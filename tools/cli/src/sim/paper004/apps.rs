//! Efficiencies of the applications on 64 nodes: Table VII.
//!
//! The time of a cell, a key or an interaction is that which gives the paper's seconds on one node.
//! Some runs are parts or small forms of the paper's, which the rows say.

use super::systems::{setup, Row};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use weft_sim::platform::choice::Choice;
use weft_sim::platform::measure::Setup;
use weft_sim::platform::net::ClusterNet;

/// Efficiencies of applications.
pub const EFFICIENCIES: &str = "VII";

/// The measurement of an application with the paper's seconds on one node.
type Measure = fn(&Setup, f64) -> Result<f64, String>;

/// A row: its name, the paper's seconds on one node and efficiencies on each cluster.
const APPS: [(&str, Measure, [f64; 2], [f64; 2]); 9] = [
    ("ASP", asp, [63.3, 17.8], [1.39, 2.52]),
    ("Awari, 9 of 13 stones", awari, [452.4, 85.8], [0.44, 0.25]),
    ("Barnes", barnes, [80.5, 15.5], [0.25, 0.14]),
    ("LEQ, 4 of 6,906 iterations", leq, [643.1, 212.5], [0.44, 0.64]),
    ("Puzzle-4, a position of 0.6 M nodes", puzzle_4, [209.0, 39.4], [0.65, 0.68]),
    ("Puzzle-64, a position of 0.6 M nodes", puzzle_64, [209.0, 39.4], [0.77, 0.79]),
    ("QR", qr, [58.7, 14.8], [0.74, 0.73]),
    ("Radix", radix, [4.6, 1.0], [0.19, 0.13]),
    ("SOR, 6 of 50 iterations", sor, [27.9, 13.7], [0.64, 1.05]),
];

/// Returns efficiencies on 64 nodes.
pub fn efficiencies(seed: u64) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (row, measure, seconds, paper) in APPS {
        for (at, platform) in ["ppro", "p3"].into_iter().enumerate() {
            let setup = setup(platform, Choice::SDMA, 64, seed);
            let simulated = measure(&setup, seconds[at]).map_err(|why| format!("{row}: {why}"))?;
            let (table, unit, paper) = (EFFICIENCIES, "of 1", paper[at]);
            rows.push(Row { table, row, platform, unit, paper, simulated });
        }
    }
    Ok(rows)
}

/// Runs a program with messages of about so many bytes; returns the efficiency, if it takes `alone`
/// seconds on one node.
fn efficiency<F, Fut, E>(setup: &Setup, bytes: usize, alone: f64, program: F) -> Result<f64, String>
where
    F: Fn(ClusterNet) -> Fut,
    Fut: Future<Output = Result<Duration, E>> + 'static,
    E: ToString + 'static,
{
    let mut longest = Duration::ZERO;
    for elapsed in setup.run(bytes, program)?.results {
        longest = longest.max(elapsed.map_err(|error| error.to_string())?);
    }
    Ok(alone / setup.hw.nodes as f64 / longest.as_secs_f64())
}

fn asp(setup: &Setup, seconds: f64) -> Result<f64, String> {
    let mut params = weft_asp::Params::default();
    params.ns_per_cell = Some(seconds * 1e9 / (params.graph.nodes as f64).powi(3));
    let params = Rc::new(params);
    efficiency(setup, 4096, seconds, |net| {
        let params = Rc::clone(&params);
        async move {
            let outcome = weft_asp::run_over(&net, &params, &|_, _| {}).await;
            outcome.map(|outcome| outcome.elapsed)
        }
    })
}

fn awari(setup: &Setup, seconds: f64) -> Result<f64, String> {
    let paper = weft_awari::Params::default();
    let small = weft_awari::Params { stones: 9, ..paper };
    let [all, some] = [paper.stones, small.stones].map(|n| weft_awari::positions_to(n) as f64);
    // A position takes as long in the small databases.
    let alone = seconds * some / all;
    let outcome = weft_awari::sequential(&small, &|_| Ok(())).map_err(|e| e.to_string())?;
    let ns = alone * 1e9 / (some + outcome.updates as f64);
    efficiency(setup, 100, alone, |net| async move {
        let outcome = weft_awari::run(&net, &small, ns, &|_| {}).await;
        outcome.map(|outcome| outcome.elapsed)
    })
}

fn barnes(setup: &Setup, seconds: f64) -> Result<f64, String> {
    let params = Rc::new(weft_barnes::Params::default());
    let alone = weft_barnes::sequential(&params, &|_| Ok(())).map_err(|e| e.to_string())?;
    let ns = seconds * 1e9 / alone.interactions as f64;
    efficiency(setup, 4096, seconds, |net| {
        let params = Rc::clone(&params);
        async move {
            let outcome = weft_barnes::run(&net, &params, ns, &|_| {}).await;
            outcome.map(|outcome| outcome.elapsed)
        }
    })
}

fn leq(setup: &Setup, seconds: f64) -> Result<f64, String> {
    const ITERATIONS: u64 = 4;
    // A product's time: the paper's run has 6,906 iterations of a million.
    let ns = seconds * 1e9 / 6_906.0 / 1e6;
    let params = weft_leq::Params {
        tolerance: 0.0,
        max_iterations: ITERATIONS,
        ..weft_leq::Params::default()
    };
    let params = Rc::new(params);
    efficiency(setup, 128, ITERATIONS as f64 * 1e6 * ns / 1e9, |net| {
        let params = Rc::clone(&params);
        async move {
            let outcome = weft_leq::run(&net, &params, ns, &|_| {}).await;
            outcome.map(|outcome| outcome.elapsed)
        }
    })
}

fn puzzle_4(setup: &Setup, seconds: f64) -> Result<f64, String> {
    puzzle(setup, seconds, 4)
}

fn puzzle_64(setup: &Setup, seconds: f64) -> Result<f64, String> {
    puzzle(setup, seconds, 64)
}

fn puzzle(setup: &Setup, seconds: f64, per_message: usize) -> Result<f64, String> {
    let nodes_of = |number| weft_puzzle::korf(number).map(|known| (known.nodes, known.start));
    let (Some((many, _)), Some((_, start))) = (nodes_of(80), nodes_of(79)) else {
        return Err("there are no such positions".to_string());
    };
    // A position's time, if the paper's run is that of Korf's position 80.
    let ns_per_node = seconds * 1e9 / many as f64;
    let division =
        weft_puzzle::Division { per_message, depth: weft_puzzle::MOST_MOVES as u8, ns_per_node };
    let params = weft_puzzle::Params { start, whole: true };
    let ran = setup.run(32 * per_message, |net| async move {
        weft_puzzle::run(&net, &params, &division, &|_| {}).await
    })?;
    let outcome = ran.results.into_iter().flatten().next();
    let outcome = outcome.ok_or("no node has a result")?;
    let alone = outcome.nodes() as f64 * ns_per_node / 1e9;
    Ok(alone / setup.hw.nodes as f64 / outcome.elapsed.as_secs_f64())
}

fn qr(setup: &Setup, seconds: f64) -> Result<f64, String> {
    let params = Rc::new(weft_qr::Params::default());
    let (rows, cols) = (params.matrix.rows, params.matrix.cols);
    // A step reflects the columns that are left, from its row on.
    let values = (0..cols).map(|step| (cols - step - 1) * (rows - step)).sum::<usize>();
    let ns = seconds * 1e9 / values as f64;
    efficiency(setup, 4096, seconds, |net| {
        let params = Rc::clone(&params);
        async move {
            let outcome = weft_qr::run(&net, &params, ns, &|_| {}).await;
            outcome.map(|outcome| outcome.elapsed)
        }
    })
}

fn radix(setup: &Setup, seconds: f64) -> Result<f64, String> {
    let params = Rc::new(weft_radix::Params::default());
    let largest = params.keys.iter().copied().max().unwrap_or(0);
    let passes = f64::from(weft_radix::passes(largest, params.radix));
    let ns_per_key = seconds * 1e9 / passes / params.keys.len() as f64;
    let division = weft_radix::Division { region: 256, ns_per_key };
    efficiency(setup, 1024, seconds, |net| {
        let params = Rc::clone(&params);
        async move {
            let outcome = weft_radix::run(&net, &params, &division, &|_| {}).await;
            outcome.map(|outcome| outcome.elapsed)
        }
    })
}

fn sor(setup: &Setup, seconds: f64) -> Result<f64, String> {
    /// The paper does not say how many; its seconds suggest so many.
    const OF_PAPER: f64 = 50.0;
    const ITERATIONS: u64 = 6;
    let mut params = weft_sor::Params { tolerance: 0.0, ..weft_sor::Params::default() };
    params.max_iterations = ITERATIONS;
    let cells = (params.rows - 2) as f64 * params.cols as f64;
    let each = seconds / OF_PAPER;
    params.ns_per_cell = Some(each * 1e9 / cells);
    let params = Rc::new(params);
    efficiency(setup, 6144, ITERATIONS as f64 * each, |net| {
        let params = Rc::clone(&params);
        async move {
            let outcome = weft_sor::run_over(&net, &params, &|_| {}).await;
            outcome.map(|outcome| outcome.elapsed)
        }
    })
}
