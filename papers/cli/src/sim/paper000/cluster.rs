//! The paper's cluster in virtual time: processors that several ranks share, Gigabit Ethernet, and
//! the cost of messages.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Compute, Live};
use weft_sim::{Env, LinkKind, SimConfig, Wire};

/// Hosts of the cluster, each with one processor.
pub const HOSTS: usize = 37;

/// One way of a short message between hosts: Table 3, sockets and MPI, whose kernels were told of
/// packets by interrupts that the card holds back.
const ONE_WAY_NS: u64 = 238_000;
/// Processor time of a message at each end: the text says 35 % less for TIPC, and of TCP nothing. A
/// kernel of that time on such a processor takes some 10 us.
const TCP_NS: u64 = 10_000;
const TIPC_NS: u64 = 6_500;
/// Delay of a switch: 3 to 7 us.
const SWITCH_NS: u64 = 5_000;

/// The protocol below messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    Tcp,
    Tipc,
}

/// Returns the configuration of so many ranks.
pub fn config(ranks: usize, carrier: Carrier, seed: u64) -> SimConfig {
    let each = match carrier {
        Carrier::Tcp => TCP_NS,
        Carrier::Tipc => TIPC_NS,
    };
    let mut config = SimConfig::new(ranks as u32, seed);
    // The kernel answers for a process that computes, so frames are neither lost nor late.
    config.kind = LinkKind::Memory;
    config.wire = Wire {
        latency_ns: ONE_WAY_NS - 2 * TCP_NS - SWITCH_NS,
        bytes_per_us: 125,
        overhead_bytes: 54 + 24,
        ..Wire::ethernet(1)
    };
    config.host.send_ns = each;
    config.host.recv_ns = each;
    config
}

/// The processors of the hosts, each with the time until which it is taken.
#[derive(Clone)]
pub struct Processors(Rc<Vec<Cell<Duration>>>);

impl Processors {
    pub fn new() -> Processors {
        Processors(Rc::new((0..HOSTS).map(|_| Cell::default()).collect()))
    }

    /// Takes the processor of a rank for some time, after those that have asked before. Returns the
    /// whole time, from now on. Ranks are dealt out to the hosts in turn.
    fn take(&self, rank: usize, now: Duration, time: Duration) -> Duration {
        let free = &self.0[rank % HOSTS];
        let end = free.get().max(now) + time;
        free.set(end);
        end.saturating_sub(now)
    }

    /// Lets the time of a computation of a rank pass.
    pub async fn compute(&self, env: &Env, time: Duration) {
        let now = Duration::from_nanos(env.now().0);
        let whole = self.take(env.host as usize, now, time);
        env.compute(whole.as_nanos() as u64).await;
    }

    /// Returns the packet interface of a rank, whose computations take its host's processor.
    pub fn net(&self, env: &Env) -> Live {
        let (processors, of) = (self.clone(), env.clone());
        let compute: Compute = Rc::new(move |time| {
            let (processors, env) = (processors.clone(), of.clone());
            Box::pin(async move { processors.compute(&env, time).await })
        });
        let packets = env.packets().expect("no agent is chosen");
        Live::with_packets(&env.world(), packets, Some(compute)).expect("numbers are free")
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn take__ranks_of_a_host_wait_for_each_other_and_others_do_not() {
        let processors = Processors::new();
        let ms = Duration::from_millis;
        assert_eq!(processors.take(0, ms(0), ms(5)), ms(5));
        assert_eq!(processors.take(HOSTS, ms(1), ms(5)), ms(9));
        assert_eq!(processors.take(1, ms(1), ms(5)), ms(5));
        assert_eq!(processors.take(0, ms(20), ms(5)), ms(5));
    }
}
