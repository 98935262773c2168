//! The way of socket programs to the agents of other hosts.

use super::Cluster;
use std::net::SocketAddr;
use weft_cluster::session::class;
use weft_core::Instant;
use weft_streams::message::Place;

/// Messages of other agents that wait to be read.
const WAITING_MAX: usize = 1024;
/// Most agents that are asked for an address that none of them has.
const ASKED_MAX: usize = 16;

impl Cluster {
    /// Takes a message of another agent about socket programs.
    pub(super) fn on_sockets(&mut self, from: SocketAddr, bytes: &[u8]) {
        let is_member = self.node.members().iter().any(|m| m.record.address == from);
        if is_member && self.of_sockets.len() < WAITING_MAX {
            self.of_sockets.push((from, bytes.to_vec()));
        }
    }

    /// True if there are messages about socket programs.
    pub fn has_of_sockets(&self) -> bool {
        !self.of_sockets.is_empty()
    }

    /// Returns the messages about socket programs, and their senders.
    pub fn take_of_sockets(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        std::mem::take(&mut self.of_sockets)
    }

    /// Returns the agents that may have a connection's end at an address: that of the address, or
    /// all of a small cluster, as it may be that of a container.
    pub fn agents_at(&self, place: Place) -> Vec<SocketAddr> {
        let ip = std::net::IpAddr::from(place.address()).to_canonical();
        let me = self.node.me();
        let ups = self.node.members().iter().filter(|m| m.is_up() && m.record.host != me.host);
        let all: Vec<SocketAddr> = ups.map(|m| m.record.address).collect();
        let at: Vec<SocketAddr> = all.iter().copied().filter(|a| a.ip() == ip).collect();
        let is_own = ip.is_loopback() || me.address.ip() == ip;
        match at.is_empty() {
            false => at,
            true if is_own || all.len() > ASKED_MAX || self.is_cut_off => Vec::new(),
            true => all,
        }
    }

    /// Sends messages about socket programs.
    pub fn tell_of_sockets(&mut self, now: Instant, messages: &[(SocketAddr, Vec<u8>)]) {
        for (to, bytes) in messages {
            self.sessions.send(now, *to, class::SOCKETS, bytes);
        }
        if !messages.is_empty() {
            self.flush(now);
        }
    }

    /// Returns a key that this agent and another one can make; `about` tells it from others.
    pub fn key_with(&self, agent: SocketAddr, about: &[u8]) -> Option<[u8; 16]> {
        self.sessions.derive(agent, about)
    }

    /// Returns the name of the host of an agent.
    pub fn name_at(&self, agent: SocketAddr) -> String {
        self.host_at(agent)
    }
}
