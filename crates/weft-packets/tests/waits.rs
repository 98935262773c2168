//! A long wait in the packet interface logs the rank it waits for.
#![allow(non_snake_case)]

#[path = "../../weft/tests/kept/mod.rs"]
mod kept;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Once;
use std::time::{Duration, Instant};
use weft::job::open_endpoint;
use weft::{Address, Config, Links, PeerId};
use weft_packets::Packets;

/// The bound of all waits.
const LIMIT: Duration = Duration::from_secs(300);

/// Opens one of two endpoints in its thread, and meets the other.
fn open(rank: u32, to: &Sender<Address>, from: &Receiver<Address>) -> (Packets, PeerId) {
    static LOGS: Once = Once::new();
    LOGS.call_once(kept::start);
    let config = Config { warn_after_ms: 300, rank: Some(rank), ..Config::default() };
    let endpoint = open_endpoint(config, Links::parse("shm").unwrap(), [9; 32]).unwrap();
    to.send(endpoint.address()).unwrap();
    let peer = endpoint.connect(&from.recv().unwrap()).unwrap();
    (Packets::new(&endpoint).unwrap(), peer)
}

/// One endpoint waits by `wait` until the other lets it go on, after a line with `parts` was
/// logged.
fn told(
    parts: &[&str],
    wait: impl Fn(&Packets, PeerId) + Sync,
    go_on: impl Fn(&Packets, PeerId) + Sync,
) {
    let (to_b, from_a) = channel();
    let (to_a, from_b) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (to_b, from_b) = (to_b, from_b);
            let (a, b) = open(0, &to_b, &from_b);
            wait(&a, b);
            a.endpoint().close(LIMIT);
        });
        let (b, a) = open(1, &to_a, &from_a);
        let start = Instant::now();
        while !kept::has_line(parts) {
            assert!(start.elapsed() < LIMIT, "{parts:?}: {:?}", kept::lines());
            std::thread::yield_now();
        }
        go_on(&b, a);
        b.endpoint().close(LIMIT);
    });
}

#[test]
fn receive__names_the_rank_that_a_mailbox_waits_for() {
    let go_on = |packets: &Packets, peer| packets.send(peer, 2, 0, b"x").unwrap();
    let wait = |packets: &Packets, peer| {
        packets.mailbox(2);
        packets.receive(Some(peer), 2, &mut [0; 8]).unwrap();
    };
    told(&["waiting for ", " for a packet from rank 1 ("], wait, go_on);
    let wait = |packets: &Packets, _| {
        packets.mailbox(2);
        packets.receive(None, 2, &mut [0; 8]).unwrap();
    };
    told(&["waiting for ", " for a packet from anybody"], wait, go_on);
}

#[test]
fn wait__for_an_upcall_says_so() {
    let go_on = |packets: &Packets, peer| packets.send(peer, 2, 0, b"x").unwrap();
    let wait = |packets: &Packets, _| {
        let came = Rc::new(Cell::new(false));
        let noted = Rc::clone(&came);
        packets.handle(2, move |_, _| noted.set(true));
        while !came.get() {
            packets.wait(None);
        }
    };
    told(&["waiting for ", " for anything from anybody"], wait, go_on);
}

#[test]
fn send__names_the_rank_without_room() {
    const MANY: usize = 100_000;
    // The other endpoint makes no progress until the line was logged.
    let wait = |packets: &Packets, peer| {
        (0..MANY).for_each(|_| packets.send(peer, 2, 0, &[1; 256]).unwrap());
    };
    let go_on = |packets: &Packets, _| {
        let came = Rc::new(Cell::new(0));
        let noted = Rc::clone(&came);
        packets.handle(2, move |_, _| noted.set(noted.get() + 1));
        while came.get() < MANY {
            packets.wait(None);
        }
    };
    told(&["waiting for ", " until earlier sends are accepted by rank 1 ("], wait, go_on);
}
