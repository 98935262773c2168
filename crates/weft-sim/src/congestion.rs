//! Bottlenecks: many senders to one receiver, and two flows through one uplink.

use crate::config::{LinkKind, SimConfig, Topology};
use crate::served;
use crate::sim::{Env, Failure};
use crate::story::{receive_stream, send_stream, Report, Row, Story};
use crate::tasks::join_all;
use crate::trace::Trace;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use weft::{Config, Endpoint};

/// Returns the part of the wire's rate that can be payload: from header and payload of a full
/// packet of bulk data.
fn payload_share(config: &SimConfig) -> f64 {
    let payload = f64::from(config.mtu) - weft_core::wire::Data::LEN as f64;
    payload / f64::from(config.mtu + config.wire.overhead_bytes)
}

/// Returns the payload in per cent of the most that a link of the wire's rate carries in `ns`.
fn percent(config: &SimConfig, bytes: u64, ns: u64) -> f64 {
    let most = config.wire.bytes_per_us as f64 * payload_share(config) * ns as f64 / 1e3;
    bytes as f64 * 100.0 / most
}

/// Returns Jain's fairness index of the flows' shares: 1 when all are equal, 1/n when one flow has
/// all.
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|&x| x as f64).sum();
    let squares: f64 = shares.iter().map(|&x| (x as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The senders of an incast, and their messages.
#[derive(Clone, Copy)]
struct Load {
    title: &'static str,
    count: u64,
    len: usize,
    depth: u64,
}

const LOADS: [Load; 3] = [
    Load { title: "1 MiB messages", count: 4, len: 1 << 20, depth: 2 },
    Load { title: "64 KiB messages", count: 64, len: 64 << 10, depth: 8 },
    Load { title: "4 KiB eager", count: 1024, len: 4 << 10, depth: 64 },
];

/// Simulates all other hosts that send to host 0 at once.
pub(crate) fn incast(config: SimConfig) -> Result<Report, Failure> {
    let mut lines = vec![format!(
        "{:>16} {:>12} {:>14} {:>8} {:>8} {:>10} {:>8}",
        "load", "% of rate", "queue KiB max", "drops", "resent", "timeouts", "Jain"
    )];
    let (mut rows, mut last) = (Vec::new(), None);
    for load in LOADS {
        let (line, row, report) = incast_of(&config, load)?;
        lines.push(line);
        rows.push(row);
        last = Some(report);
    }
    let (name, config) = ("incast".into(), config.to_string());
    let outcome = last.as_ref().and_then(|report| report.outcome.clone());
    let trace = last.map_or_else(Trace::default, |report| report.trace);
    Ok(Report { name, config, lines, rows, outcome, trace })
}

/// Simulates hosts that send to host 0 at once, with agents that retransmit in the ranks' place.
pub(crate) fn incast_of_agents(config: SimConfig) -> Result<Report, Failure> {
    let report = incast(SimConfig { served: true, kind: LinkKind::Network, ..config })?;
    Ok(Report { name: "incast-agents".into(), ..report })
}

type Tasks<'a> = Vec<Pin<Box<dyn Future<Output = ()> + 'a>>>;

fn incast_of(config: &SimConfig, load: Load) -> Result<(String, Row, Report), Failure> {
    let mut story = Story::new("incast", config.clone(), Config::default());
    let (checker, net) = (Rc::clone(&story.checker), Rc::clone(story.sim.network()));
    let ends: Rc<RefCell<Vec<u64>>> = Rc::default();
    let senders: Rc<RefCell<Vec<Endpoint>>> = Rc::default();
    let (done, all) = (Rc::clone(&ends), Rc::clone(&senders));
    story.sim.spawn_all(move |env| {
        let (checker, done, all) = (Rc::clone(&checker), Rc::clone(&done), Rc::clone(&all));
        async move {
            if env.host > 0 {
                send_stream(&env, &checker, 0, (load.count, load.len, load.depth)).await;
                return all.borrow_mut().push(env.endpoint);
            }
            let (env, checker, done) = (&env, &checker, &done);
            let receivers: Tasks<'_> = (1..env.hosts)
                .map(|src| {
                    Box::pin(async move {
                        receive_stream(env, checker, src, load.count, load.len).await;
                        done.borrow_mut().push(env.now().0);
                    }) as _
                })
                .collect();
            join_all(receivers).await;
        }
    });
    let report = story.end(&[])?;
    let ends = ends.borrow();
    let at = ends.iter().copied().max().unwrap_or(1);
    let bytes = u64::from(config.hosts - 1) * load.count * load.len as u64;
    let drops = report.outcome.as_ref().map_or(0, |o| o.counters.queue_full);
    let rates: Vec<u64> = ends.iter().map(|&end| bytes * 1000 / end.max(1)).collect();
    let (resent, timeouts) = senders.borrow().iter().fold((0, 0), |(resent, timeouts), e| {
        let stats = e.stats();
        let counters = e.counters().links();
        let of = |name| counters.iter().find(|c| c.1 == name).map_or(0, |c| c.2);
        let (again, late) = (of(served::RESENT), of(served::TIMEOUTS));
        (resent + stats.retransmitted + again, timeouts + stats.timeouts + late)
    });
    let rate = percent(config, bytes, at);
    let (queue, jain) = (net.borrow().peak_queue() as f64 / 1024.0, jain(&rates));
    let line = format!(
        "{:>16} {rate:>12.1} {queue:>14.0} {drops:>8} {resent:>8} {timeouts:>10} {jain:>8.3}",
        load.title
    );
    let row = vec![
        ("load", load.title.into()),
        ("rate_percent", rate.into()),
        ("queue_kib_max", queue.into()),
        ("drops", drops.into()),
        ("resent", resent.into()),
        ("timeouts", timeouts.into()),
        ("jain", jain.into()),
    ];
    Ok((line, row, report))
}

/// Length of a message of [`fairness`] in bytes; a flow has [`FLOW_DEPTH`] in progress.
const FLOW_LEN: usize = 256 << 10;
const FLOW_DEPTH: u64 = 4;
/// Interval of the table of [`fairness`] in nanoseconds, and the number of intervals.
const INTERVAL: u64 = 20_000_000;
const INTERVALS: u64 = 10;

/// Bytes received by flow and interval.
type Shares = Rc<RefCell<Vec<Vec<u64>>>>;

/// Simulates hosts 0 and 1 that send to 2 and 3 through one uplink: first from the same moment on,
/// then with host 1 joining later.
pub(crate) fn fairness(config: SimConfig) -> Result<Report, Failure> {
    let topology = Topology::Tree { radix: 2, uplink: 1 };
    let config = SimConfig { hosts: 4, topology, ..config };
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    let mut last = None;
    for (title, late) in [("both from the start", 0), ("the second from 40 ms on", 2)] {
        let report = two_flows(&config, title, late, (&mut lines, &mut rows))?;
        last = report.outcome.clone().map(|outcome| (outcome, report.trace));
    }
    let (name, config) = ("fairness".into(), config.to_string());
    let (outcome, trace) = last.map_or((None, Trace::default()), |(o, t)| (Some(o), t));
    Ok(Report { name, config, lines, rows, outcome, trace })
}

fn two_flows(
    config: &SimConfig,
    title: &str,
    late: u64,
    (lines, rows): (&mut Vec<String>, &mut Vec<Row>),
) -> Result<Report, Failure> {
    let mut story = Story::new("fairness", config.clone(), Config::default());
    let net = Rc::clone(story.sim.network());
    let shares: Shares = Rc::new(RefCell::new(vec![vec![0; INTERVALS as usize + 2]; 2]));
    let got = Rc::clone(&shares);
    story.sim.spawn_all(move |env| {
        let got = Rc::clone(&got);
        async move {
            match env.host {
                0 => flow_out(&env, 2, 0).await,
                1 => flow_out(&env, 3, late * INTERVAL).await,
                host => flow_in(&env, host - 2, &got).await,
            }
        }
    });
    let report = story.end(&[])?;
    let shares = shares.borrow();
    lines.push(format!("{title}: per cent of the bottleneck's rate, by interval of 20 ms"));
    for (name, flow) in ["first", "second"].into_iter().zip(shares.iter()) {
        let cells = flow.iter().take(INTERVALS as usize);
        let cells: Vec<_> =
            cells.map(|&b| format!("{:>6.1}", percent(config, b, INTERVAL))).collect();
        lines.push(format!("{name:>10} {}", cells.join("")));
        for (at, &bytes) in (0u64..).zip(flow.iter().take(INTERVALS as usize)) {
            rows.push(vec![
                ("flows", title.into()),
                ("flow", name.into()),
                ("from_ms", (at * INTERVAL / 1_000_000).into()),
                ("rate_percent", percent(config, bytes, INTERVAL).into()),
            ]);
        }
    }
    let half = |flow: &Vec<u64>| flow[INTERVALS as usize / 2..INTERVALS as usize].iter().sum();
    let halves: Vec<u64> = shares.iter().map(half).collect();
    let all: u64 = shares.iter().map(|f| f[..INTERVALS as usize].iter().sum::<u64>()).sum();
    let drops = report.outcome.as_ref().map_or(0, |o| o.counters.queue_full);
    lines.push(format!(
        "{:>10} {:.1} % of the rate, Jain {:.3} in the last half, \
         queue {:.0} KiB at most, {drops} drops",
        "together",
        percent(config, all, INTERVAL * INTERVALS),
        jain(&halves),
        net.borrow().peak_queue() as f64 / 1024.0
    ));
    Ok(report)
}

/// Sends from `start` to the last interval's end, then a message of one byte.
async fn flow_out(env: &Env, dst: u32, start: u64) {
    env.sleep(start).await;
    let peer = env.peer(dst);
    let lanes: Tasks<'_> = (0..FLOW_DEPTH)
        .map(|_| {
            Box::pin(async {
                let mut data = vec![0; FLOW_LEN];
                while env.now().0 < INTERVAL * INTERVALS {
                    let (sent, back) = env.endpoint.send(peer, 1, data).await;
                    sent.expect("nobody dies");
                    data = back;
                }
                // One for each of the receiver's lanes.
                env.endpoint.send(peer, 1, vec![0]).await.0.expect("nobody dies");
            }) as _
        })
        .collect();
    join_all(lanes).await;
}

async fn flow_in(env: &Env, flow: u32, shares: &Shares) {
    let peer = env.peer(flow);
    let lanes: Tasks<'_> = (0..FLOW_DEPTH)
        .map(|_| {
            Box::pin(async {
                let mut room = vec![0; FLOW_LEN];
                loop {
                    let (result, data) = env.endpoint.recv(Some(peer), 1, 0, room).await;
                    let len = result.map_or(0, |status| status.len);
                    if len <= 1 {
                        return;
                    }
                    room = data;
                    let interval = (env.now().0 / INTERVAL).min(INTERVALS + 1);
                    shares.borrow_mut()[flow as usize][interval as usize] += len as u64;
                }
            }) as _
        })
        .collect();
    join_all(lanes).await;
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn jain__equal_one_sided_and_nothing() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[0, 0]), 1.0);
    }
}
