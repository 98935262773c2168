//! The nodes of a run in which nothing can happen any more, and what each of them waits for.

use super::super::hardware::{Ps, MICROSECOND};
use super::super::machine::Machine;
use super::World;
use std::fmt::Write;

/// Nodes of which the text tells the cause.
const NAMED: usize = 8;

/// The last packet that a program has got.
#[derive(Clone, Copy)]
pub(super) struct Last {
    pub from: usize,
    pub handler: u16,
    pub at: Ps,
}

fn micros(time: Ps) -> f64 {
    time as f64 / MICROSECOND as f64
}

/// Returns a text that names the nodes in `waiting`, the first ones with their causes.
pub(super) fn report(machine: &Machine, world: &World, waiting: &[usize]) -> String {
    let mut text = format!(
        "nothing can happen any more after {:.1} us, and {} of {} programs have not ended",
        micros(machine.now),
        waiting.len(),
        world.nodes.len()
    );
    for (place, &node) in waiting.iter().take(NAMED).enumerate() {
        let sign = if place == 0 { ':' } else { ';' };
        // A string takes all that is written.
        _ = write!(text, "{sign} node {node} {}", cause(machine, world, node));
    }
    if waiting.len() > NAMED {
        _ = write!(text, "; and {} more", waiting.len() - NAMED);
    }
    text
}

/// Returns the cause for which one node waits.
fn cause(machine: &Machine, world: &World, node: usize) -> String {
    let me = &world.nodes[node];
    let network = machine.held_back(node).map(|why| format!(", and {why}")).unwrap_or_default();
    if let Some(tag) = me.out.borrow().front() {
        let packets = world.packets.borrow();
        let to = match packets.get(tag).and_then(|packet| packet.to) {
            Some(to) => format!("node {to}"),
            None => "all nodes".to_string(),
        };
        return format!("waits to send a packet to {to}{network}");
    }
    if let Some(ask) = me.asks.sent.borrow().as_ref() {
        return format!("waits for the counter of node {}{network}", ask.at);
    }
    let early = me.early.borrow().len();
    if early > 0 {
        return format!("has {early} packets for handlers that its program did not set{network}");
    }
    match me.last.get() {
        Some(Last { from, handler, at }) => format!(
            "waits for a packet (the last one came from node {from}, for handler {handler}, at \
             {:.1} us){network}",
            micros(at)
        ),
        None => format!("waits for a packet, and none has come{network}"),
    }
}
