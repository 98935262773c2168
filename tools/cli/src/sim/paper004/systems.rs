//! The programming systems of the paper, run on its two clusters.
//!
//! The programs are those of `weft-models`, as they run live. Their own processor time is not
//! charged.

use super::Line;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::Net;
use weft_models::objects::{Object, Objects, Placement, Read};
use weft_models::order::{Options, OrderedGroup};
use weft_models::regions::Regions;
use weft_models::rpc::Rpc;
use weft_models::together::Together;
use weft_sim::platform::choice::Choice;
use weft_sim::platform::hardware::Hardware;
use weft_sim::platform::measure::Setup;
use weft_sim::platform::net::ClusterNet;

/// The systems' rows of Tables V and VI.
pub const SYSTEMS: &str = "systems";

/// Operations of a measurement.
const ROUNDS: u32 = 8;
/// Bytes of the messages.
const BYTES: usize = 16;

/// A number of the paper for a system or an application, and ours.
#[derive(Clone, Debug)]
pub struct Row {
    pub table: &'static str,
    pub row: &'static str,
    pub platform: &'static str,
    pub unit: &'static str,
    pub paper: f64,
    pub simulated: f64,
}

impl Row {
    pub fn line(&self) -> Line<'_> {
        Line {
            table: self.table,
            row: self.row,
            platform: self.platform,
            unit: self.unit,
            paper: self.paper,
            simulated: self.simulated,
            error: self.simulated / self.paper - 1.0,
            calibrated: false,
        }
    }
}

pub(super) fn setup(platform: &str, choice: Choice, nodes: usize, seed: u64) -> Setup {
    let hw = if platform == "ppro" { Hardware::ppro() } else { Hardware::p3() };
    Setup::new(&Hardware { nodes, ..hw }, choice, seed)
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// A counter, as an object.
#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Count(u32);

#[derive(serde::Serialize, serde::Deserialize)]
enum Op {
    Add,
    /// Does nothing, where the object is.
    Null,
    Reach(u32),
}

impl Object for Count {
    type Op = Op;
    type Reply = u32;

    fn read(&self, op: &Op) -> Read<u32> {
        match op {
            Op::Reach(least) if self.0 >= *least => Read::Value(self.0),
            Op::Reach(_) => Read::Wait,
            Op::Add | Op::Null => Read::Write,
        }
    }

    fn apply(&mut self, op: Op) -> u32 {
        self.0 += u32::from(matches!(op, Op::Add));
        self.0
    }
}

/// Returns the mean time of an operation of node 0, of which there are some.
fn mean<T: 'static, Fut>(
    setup: &Setup,
    program: impl Fn(ClusterNet, Rc<Cell<f64>>) -> Fut,
) -> Result<f64, String>
where
    Fut: std::future::Future<Output = T> + 'static,
{
    let time = Rc::new(Cell::new(0.0));
    setup.run(BYTES, |net| program(net, Rc::clone(&time)))?;
    Ok(time.get() / f64::from(ROUNDS))
}

/// A call of 16 bytes with as many back, as Panda's.
fn call(setup: &Setup) -> Result<f64, String> {
    mean(setup, |net, time| async move {
        let (rpc, together) = (Rpc::open(&net), Together::open(&net, 0));
        rpc.serve(1, |request, args| request.answer(args));
        together.barrier().await.map_err(|e| e.to_string())?;
        let start = net.now();
        for _ in 0..ROUNDS {
            if net.rank() == 0 {
                rpc.call(1, 1, &[0; BYTES]).await.map_err(|e| e.to_string())?;
                time.set(micros(net.now().since(start)));
            }
        }
        together.barrier().await.map_err(|e| e.to_string())?;
        Ok::<_, String>(rpc)
    })
}

/// A write to a region that nobody else has, as CRL's clean write miss.
fn clean_write_miss(setup: &Setup) -> Result<f64, String> {
    mean(setup, |net, time| async move {
        let regions = Regions::open(&net);
        let make = |_| regions.create(vec![0u64; BYTES / 8]).map(|region| region.id());
        let names = (0..ROUNDS).map(make).collect::<Result<Vec<_>, _>>();
        let names = names.map_err(|e| e.to_string())?;
        let names = regions.gather(&names).await.map_err(|e| e.to_string())?;
        for name in names.iter().filter(|name| name.home() == 1 && net.rank() == 0) {
            let region = regions.map::<u64>(*name).await.map_err(|e| e.to_string())?;
            let start = net.now();
            drop(region.write().await.map_err(|e| e.to_string())?);
            time.set(time.get() + micros(net.now().since(start)));
        }
        regions.barrier().await.map_err(|e| e.to_string())?;
        Ok::<_, String>(regions)
    })
}

/// An operation without effect on an object at another node, as Orca's null operation.
fn null_operation(setup: &Setup) -> Result<f64, String> {
    mean(setup, |net, time| async move {
        let (objects, together) = (Objects::open(&net), Together::open(&net, 0));
        let class = objects.class::<Count>(1);
        let open = class.open(0, Placement::At(1), Count::default).await;
        let object = open.map_err(|e| e.to_string())?;
        together.barrier().await.map_err(|e| e.to_string())?;
        let start = net.now();
        for _ in 0..ROUNDS {
            if net.rank() == 0 {
                object.call(Op::Null).await.map_err(|e| e.to_string())?;
                time.set(micros(net.now().since(start)));
            }
        }
        together.barrier().await.map_err(|e| e.to_string())?;
        Ok::<_, String>((objects, together))
    })
}

/// A broadcast of 16 bytes in a totally ordered group, until the last node has it.
fn ordered_broadcast(setup: &Setup) -> Result<f64, String> {
    let start = Rc::new(Cell::new(weft_core::Instant(0)));
    mean(setup, |net, time| {
        let start = Rc::clone(&start);
        async move {
            let together = Together::open(&net, 0);
            let all: Vec<usize> = (0..net.size()).collect();
            let group = OrderedGroup::open(&net, 0, &all, Options::default());
            for _ in 0..ROUNDS {
                group.view_when(|_| true).await.map_err(|e| e.to_string())?;
                together.barrier().await.map_err(|e| e.to_string())?;
                let before = time.get();
                // The counter is at node 0. When node 1 sends, all others wait.
                if net.rank() == 1 {
                    net.sleep(Duration::from_millis(2)).await;
                    start.set(net.now());
                    drop(group.send(vec![0; BYTES]));
                }
                group.recv().await.map_err(|e| e.to_string())?;
                let mine = micros(net.now().since(start.get()));
                together.barrier().await.map_err(|e| e.to_string())?;
                keep_longest(&net, &together, &time, before, mine).await?;
            }
            Ok::<_, String>((group, together))
        }
    })
}

/// Adds the longest time of all nodes to a sum that they share.
async fn keep_longest(
    net: &ClusterNet,
    together: &Together<ClusterNet>,
    sum: &Cell<f64>,
    before: f64,
    mine: f64,
) -> Result<(), String> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0.0, f64::from_le_bytes);
    let longest =
        |all: Vec<u8>, other: &[u8]| number(&all).max(number(other)).to_le_bytes().to_vec();
    let all = together.reduce(mine.to_le_bytes().to_vec(), longest).await;
    let all = all.map_err(|e| e.to_string())?;
    if net.rank() == 0 {
        sum.set(before + number(&all));
    }
    Ok(())
}

/// A write to a replicated object, until the last node has it.
fn replicated_write(setup: &Setup) -> Result<f64, String> {
    let start = Rc::new(Cell::new(weft_core::Instant(0)));
    mean(setup, |net, time| {
        let start = Rc::clone(&start);
        async move {
            let (objects, together) = (Objects::open(&net), Together::open(&net, 0));
            let class = objects.class::<Count>(1);
            let open = class.open(0, Placement::Replicated, Count::default).await;
            let object = open.map_err(|e| e.to_string())?;
            for round in 1..=ROUNDS {
                together.barrier().await.map_err(|e| e.to_string())?;
                let before = time.get();
                if net.rank() == 1 {
                    net.sleep(Duration::from_millis(2)).await;
                    start.set(net.now());
                    object.call(Op::Add).await.map_err(|e| e.to_string())?;
                }
                object.call(Op::Reach(round)).await.map_err(|e| e.to_string())?;
                let mine = micros(net.now().since(start.get()));
                together.barrier().await.map_err(|e| e.to_string())?;
                keep_longest(&net, &together, &time, before, mine).await?;
            }
            Ok::<_, String>((objects, together))
        }
    })
}

type Measure = fn(&Setup) -> Result<f64, String>;

/// Returns the systems' rows of Tables V (2 nodes) and VI (64 nodes).
pub fn systems(seed: u64) -> Result<Vec<Row>, String> {
    let unicast: [(&str, Measure, [f64; 2]); 3] = [
        ("CRL: clean write miss", clean_write_miss, [23.3, 18.6]),
        ("Panda under Orca: call", call, [28.9, 19.8]),
        ("Orca: null operation", null_operation, [46.0, 22.2]),
    ];
    let multicast: [(&str, Measure, [f64; 2]); 2] = [
        ("Panda under Orca: ordered broadcast", ordered_broadcast, [94.4, 43.4]),
        ("Orca: write of a replicated object", replicated_write, [113.3, 47.1]),
    ];
    let mut rows = Vec::new();
    let mut add =
        |table, list: &[(&'static str, Measure, [f64; 2])], nodes, choices: [Choice; 2]| {
            for (row, measure, paper) in list {
                for (at, platform) in ["ppro", "p3"].into_iter().enumerate() {
                    let simulated = measure(&setup(platform, choices[at], nodes, seed))?;
                    let paper = paper[at];
                    rows.push(Row { table, row, platform, unit: "us", paper, simulated });
                }
            }
            Ok::<(), String>(())
        };
    add("V", &unicast, 2, [Choice::PIO, Choice::SDMA])?;
    add("VI", &multicast, 64, [Choice::PIO, Choice::SDMA])?;
    Ok(rows)
}
