//! The programming systems of the paper, run on its two clusters.
//!
//! The programs are those of `weft-models`, as they run live. Each message takes the processor time
//! of the paper's layers besides ([`System`]), which Table V on PPro calibrates.

use super::Line;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weft_apps::Casts;
use weft_models::net::Net;
use weft_models::objects::{Object, Objects, Placement, Read};
use weft_models::order::{Options, OrderedGroup};
use weft_models::regions::Regions;
use weft_models::rpc::Rpc;
use weft_models::together::Together;
use weft_platform::choice::Choice;
use weft_platform::hardware::Hardware;
use weft_platform::measure::Setup;
use weft_platform::net::ClusterNet;
use weft_platform::system::System;

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
    pub row: String,
    pub platform: &'static str,
    pub unit: &'static str,
    /// `None` where the paper states no number.
    pub paper: Option<f64>,
    pub simulated: f64,
    /// True if it calibrated the model.
    pub calibrated: bool,
}

impl Row {
    pub fn line(&self) -> Line<'_> {
        Line {
            table: self.table,
            row: &self.row,
            platform: self.platform,
            unit: self.unit,
            paper: self.paper,
            simulated: self.simulated,
            error: self.paper.map(|paper| self.simulated / paper - 1.0),
            calibrated: self.calibrated,
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
        let (objects, together) =
            (Objects::with_options(&net, Options::at_once()), Together::open(&net, 0));
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
            let group = OrderedGroup::open(&net, 0, &all, Options::at_once());
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
            let (objects, together) =
                (Objects::with_options(&net, Options::at_once()), Together::open(&net, 0));
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

/// Bytes and number of the messages of a stream.
const LARGE: usize = 64 << 10;
const STREAM: usize = 8;

/// Returns the rate of a stream in Mbyte/s, whose second half took so long.
fn rate(half: Duration) -> f64 {
    (STREAM / 2 * LARGE) as f64 / 1_048_576.0 / half.as_secs_f64()
}

/// The throughput of large messages from node 0 to node 1, in Mbyte/s.
fn stream(setup: &Setup) -> Result<f64, String> {
    let rate_of = Rc::new(Cell::new(0.0));
    setup.run(LARGE, |net| {
        let rate_of = Rc::clone(&rate_of);
        async move {
            let (rpc, together) = (Rpc::open(&net), Together::open(&net, 0));
            let (count, begun) = (Cell::new(0), Cell::new(weft_core::Instant(0)));
            let clock = net.clone();
            rpc.serve(1, move |_, _| {
                count.set(count.get() + 1);
                match count.get() {
                    half if half == STREAM / 2 => begun.set(clock.now()),
                    STREAM => rate_of.set(rate(clock.now().since(begun.get()))),
                    _ => {}
                }
            });
            together.barrier().await.map_err(|e| e.to_string())?;
            for _ in 0..STREAM {
                if net.rank() == 0 {
                    rpc.cast(1, 1, &[0; LARGE]).map_err(|e| e.to_string())?;
                    rpc.room(1).await;
                }
            }
            rpc.flush().await;
            together.barrier().await.map_err(|e| e.to_string())?;
            Ok::<_, String>(rpc)
        }
    })?;
    Ok(rate_of.get())
}

/// The throughput of reads of large regions of another node, one after the other, in Mbyte/s.
fn region_stream(setup: &Setup) -> Result<f64, String> {
    let rate_of = Rc::new(Cell::new(0.0));
    setup.run(LARGE, |net| {
        let rate_of = Rc::clone(&rate_of);
        async move {
            let regions = Regions::open(&net);
            let make = |_| regions.create(vec![0u64; LARGE / 8]);
            let mine = (0..STREAM).map(make).collect::<Result<Vec<_>, _>>();
            let mine = mine.map_err(|e| e.to_string())?;
            let names: Vec<_> = mine.iter().map(|region| region.id()).collect();
            let names = regions.gather(&names).await.map_err(|e| e.to_string())?;
            let mut start = net.now();
            let others = names.iter().filter(|name| name.home() == 1 && net.rank() == 0);
            for (at, name) in others.enumerate() {
                if at == STREAM / 2 {
                    start = net.now();
                }
                let region = regions.map_known::<u64>(*name, LARGE / 8);
                let region = region.map_err(|e| e.to_string())?;
                drop(region.read().await.map_err(|e| e.to_string())?);
                rate_of.set(rate(net.now().since(start)));
            }
            regions.barrier().await.map_err(|e| e.to_string())?;
            Ok::<_, String>((regions, mine))
        }
    })?;
    Ok(rate_of.get())
}

/// A broadcast of 16 bytes without an order, until the last node has it.
fn broadcast(setup: &Setup) -> Result<f64, String> {
    let start = Rc::new(Cell::new(weft_core::Instant(0)));
    mean(setup, |net, time| {
        let start = Rc::clone(&start);
        async move {
            let together = Together::open(&net, 0);
            let casts = Casts::open(&net, 0).await.map_err(|e| e.to_string())?;
            for round in 0..ROUNDS {
                together.barrier().await.map_err(|e| e.to_string())?;
                let before = time.get();
                if net.rank() == 1 {
                    net.sleep(Duration::from_millis(2)).await;
                    start.set(net.now());
                    casts.send(u64::from(round), &[0; BYTES]).await.map_err(|e| e.to_string())?;
                } else {
                    let cast = casts.receive(1, u64::from(round)).await;
                    cast.map_err(|e| e.to_string())?;
                }
                let mine = micros(net.now().since(start.get()));
                together.barrier().await.map_err(|e| e.to_string())?;
                keep_longest(&net, &together, &time, before, mine).await?;
            }
            Ok::<_, String>((casts, together))
        }
    })
}

/// The throughput of large broadcasts, in Mbyte/s: as the node that takes longest has them.
fn broadcast_stream(setup: &Setup) -> Result<f64, String> {
    let longest = Rc::new(Cell::new(Duration::ZERO));
    setup.run(LARGE, |net| {
        let longest = Rc::clone(&longest);
        async move {
            let together = Together::open(&net, 0);
            let casts = Casts::open(&net, 0).await.map_err(|e| e.to_string())?;
            together.barrier().await.map_err(|e| e.to_string())?;
            let mut start = net.now();
            for number in 0..STREAM {
                if net.rank() == 1 {
                    casts.send(number as u64, &[0; LARGE]).await.map_err(|e| e.to_string())?;
                    continue;
                }
                if number == STREAM / 2 {
                    start = net.now();
                }
                casts.receive(1, number as u64).await.map_err(|e| e.to_string())?;
            }
            if net.rank() != 1 {
                longest.set(longest.get().max(net.now().since(start)));
            }
            together.barrier().await.map_err(|e| e.to_string())?;
            Ok::<_, String>((casts, together))
        }
    })?;
    Ok(rate(longest.get()))
}

/// The throughput of writes of a replicated object with large arguments, in Mbyte/s.
fn object_stream(setup: &Setup) -> Result<f64, String> {
    let longest = Rc::new(Cell::new(Duration::ZERO));
    setup.run(LARGE, |net| {
        let longest = Rc::clone(&longest);
        async move {
            let together = Together::open(&net, 0);
            let all: Vec<usize> = (0..net.size()).collect();
            let group = OrderedGroup::open(&net, 0, &all, Options::at_once());
            group.view_when(|_| true).await.map_err(|e| e.to_string())?;
            together.barrier().await.map_err(|e| e.to_string())?;
            let mut sent = Vec::new();
            let mut start = net.now();
            for number in 0..STREAM {
                if net.rank() == 1 && number == 0 {
                    sent.extend((0..STREAM).map(|_| group.send(vec![0; LARGE])));
                }
                if number == STREAM / 2 {
                    start = net.now();
                }
                group.recv().await.map_err(|e| e.to_string())?;
            }
            longest.set(longest.get().max(net.now().since(start)));
            together.barrier().await.map_err(|e| e.to_string())?;
            drop(sent);
            Ok::<_, String>((group, together))
        }
    })?;
    Ok(rate(longest.get()))
}

type Measure = fn(&Setup) -> Result<f64, String>;

/// A row: its name, system, measurement, and the paper's numbers on each cluster.
type Known = (&'static str, System, Measure, [f64; 2]);

/// Rows of Table V, on 2 nodes: latencies.
const ROUND_TRIPS: [Known; 6] = [
    ("LCI: round trip of a call", System::LCI, call, [20.4, 18.1]),
    ("CRL: clean write miss", System::CRL, clean_write_miss, [23.3, 18.6]),
    ("Panda-ST: call", System::PANDA_ST, call, [27.0, 18.9]),
    ("MPI: round trip", System::MPI, call, [42.3, 22.2]),
    ("Panda-MT: call", System::PANDA_MT, call, [28.9, 19.8]),
    ("Orca: null operation", System::ORCA, null_operation, [46.0, 22.2]),
];

/// Rows of Table V: throughputs.
const STREAMS: [Known; 6] = [
    ("LCI: stream", System { copies: true, ..System::LCI }, stream, [68.0, 159.0]),
    ("CRL: reads of regions", System::CRL, region_stream, [54.0, 150.0]),
    ("Panda-ST: stream", System::PANDA_ST, stream, [66.0, 158.0]),
    ("MPI: stream", System::MPI, stream, [64.0, 158.0]),
    ("Panda-MT: stream", System::PANDA_MT, stream, [57.0, 147.0]),
    ("Orca: stream of operations", System::ORCA, stream, [52.0, 145.0]),
];

/// Rows of Table VI, on 64 nodes: latencies.
const BROADCASTS: [Known; 6] = [
    ("LCI: broadcast", System::LCI, broadcast, [58.5, 28.9]),
    ("Panda-ST: broadcast", System::PANDA_ST, broadcast, [68.3, 33.7]),
    ("MPI: broadcast", System::MPI, broadcast, [77.6, 36.5]),
    ("LCI: ordered broadcast", System::LCI, ordered_broadcast, [76.5, 37.9]),
    ("Panda-MT: ordered broadcast", System::PANDA_MT, ordered_broadcast, [94.4, 43.4]),
    ("Orca: write of a replicated object", System::ORCA, replicated_write, [113.3, 47.1]),
];

/// Rows of Table VI: throughputs.
const BROADCAST_STREAMS: [Known; 4] = [
    ("Panda-ST: broadcasts", System::PANDA_ST, broadcast_stream, [31.0, 76.0]),
    ("MPI: broadcasts", System::MPI, broadcast_stream, [31.0, 76.0]),
    ("Panda-MT: ordered broadcasts", System::PANDA_MT, object_stream, [31.0, 76.0]),
    ("Orca: ordered broadcasts", System::ORCA, object_stream, [31.0, 76.0]),
];

/// Returns the systems' rows of Tables V (2 nodes) and VI (64 nodes), of one table or of both.
pub fn systems(table: &str, seed: u64) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (name, unit, nodes, list) in [
        ("V", "us", 2, &ROUND_TRIPS[..]),
        ("V", "Mbyte/s", 2, &STREAMS[..]),
        ("VI", "us", 64, &BROADCASTS[..]),
        ("VI", "Mbyte/s", 64, &BROADCAST_STREAMS[..]),
    ] {
        for (row, system, measure, paper) in
            list.iter().filter(|_| [name, SYSTEMS].contains(&table))
        {
            for (at, platform) in ["ppro", "p3"].into_iter().enumerate() {
                let mut setup = setup(platform, [Choice::PIO, Choice::SDMA][at], nodes, seed);
                setup.system = *system;
                let simulated = measure(&setup).map_err(|why| format!("{row}: {why}"))?;
                let calibrated = platform == "ppro" && calibrates(name, unit, row, system);
                let (paper, row) = (Some(paper[at]), row.to_string());
                rows.push(Row { table: name, row, platform, unit, paper, simulated, calibrated });
            }
        }
    }
    Ok(rows)
}

/// Returns true for the rows that give the costs of the systems, on PPro (see [`System`]): the
/// round trips, and one broadcast.
fn calibrates(table: &str, unit: &str, row: &str, system: &System) -> bool {
    match (table, unit) {
        ("V", "us") => *system != System::LCI,
        _ => (table, row) == ("VI", BROADCASTS[1].0),
    }
}
