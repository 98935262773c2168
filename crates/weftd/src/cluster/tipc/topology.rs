//! The topology server: programs that watch names by binary subscriptions.

use super::route::MARK;
use super::{kind, node_of, State};
use crate::cluster::Cluster;
use std::time::Duration;
use weft_cluster::names::{Binding, Filter, Mode, Notice, SubscriptionId};
use weft_core::Instant;
use weft_streams::tipc::{reason, Kind, RecordHead};

/// Length of `struct tipc_subscr`.
const SUBSCRIPTION: usize = 28;
/// Events at each match, and at the first and the last.
const PORTS: u32 = 1;
const SERVICE: u32 = 2;
/// Ends a subscription.
const CANCEL: u32 = 4;
const PUBLISHED: u32 = 1;
const WITHDRAWN: u32 = 2;
const TIMEOUT: u32 = 3;
/// Subscriptions of one socket.
const MOST: usize = 1024;

/// A subscription.
pub struct Watching {
    pub id: SubscriptionId,
    /// The bytes of the subscription, as the program sent them.
    bytes: [u8; SUBSCRIPTION],
    is_swapped: bool,
}

struct Asked {
    range: (u32, u32, u32),
    timeout: u32,
    filter: u32,
    is_swapped: bool,
}

/// Reads a subscription. Its byte order is that in which its filter has a meaning.
fn read(bytes: &[u8; SUBSCRIPTION]) -> Option<Asked> {
    let raw = |at: usize| bytes[4 * at..].first_chunk::<4>().map(|b| u32::from_ne_bytes(*b));
    let is_swapped = raw(4)? & (PORTS | SERVICE | CANCEL) == 0;
    let number = |at| raw(at).map(|n| if is_swapped { n.swap_bytes() } else { n });
    let (range, filter) = ((number(0)?, number(1)?, number(2)?), number(4)?);
    let of = filter & (PORTS | SERVICE);
    let is_one = of == PORTS || of == SERVICE;
    let is_right = range.1 <= range.2 && is_one && filter & !(PORTS | SERVICE | CANCEL) == 0;
    is_right.then_some(Asked { range, timeout: number(3)?, filter, is_swapped })
}

impl Watching {
    /// Makes an event of a type about a range and a socket.
    fn event(&self, what: u32, range: (u32, u32), (port, node): (u32, u32)) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(20 + SUBSCRIPTION);
        for number in [what, range.0, range.1, port, node] {
            let number = if self.is_swapped { number.swap_bytes() } else { number };
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(self.bytes);
        bytes
    }
}

impl Cluster {
    /// Takes a subscription of a program. One that is wrong ends the connection.
    pub(super) fn on_subscription(&mut self, now: Instant, id: u32, data: &[u8]) {
        let (whole, rest) = data.as_chunks::<SUBSCRIPTION>();
        let is_taken = rest.is_empty()
            && !whole.is_empty()
            && whole.iter().all(|one| self.watch_tipc(now, id, one).is_some());
        if !is_taken {
            let own = (self.node.me().host, id);
            self.hang_up(now, id, reason::SHUTDOWN);
            if let Some(port) = self.tipc.ports.get_mut(&id) {
                port.end(own, reason::SHUTDOWN, &[]);
            }
        }
        self.tipc.changed.insert(id);
    }

    fn watch_tipc(&mut self, now: Instant, id: u32, bytes: &[u8; SUBSCRIPTION]) -> Option<()> {
        let Asked { range, timeout, filter, is_swapped } = read(bytes)?;
        let port = self.tipc.ports.get_mut(&id)?;
        let owner = port.owner;
        let State::Topology(watching) = &mut port.state else { return None };
        if filter & CANCEL != 0 {
            let same = |one: &Watching| {
                let cancelled = read(&one.bytes).is_some_and(|a| a.filter | CANCEL == filter);
                let (head, tail) = (&one.bytes[..16], &one.bytes[20..]);
                cancelled && *head == bytes[..16] && *tail == bytes[20..]
            };
            if let Some(at) = watching.iter().position(same) {
                let one = watching.remove(at);
                self.tipc.subscriptions.remove(&one.id);
                self.node.unsubscribe(one.id);
            }
            return Some(());
        }
        if watching.len() >= MOST {
            return None;
        }
        let mode = if filter & SERVICE != 0 { Mode::FirstLast } else { Mode::Each };
        let limit = Duration::from_millis(u64::from(timeout).max(1));
        let timeout = (timeout != u32::MAX).then_some(limit);
        let (kind, lower, upper) = range;
        let filter = Filter { kind, lower, upper, mode, timeout };
        let subscription = self.node.subscribe(now, owner, filter).ok()?;
        let port = self.tipc.ports.get_mut(&id)?;
        let State::Topology(watching) = &mut port.state else { return None };
        watching.push(Watching { id: subscription, bytes: *bytes, is_swapped });
        self.tipc.subscriptions.insert(subscription, id);
        self.tell_topology(subscription);
        Some(())
    }

    /// Tells a program what a subscription of it has. False: it is of no socket.
    pub(in crate::cluster) fn tell_topology(&mut self, id: SubscriptionId) -> bool {
        let Some(of) = self.tipc.subscriptions.get(&id).copied() else { return false };
        self.tipc.changed.insert(of);
        while let Some(port) = self.tipc.ports.get_mut(&of) {
            // The others wait in the subscription, which is bounded.
            if port.out.bytes() >= super::WINDOW {
                break;
            }
            let Some(event) = self.node.read(id) else { break };
            let State::Topology(watching) = &mut port.state else { break };
            let Some(at) = watching.iter().position(|one| one.id == id) else { break };
            let one = &watching[at];
            let bytes = match &event.notice {
                Notice::Published(b) => about(one, PUBLISHED, b),
                Notice::Withdrawn(b, _) => about(one, WITHDRAWN, b),
                Notice::Timeout => {
                    let one = watching.remove(at);
                    self.tipc.subscriptions.remove(&id);
                    let range = read(&one.bytes).map_or((0, 0), |a| (a.range.1, a.range.2));
                    one.event(TIMEOUT, range, (0, 0))
                }
                Notice::SnapshotEnd | Notice::Missed { .. } => continue,
            };
            match port.kind {
                kind::STREAM => port.give(bytes),
                _ => port.record(&RecordHead::new(Kind::Message, (1, 0), bytes.len()), &bytes),
            }
        }
        true
    }

    /// Tells a program that has read what it was told the rest.
    pub(super) fn tell_rest(&mut self, id: u32) {
        let Some(port) = self.tipc.ports.get(&id) else { return };
        if let State::Topology(watching) = &port.state {
            let ids: Vec<SubscriptionId> = watching.iter().map(|one| one.id).collect();
            for id in ids {
                self.tell_topology(id);
            }
        }
    }
}

fn about(one: &Watching, what: u32, binding: &Binding) -> Vec<u8> {
    let name = &binding.name;
    let is_socket = name.endpoint >> 32 == MARK >> 32;
    let port = if is_socket { name.endpoint as u32 } else { 0 };
    one.event(what, (name.lower, name.upper), (port, node_of(binding.id.host)))
}
