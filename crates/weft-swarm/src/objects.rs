//! Objects under faults: every history is sequentially consistent, every operation is done once,
//! and replicas stay equal.

use crate::cluster::{Cluster, Ends, MS};
use crate::history::{Event, History, Past};
use crate::views::Views;
use crate::Report;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft_models::net::{Live, Net};
use weft_models::objects::{Object, ObjectCause, Objects, Placement, Read, Shared};
use weft_models::order::{Options, OrderError, Style, View};
use weft_sim::Env;

thread_local! {
    /// The values that each object had on any rank, also on one that died: the longest histories of
    /// which none is the beginning of another.
    static WRITES: RefCell<BTreeMap<u64, Vec<Vec<u64>>>> = RefCell::default();
}

/// A value, and all values that it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The number of the object.
    pub number: u64,
    /// Its values, in order.
    pub values: Vec<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
/// Operations.
pub enum Op {
    /// Reads the value.
    Read,
    /// Writes a value.
    Write(u64),
    /// Writes a value and returns the one before, once it had so many.
    SwapAfter(usize, u64),
    /// Reads once it had so many values.
    ReadAfter(usize),
}

impl Object for Register {
    type Op = Op;
    type Reply = u64;

    fn read(&self, op: &Op) -> Read<u64> {
        match op {
            Op::ReadAfter(count) if self.values.len() < *count => Read::Wait,
            Op::Read | Op::ReadAfter(_) => Read::Value(self.last()),
            _ => Read::Write,
        }
    }

    fn guard(&self, op: &Op) -> bool {
        !matches!(op, Op::SwapAfter(count, _) if self.values.len() < *count)
    }

    fn apply(&mut self, op: Op) -> u64 {
        let before = self.last();
        let (Op::Write(value) | Op::SwapAfter(_, value)) = op else { panic!("{op:?} is a read") };
        self.values.push(value);
        WRITES.with_borrow_mut(|all| {
            let known = all.entry(self.number).or_default();
            if !known.iter().any(|values| values.starts_with(&self.values)) {
                known.retain(|values| !self.values.starts_with(values));
                known.push(self.values.clone());
            }
        });
        before
    }
}

impl Register {
    fn last(&self) -> u64 {
        self.values.last().copied().unwrap_or(0)
    }
}

/// Forgets the values of the simulation before.
pub fn forget() {
    WRITES.take();
}

/// Checks a history, with the states that survivors have at the end.
pub fn check(history: &History, states: &[Register], lost: Vec<usize>, seed: u64) {
    let histories = WRITES.with_borrow(Clone::clone);
    let known = |(object, mut all): (u64, Vec<Vec<u64>>)| {
        let state = states.iter().find(|state| state.number == object);
        if let Some(state) = state.filter(|_| !lost.is_empty()) {
            // The history that the survivors know.
            return (object, state.values.clone());
        }
        if all.len() > 1 && !lost.is_empty() {
            // The object is lost with a rank, and others that are cut off know more of it, or less.
            history.borrow_mut().values_mut().for_each(|of| of.retain(|e| e.object != object));
            return (object, Vec::new());
        }
        assert!(all.len() < 2, "seed {seed}: replicas of object {object} differ: {all:?}");
        (object, all.pop().unwrap_or_default())
    };
    let writes = histories.into_iter().map(known).collect();
    let live = states.iter().map(|state| state.number).collect();
    Past { writes, live, lost, seed }.explains(history);
}

/// Does random operations on all objects, also some that wait for a first write.
pub async fn user(
    waits: bool,

    env: Env,
    objects: Objects<Live>,
    all: Vec<Shared<Live, Register>>,
    history: History,
) -> Result<(), ObjectCause> {
    let (me, mut rng) = (env.host as usize, env.rng());
    let mut number = 0;
    for step in 0..40 {
        env.note(format!("step {step}; {} {}", objects.describe(), objects.group().describe()));
        let at = rng.below(all.len() as u64) as usize;
        let (object, shared) = (at as u64, &all[at]);
        number += 1;
        let value = (me as u64 + 1) << 32 | number;
        let note = |read, wrote, posted| {
            let event = Event { object, read, wrote, posted };
            history.borrow_mut().entry(me).or_default().push(event);
        };
        let event = |read, wrote| note(read, wrote, false);
        match rng.below(8) {
            0 | 1 => {
                shared.call(Op::Write(value)).await.map_err(|error| error.cause)?;
                event(None, Some(value));
            }
            2 => {
                let op = Op::SwapAfter(if waits { rng.below(2) as usize } else { 0 }, value);
                let old = shared.call(op).await.map_err(|error| error.cause)?;
                event(Some(old), Some(value));
            }
            3 => {
                // Several follow each other, without waiting where the object stays.
                for more in 0..=rng.below(4) {
                    let value = value | more << 16;
                    shared.post(&Op::Write(value)).map_err(|error| error.cause)?;
                    note(None, Some(value), true);
                }
            }
            4 => {
                let read =
                    shared.call(Op::ReadAfter(waits.into())).await.map_err(|error| error.cause)?;
                event(Some(read), None);
            }
            _ => {
                let read = shared.call(Op::Read).await.map_err(|error| error.cause)?;
                event(Some(read), None);
            }
        }
        if rng.below(3) == 0 {
            env.sleep(rng.below(MS)).await;
        }
    }
    objects.flush().await.map_err(ObjectCause::Group)
}

/// Uses adaptive objects so that they move: in turn each rank writes most, and the others read. A
/// rank takes such an object while others may die.
async fn mover(
    env: Env,
    objects: Objects<Live>,
    all: Vec<Shared<Live, Register>>,
    history: History,
) -> Result<(), ObjectCause> {
    let (me, ranks, mut rng) = (env.host as usize, env.hosts as usize, env.rng());
    for step in 0..30 * ranks {
        env.note(format!("step {step}; {} {}", objects.describe(), objects.group().describe()));
        // Objects 2 and 5 are adaptive; each has another writer.
        let at = [2, 5][rng.below(2) as usize];
        let (object, shared) = (at as u64, &all[at]);
        let writer = (step / 30 + usize::from(at == 5)) % ranks;
        let value = ((me as u64 + 1) << 32) | (step as u64 + 1);
        let writes = if writer == me { 7 } else { 1 };
        let (read, wrote) = match rng.below(8) < writes {
            true => {
                shared.call(Op::Write(value)).await.map_err(|error| error.cause)?;
                (None, Some(value))
            }
            false => (Some(shared.call(Op::Read).await.map_err(|error| error.cause)?), None),
        };
        let event = Event { object, read, wrote, posted: false };
        history.borrow_mut().entry(me).or_default().push(event);
        if writer != me {
            env.sleep(rng.below(MS)).await;
        }
    }
    Ok(())
}

/// Opens an object of each placement.
pub async fn open_all(objects: &Objects<Live>) -> Result<Vec<Shared<Live, Register>>, ObjectCause> {
    let class = objects.class::<Register>(1);
    let ranks = objects.net().size();
    let mut all = Vec::new();
    for number in 0..6 {
        let placement = match number % 3 {
            0 => Placement::Replicated,
            1 => Placement::At(number as usize % ranks),
            _ => Placement::Adaptive,
        };
        let state = || Register { number: number.into(), values: Vec::new() };
        all.push(class.open(number, placement, state).await.map_err(|error| error.cause)?);
    }
    // Rank 0 writes first, so that nobody waits for a first write for ever.
    let first = |at: usize| 1 << 40 | at as u64;
    if objects.net().rank() == 0 {
        for (at, shared) in all.iter().enumerate() {
            let written = shared.call(Op::Write(first(at))).await;
            written.map_err(|error| error.cause)?;
        }
    }
    Ok(all)
}

/// Returns the options of the group of a seed.
pub fn options(seed: u64) -> Options {
    let style = [Style::Ticket, Style::Sequencer, Style::Broadcast][seed as usize % 3];
    Options { style, window: 64, safe: (seed / 2).is_multiple_of(2) }
}

/// A rank at the end of a run: its view, the end of its operations, and the states that it has.
struct Last {
    rank: usize,
    view: Option<View>,
    end: Result<(), ObjectCause>,
    states: Vec<Register>,
}

/// Does operations on objects, and looks at all states when the faults are over.
async fn use_cut_off(
    uses: Uses,
    env: Env,
    objects: &Objects<Live>,
    history: History,
    ends: Ends,
) -> Last {
    let (mut all, rank) = (Vec::new(), objects.net().rank());
    let mut end = open_all(objects).await.map(|objects| all = objects);
    if end.is_ok() {
        let (env, objects, all) = (env.clone(), objects.clone(), all.clone());
        end = match uses {
            Uses::Any => user(false, env, objects, all, history).await,
            Uses::Moves => mover(env, objects, all, history).await,
        };
    }
    // The faults are over then, and have been noticed by those that wait.
    objects.group().expect(true);
    if ends == Ends::Together {
        env.sleep(4_000 * MS).await;
    }
    let group = objects.group();
    let view = if group.ended().is_some() { None } else { group.view() };
    for shared in all.iter().filter(|_| view.is_none()) {
        let late = shared.call(Op::Read).await.unwrap_err();
        assert!(matches!(late.cause, ObjectCause::Group(_)), "{late}");
    }
    let states = all.iter().filter_map(|shared| shared.peek(Clone::clone)).collect();
    Last { rank, view, end, states }
}

/// Checks that an error names ranks that a fault concerns.
fn judge(end: &Result<(), ObjectCause>, me: usize, cluster: &Cluster) {
    let is_right = match end {
        Ok(()) => true,
        Err(ObjectCause::Lost { rank }) => cluster.may_lose(*rank),
        Err(ObjectCause::Call(error)) => cluster.may_lose(error.rank) || cluster.may_lose(me),
        Err(ObjectCause::Group(OrderError::Excluded { .. })) => cluster.may_lose(me),
        Err(ObjectCause::Group(OrderError::NoQuorum { missing })) => {
            missing.iter().all(|&rank| cluster.may_lose(rank))
        }
        Err(_) => false,
    };
    assert!(is_right, "seed {}: rank {me}: {end:?}", cluster.config.seed);
}

/// The use of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// Any operation, on objects of each placement.
    Any,
    /// Operations that move adaptive objects from rank to rank.
    Moves,
}

/// Uses objects: histories are sequentially consistent, ranks that go on have the
/// same states, and there is at most one group.
///
/// # Panics
/// A promise does not hold.
pub fn run(cluster: &Cluster, uses: Uses, ends: Ends) -> Report {
    let seed = cluster.config.seed;
    forget();
    let (history, all_ends) = (History::default(), Rc::<RefCell<Vec<Last>>>::default());
    let (views, events, all) = (Views::default(), Rc::clone(&history), Rc::clone(&all_ends));
    let seen = views.clone();
    let outcome = cluster.run_to(ends, "objects cut off", move |env, net| {
        let (history, all, seen) = (Rc::clone(&events), Rc::clone(&all), seen.clone());
        async move {
            let objects = Objects::with_options(&net, options(seed));
            seen.watch(&net, objects.group());
            let last = use_cut_off(uses, env, &objects, history, ends).await;
            seen.note(net.rank(), objects.group());
            all.borrow_mut().push(last);
            objects
        }
    });
    views.check(seed);
    let lasts = all_ends.take();
    let errors = lasts.iter().filter(|last| last.end.is_err()).count() as u64;
    if ends == Ends::Together {
        lasts.iter().for_each(|last| judge(&last.end, last.rank, cluster));
    }
    let operations = history.borrow().values().map(Vec::len).sum::<usize>() as u64;
    let report = Report { operations, errors, outcome };
    let newest = lasts.iter().filter_map(|last| last.view.clone()).max_by_key(|v| v.number);
    let Some(newest) = newest else { return report };
    let is_whole = |last: &Last| {
        let number = last.view.as_ref().map(|view| view.number);
        number == Some(newest.number) && newest.members.contains(&last.rank)
    };
    let (whole, _): (Vec<Last>, Vec<Last>) = lasts.into_iter().partition(is_whole);
    if ends == Ends::AtOnce {
        // Others may have done operations after a rank has ended.
        return report;
    }
    let is_known = |rank: &usize| whole.iter().any(|last| last.rank == *rank);
    let lost = (0..cluster.config.hosts as usize).filter(|rank| !is_known(rank)).collect();
    let states: Vec<Register> = whole.into_iter().flat_map(|last| last.states).collect();
    for one in &states {
        let same = states.iter().filter(|other| other.number == one.number);
        same.for_each(|other| assert_eq!(one, other, "seed {seed}"));
    }
    check(&history, &states, lost, seed);
    report
}
