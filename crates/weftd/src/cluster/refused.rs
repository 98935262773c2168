//! Agents whose end their own kernels tell: datagrams to them are refused, as nobody has the port.
//!
//! A refusal counts if it quotes a datagram of the present session, which only those know who saw
//! it. The first one asks again, the second one is the end, unless the agent was heard between.
//! A firewall that refuses looks the same: a host that was reported ended and returned in the same
//! life is not believed to be refused again, so it is told once.

use super::Cluster;
use crate::sys;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weft_cluster::names::{HostId, Life};
use weft_cluster::session::class;
use weft_core::Instant;

/// Refusals taken in a round.
const AT_ONCE: usize = 64;
/// Most hosts that are remembered; as many as a cluster has.
const HOSTS_MAX: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Refused once, and not heard since.
    Once,
    /// Reported.
    Told,
}

/// The agents that were refused, by their addresses.
#[derive(Default)]
pub struct Refused {
    table: BTreeMap<SocketAddr, (HostId, Life, State)>,
}

impl Refused {
    /// Notes that something came from an agent.
    pub fn heard(&mut self, from: SocketAddr) {
        if self.table.get(&from).is_some_and(|(.., state)| *state == State::Once) {
            self.table.remove(&from);
        }
    }

    /// Notes a refusal. Returns true if the agent has ended.
    fn note(&mut self, at: SocketAddr, host: HostId, life: Life) -> Option<bool> {
        match self.table.get_mut(&at) {
            Some((_, of, state)) if *of == life => {
                let is_new = *state == State::Once;
                *state = State::Told;
                is_new.then_some(true)
            }
            _ => {
                if self.table.len() >= HOSTS_MAX {
                    self.table.pop_first();
                }
                self.table.insert(at, (host, life, State::Once));
                Some(false)
            }
        }
    }
}

impl Cluster {
    /// Takes the refusals that the kernel kept.
    pub(super) fn take_refusals(&mut self, now: Instant) {
        for _ in 0..AT_ONCE {
            let Some(error) = sys::refused::next(&self.wire.socket, &mut self.wire.buffer) else {
                return;
            };
            let Some((to, len)) = error else { continue };
            let to = super::plain(to);
            if self.sessions.has_sent(to, &self.wire.buffer[..len]) {
                self.on_refused(now, to);
            }
        }
    }

    fn on_refused(&mut self, now: Instant, at: SocketAddr) {
        let member = self.node.members().iter().find(|m| m.record.address == at && m.is_up());
        let Some((host, life)) = member.map(|m| (m.record.host, m.record.life)) else { return };
        match self.wire.refused.note(at, host, life) {
            Some(true) => self.node.report_ended(now, host, 0),
            Some(false) => self.sessions.send(now, at, class::NOTHING, &[]),
            None => {}
        }
        self.flush(now);
    }
}
