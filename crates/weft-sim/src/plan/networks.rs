//! Networks of a plan, and their faults.

use super::draw::PATIENCE_MS;
use super::Plan;
use crate::config::{LinkKind, SimConfig, Wire};
use crate::fault::{Fault, Span};
use std::collections::BTreeSet;
use weft_core::wire::PacketType;
use weft_link::rng::Rng;

/// Draws further networks between the hosts, and assigns faults to networks.
pub(super) fn draw_networks(config: &mut SimConfig, rng: &mut Rng) {
    if config.kind == LinkKind::Memory || !rng.chance(350_000) {
        return;
    }
    for _ in 0..rng.between(1, SimConfig::MORE as u64) {
        let latency_ns = *rng.pick(&[500, 2_000, 20_000, 500_000]);
        let other = Wire::ethernet(*rng.pick(&[1, 10, 100]));
        config.more.push(match rng.chance(500_000) {
            true => config.wire,
            false => Wire { latency_ns, ..other },
        });
    }
    config.striped = rng.chance(500_000);
    let networks = config.networks() as u64;
    for fault in &mut config.faults {
        let of_hosts = [Fault::is_of_hosts(fault), rng.chance(500_000)];
        if of_hosts == [false, true] {
            *fault = fault.clone().on(rng.below(networks) as usize);
        }
    }
    if rng.chance(400_000) {
        let from = rng.below(20);
        let span = Span::ms(from, from + *rng.pick(&[1, 20, 300, 60_000]));
        let dead = Fault::Loss { ppm: 1_000_000, span };
        config.faults.push(dead.on(rng.below(networks) as usize));
    }
}

/// Draws packets that vanish while all others pass: of one type, for less time than peers wait, or
/// above a length, for ever.
pub(super) fn draw_vanishing(config: &mut SimConfig, rng: &mut Rng) {
    if config.kind == LinkKind::Memory {
        return;
    }
    let (from, to) = (rng.below(40), rng.below(u64::from(config.hosts)) as u32);
    let mut vanish = Vec::new();
    if rng.chance(250_000) {
        let span = Span::ms(from, from + *rng.pick(&[5, 100, PATIENCE_MS / 2]));
        vanish.push(Fault::Kind { kind: *rng.pick(PacketType::ALL), to, span });
    }
    if rng.chance(250_000) {
        let until = *rng.pick(&[from + 100, from + PATIENCE_MS, u64::MAX / 1_000_000]);
        let bytes = rng.between(300, u64::from(config.mtu)) as u32;
        vanish.push(Fault::Longer { bytes, span: Span::ms(from, until) });
    }
    let networks = config.networks() as u64;
    config.faults.extend(vanish.into_iter().map(|fault| match rng.chance(500_000) {
        true => fault.on(rng.below(networks) as usize),
        false => fault,
    }));
}

/// Makes packets of one type vanish for ever, in some of the plans in which they do.
pub(super) fn draw_lasting(config: &mut SimConfig, rng: &mut Rng) {
    if rng.chance(400_000) {
        let faults = std::mem::take(&mut config.faults);
        config.faults = faults.into_iter().map(Fault::lasting).collect();
    }
}

impl Plan {
    /// Returns the hosts to which packets of one type do not get through for ever, over any
    /// network: they and their peers may give each other up.
    pub fn cut_off(&self) -> Vec<u32> {
        let config = &self.config;
        let outage = |fault: &Fault| fault.is_outage(1);
        let other_way =
            config.networks() > 1 && !config.striped && !config.faults.iter().any(outage);
        let host = |fault: &Fault| {
            let network = match fault {
                Fault::On { network, .. } => *network,
                _ => 0,
            };
            match fault.at(network)? {
                Fault::Kind { to, span, .. } if span.until == u64::MAX => {
                    let spared = other_way && matches!(fault, Fault::On { .. });
                    (!spared).then_some(*to)
                }
                _ => None,
            }
        };
        let hosts: BTreeSet<u32> = config.faults.iter().filter_map(host).collect();
        hosts.into_iter().collect()
    }
}

/// Makes streams of one network, in some of the plans in which each network is a link.
pub(super) fn draw_streams(config: &mut SimConfig, rng: &mut Rng) {
    let apart = config.networks() == 1 || !config.striped;
    if config.kind == LinkKind::Memory || !apart || !rng.chance(250_000) {
        return;
    }
    match rng.below(config.networks() as u64).checked_sub(1) {
        None => config.wire.stream = true,
        Some(more) => config.more[more as usize].stream = true,
    }
}

/// Draws a longer packet length for bulk data.
pub(super) fn draw_long(config: &mut SimConfig, rng: &mut Rng) {
    let longest = if config.wire.queue_bytes > 128 << 10 { 65_344 } else { 16_400 };
    if rng.chance(400_000) {
        config.long = *rng.pick(&[4 * config.mtu, 16_400, longest]);
    }
}
