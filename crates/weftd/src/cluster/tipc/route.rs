//! Messages from socket to socket, on this host and between hosts.

use super::outbox::Outbox;
use super::{node_of, Calling, Far, Port, State, Tipc, QUEUE, QUEUE_OF_USER};
use crate::cluster::Cluster;
use std::collections::VecDeque;
use std::net::SocketAddr;
use weft_cluster::mail::{Outcome, Receiver};
use weft_cluster::names::{Binding, HostId, Owner};
use weft_cluster::session::class;
use weft_cluster::tree::Verdict;
use weft_core::Instant;
use weft_streams::tipc::{
    kind, reason, record, Address, Answer, Kind, Packet, RecordHead, What, RETURNED_MAX,
};

/// Bytes of messages of one socket to other hosts, from which on it waits.
pub(super) const UNDER_WAY: usize = 1 << 18;
/// The mark of an endpoint that is a TIPC socket.
pub(super) const MARK: u64 = 0x5449_5043 << 32;

/// Bytes that a packet counts for.
fn weight(packet: &Packet) -> usize {
    packet.payload.len() + 64
}

/// Returns the socket of a name, if it is one of TIPC.
pub(super) fn socket_of(binding: &Binding) -> Option<Far> {
    let endpoint = binding.name.endpoint;
    let is_socket = endpoint >> 32 == MARK >> 32 && !binding.name.group;
    is_socket.then_some((binding.id.host, endpoint as u32))
}

impl Cluster {
    /// Returns the host of a number; 0 is this one.
    pub(super) fn host_of(&self, node: u32) -> Option<HostId> {
        let me = self.node.me().host;
        if node == 0 || node == node_of(me) {
            return Some(me);
        }
        let mut members = self.node.members().iter().filter(|m| m.is_up());
        members.find(|m| node_of(m.record.host) == node).map(|m| m.record.host)
    }

    /// Returns the sockets that an address means, as a user sees them. Of those of a service one,
    /// whose turn it is.
    pub(super) fn sockets_of(&mut self, user: u32, address: Address) -> Vec<Far> {
        let (kind, lower, upper, domain) = match address {
            Address::Socket { port, node } => {
                return self.host_of(node).map(|host| (host, port)).into_iter().collect();
            }
            Address::Service { kind, instance, domain } => (kind, instance, instance, domain),
            Address::Range { kind, lower, upper } => (kind, lower, upper, 0),
        };
        let (directory, policy) = self.node.directory();
        let all = directory.all(policy, user, kind, lower, upper).filter_map(socket_of);
        let mut all: Vec<Far> =
            all.filter(|(host, _)| domain == 0 || node_of(*host) == domain).collect();
        if matches!(address, Address::Range { .. }) {
            // A socket that is bound to several of the names has the message once.
            all.sort();
            all.dedup();
        } else if !all.is_empty() {
            self.tipc.turn = self.tipc.turn.wrapping_add(1);
            all = vec![all[self.tipc.turn % all.len()]];
        }
        all
    }

    /// Sends a packet of a socket of this host.
    pub(super) fn dispatch(&mut self, now: Instant, host: HostId, owner: Owner, packet: Packet) {
        let me = self.node.me().host;
        if host == me {
            if let Err(why) = self.deliver_tipc(now, me, &packet) {
                self.bounced(now, host, packet, why);
            }
            return;
        }
        if let Some(port) = self.tipc.ports.get_mut(&packet.from) {
            port.outbound.under_way += weight(&packet);
        }
        let key = (host, packet.from);
        self.tipc.lines.push(key, owner, packet);
        self.pump_line(now, key);
    }

    /// Sends the next message of a line, if none is under way.
    fn pump_line(&mut self, now: Instant, key: Far) {
        if !self.tipc.lines.may_begin(now, key) {
            return;
        }
        match super::super::post::agent_of(&self.node, key.0) {
            Some((agent, life)) => {
                self.tipc.lines.begin(now, key, Receiver { agent, life, claim: 0 });
            }
            None => self.fail_line(now, key),
        }
    }

    /// The host of a line is gone.
    fn fail_line(&mut self, now: Instant, key: Far) {
        for packet in self.tipc.lines.remove(key) {
            self.arrived(now, &packet);
            self.bounced(now, key.0, packet, reason::NO_NODE);
        }
    }

    /// A packet is no longer on its way.
    fn arrived(&mut self, now: Instant, packet: &Packet) {
        let Some(port) = self.tipc.ports.get_mut(&packet.from) else { return };
        port.outbound.under_way = port.outbound.under_way.saturating_sub(weight(packet));
        self.tipc.changed.insert(packet.from);
        self.serve_waiting(now, packet.from);
    }

    /// Takes outcomes of messages to other hosts, and sends the next ones.
    pub(super) fn flush_tipc(&mut self, now: Instant) {
        while let Some((key, outcome)) = self.tipc.lines.poll_outcome() {
            self.on_tipc_outcome(now, key, outcome);
        }
        while let Some((to, bytes)) = self.tipc.lines.post.poll_transmit() {
            self.sessions.send(now, to, class::TIPC, &bytes);
        }
        self.tipc_settle();
    }

    fn on_tipc_outcome(&mut self, now: Instant, key: Far, outcome: Outcome) {
        let Some(packet) = self.tipc.lines.settle(now, key, &outcome) else { return };
        self.arrived(now, &packet);
        match outcome {
            Outcome::Delivered => {}
            Outcome::Overload => self.bounced(now, key.0, packet, reason::OVERLOAD),
            Outcome::Silent => self.bounced(now, key.0, packet, reason::NO_NODE),
            Outcome::Vanished | Outcome::Deaf => {
                self.bounced(now, key.0, packet, reason::NO_PORT);
            }
        }
        self.pump_line(now, key);
    }

    /// Does what is due.
    pub(in crate::cluster) fn tipc_in_time(&mut self, now: Instant) {
        if self.tipc.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        let due = self.tipc.lines.handle_timeout(now);
        due.into_iter().for_each(|key| self.pump_line(now, key));
        let late = self.tipc.ports.iter().filter(
            |(_, port)| matches!(port.state, State::Connecting { until, .. } if until <= now),
        );
        let late: Vec<u32> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.not_connected(now, id, libc::ETIMEDOUT);
        }
        self.flush_tipc(now);
    }

    /// Takes a message of another agent.
    pub(in crate::cluster) fn on_tipc(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let sender = self.node.members().iter().find(|m| m.record.address == from);
        let Some(host) = sender.map(|m| m.record.host) else { return };
        if let Some(letter) = self.tipc.lines.post.receive(now, from, bytes) {
            let is_now = letter.life == self.node.me().life;
            let outcome = match Packet::decode(&letter.payload) {
                Some(packet) if is_now => match self.deliver_tipc(now, host, &packet) {
                    Ok(()) => Outcome::Delivered,
                    Err(reason::OVERLOAD) => Outcome::Overload,
                    Err(_) => Outcome::Vanished,
                },
                Some(_) => Outcome::Vanished,
                None => {
                    self.tipc.counters.malformed += 1;
                    Outcome::Vanished
                }
            };
            let verdict = Verdict { outcome, host: HostId(0) };
            self.tipc.lines.post.answer(now, from, letter.id, verdict);
        }
        self.flush_tipc(now);
    }

    /// A host is gone: connections with it end.
    pub(in crate::cluster) fn tipc_to_gone(&mut self, now: Instant, host: HostId) {
        if let Some(agent) = self.node.members().get(host).map(|m| m.record.address) {
            self.tipc.lines.post.host_gone(agent);
        }
        let of_host = self.tipc.lines.to_host(host);
        of_host.into_iter().for_each(|key| self.fail_line(now, key));
        for (id, port) in self.tipc.ports.iter_mut() {
            match &mut port.state {
                State::Connected { peer } if peer.0 == host => {
                    let peer = *peer;
                    port.end(peer, reason::NO_NODE, &[]);
                    self.tipc.changed.insert(*id);
                }
                State::Listening { calls, .. } => over(calls, reason::NO_NODE, |of| of.0 == host),
                _ => {}
            }
        }
        self.flush_tipc(now);
    }

    /// Gives a packet to a socket of this host.
    fn deliver_tipc(&mut self, now: Instant, host: HostId, packet: &Packet) -> Result<(), u32> {
        let from = (host, packet.from);
        let Some(port) = self.tipc.ports.get(&packet.to) else { return Err(reason::NO_PORT) };
        // Data of this host were not read if the program had too much.
        let is_near_data = packet.what == What::Data && host == self.tipc.host;
        let has_room = port.out.is_empty()
            || is_near_data
            || self.tipc.waiting_of(port.owner.user) + packet.payload.len() < QUEUE_OF_USER;
        let Some(port) = self.tipc.ports.get_mut(&packet.to) else { return Err(reason::NO_PORT) };
        self.tipc.changed.insert(packet.to);
        let taken = match packet.what {
            What::Message => message(port, from, packet, has_room),
            What::Call => call(port, from, packet, has_room),
            What::Data => data(port, from, packet, has_room),
            What::Taken => return self.on_taken(now, from, packet),
            What::End if is_refused(port, from) => {
                self.not_connected(now, packet.to, libc::ECONNREFUSED);
                Ok(())
            }
            What::End => {
                let data = &packet.payload[..packet.payload.len().min(RETURNED_MAX)];
                ended(port, from, packet.error, data);
                Ok(())
            }
            What::Unread => return unread(port, from, packet, has_room),
        };
        self.tipc.counters.delivered += u64::from(taken.is_ok());
        taken
    }

    /// The other end has taken the call of a socket.
    fn on_taken(&mut self, now: Instant, from: Far, packet: &Packet) -> Result<(), u32> {
        let Some(port) = self.tipc.ports.get_mut(&packet.to) else { return Err(reason::NO_PORT) };
        match port.state {
            State::Connecting { to, asker, .. } if to.0 == from.0 => {
                port.state = State::Connected { peer: from };
                asker.iter().for_each(|id| self.tipc.answer(*id, &Answer::done(0), None));
                self.read_port(now, packet.to);
                Ok(())
            }
            _ => Err(reason::NO_PORT),
        }
    }

    /// A packet was not delivered.
    fn bounced(&mut self, now: Instant, host: HostId, packet: Packet, why: u32) {
        self.tipc.counters.rejected += 1;
        let from = (host, packet.to);
        match packet.what {
            What::Message => {
                let Some(port) = self.tipc.ports.get_mut(&packet.from) else { return };
                if packet.returns {
                    let data = &packet.payload[..packet.payload.len().min(RETURNED_MAX)];
                    let sender = (packet.to, node_of(host));
                    let head = RecordHead::new(Kind::Returned, sender, data.len());
                    port.record(&RecordHead { error: why, name: packet.name, ..head }, data);
                }
            }
            What::Call => match packet.payload.is_empty() {
                true => self.not_connected(now, packet.from, libc::ECONNREFUSED),
                false => self.broken(packet.from, from, why, &packet.payload),
            },
            What::Data => self.broken(packet.from, from, why, &packet.payload),
            What::Taken => self.broken(packet.from, from, why, &[]),
            What::End | What::Unread => {}
        }
        self.tipc.changed.insert(packet.from);
    }

    /// The connection of a socket cannot go on.
    fn broken(&mut self, id: u32, from: Far, why: u32, data: &[u8]) {
        let Some(port) = self.tipc.ports.get_mut(&id) else { return };
        if matches!(port.state, State::Connected { .. } | State::Connecting { .. }) {
            port.end(from, why, &data[..data.len().min(RETURNED_MAX)]);
        }
    }

    /// A socket could not be connected.
    pub(super) fn not_connected(&mut self, now: Instant, id: u32, error: i32) {
        let Some(port) = self.tipc.ports.get_mut(&id) else { return };
        let State::Connecting { to, asker, .. } = port.state else { return };
        port.state = State::Idle;
        let owner = port.owner;
        match asker {
            Some(asker) => self.tipc.answer(asker, &Answer::error(error), None),
            None => {
                port.error = error;
                port.end(to, reason::NO_PORT, &[]);
            }
        }
        self.tipc.changed.insert(id);
        if error == libc::ETIMEDOUT {
            // The other end is not to take the call later.
            let packet = end_of(id, to, reason::SHUTDOWN);
            self.dispatch(now, to.0, owner, packet);
        }
    }

    /// Ends the connection of a socket, and refuses those that nobody has taken.
    pub(super) fn hang_up(&mut self, now: Instant, id: u32, why: u32) {
        let Some(port) = self.tipc.ports.get_mut(&id) else { return };
        let owner = port.owner;
        let others: Vec<Far> = match std::mem::replace(&mut port.state, State::Over) {
            State::Connected { peer } => vec![peer],
            State::Listening { calls, .. } => return self.refuse_calls(now, (id, owner), calls),
            State::Connecting { to, asker, .. } => {
                asker.iter().for_each(|id| {
                    self.tipc.answer(*id, &Answer::error(libc::ECONNABORTED), None);
                });
                vec![to]
            }
            State::Topology(watching) => {
                for one in watching {
                    self.tipc.subscriptions.remove(&one.id);
                    self.node.unsubscribe(one.id);
                }
                return;
            }
            State::Idle | State::Over => return,
        };
        for to in others {
            self.dispatch(now, to.0, owner, end_of(id, to, why));
        }
    }

    /// A listener has ended: nobody takes its calls, and their data go back.
    fn refuse_calls(&mut self, now: Instant, of: (u32, Owner), calls: VecDeque<Calling>) {
        for call in calls.into_iter().filter(|call| call.over.is_none()) {
            let mut payload = call.data;
            payload.truncate(RETURNED_MAX);
            let end = end_of(of.0, call.from, reason::NO_PORT);
            self.dispatch(now, call.from.0, of.1, Packet { payload, ..end });
        }
    }

    /// The program of a socket has ended: its connection ends after all data, with the first
    /// message that it is known not to have read.
    pub(super) fn hang_up_with_rest(&mut self, now: Instant, id: u32) {
        let Some(port) = self.tipc.ports.get_mut(&id) else { return };
        let peer = match port.state {
            State::Connected { peer } if port.out.is_unread() && !port.is_shut => peer,
            _ => return self.hang_up(now, id, reason::SHUTDOWN),
        };
        port.state = State::Over;
        let owner = port.owner;
        let out = std::mem::replace(&mut port.out, Outbox::new(port.kind));
        let record = out.returned().next();
        let payload = record.map_or_else(Vec::new, |mut record| record.split_off(record::HEAD));
        let end = end_of(id, peer, reason::NO_PORT);
        self.tipc.counters.rejected += 1;
        self.dispatch(now, peer.0, owner, Packet { payload, ..end });
    }

    /// The program of a socket has ended before it read a message, which goes back to its sender.
    pub(super) fn return_unread(&mut self, now: Instant, of: (u32, Owner), record: &[u8]) {
        let Some(head) = RecordHead::decode(record).filter(|h| h.kind == Kind::Message) else {
            return;
        };
        let (to, node) = head.from;
        let Some(host) = self.host_of(node) else { return };
        self.tipc.counters.rejected += 1;
        let payload = record[record::HEAD..].to_vec();
        let end = end_of(of.0, (host, to), reason::NO_PORT);
        let packet = Packet { what: What::Unread, name: head.name, payload, ..end };
        self.dispatch(now, host, of.1, packet);
    }

    /// Passes data of a connection on.
    pub(super) fn on_data(&mut self, now: Instant, id: u32, data: Vec<u8>) {
        let Some(port) = self.tipc.ports.get(&id) else { return };
        match port.state {
            State::Connected { peer } => {
                let (owner, packet) = (port.owner, packet_of(id, port, What::Data, peer, data));
                self.dispatch(now, peer.0, owner, packet);
            }
            State::Topology(_) => self.on_subscription(now, id, &data),
            _ => {}
        }
    }
}

/// Makes a packet of a socket.
pub(super) fn packet_of(id: u32, port: &Port, what: What, to: Far, payload: Vec<u8>) -> Packet {
    let returns = !port.settings.dest_droppable;
    let (kind, importance) = (port.kind, port.settings.importance);
    Packet { what, kind, importance, returns, to: to.1, from: id, error: 0, name: None, payload }
}

/// Makes the packet that ends a connection.
fn end_of(id: u32, to: Far, error: u32) -> Packet {
    Packet {
        what: What::End,
        kind: 0,
        importance: 0,
        returns: false,
        to: to.1,
        from: id,
        error,
        name: None,
        payload: Vec::new(),
    }
}

fn message(port: &mut Port, from: Far, packet: &Packet, has_room: bool) -> Result<(), u32> {
    if !port.is_connectionless() {
        return Err(reason::NO_PORT);
    }
    let most = QUEUE << packet.importance.min(3);
    if port.out.is_closed() {
        return Err(reason::NO_PORT);
    }
    if port.out.bytes() + packet.payload.len() > most || !has_room {
        return Err(reason::OVERLOAD);
    }
    let head = RecordHead::new(Kind::Message, (from.1, node_of(from.0)), packet.payload.len());
    // If the program has closed the socket, the message comes back as one that was not read.
    port.record_of(&RecordHead { name: packet.name, ..head }, &packet.payload, packet.returns);
    Ok(())
}

fn call(port: &mut Port, from: Far, packet: &Packet, has_room: bool) -> Result<(), u32> {
    if port.kind != packet.kind {
        return Err(reason::NO_PORT);
    }
    let State::Listening { most, calls } = &mut port.state else { return Err(reason::NO_PORT) };
    if calls.len() >= *most || !has_room {
        return Err(reason::OVERLOAD);
    }
    let data = packet.payload.clone();
    let calling = Calling { from, name: packet.name, data, over: None };
    calls.push_back(calling);
    match port.kind {
        kind::STREAM => port.give(vec![Kind::Caller as u8]),
        _ => port.record(&RecordHead::new(Kind::Caller, (from.1, node_of(from.0)), 0), &[]),
    }
    Ok(())
}

fn data(port: &mut Port, from: Far, packet: &Packet, has_room: bool) -> Result<(), u32> {
    match port.state {
        State::Connected { peer } if peer == from => {}
        _ => return Err(reason::NO_PORT),
    }
    if port.is_shut {
        // Its own data may still be on their way; the end that follows them says enough.
        return Ok(());
    }
    // On this host the other end was not read if this one has too much.
    if port.out.bytes() >= 2 * super::WINDOW || !has_room {
        return Err(reason::OVERLOAD);
    }
    port.take_data(from, &packet.payload);
    Ok(())
}

/// True if the end of a connection is the answer to a program that waits for it.
fn is_refused(port: &Port, from: Far) -> bool {
    matches!(port.state, State::Connecting { to, asker: Some(_), .. } if to == from)
}

fn ended(port: &mut Port, from: Far, why: u32, data: &[u8]) {
    match &mut port.state {
        State::Connected { peer } if *peer == from => port.end(from, why, data),
        State::Connecting { to, .. } if *to == from => port.end(from, why, data),
        State::Listening { calls, .. } => over(calls, why, |of| of == from),
        _ => {}
    }
}

/// Calls of these sockets are over. One with data is taken all the same: they were sent before.
fn over(calls: &mut VecDeque<Calling>, why: u32, is_over: impl Fn(Far) -> bool) {
    calls.retain(|call| !is_over(call.from) || !call.data.is_empty());
    calls.iter_mut().filter(|call| is_over(call.from)).for_each(|call| call.over = Some(why));
}

/// A message of a socket was not read.
fn unread(port: &mut Port, from: Far, packet: &Packet, has_room: bool) -> Result<(), u32> {
    if !port.is_connectionless() || port.out.is_closed() {
        return Err(reason::NO_PORT);
    }
    if port.out.bytes() + packet.payload.len() > QUEUE || !has_room {
        return Err(reason::OVERLOAD);
    }
    let data = &packet.payload[..packet.payload.len().min(RETURNED_MAX)];
    let head = RecordHead::new(Kind::Returned, (from.1, node_of(from.0)), data.len());
    port.record(&RecordHead { error: packet.error, name: packet.name, ..head }, data);
    Ok(())
}

impl Port {
    /// Gives the program data of its connection.
    pub(super) fn take_data(&mut self, from: Far, data: &[u8]) {
        match self.kind {
            kind::STREAM => self.give(data.to_vec()),
            _ => {
                let head = RecordHead::new(Kind::Message, (from.1, node_of(from.0)), data.len());
                self.record_of(&RecordHead { name: self.name, ..head }, data, true);
            }
        }
    }
}

impl Tipc {
    /// Returns how many messages wait for programs.
    pub(super) fn depth(&self) -> u32 {
        self.ports.values().map(|port| port.out.len()).sum::<usize>() as u32
    }
}
