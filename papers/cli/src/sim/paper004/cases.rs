//! The eight applications on the simulated clusters, one run for each case.
//!
//! Some runs are parts of the paper's, from which its time follows; each says so.

use super::costs::{BARNES_STEPS, PLATFORMS};
use super::systems::setup;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use weft_core::group::tree::Tree;
use weft_models::net::Net;
use weft_platform::choice::{Choice, Forward};
use weft_platform::measure::Setup;
use weft_platform::net::{ClusterNet, Ran, Sample};
use weft_platform::system::System;

/// An application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum App {
    Asp,
    Awari,
    Barnes,
    Leq,
    Puzzle4,
    Puzzle64,
    Qr,
    Radix,
    /// With as many columns, and so many rows that the cells are those of 1536; borders may be
    /// sent before other rows are computed.
    Sor {
        cols: usize,
        early: bool,
    },
}

impl App {
    pub const SOR: App = App::Sor { cols: 1536, early: false };
    pub const ALL: [App; 9] = [
        App::Asp,
        App::Awari,
        App::Barnes,
        App::Leq,
        App::Puzzle4,
        App::Puzzle64,
        App::Qr,
        App::Radix,
        App::SOR,
    ];

    /// The paper's name for it.
    pub fn name(self) -> String {
        match self {
            App::Puzzle4 => "Puzzle-4".to_string(),
            App::Puzzle64 => "Puzzle-64".to_string(),
            App::Leq | App::Asp | App::Qr => format!("{self:?}").to_uppercase(),
            App::Sor { cols: 1536, early: false } => "SOR".to_string(),
            App::Sor { cols, early: false } => format!("SOR {cols}"),
            App::Sor { cols, early: true } => format!("SOR {cols} + async"),
            App::Awari | App::Barnes | App::Radix => format!("{self:?}"),
        }
    }

    /// The part of the paper's run that is simulated.
    pub fn part(self) -> &'static str {
        match self {
            App::Asp | App::Qr | App::Radix => "whole",
            App::Awari => "positions of 11 stones",
            App::Barnes => "a step of 11",
            App::Leq => "4 iterations of 6,906",
            App::Puzzle4 | App::Puzzle64 => "1.5 M of 54 M positions",
            App::Sor { .. } => "5 iterations of 100",
        }
    }

    fn system(self) -> System {
        match self {
            App::Asp | App::Qr | App::Sor { .. } => System::MPI,
            App::Awari | App::Leq => System::ORCA,
            App::Barnes | App::Radix => System::CRL,
            App::Puzzle4 | App::Puzzle64 => System::MULTIGAME,
        }
    }
}

/// A run: an application with an implementation of the packet interface on a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub app: App,
    /// Place of the cluster in [`PLATFORMS`].
    pub platform: usize,
    pub choice: Choice,
    /// The tree by which MPICH broadcasts, in place of the packet interface.
    pub message_tree: Option<Tree>,
}

impl Case {
    /// The usual implementation.
    pub fn usual(app: App, platform: usize) -> Case {
        Case { app, platform, choice: Choice::SDMA, message_tree: None }
    }

    pub fn with(self, choice: Choice) -> Case {
        Case { choice, ..self }
    }

    pub fn with_message_tree(self, tree: Tree) -> Case {
        Case { message_tree: Some(tree), ..self }
    }

    /// The name of the run, which no other has.
    pub fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Efficiency: the time on one processor over 64 times the time on 64.
    pub efficiency: f64,
    /// Packets a second that come to a node: of messages, of broadcasts, acknowledgements.
    pub packets: [f64; 3],
    /// Bytes a second that come to a node: of messages, of broadcasts.
    pub bytes: [f64; 2],
    /// Interrupts of a node a second.
    pub interrupts: f64,
}

/// The part of a run that counts: from and to, in picoseconds, and the time on one processor that
/// it replaces, in seconds.
struct Window {
    from: u64,
    to: u64,
    alone: f64,
}

/// The times of a program's steps at node 0.
type Marks = Rc<RefCell<Vec<u64>>>;

/// Runs a case.
pub fn run(case: &Case, seed: u64) -> Result<Measured, String> {
    let mut setup = setup(PLATFORMS[case.platform], case.choice, 64, seed);
    setup.system = case.app.system();
    setup.message_tree = case.message_tree;
    if case.choice == Choice::RCPY {
        // The paper's program uses the packet interface itself.
        setup.system = setup.system.bare();
    }
    let polls = case.choice.forward == Forward::Host || case.message_tree.is_some();
    if case.app == App::Asp && polls {
        // Section 7.4: polls were added, here after each row.
        setup.poll_every = Some((1024.0 * case.app.ns(case.platform) * 1000.0) as u64);
    }
    measure(case, &setup).map_err(|why| format!("{} with {}: {why}", case.app.name(), case.choice))
}

fn measure(case: &Case, setup: &Setup) -> Result<Measured, String> {
    let (ns, alone) = (case.app.ns(case.platform), case.app.alone_each(case.platform));
    match case.app {
        App::Asp => asp(setup, ns, alone),
        App::Awari => awari(setup, ns),
        App::Barnes => barnes(setup, ns, alone),
        App::Leq => leq(setup, ns, alone),
        App::Puzzle4 => puzzle(setup, ns, 4),
        App::Puzzle64 => puzzle(setup, ns, 64),
        App::Qr => qr(setup, ns, alone),
        App::Radix => radix(setup, ns, alone),
        App::Sor { cols, early } => sor(setup, ns, alone, (cols, early)),
    }
}

/// A run, and the times of its steps at node 0.
type Marked<T> = (Ran<T>, Vec<u64>);

/// Runs a program with messages of about so many bytes. It gets a function that notes the time.
fn marked<F, Fut, T, E>(
    setup: &Setup,
    bytes: usize,
    program: F,
) -> Result<Marked<Result<T, E>>, String>
where
    F: Fn(ClusterNet, Rc<dyn Fn()>) -> Fut,
    Fut: Future<Output = Result<T, E>> + 'static,
    T: 'static,
    E: ToString + 'static,
{
    let marks = Marks::default();
    let ran = setup.run(bytes, |net| {
        let (into, clock) = (Rc::clone(&marks), net.clone());
        let mark: Rc<dyn Fn()> = Rc::new(move || {
            if clock.rank() == 0 {
                into.borrow_mut().push(clock.now().0 * 1000);
            }
        });
        program(net, mark)
    })?;
    if let Some(Err(error)) = ran.results.iter().find(|result| result.is_err()) {
        return Err(error.to_string());
    }
    let marks = marks.take();
    if marks.len() < 2 {
        return Err("the run has no steps".to_string());
    }
    Ok((ran, marks))
}

/// Returns the sample at a time, or the one behind it.
fn at(samples: &[Sample], time: u64) -> Sample {
    let place = samples.partition_point(|sample| sample.at < time);
    samples.get(place).or(samples.last()).copied().unwrap_or_default()
}

fn figures<T>(setup: &Setup, ran: &Ran<T>, window: &Window) -> Measured {
    let nodes = setup.hw.nodes as f64;
    let seconds = (window.to - window.from) as f64 / 1e12;
    let (a, b) = (at(&ran.samples, window.from), at(&ran.samples, window.to));
    let whole = at(&ran.samples, u64::MAX).traffic;
    let rate = |from: u64, to: u64| (to - from) as f64 / nodes / seconds;
    let packets = [
        rate(a.traffic.unicast, b.traffic.unicast),
        rate(a.traffic.multicast, b.traffic.multicast),
    ];
    // Acknowledgements are counted for the whole run; there are as many for a packet everywhere.
    let acks = ran.counts.acks as f64 / (whole.unicast + whole.multicast).max(1) as f64;
    Measured {
        efficiency: window.alone / nodes / seconds,
        packets: [packets[0], packets[1], acks * (packets[0] + packets[1])],
        bytes: [
            rate(a.traffic.unicast_bytes, b.traffic.unicast_bytes),
            rate(a.traffic.multicast_bytes, b.traffic.multicast_bytes),
        ],
        interrupts: ran.counts.interrupts as f64 / nodes / (ran.micros / 1e6),
    }
}

/// Returns the figures between two shares of the computing, where a value takes as long as on one
/// processor.
fn between<T>(setup: &Setup, ran: &Ran<T>, shares: [f64; 2]) -> Measured {
    let whole = at(&ran.samples, u64::MAX).work as f64;
    let [a, b] = shares.map(|share| {
        let place = ran.samples.partition_point(|sample| (sample.work as f64) < whole * share);
        ran.samples[place.min(ran.samples.len() - 1)]
    });
    let alone = (b.work - a.work) as f64 / 1e12;
    figures(setup, ran, &Window { from: a.at, to: b.at, alone })
}

fn asp(setup: &Setup, ns: f64, alone: f64) -> Result<Measured, String> {
    let params = weft_asp::Params { ns_per_cell: Some(ns), ..weft_asp::Params::default() };
    let (nodes, params) = (params.graph.nodes as f64, Rc::new(params));
    let (ran, marks) = marked(setup, 4096, |net, mark| {
        let params = Rc::clone(&params);
        async move { weft_asp::run_over(&net, &params, &|_, _| mark()).await }
    })?;
    // The first mark is behind the first step.
    let (from, to, steps) = (marks[0], marks[marks.len() - 1], (marks.len() - 1) as f64);
    Ok(figures(setup, &ran, &Window { from, to, alone: alone * nodes * nodes * steps }))
}

fn awari(setup: &Setup, seconds: f64) -> Result<Measured, String> {
    /// The paper's program takes all positions of at most 13 stones; its messages have 20 updates
    /// at least.
    const STONES: u8 = 11;
    const PER_CALL: usize = 20;
    let params = weft_awari::Params { stones: STONES, ..weft_awari::Params::default() };
    let [all, some] = [13, STONES].map(|n| weft_awari::positions_to(n) as f64);
    let outcome = weft_awari::sequential(&params, &|_| Ok(())).map_err(|e| e.to_string())?;
    // A position takes as long in the small databases.
    let ns = seconds * some / all / (some + outcome.updates as f64);
    let smaller = Rc::new(outcome.database);
    let ran = setup.run(100, |net| {
        let smaller = Rc::clone(&smaller);
        async move { weft_awari::run_level_by_calls(&net, STONES, &smaller, PER_CALL, ns).await }
    })?;
    if let Some(Err(error)) = ran.results.iter().find(|result| result.is_err()) {
        return Err(error.to_string());
    }
    Ok(between(setup, &ran, [0.0, 1.0]))
}

fn barnes(setup: &Setup, ns: f64, alone: f64) -> Result<Measured, String> {
    let params = weft_barnes::Params::default();
    let walk = Rc::new(weft_barnes::Walk::new(&params, setup.hw.nodes));
    let ns = ns / BARNES_STEPS / walk.interactions() as f64;
    let (ran, marks) = marked(setup, 128, |net, mark| {
        let walk = Rc::clone(&walk);
        async move { weft_barnes::run_walk(&net, &walk, ns, &|_| mark()).await }
    })?;
    Ok(figures(setup, &ran, &Window { from: marks[0], to: marks[1], alone: alone / BARNES_STEPS }))
}

fn leq(setup: &Setup, ns: f64, alone: f64) -> Result<Measured, String> {
    let params =
        weft_leq::Params { tolerance: 0.0, max_iterations: 5, ..weft_leq::Params::default() };
    let (n, params) = (params.system.len() as f64, Rc::new(params));
    let (ran, marks) = marked(setup, 128, |net, mark| {
        let params = Rc::clone(&params);
        async move { weft_leq::run(&net, &params, ns, &|_| mark()).await }
    })?;
    let (from, to, steps) = (marks[0], marks[marks.len() - 1], (marks.len() - 1) as f64);
    Ok(figures(setup, &ran, &Window { from, to, alone: alone * n * n * steps }))
}

fn puzzle(setup: &Setup, ns_per_node: f64, per_message: usize) -> Result<Measured, String> {
    /// An iteration of some millions of positions, of which so many are searched.
    const POSITION: usize = 1;
    const THRESHOLD: u8 = 53;
    const SEARCHED: f64 = 3e6;
    let known = weft_puzzle::korf(POSITION).ok_or("there is no such position")?;
    let division = weft_puzzle::Division {
        per_message,
        depth: weft_puzzle::MOST_MOVES as u8,
        ns_per_node,
        first_threshold: THRESHOLD,
    };
    let params = weft_puzzle::Params { start: known.start, whole: true };
    let mut setup = setup.clone();
    setup.work_limit = Some((SEARCHED * ns_per_node * 1000.0) as u64);
    let ran = setup.run(32 * per_message, |net| async move {
        weft_puzzle::run(&net, &params, &division, &|_| {}).await
    })?;
    if let Some(Err(error)) = ran.results.iter().find(|result| result.is_err()) {
        return Err(error.to_string());
    }
    Ok(between(&setup, &ran, [0.5, 0.99]))
}

fn qr(setup: &Setup, ns: f64, alone: f64) -> Result<Measured, String> {
    let params = Rc::new(weft_qr::Params::default());
    let (rows, cols) = (params.matrix.rows, params.matrix.cols);
    let values = |steps: std::ops::Range<usize>| -> f64 {
        steps.map(|step| ((cols - step - 1) * (rows - step)) as f64).sum()
    };
    let mut setup = setup.clone();
    // The run ends with its last reflections: columns are not gathered.
    setup.work_limit = Some((values(0..cols) * ns * 1000.0 * (1.0 - 2e-6)) as u64);
    let (ran, marks) = marked(&setup, 4096, |net, mark| {
        let params = Rc::clone(&params);
        async move { weft_qr::run(&net, &params, ns, &|_| mark()).await }
    })?;
    let (from, to) = (marks[0], marks[marks.len() - 1]);
    let alone = alone * values(1..marks.len());
    Ok(figures(&setup, &ran, &Window { from, to, alone }))
}

fn radix(setup: &Setup, ns: f64, alone: f64) -> Result<Measured, String> {
    let params = Rc::new(weft_radix::Params::default());
    let largest = params.keys.iter().copied().max().unwrap_or(0);
    let passes = f64::from(weft_radix::passes(largest, params.radix));
    let ns_per_key = ns / passes / params.keys.len() as f64;
    let division = weft_radix::Division { region: 256, ns_per_key, one_by_one: true };
    let (ran, marks) = marked(setup, 1024, |net, mark| {
        let params = Rc::clone(&params);
        async move { weft_radix::run(&net, &params, &division, &|_| mark()).await }
    })?;
    // The first pass finds all regions at home.
    let (from, to, steps) = (marks[0], marks[marks.len() - 1], (marks.len() - 1) as f64);
    Ok(figures(setup, &ran, &Window { from, to, alone: alone * steps / passes }))
}

fn sor(
    setup: &Setup,
    ns: f64,
    alone: f64,
    (cols, early): (usize, bool),
) -> Result<Measured, String> {
    let mut params = weft_sor::Params { tolerance: 0.0, ..weft_sor::Params::default() };
    (params.rows, params.cols) = (1536 * 1536 / cols, cols);
    params.max_iterations = 6;
    params.ns_per_cell = Some(ns);
    let cells = (params.rows - 2) as f64 * cols as f64;
    let exchange = weft_sor::Exchange { whole_rows: true, early };
    let params = Rc::new(params);
    let (ran, marks) = marked(setup, 8 * cols, |net, mark| {
        let params = Rc::clone(&params);
        async move { weft_sor::run_over(&net, &params, exchange, &|_| mark()).await }
    })?;
    let (from, to, steps) = (marks[0], marks[marks.len() - 1], (marks.len() - 1) as f64);
    Ok(figures(setup, &ran, &Window { from, to, alone: alone * cells * steps }))
}
