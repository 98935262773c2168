//! Tests of the link: within one process where two links behave as two processes would, and with
//! real child processes (this test binary, run again) where death matters.
#![allow(non_snake_case)]

use super::*;
use crate::Bytes;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A packet as received.
type Packet = (Option<PeerId>, Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Log(Vec<Packet>);

impl Sink for Log {
    fn frame(&mut self, from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.0.push((from, header.to_vec(), payload.to_vec()));
    }
}

fn config(endpoint: u64) -> ShmConfig {
    ShmConfig::new(EndpointId(endpoint))
}

fn address_of(link: &ShmLink) -> Address {
    let mut address = Address { endpoint: link.config.endpoint, ..Address::default() };
    link.advertise(&mut address);
    address
}

fn info(peer: u32, address: &Address) -> PeerInfo {
    PeerInfo {
        peer: PeerId(peer),
        session: 0,
        endpoint: address.endpoint,
        address: address.clone(),
    }
}

const PEER: PeerId = PeerId(0);

fn frame<'a>(header: &'a [u8], payload: &'a [u8]) -> Frame<'a> {
    Frame { peer: PEER, header, payload }
}

/// Two links; the first is connected to the second and the second knows it as peer 0 too.
fn pair_of(a: ShmConfig, b: ShmConfig) -> (ShmLink, ShmLink) {
    let (mut a, mut b) = (ShmLink::new(a).unwrap(), ShmLink::new(b).unwrap());
    a.connect(&info(0, &address_of(&b))).unwrap();
    b.connect(&info(0, &address_of(&a))).unwrap();
    (a, b)
}

fn pair() -> (ShmLink, ShmLink) {
    pair_of(config(1), config(2))
}

fn counter(link: &ShmLink, name: &str) -> u64 {
    let mut value = None;
    link.counters(&mut |n, v| {
        if n == name {
            value = Some(v);
        }
    });
    value.unwrap()
}

/// Receives until `done` says so; looks at the sockets as a waiting driver would.
fn recv_until(link: &mut ShmLink, log: &mut Log, mut done: impl FnMut(&Log, &mut ShmLink) -> bool) {
    while !done(log, link) {
        if link.recv(64, log) == 0 {
            if link.prepare_wait() {
                wait(link);
            }
            link.finish_wait();
        }
    }
}

/// Blocks on the link's descriptors, as a driver does; fails the test after a minute.
fn wait(link: &ShmLink) {
    let mut fds = Vec::new();
    link.wait_fds(&mut fds);
    assert!(sys::misc::wait_readable(fds[0].fd, 60_000), "nothing came for a minute");
}

/// Bytes that tell their packet and place.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (seed.wrapping_mul(31) + i * 7 + (i >> 8)) as u8).collect()
}

#[test]
fn send__every_size_arrives_whole_and_in_order() {
    let (mut a, mut b) = pair();
    let mtu = a.caps().mtu as usize;
    for header_len in [24, 32, 55, 56, 57, 128] {
        for len in (0..300).chain((300..mtu - header_len).step_by(701)).chain([mtu - header_len]) {
            let (header, payload) = (pattern(len, header_len), pattern(len + 1, len));
            assert_eq!(a.send(&[frame(&header, &payload)]), 1);
            let mut log = Log::default();
            assert_eq!(b.recv(8, &mut log), 1);
            assert_eq!(log.0, [(Some(PEER), header, payload)], "{header_len} + {len}");
        }
    }
}

/// Runs this test binary again as `role`; it prints its address first.
struct Process {
    child: Child,
    address: Address,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Address {
    let bytes: Vec<u8> = (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect();
    Address::decode(&bytes).unwrap()
}

impl Process {
    fn start(role: &str, peer: &Address) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shm::tests::child__process", "--nocapture", "--test-threads=1"])
            .env("WEFT_SHM_TEST_ROLE", role)
            .env("WEFT_SHM_TEST_PEER", hex(&peer.encode()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        let line = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|l| l.split_once("ADDRESS ").map(|(_, hex)| hex.to_string()));
        Process { address: unhex(&line.expect("the child printed its address")), child }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child does; nothing unless started as one.
#[test]
fn child__process() {
    let Ok(role) = std::env::var("WEFT_SHM_TEST_ROLE") else { return };
    let parent = unhex(&std::env::var("WEFT_SHM_TEST_PEER").unwrap());
    let mut link = ShmLink::new(config(u64::from(std::process::id()) + 1000)).unwrap();
    println!("ADDRESS {}", hex(&address_of(&link).encode()));
    std::io::stdout().flush().unwrap();
    match role.as_str() {
        "echo" => child_echo(&mut link, &parent),
        "flood" => child_flood(&mut link, &parent),
        _ => panic!("role {role}"),
    }
}

/// Sends back what it gets until the parent is gone.
fn child_echo(link: &mut ShmLink, parent: &Address) {
    link.connect(&info(0, parent)).unwrap();
    let mut log = Log::default();
    loop {
        recv_until(link, &mut log, |log, link| !log.0.is_empty() || link.peer(PEER).is_none());
        if log.0.is_empty() {
            return;
        }
        for (_, header, payload) in log.0.drain(..) {
            while link.send(&[frame(&header, &payload)]) == 0 {}
        }
    }
}

/// Sends numbered packets as fast as it can, for ever.
fn child_flood(link: &mut ShmLink, parent: &Address) {
    link.connect(&info(0, parent)).unwrap();
    for n in 0_usize.. {
        let header = [&n.to_le_bytes()[..], &[0; 24]].concat();
        let payload = pattern(n, n % 5000);
        while link.send(&[frame(&header, &payload)]) == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn processes__exchange_packets() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start("echo", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    for n in 0..200 {
        let (header, payload) = (pattern(n, 32), pattern(n, n * 100));
        assert_eq!(link.send(&[frame(&header, &payload)]), 1);
        let mut log = Log::default();
        recv_until(&mut link, &mut log, |log, _| !log.0.is_empty());
        assert_eq!(log.0, [(Some(PEER), header, payload)]);
    }
}

#[test]
fn processes__death_is_reported_after_what_was_sent() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let mut child = Process::start("flood", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    let mut log = Log::default();
    recv_until(&mut link, &mut log, |log, _| log.0.len() > 3000);
    child.child.kill().unwrap();
    child.child.wait().unwrap();
    recv_until(&mut link, &mut log, |_, link| !link.events.is_empty());
    assert_eq!(link.poll_event(), Some(LinkEvent::PeerGone(PEER)));
    for (n, (from, header, payload)) in log.0.iter().enumerate() {
        assert_eq!(*from, Some(PEER));
        assert_eq!(header[..8], n.to_le_bytes());
        assert_eq!(*payload, pattern(n, n % 5000));
    }
    assert_eq!(link.send(&[frame(&[0; 24], b"lost")]), 1);
    assert_eq!(counter(&link, "shm_dropped"), 1);
}
