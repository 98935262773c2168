//! Host processors: library calls as steps of cycles, copies and writes over the I/O bus.

use super::choice::{Forward, Repair, Transfer};
use super::costs::{ADDRESS, DESCRIPTOR};
use super::firmware::Task;
use super::hardware::{Ps, LINE};
use super::machine::{Event, Kind, Machine, Packet, PacketId, User, PIECE};
use weft_core::reliability::Verdict;
use weft_core::seq::Seq;

/// A step of the host processor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// Computes for a time.
    Cpu(Ps),
    /// Copies bytes, with a time for each line.
    Copy { left: u64, line: Ps },
    /// Writes bytes over the I/O bus, combined to lines.
    Pio { left: u64 },
    /// Writes bytes over the I/O bus that give the network interface a packet. They are posted: the
    /// processor goes on, and a later write waits for its turn on the bus.
    Post { bytes: u64, packet: PacketId },
    /// The send call returns.
    Sent,
    /// The program gets the packet.
    Received(PacketId),
}

/// The next action of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Send one packet, with a number for it, after some cycles of work.
    Send { to: usize, bytes: u64, tag: u64, work: u64 },
    /// Send one packet to all.
    Multicast { bytes: u64, tag: u64, work: u64 },
    /// Fetch and add at another node.
    FetchAdd { at: usize, work: u64 },
    /// Compute for a time, in which no packet is received, unless interrupts may break in.
    Compute { time: Ps, open: bool },
    /// Nothing until something arrives.
    Wait,
}

/// The programs of all nodes. Times are those of the call.
pub(super) trait Programs {
    /// Notes the time, before the next action of a node is asked for.
    fn at(&mut self, now: Ps) {
        let _ = now;
    }
    /// Returns the next action of `node`; called again until it is possible.
    fn wish(&mut self, node: usize) -> Wish;
    /// Notes that the call of the action has returned.
    fn sent(&mut self, node: usize, began: Ps, ended: Ps);
    /// Notes that a packet's upcall, or a fetch-and-add, has returned.
    fn received(&mut self, node: usize, tag: u64, began: Ps, ended: Ps);
    /// Notes the value of a fetch-and-add.
    fn replied(&mut self, node: usize, value: u64, began: Ps, ended: Ps) {
        self.received(node, value, began, ended);
    }
    /// Returns the cycles of the program's layers for a packet that it receives; `None`: the reply
    /// to a fetch-and-add.
    fn work(&self, node: usize, tag: Option<u64>) -> u64 {
        let _ = (node, tag);
        0
    }
    /// Notes that an interrupt has broken into a computation, of which this time is left.
    fn interrupted(&mut self, node: usize, left: Ps) {
        let _ = (node, left);
    }
    /// Returns the time at which a node that waits has something to do.
    fn alarm(&self, node: usize) -> Option<Ps> {
        let _ = node;
        None
    }
    /// Returns true if the programs are done.
    fn done(&self) -> bool;
}

impl Machine {
    /// Runs until the programs are done; returns the time. None if no event is left before.
    pub fn run(&mut self, programs: &mut dyn Programs) -> Option<Ps> {
        for node in 0..self.nodes.len() {
            self.wake(node);
        }
        while !programs.done() {
            match self.next_event()? {
                Event::Host(node) => {
                    self.nodes[node].host.busy = false;
                    self.host_step(node, programs);
                }
                Event::Computed(node, turn) => self.computed(node, turn, programs),
                Event::Interrupt(node, turn) => self.interrupt(node, turn, programs),
                Event::Alarm(node) => {
                    self.nodes[node].host.alarm = None;
                    self.wake(node);
                }
                Event::Task(node) => self.task_done(node),
                Event::DmaReady(node) => self.want_bus(node, User::Dma),
                Event::Bus(node) => match self.bus_done(node) {
                    Some(User::Host) => {
                        self.nodes[node].host.busy = false;
                        self.host_step(node, programs);
                    }
                    Some(User::Posted { packet, .. }) => self.post(node, packet),
                    _ => {}
                },
                Event::Sent(node) => self.chunk_sent(node),
                Event::Arrived(packet) => self.arrived(packet),
                Event::Timer(node, other) => self.timer(node, other),
            }
        }
        Some(self.now)
    }

    /// Wakes a host that may be waiting, after a change.
    pub fn wake(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.host.ops.is_empty() && !n.host.busy {
            n.host.busy = true;
            self.after(0, Event::Host(node));
        }
    }

    /// Does steps until one takes time.
    fn host_step(&mut self, node: usize, programs: &mut dyn Programs) {
        if self.nodes[node].host.busy {
            return;
        }
        loop {
            let Some(op) = self.nodes[node].host.ops.front().copied() else {
                if !self.decide(node, programs) {
                    return;
                }
                continue;
            };
            match op {
                Op::Pio { left: 0 } | Op::Copy { left: 0, .. } => {}
                Op::Pio { .. } => {
                    self.nodes[node].host.busy = true;
                    self.want_bus(node, User::Host);
                    return;
                }
                Op::Cpu(time) => {
                    self.nodes[node].host.ops.pop_front();
                    self.compute(node, time);
                    return;
                }
                Op::Copy { left, line } => {
                    let bytes = left.min(PIECE);
                    self.nodes[node].host.ops[0] = Op::Copy { left: left - bytes, line };
                    let time = bytes.div_ceil(LINE) * line;
                    self.compute(node, self.shared_memory(node, bytes, time));
                    return;
                }
                Op::Post { bytes: 0, packet } => self.post(node, packet),
                Op::Post { bytes, packet } => {
                    self.want_bus(node, User::Posted { bytes, packet });
                }
                Op::Sent => programs.sent(node, self.nodes[node].host.began, self.now),
                Op::Received(id) => {
                    let (began, packet) = (self.nodes[node].host.began, &self.packets[id]);
                    match packet.kind {
                        Kind::Reply => programs.replied(node, packet.tag, began, self.now),
                        _ => programs.received(node, packet.tag, began, self.now),
                    }
                }
            }
            self.nodes[node].host.ops.pop_front();
        }
    }

    fn compute(&mut self, node: usize, time: Ps) {
        self.nodes[node].host.busy = true;
        self.after(time, Event::Host(node));
    }

    /// Chooses the host's next step; false if it waits.
    fn decide(&mut self, node: usize, programs: &mut dyn Programs) -> bool {
        self.nodes[node].host.began = self.now;
        if let Some(id) = self.nodes[node].host.rx.pop_front() {
            let packet = &self.packets[id];
            let work = match packet.kind {
                Kind::Data => programs.work(node, Some(packet.tag)),
                Kind::Reply => programs.work(node, None),
                _ => 0,
            };
            self.receive(node, id, work);
            return true;
        }
        programs.at(self.now);
        match programs.wish(node) {
            Wish::Wait => {
                if let Some(at) = programs.alarm(node) {
                    self.set_alarm(node, at);
                }
                false
            }
            Wish::Compute { time, open: true } => {
                self.compute_open(node, time);
                false
            }
            Wish::Compute { time, open: false } => {
                self.op(node, Op::Cpu(time));
                true
            }
            Wish::Send { to, bytes, tag, work } => self.send(node, to, bytes, (tag, work)),
            Wish::Multicast { bytes, tag, work } => self.multicast(node, bytes, (tag, work)),
            Wish::FetchAdd { at, work } => self.ask(node, at, work),
        }
    }

    /// Begins a computation into which interrupts may break.
    fn compute_open(&mut self, node: usize, time: Ps) {
        let end = self.now + time;
        let n = &mut self.nodes[node];
        n.host.computing.turn += 1;
        n.host.computing.end = Some(end);
        n.host.busy = true;
        let turn = n.host.computing.turn;
        self.after(time, Event::Computed(node, turn));
    }

    fn computed(&mut self, node: usize, turn: u32, programs: &mut dyn Programs) {
        let n = &mut self.nodes[node];
        if n.host.computing.turn == turn && n.host.computing.end.take().is_some() {
            n.host.busy = false;
            self.host_step(node, programs);
        }
    }

    /// Starts the network interface's timer when a packet has come to a host that computes
    /// (section 4.1).
    pub fn watch(&mut self, node: usize) {
        let n = &mut self.nodes[node];
        if n.host.computing.end.is_some() && n.host.computing.watched != n.host.computing.turn {
            n.host.computing.watched = n.host.computing.turn;
            let turn = n.host.computing.turn;
            self.after(self.hw.watchdog, Event::Interrupt(node, turn));
        }
    }

    /// Interrupts the host, if it has not polled since the timer was started.
    fn interrupt(&mut self, node: usize, turn: u32, programs: &mut dyn Programs) {
        let n = &mut self.nodes[node];
        let Some(end) = n.host.computing.end.take_if(|_| n.host.computing.turn == turn) else {
            return;
        };
        n.host.busy = false;
        self.counts.interrupts += 1;
        programs.interrupted(node, end - self.now);
        self.cpu(node, self.host.interrupt);
        self.host_step(node, programs);
    }

    /// Wakes a host at a time, unless it wakes earlier: then it is asked again.
    fn set_alarm(&mut self, node: usize, at: Ps) {
        if self.nodes[node].host.alarm.is_none_or(|earlier| at < earlier) {
            self.nodes[node].host.alarm = Some(at);
            self.after(at.saturating_sub(self.now), Event::Alarm(node));
        }
    }

    fn cpu(&mut self, node: usize, cycles: u64) {
        self.op(node, Op::Cpu(cycles * self.hw.host_cycle * self.hw.host_work / 100));
    }

    /// Adds work of the layers above, if there is any.
    fn work(&mut self, node: usize, cycles: u64) {
        if cycles > 0 {
            self.cpu(node, cycles);
        }
    }

    fn op(&mut self, node: usize, op: Op) {
        self.nodes[node].host.ops.push_back(op);
    }

    /// Writes words one by one, in 32nds of a word.
    fn words(&mut self, node: usize, count: u64) {
        let word = self.hw.bus_time(4, self.hw.pio_clocks);
        self.op(node, Op::Cpu(word * count / 32));
    }

    fn packet(&mut self, kind: Kind, from: usize, to: usize, bytes: u64, tag: u64) -> PacketId {
        let buffer = self.add_buffer(None, 1, false);
        self.add_packet(Packet {
            kind,
            from,
            to,
            bytes,
            tag,
            root: None,
            seq: None,
            ack: Seq(0),
            nack: false,
            buffer,
        })
    }

    /// Returns true if a packet to `to` may leave the host.
    fn may_send(&mut self, node: usize, to: usize) -> bool {
        if self.nodes[node].host.free <= 0 {
            return false;
        }
        self.choice.repair != Repair::Host || self.peer(node, to).send.can_send()
    }

    fn send(&mut self, node: usize, to: usize, bytes: u64, (tag, work): (u64, u64)) -> bool {
        if !self.may_send(node, to) {
            return false;
        }
        self.work(node, work);
        let id = self.packet(Kind::Data, node, to, bytes, tag);
        self.send_steps(node, id);
        self.op(node, Op::Sent);
        true
    }

    /// Adds the steps of a send call with its data.
    fn send_steps(&mut self, node: usize, id: PacketId) {
        let bytes = self.packets[id].bytes;
        self.nodes[node].host.free -= 1;
        let c = &self.host;
        let (cycles, words) = (c.send + c.queue + c.repair_send, c.send_words);
        self.cpu(node, cycles);
        self.words(node, 32 * words);
        match self.choice.transfer {
            _ if self.is_gm() => return self.op(node, Op::Post { bytes: 0, packet: id }),
            // A source outside the caches adds nothing: combined writes are posted, and reading a
            // line takes less time than writing the previous one over the bus.
            Transfer::Pio => self.op(node, Op::Pio { left: self.header() + bytes }),
            Transfer::Sdma => {
                self.op(node, Op::Copy { left: bytes, line: self.copies.send_line });
                self.op(node, Op::Pio { left: self.header() + ADDRESS });
            }
            Transfer::Rcpy => self.op(node, Op::Pio { left: self.header() + ADDRESS }),
        }
        self.op(node, Op::Post { bytes: DESCRIPTOR, packet: id });
    }

    fn multicast(&mut self, node: usize, bytes: u64, (tag, work): (u64, u64)) -> bool {
        let id = self.packet(Kind::Data, node, node, bytes, tag);
        self.packets[id].root = Some(node);
        if self.choice.forward == Forward::Interface {
            if self.nodes[node].host.free <= 0 {
                return false;
            }
            self.work(node, work);
            self.send_steps(node, id);
        } else {
            let children: Vec<usize> = self.children(node, id).collect();
            if !children.iter().all(|&child| self.may_send(node, child)) {
                return false;
            }
            self.work(node, work);
            self.send_to_all(node, id, &children);
        }
        self.op(node, Op::Sent);
        true
    }

    /// Adds one transfer of the data, and one send descriptor for each child.
    fn send_to_all(&mut self, node: usize, id: PacketId, children: &[usize]) {
        for (i, &child) in children.iter().enumerate() {
            let packet = Packet { from: node, to: child, ..self.packets[id].clone() };
            let copy = self.add_packet(packet);
            if i == 0 {
                self.send_steps(node, copy);
                continue;
            }
            let buffer = self.packets[id].buffer;
            self.buffers[buffer].refs += 1;
            let cycles = self.host.resend + self.host.repair_send;
            self.cpu(node, cycles);
            self.op(node, Op::Post { bytes: DESCRIPTOR, packet: copy });
        }
    }

    fn ask(&mut self, node: usize, at: usize, work: u64) -> bool {
        if !self.may_send(node, at) {
            return false;
        }
        self.work(node, work);
        let id = self.packet(Kind::Ask, node, at, 8, 0);
        self.control(node, id, self.host.fetch_add);
        self.op(node, Op::Sent);
        true
    }

    /// Sends a packet whose few bytes go with its descriptor.
    fn control(&mut self, node: usize, id: PacketId, cycles: u64) {
        let buffer = self.packets[id].buffer;
        self.buffers[buffer].ready = true;
        // The packet takes no buffer from the limit.
        self.buffers[buffer].refs += 1;
        self.cpu(node, cycles + self.host.repair_send);
        let bytes = self.header() + ADDRESS + DESCRIPTOR;
        self.op(node, Op::Post { bytes, packet: id });
    }

    /// Gives the network interface the request. A retransmitting host numbers the packet first, or
    /// keeps it until its window opens.
    fn post(&mut self, node: usize, id: PacketId) {
        if self.choice.repair == Repair::Host && self.packets[id].kind != Kind::HostAck {
            let to = self.packets[id].to;
            if self.packets[id].seq.is_none() {
                let peer = self.peer(node, to);
                if !peer.blocked.is_empty() || !peer.send.can_send() {
                    peer.blocked.push_back(id);
                    return;
                }
                self.number(node, id);
            }
            let peer = self.peer(node, to);
            let ack = peer.recv.next_expected();
            peer.recv.ack_piggybacked();
            self.packets[id].ack = ack;
            self.start_timer(node, to);
        }
        self.add_task(node, Task::Request(id));
    }

    /// Gives the packet a number in the host's window.
    fn number(&mut self, node: usize, id: PacketId) {
        let (now, to, buffer) = (self.instant(), self.packets[id].to, self.packets[id].buffer);
        self.buffers[buffer].refs += 1;
        self.packets[id].seq = Some(self.peer(node, to).send.push(now, id));
    }

    /// Posts the packets that the window towards `other` admits now.
    fn host_unblock(&mut self, node: usize, other: usize) {
        loop {
            let peer = self.peer(node, other);
            if !peer.send.can_send() {
                return;
            }
            let Some(id) = peer.blocked.pop_front() else { return };
            self.number(node, id);
            self.op(node, Op::Post { bytes: 0, packet: id });
        }
    }

    /// Adds the steps of finding and receiving a packet.
    fn receive(&mut self, node: usize, id: PacketId, work: u64) {
        let packet = self.packets[id].clone();
        let poll = self.host.poll;
        // The poll reads a line that DMA has written: a cache miss.
        self.op(node, Op::Cpu(self.hw.line_fill));
        self.cpu(node, poll);
        if self.choice.repair == Repair::Host && !self.host_protocol(node, &packet) {
            return;
        }
        match packet.kind {
            Kind::Reply => {
                let cycles = self.host.fetch_add_reply + work;
                self.cpu(node, cycles);
                self.op(node, Op::Received(id));
            }
            Kind::Ask => self.answer(node, &packet),
            Kind::Data => self.upcall(node, id, &packet, work),
            Kind::Ack | Kind::HostAck => {}
        }
    }

    fn upcall(&mut self, node: usize, id: PacketId, packet: &Packet, work: u64) {
        let c = &self.host;
        let (cycles, after, words) = (c.receive + c.completion, c.after + work, c.receive_words);
        self.cpu(node, cycles);
        if packet.root.is_some() && self.choice.forward == Forward::Host {
            let children: Vec<usize> = self.children(node, id).collect();
            self.forward(node, id, &children);
        }
        self.cpu(node, after);
        self.words(node, words);
        // Remote-memory copy has delivered in place; the sender of a multicast has the data.
        let in_place = self.choice.transfer == Transfer::Rcpy || packet.root == Some(node);
        if let (Some(line), false) = (self.copies.receive_line, in_place) {
            self.op(node, Op::Copy { left: packet.bytes, line });
        }
        self.op(node, Op::Received(id));
    }

    /// Forwards a multicast packet before the upcall: from the receive queue to the children.
    fn forward(&mut self, node: usize, id: PacketId, children: &[usize]) {
        if children.is_empty() {
            return;
        }
        let buffer = self.add_buffer(None, 1, false);
        let packet = Packet { buffer, seq: None, ..self.packets[id].clone() };
        let id = self.add_packet(packet);
        self.send_to_all(node, id, children);
    }

    /// Answers a fetch-and-add request at the host.
    fn answer(&mut self, node: usize, packet: &Packet) {
        let value = self.nodes[node].counter;
        self.nodes[node].counter += 1;
        let cycles = self.host.receive;
        self.cpu(node, cycles);
        let reply = self.packet(Kind::Reply, node, packet.from, 8, value);
        self.control(node, reply, self.host.fetch_add);
    }

    /// Runs the receiver's part of the host's retransmission; false if the packet is dropped.
    fn host_protocol(&mut self, node: usize, packet: &Packet) -> bool {
        let (cycles, lines) = (self.host.repair_receive, self.host.repair_lines);
        self.cpu(node, cycles);
        self.op(node, Op::Cpu(lines * self.hw.line_fill));
        let from = packet.from;
        self.take_ack(node, from, packet.ack, packet.nack);
        if self.peer(node, from).send.awaiting_retransmit() > 0 {
            self.host_repeat(node, from);
        }
        self.host_unblock(node, from);
        let Some(seq) = packet.seq else { return false };
        let now = self.instant();
        let recv = &mut self.peer(node, from).recv;
        let good = recv.on_packet(seq) == Verdict::Deliver;
        if good {
            recv.note_received(now, false);
        }
        self.start_timer(node, from);
        self.host_ack(node, from);
        good
    }

    /// Acknowledges packets of `other` if that is due.
    fn host_ack(&mut self, node: usize, other: usize) {
        let now = self.instant();
        let recv = &mut self.peer(node, other).recv;
        if !recv.ack_due(now) {
            return;
        }
        let (ack, nack) = (recv.next_expected(), recv.has_gap());
        recv.ack_sent();
        self.counts.acks += 1;
        let id = self.packet(Kind::HostAck, node, other, 0, 0);
        (self.packets[id].ack, self.packets[id].nack) = (ack, nack);
        let buffer = self.packets[id].buffer;
        self.buffers[buffer].ready = true;
        self.buffers[buffer].refs += 1;
        let cycles = self.host.ack_make;
        self.cpu(node, cycles);
        let bytes = self.header() + ADDRESS + DESCRIPTOR;
        self.op(node, Op::Post { bytes, packet: id });
    }

    fn host_repeat(&mut self, node: usize, other: usize) {
        let now = self.instant();
        while let Some((_, id)) = self.peer(node, other).send.next_retransmit(now) {
            let buffer = self.packets[id].buffer;
            self.buffers[buffer].refs += 1;
            self.counts.resent += 1;
            let cycles = self.host.resend;
            self.cpu(node, cycles);
            self.op(node, Op::Post { bytes: DESCRIPTOR, packet: id });
        }
    }

    /// Handles the host's timer for `other`; `again`: packets are to be sent again.
    pub fn host_timer(&mut self, node: usize, other: usize, again: bool) {
        if again {
            self.host_repeat(node, other);
        }
        self.host_ack(node, other);
        let n = &mut self.nodes[node];
        if !n.host.ops.is_empty() && !n.host.busy {
            n.host.busy = true;
            self.after(0, Event::Host(node));
        }
    }
}
