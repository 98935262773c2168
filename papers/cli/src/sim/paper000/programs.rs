//! The paper's application as its versions communicate: by messages, and by objects.

use super::cluster::{config, Carrier, Processors, HOSTS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use weft::Op;
use weft_dd::Division;
use weft_models::actors::balance::{Costs, Strategy};
use weft_models::actors::{Actor, Actors, Turn};
use weft_models::net::Net;
use weft_sim::{Env, Sim};

/// Bytes of a border row of the three potentials.
const BORDER: usize = 624;
/// Steps before the time is taken.
const BEFORE: u32 = 10;
/// Sub-cycles of an iteration.
const SUB_CYCLES: u32 = 3;
/// Tags of borders to the rank above and below.
const TO_ABOVE: u32 = 1;
const TO_BELOW: u32 = 2;

/// A version of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Messages between processes, and a reduction that ends each step: MPI.
    Messages,
    /// Objects that go on when their borders have come: Charm++.
    Objects,
    /// The objects, which all wait for each other in each sub-cycle of a step.
    SubCycles,
    /// The objects, which move between ranks by `refine-comm`.
    Balanced,
}

impl Version {
    pub const ALL: [Version; 4] =
        [Version::Messages, Version::Objects, Version::SubCycles, Version::Balanced];

    /// Returns the name of its curve.
    pub fn name(self) -> &'static str {
        match self {
            Version::Messages => "messages",
            Version::Objects => "objects",
            Version::SubCycles => "objects, sub-cycles",
            Version::Balanced => "objects, refine-comm",
        }
    }
}

/// A run of the program.
#[derive(Clone, Debug)]
pub struct Case {
    pub version: Version,
    /// Parts into which the rows are divided: processes, or objects.
    pub parts: usize,
    /// True if rows are divided by their cost, by the application.
    pub by_cost: bool,
    pub carrier: Carrier,
    pub seed: u64,
    pub steps: u32,
    /// Steps between two balances.
    pub every: u32,
}

/// The time of a step of each row, and the rows of each part.
#[derive(Clone)]
struct Rows {
    times: Rc<Vec<Duration>>,
    division: Division,
}

impl Rows {
    fn time(&self, rows: Range<usize>) -> Duration {
        self.times[rows].iter().sum()
    }
}

/// Runs a case; returns the time of a step, in s.
///
/// # Errors
/// The simulation failed.
pub fn run(case: &Case, times: &Rc<Vec<Duration>>) -> Result<f64, String> {
    let costs: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    let division = match case.by_cost {
        true => Division::by_cost(&costs, case.parts),
        false => Division::even(costs.len(), case.parts),
    };
    // A host has a process for each part, or one with objects.
    let ranks = match case.version {
        Version::Messages => case.parts,
        _ => case.parts.min(HOSTS),
    };
    let rows = Rows { times: Rc::clone(times), division };
    let mut sim = Sim::new("paper000", config(ranks, case.carrier, case.seed))
        .replayed_by("weft sim paper000".to_string());
    let (case, processors) = (case.clone(), Processors::new());
    let steps = case.steps;
    let all = sim.results(move |env| {
        let (case, rows, processors) = (case.clone(), rows.clone(), processors.clone());
        async move {
            match case.version {
                Version::Messages => messages(&env, &case, &rows, &processors).await,
                _ => objects(&env, &case, &rows, &processors).await,
            }
        }
    });
    let all = all.map_err(|failure| failure.to_string())?;
    Ok(all.into_iter().fold(0.0, f64::max) / f64::from(steps))
}

/// The paper's MPI version: borders that have come, the step, borders to the neighbours, and a
/// reduction. Returns the time, in s.
async fn messages(env: &Env, case: &Case, rows: &Rows, processors: &Processors) -> f64 {
    let world = env.world();
    world.barrier().await.expect("no rank fails");
    let (rank, ranks, start) = (world.rank(), world.size(), env.now());
    let time = rows.time(rows.division.rows(rank));
    let (above, below) = (rank.checked_sub(1), Some(rank + 1).filter(|below| *below < ranks));
    for step in 0..case.steps {
        if step > 0 {
            for (from, tag) in [(above, TO_BELOW), (below, TO_ABOVE)] {
                if let Some(from) = from {
                    world.recv(from, tag, BORDER).await.expect("no rank fails");
                }
            }
        }
        processors.compute(env, time).await;
        let mut sends = Vec::new();
        for (to, tag) in [(above, TO_ABOVE), (below, TO_BELOW)] {
            sends.extend(to.map(|to| world.send(to, tag, vec![0; BORDER])));
        }
        for send in sends {
            send.await.expect("no rank fails");
        }
        world.allreduce(vec![1.0f64], Op::Max).await.expect("no rank fails");
    }
    env.now().since(start).as_secs_f64()
}

/// A segment of rows.
#[derive(Serialize, Deserialize)]
struct Segment {
    /// The step that it is in, and the last one of this run.
    step: u32,
    last: u32,
    cycle: u32,
    /// Borders that have come, by step.
    borders: BTreeMap<u32, u32>,
}

#[derive(Serialize, Deserialize)]
enum Message {
    /// Goes on for so many steps.
    Go(u32),
    Border(u32, Vec<u8>),
}

struct Shared {
    rows: Rows,
    cycles: u32,
}

impl Segment {
    fn neighbours(turn: &Turn<'_, Segment>) -> impl Iterator<Item = usize> {
        let (index, count) = (turn.index().x(), turn.shape().len() as usize);
        index.checked_sub(1).into_iter().chain(Some(index + 1).filter(|next| *next < count))
    }

    /// Does steps while their borders are there.
    fn advance(&mut self, turn: &mut Turn<'_, Segment>) {
        let wanted = Segment::neighbours(turn).count() as u32;
        while self.cycle == 0 && self.step < self.last {
            let come = self.borders.get(&self.step).copied().unwrap_or(0);
            if self.step > 0 && come < wanted {
                return;
            }
            self.borders.remove(&self.step);
            self.cycle(turn);
        }
    }

    /// Computes a sub-cycle; the last one ends the step.
    fn cycle(&mut self, turn: &mut Turn<'_, Segment>) {
        let Shared { rows, cycles } = turn.shared();
        let (time, cycles) = (rows.time(rows.division.rows(turn.index().x())), *cycles);
        turn.compute(time / cycles);
        self.cycle += 1;
        turn.contribute(1.0);
        if self.cycle < cycles {
            return;
        }
        self.cycle = 0;
        self.step += 1;
        let all: Vec<usize> = Segment::neighbours(turn).collect();
        all.into_iter().for_each(|to| turn.send(to, Message::Border(self.step, vec![0; BORDER])));
    }
}

impl Actor for Segment {
    type Message = Message;
    type Value = f64;
    type Shared = Shared;

    fn receive(&mut self, message: Message, turn: &mut Turn<'_, Segment>) {
        match message {
            Message::Go(steps) => self.last += steps,
            Message::Border(step, _) => *self.borders.entry(step).or_default() += 1,
        }
        self.advance(turn);
    }

    fn combine(all: &mut f64, other: f64) {
        *all = all.max(other);
    }

    /// Goes on with the next sub-cycle; the result of a whole step holds up nobody.
    fn reduced(&mut self, _: weft_models::actors::Section, _: f64, turn: &mut Turn<'_, Segment>) {
        if self.cycle > 0 {
            self.cycle(turn);
            self.advance(turn);
        }
    }
}

/// The paper's Charm++ versions: a process on each host, and objects. Returns the time, in s.
async fn objects(env: &Env, case: &Case, rows: &Rows, processors: &Processors) -> f64 {
    let net = processors.net(env);
    let actors = Actors::open(&net);
    let cycles = if case.version == Version::SubCycles { SUB_CYCLES } else { 1 };
    let shared = Shared { rows: rows.clone(), cycles };
    let make = |_| Segment { step: 0, last: 0, cycle: 0, borders: BTreeMap::new() };
    let array = actors.array_with(1, case.parts, shared, make);
    // Charm++ of that time deals objects out to the processors in turn.
    let hosts = net.size();
    let dealt = actors.balance_by(|loads| (0..loads.objects.len()).map(|at| at % hosts).collect());
    dealt.await.expect("nothing fails");
    actors.measure(case.version == Version::Balanced);
    let go = async |steps: u32| {
        if env.host == 0 {
            array.broadcast(&Message::Go(steps)).expect("it has bytes");
        }
        actors.run().await.expect("nothing fails");
    };
    let balance = async || {
        if case.version == Version::Balanced {
            let strategy = Strategy::RefineComm(Costs::default());
            actors.balance(&strategy).await.expect("nothing fails");
        }
    };
    // A run of the paper has tens of thousands of steps: the time before the first balance is
    // nothing of it.
    go(BEFORE).await;
    balance().await;
    let start = env.now();
    let mut left = case.steps;
    while left > 0 {
        let steps = if case.version == Version::Balanced { left.min(case.every) } else { left };
        go(steps).await;
        left -= steps;
        if left > 0 {
            balance().await;
        }
    }
    env.now().since(start).as_secs_f64()
}
