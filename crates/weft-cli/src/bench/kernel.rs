//! Fetch-and-add served by the kernel of the other host.

use super::floor::per;
use super::rank::{Outcome, Rank, Task};
use super::wire;
use anyhow::{Context, Result};
use std::time::{Duration, Instant};
use weft_link::ether::Mac;
use weft_link::xdp::counters::{CounterClient, KernelCounters, SipKey};

/// The slot of answers, which no link of the bench's hosts has.
const REPLY: u16 = 0x7fff;
const PATIENCE: Duration = Duration::from_secs(5);

/// Fetch-and-add at a counter of the other rank's kernel, one at a time. That rank computes, for
/// `task.arg` ns at a time, and looks at nothing else.
pub fn fetch_add(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let interface = wire::interface()?;
    let kind = weft::job::packet_from_env()?.kind;
    // Rank 0's key holds.
    let own = SipKey::random()?;
    rank.tell(&own.0)?;
    let other = rank.hear()?;
    let key = match rank.me {
        0 => own,
        _ => SipKey(other.try_into().ok().context("a key of 16 bytes")?),
    };
    rank.tell(&interface.mac.0)?;
    let theirs: [u8; 6] = rank.hear()?.try_into().ok().context("an address of 6 bytes")?;
    if rank.me == 1 {
        let counters = KernelCounters::serve(&interface, kind, key)
            .context("attaching the program that counts")?;
        rank.sync()?;
        let compute = Duration::from_nanos(task.arg);
        while counters.read(0)? < task.iters {
            let start = Instant::now();
            while start.elapsed() < compute {
                std::hint::spin_loop();
            }
        }
        rank.sync()?;
        return Ok(Outcome::Elsewhere);
    }
    rank.sync()?;
    let mut client = CounterClient::open(&interface, kind, Mac(theirs), (0, REPLY), key, PATIENCE)?;
    let start = Instant::now();
    for i in 0..task.iters {
        let before = client.fetch_add(0, 1, PATIENCE)?;
        anyhow::ensure!(before == i, "ticket {i} is {before}");
    }
    let outcome = per(start, task.iters);
    rank.sync()?;
    Ok(outcome)
}
