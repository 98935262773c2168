//! Tests of the link: within one process if two links behave like two processes, and with real
//! child processes (this test binary, run again) if the end of a process matters.
#![allow(non_snake_case)]

use super::*;
use crate::Bytes;
use crate::SharedMemory;
use std::os::fd::AsFd;

mod copies;
mod hostile;
mod processes;

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

/// Makes a bare connection to the link's listener.
fn dial(link: &ShmLink) -> std::os::fd::OwnedFd {
    sys::socket::connect(sys::socket::Name::Key(link.listeners.key)).unwrap()
}

fn frame<'a>(header: &'a [u8], payload: &'a [u8]) -> Frame<'a> {
    Frame { peer: PEER, header, payload }
}

/// Makes two links; the first is connected to the second, and the second knows it as peer 0 too.
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

/// Receives until `done` returns true; checks the sockets as a waiting driver would.
fn recv_until(link: &mut ShmLink, log: &mut Log, mut done: impl FnMut(&Log, &mut ShmLink) -> bool) {
    while !done(log, link) {
        if link.recv(64, log) == 0 {
            if link.prepare_wait() {
                wait(link);
            }
            link.finish_wait(true);
        }
    }
}

/// Blocks on the link's descriptors, as a driver does; fails the test after minutes.
fn wait(link: &ShmLink) {
    let mut fds = Vec::new();
    link.wait_fds(&mut fds);
    assert!(sys::misc::wait_readable(fds[0].fd, 300_000), "nothing came for minutes");
}

/// Returns bytes that depend on packet and position.
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

#[test]
fn connect__to_one_that_takes_this_process_for_another_users_is_refused_with_the_reason() {
    let [mut ours, mut theirs] = [1, 2].map(|id| ShmLink::new(config(id)).unwrap());
    // The other link is as in another user namespace, where users have other numbers.
    theirs.user += 1;
    ours.connect(&info(0, &address_of(&theirs))).unwrap();
    theirs.poll_sockets();
    let why = refusal(&mut ours);
    assert!(why.contains("its process runs as user"), "{why}");
}

/// Waits until the peer has refused the link; returns the reason.
fn refusal(link: &mut ShmLink) -> String {
    recv_until(link, &mut Log::default(), |_, link| !link.events.is_empty());
    let events = events(link);
    let [LinkEvent::PeerRefused(PEER, why)] = &events[..] else { panic!("{events:?}") };
    why.clone()
}

#[test]
fn connect__to_one_that_ended_says_so() {
    let [mut ours, mut theirs] = [1, 2].map(|id| ShmLink::new(config(id)).unwrap());
    let there = info(2, &address_of(&theirs));
    // The other link connects and ends: nothing of that is a refusal.
    theirs.connect(&info(1, &address_of(&ours))).unwrap();
    drop(theirs);
    ours.poll_sockets();
    assert_eq!(counter(&ours, "shm_refused"), 0);
    assert!(matches!(ours.connect(&there), Err(LinkError::Ended)));
}

/// Does the work of a driver between sleeping and polling; returns the received packets.
fn drain(link: &mut ShmLink) -> Vec<Packet> {
    let mut log = Log::default();
    link.service();
    while link.recv(64, &mut log) > 0 {}
    log.0
}

fn events(link: &mut ShmLink) -> Vec<LinkEvent> {
    std::iter::from_fn(|| link.poll_event()).collect()
}

fn events_gone(link: &mut ShmLink) -> usize {
    events(link).iter().filter(|e| matches!(e, LinkEvent::PeerGone(_))).count()
}

fn header(n: u64) -> [u8; 32] {
    let mut header = [0; 32];
    header[..8].copy_from_slice(&n.to_le_bytes());
    header
}

fn numbers(packets: &[Packet]) -> Vec<u64> {
    let number = |h: &[u8]| u64::from_le_bytes(h[..8].try_into().unwrap());
    packets.iter().map(|(_, h, _)| number(h)).collect()
}

#[test]
fn connect__frames_wait_in_the_ring_until_the_peer_accepts() {
    let (mut a, mut b) = (ShmLink::new(config(1)).unwrap(), ShmLink::new(config(2)).unwrap());
    a.connect(&info(0, &address_of(&b))).unwrap();
    assert_eq!(a.send(&[frame(&header(1), b"x"), frame(&header(2), b"y")]), 2);
    let mut fds = Vec::new();
    b.wait_fds(&mut fds);
    assert!(sys::misc::wait_readable(fds[0].fd, 0), "the listener wakes a sleeper");
    let got = drain(&mut b);
    assert_eq!(numbers(&got), [1, 2]);
    assert_eq!(got[0].0, None, "a stranger until the driver names it");
    b.connect(&info(7, &address_of(&a))).unwrap();
    assert_eq!(a.send(&[frame(&header(3), b"")]), 1);
    let got = drain(&mut b);
    assert_eq!((got[0].0, numbers(&got)), (Some(PeerId(7)), vec![3]));
    b.send(&[Frame { peer: PeerId(7), header: &header(4), payload: b"back" }]);
    assert_eq!(numbers(&drain(&mut a)), [4]);
}

#[test]
fn connect__both_at_once_keeps_every_packet_in_order() {
    let (mut a, mut b) = (ShmLink::new(config(1)).unwrap(), ShmLink::new(config(2)).unwrap());
    let (to_a, to_b) = (info(0, &address_of(&a)), info(0, &address_of(&b)));
    // Both connect before either checks its listener.
    a.dial(&to_b).unwrap();
    b.dial(&to_a).unwrap();
    for n in 0..4 {
        assert_eq!(a.send(&[frame(&header(n), b"a")]), 1);
        assert_eq!(b.send(&[frame(&header(n + 10), b"b")]), 1);
    }
    assert_eq!(numbers(&drain(&mut a)), [10, 11, 12, 13]);
    assert_eq!(numbers(&drain(&mut b)), [0, 1, 2, 3]);
    drain(&mut a);
    a.send(&[frame(&header(4), b"a")]);
    b.send(&[frame(&header(14), b"b")]);
    assert_eq!(drain(&mut a), [(Some(PEER), header(14).to_vec(), b"b".to_vec())]);
    assert_eq!(drain(&mut b), [(Some(PEER), header(4).to_vec(), b"a".to_vec())]);
    assert_eq!((a.peers.len(), b.peers.len()), (1, 1));
    drop(a);
    drain(&mut b);
    assert_eq!(events(&mut b), [LinkEvent::PeerGone(PEER)]);
}

#[test]
fn connect__both_at_once_and_the_packets_of_one_that_has_ended_come() {
    for closed_first in [false, true] {
        let (mut a, mut b) = (ShmLink::new(config(1)).unwrap(), ShmLink::new(config(2)).unwrap());
        let (to_a, to_b) = (info(0, &address_of(&a)), info(0, &address_of(&b)));
        a.dial(&to_b).unwrap();
        b.dial(&to_a).unwrap();
        b.send(&[frame(&header(10), b"b")]);
        // One has accepted, has all that it needs, and ends before the other looks.
        assert_eq!(numbers(&drain(&mut a)), [10]);
        assert_eq!(a.send(&[frame(&header(0), b"a"), frame(&header(1), b"a")]), 2);
        drop(a);
        if closed_first {
            let token = b.peers[0].socket.token;
            b.listen_to(0, token);
            assert!(b.peers[0].end.hung_up);
        }
        assert_eq!(numbers(&drain(&mut b)), [0, 1], "the end is seen first: {closed_first}");
        drain(&mut b);
        assert_eq!(events(&mut b), [LinkEvent::PeerGone(PEER)]);
    }
}

#[test]
fn connect__to_itself() {
    let mut a = ShmLink::new(config(1)).unwrap();
    a.connect(&info(0, &address_of(&a))).unwrap();
    assert_eq!(a.send(&[frame(&header(5), b"me")]), 1);
    assert_eq!(drain(&mut a), [(Some(PEER), header(5).to_vec(), b"me".to_vec())]);
}

#[test]
fn connect__refuses_other_hosts_and_the_dead() {
    let mut a = ShmLink::new(config(1)).unwrap();
    let b = ShmLink::new(config(2)).unwrap();
    let address = address_of(&b);
    let other = Address { host: address.host ^ 1, ..address.clone() };
    let none = Address { shm: 0, ..address.clone() };
    drop(b);
    for address in [other, none] {
        assert!(matches!(a.connect(&info(0, &address)), Err(LinkError::Unreachable(_))));
    }
    assert!(matches!(a.connect(&info(0, &address)), Err(LinkError::Ended)));
}

#[test]
fn connect__again_after_disconnect() {
    let (mut a, mut b) = pair();
    a.send(&[frame(&header(1), b"")]);
    a.disconnect(PEER);
    assert_eq!(a.send(&[frame(&header(2), b"nobody")]), 1);
    a.connect(&info(1, &address_of(&b))).unwrap();
    a.send(&[Frame { peer: PeerId(1), header: &header(3), payload: b"" }]);
    let mut got = numbers(&drain(&mut b));
    got.sort_unstable();
    assert_eq!(got, [1, 3]);
    assert_eq!(events(&mut b), [LinkEvent::PeerGone(PEER)]);
    assert_eq!(b.connect(&info(9, &address_of(&a))).unwrap().name, "shm");
}

#[test]
fn send__full_ring_is_backpressure_and_recovers() {
    for (header_len, len) in [(32, 8), (32, 5000), (100, 0), (40, 32 * 1024)] {
        let (mut a, mut b) = pair();
        let (bytes, payload) = (pattern(1, header_len), pattern(2, len));
        let frames = [frame(&bytes, &payload); 64];
        let mut sent = 0;
        loop {
            let n = a.send(&frames);
            sent += n;
            if n < 64 {
                break;
            }
        }
        assert_eq!(a.send(&frames), 0);
        let (mut got, mut log) = (0, Log::default());
        while got < 2000 {
            assert!(b.recv(3, &mut log) > 0, "the link stalled after {got}");
            got += log.0.len();
            assert!(log.0.drain(..).all(|(_, h, p)| h == bytes && p == payload));
            sent += a.send(&frames);
        }
        assert_eq!(got + drain(&mut b).len(), sent);
        assert!(counter(&a, "shm_full") > 0);
    }
}

#[test]
fn prepare_wait__a_full_sender_is_woken_by_space() {
    for len in [8, 32 * 1024] {
        let (mut a, mut b) = pair();
        let payload = pattern(3, len);
        while a.send(&[frame(&header(0), &payload)]) == 1 {}
        assert!(a.prepare_wait());
        let mut fds = Vec::new();
        a.wait_fds(&mut fds);
        // The answer to the connection is read first, because it would wake the link once.
        a.finish_wait(true);
        assert!(a.prepare_wait());
        assert!(!sys::misc::wait_readable(fds[0].fd, 0));
        drain(&mut b);
        assert!(sys::misc::wait_readable(fds[0].fd, 0));
        a.finish_wait(true);
        assert_eq!(a.send(&[frame(&header(0), &payload)]), 1);
    }
}

#[test]
fn prepare_wait__refuses_when_a_packet_is_there_and_rings_when_not() {
    let (mut a, mut b) = pair();
    drain(&mut a);
    a.send(&[frame(&header(0), b"")]);
    assert!(!b.prepare_wait());
    assert_eq!(drain(&mut b).len(), 1);
    assert!(b.prepare_wait());
    let mut fds = Vec::new();
    b.wait_fds(&mut fds);
    assert!(!sys::misc::wait_readable(fds[0].fd, 0));
    a.send(&[frame(&header(1), b"")]);
    a.send(&[frame(&header(2), b"")]);
    assert!(sys::misc::wait_readable(fds[0].fd, 0));
    assert_eq!(counter(&a, "shm_doorbells"), 1, "one doorbell a sleep");
    b.finish_wait(true);
    assert_eq!(numbers(&drain(&mut b)), [1, 2]);
    assert!(b.prepare_wait());
    assert!(!sys::misc::wait_readable(fds[0].fd, 0), "the doorbell was taken");
}

#[test]
fn attentive__after_empty_polls_and_when_asleep() {
    let (a, mut b) = pair();
    assert!(!a.attentive(PEER));
    let mut log = Log::default();
    while !a.attentive(PEER) {
        b.recv(1, &mut log);
    }
    b.prepare_wait();
    assert!(a.attentive(PEER));
    b.finish_wait(true);
}

#[test]
fn drop__is_seen_while_a_copy_of_the_socket_lives() {
    let (mut a, b) = pair();
    let copy = b.peers[0].socket(b.peers[0].socket.token).unwrap().try_clone().unwrap();
    drop(b);
    drain(&mut a);
    assert_eq!(events_gone(&mut a), 1, "a fork of the peer's program does not keep it alive");
    drop(copy);
}

#[test]
fn drop__ends_listening_while_a_copy_of_the_listener_lives() {
    let (mut a, b) = (ShmLink::new(config(1)).unwrap(), ShmLink::new(config(2)).unwrap());
    let (address, copy) = (address_of(&b), b.listeners.listener.try_clone().unwrap());
    drop(b);
    let refused = a.connect(&info(0, &address));
    assert!(matches!(refused, Err(LinkError::Ended)), "{refused:?}");
    drop(copy);
}

/// A small generator of pseudo-random numbers (splitmix64).
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[test]
fn new__refuses_unusable_sizes() {
    assert!(ShmLink::new(ShmConfig { slots: 100, ..config(1) }).is_err());
    assert!(ShmLink::new(ShmConfig { mtu: 1 << 20, ..config(1) }).is_err());
}

#[test]
fn recv__budget_is_kept_over_many_peers() {
    let mut hub = ShmLink::new(config(100)).unwrap();
    let address = address_of(&hub);
    let mut spokes: Vec<_> = (0..5).map(|n| ShmLink::new(config(n)).unwrap()).collect();
    for spoke in &mut spokes {
        spoke.connect(&info(0, &address)).unwrap();
        for n in 0..10 {
            spoke.send(&[frame(&header(n), b"")]);
        }
    }
    hub.service();
    let mut log = Log::default();
    assert_eq!(hub.recv(7, &mut log), 7);
    while hub.recv(7, &mut log) > 0 {}
    assert_eq!(log.0.len(), 50);
    spokes.remove(2);
    drain(&mut hub);
    assert_eq!(hub.peers.len(), 4);
    assert!(events(&mut hub).is_empty(), "nobody asked for the stranger");
}
