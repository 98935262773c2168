//! The cost of waiting: processor time of a rank in a receive, and its wake-up time.

use super::rank::{Channel, Outcome, Probe, Rank, Task, TAG};
use super::sys::{cpu_time, monotonic_ns};
use super::table::{Better, Table};
use super::volley::{median_ns, DOZE};
use super::{others, Bench, LinkName, Subject};
use anyhow::Result;
use std::time::{Duration, Instant};

named_probes! {
    /// The probes of this benchmark.
    Wait = 4;
    /// Waking a rank that sleeps in a receive.
    Wake = "weft wake-up", wake;
    /// Share of a core used by a rank that waits for `iters` milliseconds.
    Idle = "weft wait", idle;
}

/// Rank 1 waits in a receive for `iters` milliseconds; returns the share of a core that it used.
fn idle(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    rank.sync()?;
    if rank.me == 0 {
        std::thread::sleep(Duration::from_millis(task.iters));
        endpoint.send_blocking(peer, TAG, &[1])?;
        return Ok(Outcome::Elsewhere);
    }
    let (before, start) = (cpu_time(), Instant::now());
    endpoint.recv_blocking(Some(peer), TAG, 0, &mut [0])?;
    let used = cpu_time() - before;
    Ok(Outcome::Value(used.as_secs_f64() / start.elapsed().as_secs_f64()))
}

/// Measures from before the send to after the return of a receive that slept.
fn wake(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let (mut samples, mut stamp) = (Vec::new(), [0; 8]);
    rank.sync()?;
    for _ in 0..task.iters {
        if rank.me == 0 {
            std::thread::sleep(DOZE);
            endpoint.send_blocking(peer, TAG, &monotonic_ns().to_le_bytes())?;
        } else {
            endpoint.recv_blocking(Some(peer), TAG, 0, &mut stamp)?;
            samples.push(monotonic_ns().saturating_sub(u64::from_le_bytes(stamp)));
        }
    }
    Ok(if rank.me == 1 { median_ns(samples) } else { Outcome::Elsewhere })
}

/// Returns the tables: use of a core, and wake-up time.
pub fn tables(bench: &mut Bench<'_>) -> Result<Vec<Table>> {
    let quick = bench.meter.options.quick;
    let bare = bench.bare;
    let mut used =
        bench.table("wait", "share of a core used by a waiting rank", "%", Better::Lower);
    bench.plan(2 + 4);
    let iters = if quick { 20 } else { 1000 };
    let idle = [
        Subject { iters, ..Wait::Idle.into() },
        Subject { iters, ..bench.bare(Probe::Idle(Channel::Pipe)) },
    ];
    let got = bench.measure(1, &idle, |share| share * 100.0)?;
    used.push("cpu", 1, got[0], Vec::new(), others([("pipe", got[1])].into_iter()));
    used.notes.push(
        "processor time of all threads of a rank that waits a second in recv_blocking; pipe: of a \
         process that waits as long in read(2)"
            .into(),
    );

    let mut woken =
        bench.table("wait", "time from send to return of a sleeping receive", "us", Better::Lower);
    let wakes = if quick { 3 } else { 50 };
    let channel = if bench.link == LinkName::Shm { Channel::Unix } else { Channel::Tcp };
    let probes =
        [Wait::Wake.into(), Probe::Futex, Probe::Wake(Channel::Pipe), Probe::Wake(channel)];
    let subjects = probes.map(|probe| Subject {
        iters: wakes,
        pair: if probe == Probe::from(Wait::Wake) { 0 } else { bare },
        ..probe.into()
    });
    let got = bench.measure(8, &subjects, |s| s * 1e6)?;
    let floors = others([("futex", got[1])].into_iter());
    let peers = others([("pipe", got[2]), (channel.name(), got[3])].into_iter());
    woken.push("wake-up", 8, got[0], floors, peers);
    woken.notes.push("medians of wake-ups after 2 ms of sleep".into());
    Ok(vec![used, woken])
}
