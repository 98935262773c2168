//! Plans of hosts that speak MXoE.

use crate::config::{SimConfig, Wire};
use crate::fault::{Fault, Span};
use std::fmt;
use weft_link::rng::Rng;
use weft_mxoe::node::{Mac, Settings};
use weft_mxoe::Dialect;

/// Length of Ethernet's header, and of its check, gap and preamble.
pub(super) const HEAD: usize = 14;
const AROUND: u32 = 24;
/// Longest message.
const LONGEST: u64 = 300_000;

/// A message from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub from: u32,
    pub to: u32,
    pub len: u32,
    /// True if its sender waits until it is matched.
    pub is_sync: bool,
    /// Bytes that the receiver has room for.
    pub room: u32,
}

/// Hosts, settings, messages and faults.
#[derive(Clone, Debug)]
pub struct MxPlan {
    /// Hosts, wires and faults.
    pub sim: SimConfig,
    /// Settings of all endpoints.
    pub settings: Settings,
    pub(super) messages: Vec<Message>,
    /// Messages of a host that it starts before the first one has ended.
    pub(super) ahead: usize,
}

/// Returns the address of a host.
pub(super) fn mac_of(host: u32) -> Mac {
    let [a, b, c, d] = host.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// Returns the host with an address.
pub(super) fn host_of(mac: Mac) -> u32 {
    u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]])
}

impl MxPlan {
    /// Draws a plan from a seed.
    pub fn of_seed(seed: u64) -> MxPlan {
        let mut rng = Rng::stream(seed, 7);
        let settings = settings(&mut rng);
        let hosts = rng.between(2, 5) as u32;
        let mut sim = SimConfig::new(hosts, seed);
        // Nine minutes of virtual time.
        sim.limit_ns = 540_000_000_000;
        sim.mtu = 9000;
        sim.wire = Wire { overhead_bytes: AROUND, ..Wire::ethernet(*rng.pick(&[1, 10, 40])) };
        sim.wire.jitter_ns = *rng.pick(&[0, 0, 3000]);
        sim.host.rx_frames = *rng.pick(&[32, 256, 2048]);
        sim.faults = faults(&mut rng, hosts);
        let count = rng.between(1, 60) * u64::from(hosts);
        let messages = (0..count).map(|_| message(&mut rng, hosts)).collect();
        let ahead = *rng.pick(&[1, 8, 300]);
        MxPlan { sim, settings, messages, ahead }
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.sim.seed
    }

    /// Returns the numbers of the messages that a host sends, in order.
    pub(super) fn of_host(&self, host: u32) -> Vec<u32> {
        let all = (0u32..).zip(&self.messages);
        all.filter(|(_, message)| message.from == host).map(|(number, _)| number).collect()
    }

    /// True if a host dies, for ever or to be started anew.
    pub(super) fn is_mortal(&self, host: u32) -> bool {
        self.sim.faults.iter().any(|fault| match fault {
            Fault::Death { host: of, .. } | Fault::Restart { host: of, .. } => *of == host,
            _ => false,
        })
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let (dialect, mtu) = *rng.pick(&[
        (Dialect::Compat, 9000),
        (Dialect::Native, 1500),
        (Dialect::Native, 9000),
        (Dialect::Native, 4200),
    ]);
    let usual = Settings::of(dialect, mtu);
    Settings {
        block: rng.between(1, 64) as u8,
        depth: rng.between(1, 8) as u8,
        reply: (*rng.pick(&[u16::MAX, 1024, 333])).min(usual.reply),
        resend: 20_000,
        resends_max: 400,
        pull_again: *rng.pick(&[30_000, 200_000]),
        ack_delay: 2000,
        probe: 1_000_000,
        ..usual
    }
}

fn message(rng: &mut Rng, hosts: u32) -> Message {
    let from = rng.below(hosts.into()) as u32;
    let to = (from + rng.between(1, u64::from(hosts) - 1) as u32) % hosts;
    let longest = *rng.pick(&[0, 32, 128, 5000, 32_768, 40_000, LONGEST]);
    let len = rng.below(longest + 1) as u32;
    let room = match rng.below(10) {
        0 => 0,
        1 => rng.below(u64::from(len) + 1) as u32,
        _ => u32::MAX,
    };
    Message { from, to, len, is_sync: rng.chance(250_000), room }
}

/// Draws faults: those of wires, hosts that stand still, and hosts that die.
fn faults(rng: &mut Rng, hosts: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    let rate = |rng: &mut Rng| *rng.pick(&[0, 1_000, 20_000, 100_000]);
    faults.push(Fault::loss(rate(rng)));
    faults.push(Fault::duplicate(rate(rng)));
    faults.push(Fault::reorder(rate(rng), 500_000));
    faults.push(Fault::corrupt(rate(rng) / 4));
    let span = |rng: &mut Rng| {
        let from = rng.below(100);
        Span::ms(from, from + rng.between(1, 500))
    };
    if rng.chance(200_000) {
        let (side, one_way) = (vec![rng.below(hosts.into()) as u32], rng.chance(500_000));
        faults.push(Fault::Partition { side, one_way, span: span(rng) });
    }
    if rng.chance(200_000) {
        faults.push(Fault::Pause { host: rng.below(hosts.into()) as u32, span: span(rng) });
    }
    if rng.chance(300_000) {
        let (host, at) = (rng.below(hosts.into()) as u32, rng.below(50_000_000));
        faults.push(match rng.chance(500_000) {
            true => Fault::Death { host, at, visible: false },
            false => Fault::Restart { host, at },
        });
    }
    faults
}

impl fmt::Display for MxPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { dialect, fragment, reply, block, depth, .. } = self.settings;
        write!(f, "{}; {dialect:?}, fragments of {fragment}, ", self.sim)?;
        write!(f, "frames of {reply}, {block} a block, {depth} blocks; ")?;
        write!(f, "{} messages, {} ahead", self.messages.len(), self.ahead)
    }
}
