//! Both ends of a direction against a model: random calls from a seed, one after the other, with
//! hostile words too.
#![allow(non_snake_case)]

use crate::receiver::{Next, Receiver};
use crate::sender::{Sender, Way};
use crate::testing::{byte, Random};
use crate::words::{Words, RING};
use std::collections::VecDeque;

#[derive(Default)]
struct Direction {
    words: Words,
    ring: Vec<u8>,
    tcp: VecDeque<u8>,
    sender: Sender,
    receiver: Receiver,
    sent: u64,
    read: u64,
    by_ring: u64,
}

impl Direction {
    fn new() -> Direction {
        Direction { ring: vec![0; RING], ..Direction::default() }
    }

    fn send(&mut self, len: u64, by_tcp: bool) {
        let mut left = len;
        while left > 0 {
            match self.sender.way(&self.words).unwrap() {
                Way::Ring { at, space, switch } if !by_tcp => {
                    let n = left.min(space as u64);
                    for i in 0..n {
                        self.ring[(at + i) as usize % RING] = byte(self.sent + i);
                    }
                    assert!(self.sender.publish(&self.words, n as usize, switch).unwrap());
                    (self.sent, left, self.by_ring) = (self.sent + n, left - n, self.by_ring + n);
                }
                _ => {
                    let call = self.sender.by_tcp(Some(&self.words));
                    self.tcp.extend((0..left).map(|i| byte(self.sent + i)));
                    call.done(left);
                    (self.sent, left) = (self.sent + left, 0);
                }
            }
        }
    }

    fn by_tcp(&mut self, most: u64) -> u64 {
        let call = self.receiver.tcp.call();
        let n = most.min(self.tcp.len() as u64);
        for got in self.tcp.drain(..n as usize) {
            assert_eq!(got, byte(self.read));
            self.read += 1;
        }
        call.done(n);
        n
    }

    /// A read that does not block. Returns the bytes read.
    fn recv(&mut self, most: u64) -> u64 {
        loop {
            match self.receiver.next(&self.words).unwrap() {
                Next::Ring { at, len } => {
                    let n = most.min(len as u64);
                    for i in 0..n {
                        assert_eq!(self.ring[(at + i) as usize % RING], byte(self.read));
                        self.read += 1;
                    }
                    self.receiver.take(&self.words, n as usize);
                    return n;
                }
                Next::Tcp(left) => return self.by_tcp(most.min(left)),
                Next::Open => {
                    if self.receiver.sleep(&self.words).unwrap() {
                        return self.by_tcp(most);
                    }
                }
            }
        }
    }
}

fn run(seed: u64) -> u64 {
    let mut random = Random(seed);
    let mut d = Direction::new();
    // Bytes before the upgrade.
    d.send(random.next(100), true);
    for _ in 0..400 {
        let len = 1 + random.next(3 * RING as u64 / 2) % (1 << (1 + random.next(16)));
        match random.next(11) {
            10 => d.receiver.make_inactive(&d.words),
            0..=3 => d.send(len, false),
            4 => d.send(len, true),
            5..=7 => drop(d.recv(len)),
            8 => drop(d.receiver.wake(&d.words)),
            _ => drop(d.receiver.sleep(&d.words).unwrap()),
        }
        if random.next(400) == 0 {
            d.receiver.end(&d.words);
        }
        if random.next(400) == 0 {
            d.sender.end();
        }
    }
    while d.recv(1 << 20) > 0 {}
    assert_eq!(d.sent, d.read);
    d.by_ring
}

#[test]
fn direction__bytes_come_in_order_whatever_the_calls() {
    let by_ring: u64 = (0..300)
        .map(|seed| match std::panic::catch_unwind(|| run(seed)) {
            Ok(by_ring) => by_ring,
            Err(_) => panic!("seed {seed}"),
        })
        .sum();
    assert!(by_ring > 0);
}

#[test]
fn direction__a_receiver_that_ended_gets_the_rest_by_tcp() {
    let mut d = Direction::new();
    assert!(d.receiver.wake(&d.words));
    d.send(10, false);
    assert_eq!((d.by_ring, d.receiver.unread(&d.words)), (10, 10));
    d.receiver.end(&d.words);
    assert!(!d.receiver.wake(&d.words));
    d.send(10, false);
    assert_eq!((d.by_ring, d.recv(100), d.recv(100), d.recv(100)), (10, 10, 10, 0));
}

#[test]
fn wake__not_while_a_thread_is_in_a_call_of_the_kernel() {
    let d = Direction::new();
    let call = d.receiver.tcp.call();
    assert!(!d.receiver.wake(&d.words));
    call.done(3);
    assert_eq!((d.receiver.tcp.bytes(), d.receiver.tcp.calls()), (3, 0));
    d.receiver.wait_begins();
    assert!(!d.receiver.wake(&d.words));
    d.receiver.wait_ends();
    assert!(d.receiver.wake(&d.words));
}

#[test]
fn way__a_full_ring_overflows_and_comes_back_when_it_is_empty() {
    let mut d = Direction::new();
    d.receiver.wake(&d.words);
    d.send(RING as u64, false);
    assert_eq!(d.sender.way(&d.words), Ok(Way::Full));
    d.send(5, false);
    assert_eq!(d.by_ring, RING as u64);
    assert_eq!(d.recv(10), 10);
    // There is space, but the bytes in TCP come first.
    assert_eq!(d.sender.way(&d.words), Ok(Way::Full));
    assert_eq!(d.recv(1 << 20), RING as u64 - 10);
    assert!(matches!(d.sender.way(&d.words), Ok(Way::Ring { switch: Some(5), .. })));
    d.send(7, false);
    // The bytes in the ring come after those in TCP, which may be on the way.
    let behind = |by_tcp| d.receiver.unread_behind(&d.words, by_tcp);
    assert_eq!([0, 4, 5, 6].map(behind), [0, 0, 7, 7]);
    assert_eq!((d.recv(3), d.recv(100), d.recv(100)), (3, 2, 7));
}

/// A handler of a signal that interrupts a sender between its decision and its publication sends
/// by TCP.
#[test]
fn publish__bytes_of_a_handler_are_not_overtaken_by_later_ones() {
    for before in [0, 3] {
        let mut d = Direction::new();
        d.receiver.wake(&d.words);
        d.send(before, false);
        let Ok(Way::Ring { at, switch, .. }) = d.sender.way(&d.words) else { panic!() };
        let call = d.sender.by_tcp(Some(&d.words));
        d.tcp.extend([b'h']);
        call.done(1);
        d.ring[at as usize] = b'w';
        assert!(d.sender.publish(&d.words, 1, switch).unwrap());
        // The next bytes go by TCP too, as the ring is not empty.
        assert_eq!(d.sender.way(&d.words), Ok(Way::Full));
        let Ok(Next::Ring { at: 0, len }) = d.receiver.next(&d.words) else { panic!() };
        assert_eq!(len as u64, before + 1);
    }
}

/// No words of a peer make an end read or write outside of the ring, or try for ever.
#[test]
fn words__of_a_hostile_peer_end_the_connection() {
    let mut random = Random(7);
    for _ in 0..5_000 {
        let d = Direction::new();
        d.receiver.wake(&d.words);
        let value = |r: &mut Random| r.next(u64::MAX) >> r.next(64);
        d.words.scribble([value(&mut random), value(&mut random), value(&mut random)]);
        match d.receiver.next(&d.words) {
            Ok(Next::Ring { len, .. }) => assert!((1..=RING).contains(&len)),
            Ok(Next::Tcp(left)) => assert!(left > 0),
            Ok(Next::Open) => drop(d.receiver.sleep(&d.words)),
            Err(_) => {}
        }
        if let Ok(Way::Ring { at, space, switch }) = d.sender.way(&d.words) {
            assert!(at == 0 && space <= RING);
            let _ = d.sender.publish(&d.words, space, switch);
        }
    }
}
