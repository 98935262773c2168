//! The control program of the network interface: one event at a time, each with its cycles.

use super::choice::{Family, Forward, Repair, Transfer};
use super::costs::BUFFERS_TOGETHER;
use super::machine::{BufferId, Dma, Event, Kind, Machine, Packet, PacketId, RTO};
use weft_core::group::tree;
use weft_core::reliability::Verdict;

/// A task of the network interface's processor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    /// The host asks to send.
    Request(PacketId),
    /// The data of a packet has been fetched.
    Fetched(PacketId),
    /// A packet leaves as soon as the window lets it.
    Ready(PacketId),
    /// A packet for a child in a multicast tree, whose descriptor is made first, leaves as soon as
    /// the window lets it.
    Pass(PacketId),
    /// The window towards this node has opened.
    Unblock(usize),
    /// A packet has left.
    Sent(PacketId),
    /// A packet has arrived.
    Arrived(PacketId),
    /// A packet is in host memory.
    Delivered(PacketId),
    /// Report this many free send buffers to the host.
    Report(u32),
    /// The report is in host memory.
    Reported,
    /// Acknowledge packets of this node.
    Acknowledge(usize),
    /// Send the oldest packets to this node again.
    Repeat(usize),
}

impl Task {
    /// Returns true if an engine waits for this task; the control program polls the engines first.
    fn ends_transfer(self) -> bool {
        use Task::{Arrived, Delivered, Fetched, Reported, Sent};
        matches!(self, Fetched(_) | Sent(_) | Arrived(_) | Delivered(_) | Reported)
    }
}

impl Machine {
    pub fn add_task(&mut self, node: usize, task: Task) {
        let n = &mut self.nodes[node];
        if task.ends_transfer() { &mut n.ni.engine_tasks } else { &mut n.ni.tasks }.push_back(task);
        self.next_task(node);
    }

    fn next_task(&mut self, node: usize) {
        if self.nodes[node].ni.task.is_some() {
            return;
        }
        let n = &mut self.nodes[node];
        let Some(task) = n.ni.engine_tasks.pop_front().or_else(|| n.ni.tasks.pop_front()) else {
            return;
        };
        let cycles = self.cycles(task);
        self.nodes[node].ni.task = Some(task);
        let time = self.shared(node, cycles * self.hw.ni_cycle);
        self.after(time, Event::Task(node));
    }

    fn cycles(&self, task: Task) -> u64 {
        let c = &self.ni;
        let turn = c.sources * c.source;
        let go = c.window + c.repair_send + c.transmit;
        match task {
            Task::Request(id) if self.fetches(id) => {
                let fetched = !self.buffers[self.packets[id].buffer].waiting.is_empty();
                turn + c.request + if fetched { 0 } else { c.tlb + c.dma }
            }
            Task::Request(_) => turn + c.request + go,
            Task::Fetched(_) | Task::Ready(_) => turn + go,
            Task::Pass(_) => turn + c.forward + go,
            Task::Unblock(_) | Task::Repeat(_) => go,
            Task::Sent(_) => turn + c.sent,
            Task::Arrived(id) => turn + c.header + self.arrival_cycles(id),
            Task::Delivered(_) => turn + c.release,
            Task::Report(_) => c.completion + c.dma,
            Task::Reported => turn,
            Task::Acknowledge(_) => c.ack_make + c.transmit,
        }
    }

    fn arrival_cycles(&self, id: PacketId) -> u64 {
        let c = &self.ni;
        let deliver = c.host_buffer + c.dma;
        let packet = &self.packets[id];
        match packet.kind {
            Kind::Ack => c.ack_take,
            Kind::Ask if self.choice.repair != Repair::Host => {
                c.repair_receive + c.fetch_add + c.window + c.repair_send + c.transmit
            }
            _ => c.repair_receive + c.tlb + deliver,
        }
    }

    /// Returns true if the data of this packet has to be fetched from host memory.
    fn fetches(&self, id: PacketId) -> bool {
        self.packets[id].kind == Kind::Data
            && self.choice.transfer != Transfer::Pio
            && !self.buffers[self.packets[id].buffer].ready
    }

    /// Returns the ranks to which `node` forwards this multicast packet.
    pub fn children(&self, node: usize, id: PacketId) -> tree::Children {
        let root = self.packets[id].root.unwrap_or(usize::MAX);
        tree::children(self.choice.tree, root, node, self.nodes.len())
    }

    /// Ends the processor's task and applies its effects.
    pub fn task_done(&mut self, node: usize) {
        let Some(task) = self.nodes[node].ni.task.take() else { return };
        match task {
            Task::Request(id) => self.request(node, id),
            Task::Fetched(id) => self.fetched(node, id),
            Task::Ready(id) | Task::Pass(id) => self.ready(node, id),
            Task::Unblock(peer) => self.unblock(node, peer),
            Task::Sent(id) => {
                self.send_seen(node);
                if self.choice.repair == Repair::Host && self.packets[id].kind != Kind::HostAck {
                    // The buffer stays until the acknowledgement; the queue entry is free now.
                    self.add_task(node, Task::Report(0));
                }
                self.release(node, self.packets[id].buffer);
            }
            Task::Arrived(id) => self.take_in(node, id),
            Task::Delivered(id) => {
                self.dma_seen(node);
                self.release(node, self.packets[id].buffer);
            }
            Task::Report(count) => self.start_dma(node, Dma::Complete(count)),
            Task::Reported => self.dma_seen(node),
            Task::Acknowledge(peer) => self.acknowledge(node, peer),
            Task::Repeat(peer) => self.repeat(node, peer),
        }
        self.next_task(node);
    }

    fn request(&mut self, node: usize, id: PacketId) {
        let buffer = self.packets[id].buffer;
        if !self.fetches(id) {
            self.buffers[buffer].ready = true;
            self.spread(node, id);
        } else if self.buffers[buffer].waiting.is_empty() {
            self.buffers[buffer].waiting.push(id);
            self.start_dma(node, Dma::Fetch(id));
        } else {
            // The packet has the same data for another node: one fetch serves both (section 5.4).
            self.buffers[buffer].waiting.push(id);
        }
    }

    fn fetched(&mut self, node: usize, id: PacketId) {
        self.dma_seen(node);
        let buffer = self.packets[id].buffer;
        self.buffers[buffer].ready = true;
        let waiting = std::mem::take(&mut self.buffers[buffer].waiting);
        self.spread(node, waiting[0]);
        // The waiting packets came before everything that waits now, but for packets of earlier
        // fetches: an end of a fetch is handled before them, and may not overtake them.
        let tasks = &mut self.nodes[node].ni.tasks;
        let earlier = tasks.iter().take_while(|task| matches!(task, Task::Ready(_))).count();
        for (place, &next) in waiting[1..].iter().enumerate() {
            tasks.insert(earlier + place, Task::Ready(next));
        }
        if self.keeps_buffers() {
            // The user's data may change now (section 4.1); the buffer comes back later.
            self.add_task(node, Task::Report(0));
        }
    }

    /// Handles a packet whose data is here: it goes to its destination, a multicast to the root's
    /// children.
    fn spread(&mut self, node: usize, id: PacketId) {
        if self.packets[id].root.is_none() || self.choice.forward == Forward::Host {
            self.ready(node, id);
            return;
        }
        self.pass_on(node, id);
        // The sender belongs to the group: its network interface delivers to it as well.
        self.start_dma(node, Dma::Deliver(id));
    }

    /// Makes send descriptors for the children of `node`.
    fn pass_on(&mut self, node: usize, id: PacketId) {
        for child in self.children(node, id) {
            let buffer = self.packets[id].buffer;
            self.buffers[buffer].refs += 1;
            let packet = Packet { from: node, to: child, seq: None, ..self.packets[id].clone() };
            let copy = self.add_packet(packet);
            self.add_task(node, Task::Pass(copy));
        }
    }

    fn ready(&mut self, node: usize, id: PacketId) {
        let to = self.packets[id].to;
        if self.choice.repair == Repair::Host {
            self.transmit(node, id);
            return;
        }
        let peer = self.peer(node, to);
        peer.blocked.push_back(id);
        if peer.blocked.len() == 1 && !peer.unblocking {
            self.send_blocked(node, to);
        }
    }

    /// Sends the first packet that waits for the window towards `to`, if that window is open.
    fn send_blocked(&mut self, node: usize, to: usize) {
        let now = self.instant();
        let repairs = self.choice.repair != Repair::None;
        let peer = self.peer(node, to);
        if !peer.send.can_send() {
            return;
        }
        let Some(id) = peer.blocked.pop_front() else { return };
        let seq = peer.send.push(now, id);
        let ack = peer.recv.next_expected();
        peer.recv.ack_piggybacked();
        let packet = &mut self.packets[id];
        (packet.seq, packet.ack) = (Some(seq), ack);
        if repairs {
            let buffer = packet.buffer;
            self.buffers[buffer].refs += 1;
            self.start_timer(node, to);
        }
        self.transmit(node, id);
    }

    fn unblock(&mut self, node: usize, peer: usize) {
        self.peer(node, peer).unblocking = false;
        self.send_blocked(node, peer);
        self.plan_unblock(node, peer);
    }

    fn plan_unblock(&mut self, node: usize, other: usize) {
        let peer = self.peer(node, other);
        if !peer.blocked.is_empty() && peer.send.can_send() && !peer.unblocking {
            peer.unblocking = true;
            self.add_task(node, Task::Unblock(other));
        }
    }

    pub fn start_timer(&mut self, node: usize, other: usize) {
        let peer = self.peer(node, other);
        if !std::mem::replace(&mut peer.timer, true) {
            // The timer fires often enough for both timeouts.
            self.after(RTO.as_nanos() as u64 * 1000 / 4, Event::Timer(node, other));
        }
    }

    /// Handles a packet that has arrived.
    fn take_in(&mut self, node: usize, id: PacketId) {
        if self.loss_ppm > 0 && self.rng.chance(self.loss_ppm) {
            self.counts.lost += 1;
            return;
        }
        let from = self.packets[id].from;
        if self.choice.repair == Repair::Host {
            // The host handles everything, in a buffer of its own.
            let buffer = self.add_buffer(Some(from), 1, true);
            let copy = self.packets[id].clone();
            let copy = self.add_packet(Packet { buffer, ..copy });
            self.start_dma(node, Dma::Deliver(copy));
            return;
        }
        let (ack, nack) = (self.packets[id].ack, self.packets[id].nack);
        self.take_ack(node, from, ack, nack);
        let Some(seq) = self.packets[id].seq else { return };
        let verdict = self.peer(node, from).recv.on_packet(seq);
        if verdict != Verdict::Deliver {
            self.plan_ack(node, from);
            return;
        }
        let buffer = self.add_buffer(Some(from), 1, true);
        let packet = Packet { buffer, ..self.packets[id].clone() };
        match packet.kind {
            Kind::Ask => {
                let value = self.nodes[node].counter;
                self.nodes[node].counter += 1;
                self.reply(node, from, value);
                self.release(node, buffer);
            }
            _ => {
                let forward = packet.root.is_some() && self.choice.forward == Forward::Interface;
                let copy = self.add_packet(packet);
                self.start_dma(node, Dma::Deliver(copy));
                if forward {
                    self.pass_on(node, copy);
                }
            }
        }
    }

    fn reply(&mut self, node: usize, to: usize, value: u64) {
        let buffer = self.add_buffer(None, 2, true);
        let id = self.add_packet(Packet {
            kind: Kind::Reply,
            from: node,
            to,
            bytes: 8,
            tag: value,
            root: None,
            seq: None,
            ack: Default::default(),
            nack: false,
            buffer,
        });
        self.ready(node, id);
    }

    /// Handles an acknowledgement from `other`, alone or on a packet, of packets of `node`.
    pub fn take_ack(&mut self, node: usize, other: usize, ack: weft_core::seq::Seq, nack: bool) {
        let now = self.instant();
        let mut freed = Vec::new();
        let peer = self.peer(node, other);
        let out = peer.send.on_ack(now, ack, None, nack, &mut |id, _| freed.push(id));
        if self.choice.repair != Repair::None {
            for id in freed {
                self.release(node, self.packets[id].buffer);
            }
        }
        if self.choice.repair == Repair::Host {
            return;
        }
        if out.lost > 0 {
            self.add_task(node, Task::Repeat(other));
        }
        self.plan_unblock(node, other);
    }

    /// Drops one user of a buffer; the last one frees it.
    fn release(&mut self, node: usize, buffer: BufferId) {
        let it = &mut self.buffers[buffer];
        it.refs -= 1;
        if it.refs > 0 {
            return;
        }
        match it.from {
            Some(from) if self.choice.repair != Repair::Host => {
                let now = self.instant();
                self.peer(node, from).recv.note_received(now, false);
                self.plan_ack(node, from);
            }
            Some(_) => {}
            None if self.choice.repair == Repair::Host => {
                self.nodes[node].host.free += 1;
                self.wake(node);
            }
            None => self.send_buffer_free(node),
        }
    }

    fn send_buffer_free(&mut self, node: usize) {
        let late = self.choice.transfer == Transfer::Pio || self.keeps_buffers();
        let together = if late { BUFFERS_TOGETHER } else { 1 };
        self.nodes[node].ni.unreported += 1;
        if self.nodes[node].ni.unreported >= together {
            let count = std::mem::take(&mut self.nodes[node].ni.unreported);
            self.add_task(node, Task::Report(count));
        }
    }

    /// Acknowledges `from` now if that is due, else when the timer fires.
    fn plan_ack(&mut self, node: usize, from: usize) {
        let now = self.instant();
        if self.peer(node, from).recv.ack_due(now) {
            self.add_task(node, Task::Acknowledge(from));
        } else if self.choice.repair == Repair::Interface {
            self.start_timer(node, from);
        }
    }

    fn acknowledge(&mut self, node: usize, other: usize) {
        let now = self.instant();
        let peer = self.peer(node, other);
        if !peer.recv.ack_due(now) {
            return;
        }
        let (ack, nack) = (peer.recv.next_expected(), peer.recv.has_gap());
        peer.recv.ack_sent();
        let buffer = self.add_buffer(None, 2, true);
        let id = self.add_packet(Packet {
            kind: Kind::Ack,
            from: node,
            to: other,
            bytes: 0,
            tag: 0,
            root: None,
            seq: None,
            ack,
            nack,
            buffer,
        });
        self.counts.acks += 1;
        self.transmit(node, id);
    }

    fn repeat(&mut self, node: usize, other: usize) {
        let now = self.instant();
        let peer = self.peer(node, other);
        let Some((_, id)) = peer.send.next_retransmit(now) else {
            self.plan_unblock(node, other);
            return;
        };
        let more = peer.send.awaiting_retransmit() > 0;
        let buffer = self.packets[id].buffer;
        self.buffers[buffer].refs += 1;
        self.counts.resent += 1;
        self.transmit(node, id);
        if more {
            self.add_task(node, Task::Repeat(other));
        } else {
            self.plan_unblock(node, other);
        }
    }

    /// Handles the timer of `node` for `other`.
    pub fn timer(&mut self, node: usize, other: usize) {
        let now = self.instant();
        let peer = self.peer(node, other);
        peer.timer = false;
        let again = peer.send.on_timeout(now, RTO);
        let idle = peer.send.is_empty() && peer.recv.ack_deadline().is_none();
        if self.choice.repair == Repair::Host {
            self.host_timer(node, other, again);
        } else {
            if again {
                self.add_task(node, Task::Repeat(other));
            }
            self.plan_ack(node, other);
        }
        if !idle {
            self.start_timer(node, other);
        }
    }

    /// Handles the end of a transfer of the host DMA engine.
    pub fn dma_done(&mut self, node: usize, dma: Dma) {
        match dma {
            Dma::Fetch(id) => self.add_task(node, Task::Fetched(id)),
            Dma::Deliver(id) => {
                self.nodes[node].host.rx.push_back(id);
                self.add_task(node, Task::Delivered(id));
                self.wake(node);
                self.watch(node);
            }
            Dma::Complete(count) => {
                self.nodes[node].host.free += i64::from(count);
                self.add_task(node, Task::Reported);
                self.wake(node);
            }
        }
    }

    /// Returns true if the network interface keeps fetched data until it is acknowledged, and
    /// reports the fetch to the host. (The manufacturer's software reports once, when all is done.)
    fn keeps_buffers(&self) -> bool {
        self.choice.repair == Repair::Interface && !self.is_gm()
    }

    /// Returns true for the manufacturer's library, whose programs send from registered memory.
    pub fn is_gm(&self) -> bool {
        self.choice.family == Family::Gm
    }
}
