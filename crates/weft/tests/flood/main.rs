//! Messages and packets without a receive must not hide an awaited one, and their memory comes
//! back.
#![allow(non_snake_case)]

#[allow(unsafe_code)]
mod sys;

use std::time::{Duration, Instant};
use weft::{Clock, Config, Endpoint, EndpointId, OpError, PeerFailure, PeerId};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::{FaultSpec, Wrappers};
use weft_link::{Link, ShmConfig, ShmLink, UdpConfig, UdpLink};
use weft_packets::{Packets, Received};

/// Two endpoints, and the peer of each for the other.
struct Pair {
    name: &'static str,
    a: Endpoint,
    b: Endpoint,
    to_b: PeerId,
    to_a: PeerId,
}

const LINKS: [&str; 3] = ["shm", "udp", "lossy"];

fn udp(id: u64, lossy: bool) -> Box<dyn Link> {
    let faults: Option<FaultSpec> = lossy.then(|| "loss=1%,reorder=1%,seed=7".parse().unwrap());
    let host = weft_link::shm::host().unwrap();
    let config = UdpConfig { host, faults, ..UdpConfig::default() };
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: EndpointId(id) };
    let clock = Clock::system();
    let around = Wrappers { faults, ..Wrappers::default() };
    let time: weft_link::wrap::Clock = std::rc::Rc::new(move || clock.now());
    around.around(Box::new(UdpLink::new(config, security).unwrap()), &time).unwrap()
}

fn pair(name: &'static str, config: &Config) -> Pair {
    let clock = Clock::system();
    let open = |rank| {
        let id = weft_link::random_u64();
        let link: Box<dyn Link> = match name {
            "shm" => Box::new(ShmLink::new(ShmConfig::new(EndpointId(id))).unwrap()),
            _ => udp(id, name == "lossy"),
        };
        let config = Config { rank: Some(rank), ..config.clone() };
        Endpoint::with_links(config, EndpointId(id), clock.clone(), vec![link])
    };
    let (a, b) = (open(0), open(1));
    let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
    let pair = Pair { name, a, b, to_b, to_a };
    // The session is open.
    let (send, recv) = (pair.a.send(to_b, 9, vec![1]), pair.b.recv(Some(to_a), 9, 0, vec![0]));
    pair.until(|| send.is_done() && recv.is_done());
    pair
}

impl Pair {
    fn until(&self, done: impl Fn() -> bool) {
        let start = Instant::now();
        while !done() {
            self.a.progress();
            self.b.progress();
            assert!(start.elapsed() < Duration::from_secs(300), "{}: stuck", self.name);
        }
    }
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 7 + (i >> 8))) as u8).collect()
}

/// Sends messages without a receive, then an awaited one; then receives the others.
fn flood(name: &'static str, n: usize, len: usize) {
    let p = pair(name, &Config::default());
    let before = sys::live();
    let awaited = p.b.recv(Some(p.to_a), 2, 0, vec![0; 4]);
    let sends: Vec<_> = (0..n).map(|i| p.a.send(p.to_b, 1, bytes(i, len))).collect();
    let last = p.a.send(p.to_b, 2, b"here".to_vec());
    p.until(|| awaited.is_done());
    assert_eq!(p.b.block_on(awaited).1, b"here", "{name}");
    for i in 0..n {
        let recv = p.b.recv(Some(p.to_a), 1, 0, vec![0; len]);
        p.until(|| recv.is_done());
        assert!(p.b.block_on(recv).1 == bytes(i, len), "{name}: message {i} in its place");
    }
    p.until(|| last.is_done() && sends.iter().all(|send| send.is_done()));
    for send in sends.into_iter().chain([last]) {
        p.a.block_on(send).0.unwrap();
    }
    // The memory kept for later messages is bounded: see `reactor/spare.rs`.
    let spare = 4 << 20;
    p.until(|| sys::live() < before + spare);
}

#[test]
fn flood__of_small_messages() {
    LINKS.iter().for_each(|name| flood(name, 20_000, 4));
    flood("shm", 100_000, 4);
}

#[test]
fn flood__of_messages_that_use_up_the_credit() {
    LINKS.iter().for_each(|name| flood(name, 6_000, 2_000));
}

#[test]
fn flood__of_announced_messages() {
    LINKS.iter().for_each(|name| flood(name, 5_000, 70_000));
}

#[test]
fn flood__that_fills_the_room_ends_with_ranks_bytes_and_setting() {
    for name in ["shm", "udp"] {
        let (unexpected_max, rendezvous_max) = (64 << 10, 32);
        let config =
            Config { unexpected_max, rendezvous_max, peer_timeout_ms: 1_000, ..Config::default() };
        let p = pair(name, &config);
        p.a.peer(p.to_b).set_name("rank 1");
        p.b.peer(p.to_a).set_name("rank 0");
        let awaited = p.b.recv(Some(p.to_a), 2, 0, vec![0; 4]);
        let sends: Vec<_> = (0..400).map(|i| p.a.send(p.to_b, 1, bytes(i, 70_000))).collect();
        let last = p.a.send(p.to_b, 2, bytes(0, 70_000));
        p.until(|| awaited.is_done() && last.is_done());
        let error = p.b.block_on(awaited).0.unwrap_err();
        let flooded =
            |e: &OpError| matches!(e, OpError::Peer { failure: PeerFailure::Flooded { .. }, .. });
        assert!(flooded(&error), "{name}: {error}");
        let text = p.b.explain(error);
        for word in ["rank 0", "160 messages of 11200000 bytes", "WEFT_UNEXPECTED_MAX"] {
            assert!(text.contains(word), "{name}: {word}: {text}");
        }
        let error = p.a.block_on(last).0.unwrap_err();
        assert!(flooded(&error), "{name}: {error}");
        assert!(p.a.explain(error).contains("rank 1"), "{name}");
        drop(sends);
    }
}

/// Packets for one mailbox without a receive must not hide a packet for another.
#[test]
fn mailbox__what_is_left_in_one_does_not_hide_another() {
    for name in LINKS {
        let p = pair(name, &Config { eager_credit: 128 << 10, ..Config::default() });
        let (a, b) = (Packets::new(&p.a).unwrap(), Packets::new(&p.b).unwrap());
        b.mailbox(1);
        b.mailbox(2);
        let before = sys::live();
        let n = 5_000u32;
        let send = |to, n: u32, data: &[u8]| loop {
            match a.try_send(p.to_b, to, n, data) {
                Err(OpError::Busy) => _ = (p.a.progress(), p.b.progress()),
                sent => break sent.unwrap(),
            }
        };
        let start = Instant::now();
        let receive = |number, len: usize| -> (Received, Vec<u8>) {
            let mut buffer = vec![0; len];
            loop {
                p.a.progress();
                p.b.progress();
                if let Some(got) = b.try_receive(Some(p.to_a), number, &mut buffer) {
                    break (got.unwrap(), buffer);
                }
                assert!(start.elapsed() < Duration::from_secs(300), "{name}: stuck");
            }
        };
        for i in 0..n {
            send(1, i, &bytes(i as usize, 500));
        }
        send(2, 7, b"here");
        assert_eq!(receive(2, 4).1, b"here", "{name}");
        for i in 0..n {
            let (got, data) = receive(1, 500);
            assert_eq!((got.argument, data), (i, bytes(i as usize, 500)), "{name}");
        }
        let spare = 4 << 20;
        p.until(|| sys::live() < before + spare);
    }
}
