//! Two ends with random calls, over a network that loses, doubles and reorders packets: every byte
//! comes once and in order.
#![allow(non_snake_case)]

use super::packet::{FarPacket, DATA_MAX, HEAD, PACKET_MAX};
use super::*;
use crate::receiver::Next;
use crate::testing::{byte, Random};
use std::collections::VecDeque;

const KEY: seal::Key = [5; 16];

struct Side {
    end: End,
    words: Words,
    ring: Vec<u8>,
    receiver: Receiver,
    sender: Sender,
    /// Packets and bytes by TCP that come to this side.
    packets: VecDeque<Vec<u8>>,
    tcp: VecDeque<u8>,
    sent: u64,
    read: u64,
    by_packets: u64,
}

impl Side {
    fn new() -> Side {
        Side {
            end: End::default(),
            words: Words::default(),
            ring: vec![0; RING],
            receiver: Receiver::default(),
            sender: Sender::default(),
            packets: VecDeque::new(),
            tcp: VecDeque::new(),
            sent: 0,
            read: 0,
            by_packets: 0,
        }
    }
}

struct Net {
    sides: [Side; 2],
    random: Random,
    /// Chances in 100 that a packet is lost, doubled, and overtaken.
    faults: [u64; 3],
}

impl Net {
    fn new(seed: u64) -> Net {
        let mut random = Random(seed);
        let mut fault = || if random.next(2) == 0 { 0 } else { random.next(40) };
        let faults = [fault(), fault(), fault()];
        Net { sides: [Side::new(), Side::new()], random, faults }
    }

    fn chance(&mut self, fault: usize) -> bool {
        self.random.next(100) < self.faults[fault]
    }

    fn transmit(&mut self, from: usize, packet: FarPacket, data: &[u8]) {
        let mut bytes = [0; PACKET_MAX];
        bytes[HEAD..HEAD + data.len()].copy_from_slice(data);
        let len = packet.seal(&KEY, &mut bytes);
        let copies = if self.chance(0) { 0 } else { 1 + usize::from(self.chance(1)) };
        for _ in 0..copies {
            let to = &mut self.sides[1 - from].packets;
            to.push_back(bytes[..len].to_vec());
            let n = to.len();
            if n > 1 && self.chance(2) {
                let at = self.random.next(n as u64) as usize;
                self.sides[1 - from].packets.swap(at, n - 1);
            }
        }
    }

    /// A side takes the next packet that came to it.
    fn pump(&mut self, who: usize) -> bool {
        let side = &mut self.sides[who];
        let Some(bytes) = side.packets.pop_front() else { return false };
        let packet = FarPacket::open(&KEY, &bytes).unwrap();
        let is_due = match side.end.hear(&packet, &side.words, &side.receiver).unwrap() {
            Heard::Nothing => false,
            Heard::Answer => true,
            Heard::Take(at) => {
                let data = &bytes[HEAD..HEAD + packet.data.len];
                for (i, byte) in data.iter().enumerate() {
                    side.ring[(at as usize + i) % RING] = *byte;
                }
                let is_put = side.end.put(&packet.data, &side.words);
                side.by_packets += if is_put { packet.data.len as u64 } else { 0 };
                true
            }
        };
        if is_due {
            let state = self.sides[who].end.state();
            self.transmit(who, state, &[]);
        }
        true
    }

    fn by_tcp(&mut self, who: usize, from: u64, len: u64) {
        let call = self.sides[who].sender.by_tcp(None);
        call.done(len);
        let bytes = (from..from + len).map(byte);
        self.sides[1 - who].tcp.extend(bytes);
    }

    fn send(&mut self, who: usize, len: u64) {
        let mut left = len;
        let side = &self.sides[who];
        if len <= 4 * DATA_MAX as u64 && side.end.may_send(&side.sender) {
            let mut from = side.sent;
            while left > 0 {
                let n = left.min(DATA_MAX as u64);
                let side = &self.sides[who];
                let packet = side.end.give(&side.sender, n as usize);
                let data: Vec<u8> = (from..from + n).map(byte).collect();
                self.transmit(who, packet, &data);
                (from, left) = (from + n, left - n);
            }
            // The program waits for a while, in which the other one may look or not.
            for _ in 0..self.random.next(12) {
                let looks = self.random.next(2) as usize;
                self.pump(looks);
            }
            let end = &self.sides[who].end;
            left = end.unacked() as u64;
            if left > 0 {
                end.is_silent();
            }
            self.sides[who].sent = from - left;
        }
        if left > 0 {
            // Bytes that were not acknowledged come first.
            let again = self.sides[who].end.stop();
            let state = self.sides[who].end.state();
            let more = again.map_or(0, |n| n as u64).saturating_sub(left);
            assert_eq!(more, 0, "bytes of an earlier call");
            self.transmit(who, state, &[]);
            let from = self.sides[who].sent;
            self.by_tcp(who, from, left);
            self.sides[who].sent += left;
        }
    }

    fn take_tcp(&mut self, who: usize, most: u64) -> u64 {
        let side = &mut self.sides[who];
        let call = side.receiver.tcp.call();
        let n = most.min(side.tcp.len() as u64);
        for got in side.tcp.drain(..n as usize) {
            assert_eq!(got, byte(side.read), "byte {} by TCP", side.read);
            side.read += 1;
        }
        call.done(n);
        n
    }

    /// A receive that does not wait. `asks`: the agents are asked for a statement.
    fn recv(&mut self, who: usize, most: u64, asks: bool) -> u64 {
        loop {
            let other = self.sides[1 - who].end.statement();
            let side = &mut self.sides[who];
            match side.receiver.next(&side.words).unwrap() {
                Next::Ring { at, len } => {
                    let n = most.min(len as u64);
                    for i in 0..n {
                        let got = side.ring[(at + i) as usize % RING];
                        assert_eq!(got, byte(side.read), "byte {} of the ring", side.read);
                        side.read += 1;
                    }
                    side.receiver.take(&side.words, n as usize);
                    return n;
                }
                Next::Tcp(left) => return self.take_tcp(who, most.min(left)),
                Next::Open => {
                    if !side.receiver.sleep(&side.words).unwrap() {
                        continue;
                    }
                    match side.end.by_tcp() {
                        ByTcp::Next => return self.take_tcp(who, most),
                        ByTcp::Unknown if side.tcp.is_empty() => return 0,
                        ByTcp::Unknown => {
                            if asks {
                                side.end.hear_statement(other).unwrap();
                                if side.end.by_tcp() == ByTcp::Unknown {
                                    return 0;
                                }
                            } else if !self.pump(who) {
                                return 0;
                            }
                        }
                        ByTcp::Twice(n) => {
                            let n = n.min(side.tcp.len() as u64);
                            if n == 0 {
                                return 0;
                            }
                            side.tcp.drain(..n as usize);
                            side.receiver.tcp.call().done(n);
                            side.end.dropped(n);
                        }
                    }
                }
            }
        }
    }

    fn wake(&mut self, who: usize, tells: bool) {
        let side = &self.sides[who];
        if side.receiver.wake(&side.words) && tells && side.end.tells(true) {
            let state = side.end.state();
            self.transmit(who, state, &[]);
        }
    }

    fn step(&mut self) {
        let who = self.random.next(2) as usize;
        match self.random.next(12) {
            0 | 1 => {
                let most = 1 << (1 + self.random.next(14));
                let len = 1 + self.random.next(most);
                self.send(who, len);
            }
            2 | 3 => {
                let (most, asks) = (1 + self.random.next(8192), self.random.next(4) == 0);
                self.recv(who, most, asks);
            }
            4..=6 => self.wake(who, true),
            7 => self.wake(who, false),
            8 => {
                let side = &self.sides[who];
                let slept = side.receiver.sleep(&side.words).unwrap();
                if slept && side.end.tells(false) {
                    let state = side.end.state();
                    self.transmit(who, state, &[]);
                }
            }
            9 => self.sides[who].receiver.doze(&self.sides[who].words),
            _ => drop(self.pump(who)),
        }
    }
}

/// Returns the bytes that came by packets.
fn run(seed: u64) -> u64 {
    let mut net = Net::new(seed);
    (0..2).for_each(|who| net.by_tcp(who, 0, 7));
    net.sides.iter_mut().for_each(|side| side.sent = 7);
    for _ in 0..600 {
        net.step();
    }
    for who in 0..2 {
        // The statement of a phase may be lost for ever: the agents have it.
        while net.recv(who, 1 << 20, true) > 0 {}
    }
    let [one, two] = &net.sides;
    assert_eq!((one.read, two.read), (two.sent, one.sent));
    one.by_packets + two.by_packets
}

/// A program without the library takes a connection over at any moment: returns the bytes that
/// waited in the ring, of which those that come by TCP again are left there.
fn hand_over(seed: u64) -> u64 {
    let mut net = Net::new(seed);
    (0..2).for_each(|who| net.by_tcp(who, 0, 7));
    net.sides.iter_mut().for_each(|side| side.sent = 7);
    for _ in 0..100 + seed % 200 {
        net.step();
    }
    let who = (seed % 2) as usize;
    // It is awake, and leaves unread what comes.
    while net.recv(who, 1 << 20, true) > 0 || net.pump(who) {}
    net.sides[who].end.tells(false);
    net.wake(who, true);
    while net.pump(1 - who) {}
    for _ in 0..seed % 8 {
        let len = 1 + net.random.next(500);
        net.send(1 - who, len);
    }
    let (statement, sent) = (net.sides[1 - who].end.statement(), net.sides[1 - who].sent);
    let side = &mut net.sides[who];
    side.receiver.end(&side.words);
    side.end.hear_statement(statement).unwrap();
    assert_ne!(side.end.by_tcp(), ByTcp::Unknown);
    side.end.leave_to_tcp(&side.words, &side.receiver);
    if let ByTcp::Twice(bytes) = side.end.by_tcp() {
        assert_eq!(side.receiver.unread(&side.words), 0);
        side.tcp.drain(..bytes as usize);
    }
    let (before, at, len) = match side.receiver.next(&side.words).unwrap() {
        Next::Ring { at, len } => (0, at, len),
        Next::Tcp(left) => (left, side.receiver.taken(), side.receiver.unread(&side.words)),
        Next::Open => (0, 0, 0),
    };
    let ring = (at..at + len as u64).map(|at| side.ring[at as usize % RING]);
    let (first, last) = (side.tcp.drain(..before as usize).collect::<Vec<_>>(), &side.tcp);
    let all: Vec<u8> = first.into_iter().chain(ring).chain(last.iter().copied()).collect();
    let right: Vec<u8> = (side.read..sent).map(byte).collect();
    assert!(all == right, "{} bytes instead of {}", all.len(), right.len());
    len as u64
}

#[test]
fn far__a_connection_that_is_handed_over_has_each_byte_once() {
    let waited: u64 = (0..1000)
        .map(|seed| match std::panic::catch_unwind(|| hand_over(seed)) {
            Ok(waited) => waited,
            Err(_) => panic!("seed {seed}"),
        })
        .sum();
    assert!(waited > 20_000, "{waited}");
}

#[test]
fn far__bytes_come_once_and_in_order_whatever_the_network() {
    let by_packets: u64 = (0..400)
        .map(|seed| match std::panic::catch_unwind(|| run(seed)) {
            Ok(by_packets) => by_packets,
            Err(_) => panic!("seed {seed}"),
        })
        .sum();
    assert!(by_packets > 100_000, "{by_packets}");
}

/// A packet that was taken, but whose acknowledgement came too late, is dropped from TCP.
#[test]
fn far__bytes_that_came_twice_are_dropped() {
    let mut net = Net::new(0);
    net.faults = [0; 3];
    net.wake(1, true);
    net.pump(0);
    let side = &net.sides[0];
    assert!(side.end.may_send(&side.sender));
    let packet = side.end.give(&side.sender, 5);
    let data: Vec<u8> = (0..5).map(byte).collect();
    net.transmit(0, packet, &data);
    net.pump(1);
    // The answer is there, but nobody looks.
    assert_eq!(net.sides[0].end.stop(), Some(5));
    net.by_tcp(0, 0, 5);
    net.by_tcp(0, 5, 3);
    assert_eq!(net.recv(1, 100, false), 5);
    assert_eq!(net.sides[1].end.by_tcp(), ByTcp::Unknown);
    assert_eq!(net.recv(1, 100, false), 0);
    let state = net.sides[0].end.state();
    net.transmit(0, state, &[]);
    assert_eq!(net.recv(1, 100, false), 3);
    assert_eq!(net.sides[1].read, 8);
    // The receiver says that it knows, and both go on.
    net.wake(1, true);
    while net.pump(0) {}
    let side = &net.sides[0];
    assert!(side.end.may_send(&side.sender));
}

/// A receiver that is left by its peer in the middle of a phase learns that nothing is in doubt.
#[test]
fn far__a_phase_ends_at_its_receiver_where_all_is_acknowledged() {
    let mut net = Net::new(0);
    net.faults = [0; 3];
    net.wake(1, true);
    net.pump(0);
    let side = &net.sides[0];
    let packet = side.end.give(&side.sender, 5);
    let data: Vec<u8> = (0..5).map(byte).collect();
    net.transmit(0, packet, &data);
    net.pump(1);
    let ends = [&net.sides[0].end, &net.sides[1].end];
    // The answer has not been looked at.
    ends[1].hear_statement(ends[0].statement()).unwrap();
    assert_eq!(ends[1].by_tcp(), ByTcp::Unknown);
    net.pump(0);
    let ends = [&net.sides[0].end, &net.sides[1].end];
    ends[1].hear_statement(ends[0].statement()).unwrap();
    assert_eq!(ends[1].by_tcp(), ByTcp::Next);
    let state = ends[1].state();
    net.transmit(1, state, &[]);
    net.pump(0);
    let side = &net.sides[0];
    // The phase is over: the sender ends it, and may begin another one.
    assert!(!side.end.may_send(&side.sender));
    assert_eq!(side.end.stop(), Some(0));
    assert_eq!(net.recv(1, 9, false), 5);
}

/// No packet of a hostile peer is a panic or a ring overrun.
#[test]
fn far__a_hostile_peer_harms_nobody_else() {
    let mut random = Random(3);
    for _ in 0..2_000 {
        let mut net = Net::new(random.next(1 << 40));
        net.faults = [0; 3];
        net.wake(0, true);
        for _ in 0..4 {
            let mut any = || random.next(u64::MAX) >> random.next(64);
            let (word, heard) = (any() as u32, any() as u32 & 1);
            let (ack, stop, at) = (Pos(any()), Pos(any()), Pos(any()));
            let data = Data { at, after: any(), len: any() as usize % DATA_MAX };
            let packet = FarPacket { word, ack, stop, heard, data };
            let side = &net.sides[0];
            match side.end.hear(&packet, &side.words, &side.receiver) {
                Ok(Heard::Take(_)) => assert!(side.end.put(&packet.data, &side.words)),
                Ok(_) => {}
                Err(Broken) => break,
            }
            let unread = side.words.unread(side.end.tail.load(Ordering::Relaxed));
            assert!(unread.unwrap() <= RING);
        }
    }
}
