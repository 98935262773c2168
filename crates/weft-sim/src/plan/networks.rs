//! Networks of a plan, and their faults.

use super::PATIENCE_MS;
use crate::config::{LinkKind, SimConfig, Wire};
use crate::fault::{Fault, Span};
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

/// Draws a longer packet length for bulk data.
pub(super) fn draw_long(config: &mut SimConfig, rng: &mut Rng) {
    let longest = if config.wire.queue_bytes > 128 << 10 { 65_344 } else { 16_400 };
    if rng.chance(400_000) {
        config.long = *rng.pick(&[4 * config.mtu, 16_400, longest]);
    }
}
