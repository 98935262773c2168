#![allow(non_snake_case)]

use super::*;
use crate::secure::{Mode, TRAILER};
use crate::testing::ends::{address_of, hello, security, A, B, LONG, P, TO_A, TO_B};
use crate::testing::skip;
use crate::{Bytes, Frame, LinkEvent, Network, Prediction, Sink};
use std::net::UdpSocket;
use std::time::Instant;
use weft_core::wire::{emit, Common, Data, Eager, Packet, PacketType};
use weft_core::EndpointId;

mod connected;
mod namespaces;

fn v4_only() -> UdpConfig {
    UdpConfig { v4: Some(Ipv4Addr::LOCALHOST), v6: None, host: 1, ..Default::default() }
}

fn v6_only() -> Option<UdpConfig> {
    let config =
        UdpConfig { v4: None, v6: Some(Ipv6Addr::LOCALHOST), host: 1, ..Default::default() };
    match UdpLink::new(config.clone(), security(A, Mode::Auth, 1)) {
        Ok(_) => Some(config),
        Err(e) => {
            skip(&format!("no IPv6 loopback on this machine: {e}"));
            None
        }
    }
}

fn info(session: u32, endpoint: EndpointId, address: Address) -> PeerInfo {
    PeerInfo { peer: P, session, endpoint, address }
}

/// Makes two connected links on this host; returns them and the packet size between them.
fn pair_with(config: &UdpConfig, mode: Mode) -> (UdpLink, UdpLink, usize) {
    let mut a = UdpLink::new(config.clone(), security(A, mode, 1)).unwrap();
    let mut b = UdpLink::new(config.clone(), security(B, mode, 1)).unwrap();
    let (to_a, to_b) = (address_of(&a, A), address_of(&b, B));
    let caps = a.connect(&info(TO_A, B, to_b)).unwrap();
    b.connect(&info(TO_B, A, to_a)).unwrap();
    (a, b, caps.mtu as usize)
}

fn pair(mode: Mode) -> (UdpLink, UdpLink, usize) {
    pair_with(&v4_only(), mode)
}

fn data(offset: u64) -> Vec<u8> {
    let common = Common { session: TO_B, imm: 77, ..Default::default() };
    emit(&common, &Packet::Data(Data { offset })).as_slice().to_vec()
}

fn eager(session: u32) -> Vec<u8> {
    let common = Common { session, ..Default::default() };
    emit(&common, &Packet::Eager(Eager { tag: 5 })).as_slice().to_vec()
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Keeps all received packets.
#[derive(Default)]
struct Keep(Vec<(Vec<u8>, Vec<u8>)>);

impl Sink for Keep {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.0.push((header.to_vec(), payload.to_vec()));
    }
}

/// Polls until `enough` returns true, or fails after a long time.
fn poll(link: &mut UdpLink, sink: &mut dyn Sink, mut enough: impl FnMut(&mut UdpLink) -> bool) {
    let start = Instant::now();
    while !enough(link) {
        link.recv(64, sink);
        assert!(start.elapsed() < LONG, "nothing more arrives");
    }
}

fn receive(link: &mut UdpLink, frames: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut keep = Keep::default();
    let start = Instant::now();
    while keep.0.len() < frames {
        link.recv(frames - keep.0.len(), &mut keep);
        assert!(start.elapsed() < LONG, "{} of {frames} arrived", keep.0.len());
    }
    keep.0
}

fn count(link: &UdpLink, name: &str) -> u64 {
    let mut found = None;
    link.counters(&mut |n, v| found = found.or((n == name).then_some(v)));
    found.unwrap_or_else(|| panic!("no counter {name}"))
}

fn exchange_all_sizes(config: &UdpConfig, mode: Mode) {
    let (mut a, mut b, mtu) = pair_with(config, mode);
    let header = data(0);
    let room = mtu - header.len();
    for len in [0, 1, 16, 63, 64, 65, 1000, 1424, 9000, room - 1, room] {
        let payload = bytes(len.min(room), len as u64);
        let frame = Frame { peer: P, header: &header, payload: &payload };
        assert_eq!(a.send(&[frame]), 1);
        assert_eq!(receive(&mut b, 1), [(header.clone(), payload)], "{mode:?} {len}");
    }
}

#[test]
fn send__all_sizes_over_ipv4_in_every_mode() {
    for mode in [Mode::Auth, Mode::Encrypt, Mode::None] {
        exchange_all_sizes(&v4_only(), mode);
    }
}

#[test]
fn send__all_sizes_over_ipv6() {
    if let Some(config) = v6_only() {
        exchange_all_sizes(&config, Mode::Auth);
    }
}

fn send_trains(config: &UdpConfig) -> UdpLink {
    let (mut a, mut b, mtu) = pair_with(config, Mode::Auth);
    // Sizes rise and fall, so trains end for every reason: a shorter packet, a longer packet, a
    // full train.
    let sizes: Vec<usize> =
        [vec![1424; 50], vec![700], vec![16; 90], vec![900, 100, 100, mtu - 32]].concat();
    let headers: Vec<Vec<u8>> = (0..sizes.len()).map(|i| data(i as u64)).collect();
    let payloads: Vec<Vec<u8>> = sizes.iter().map(|&n| bytes(n, n as u64)).collect();
    let frames: Vec<Frame> = headers
        .iter()
        .zip(&payloads)
        .map(|(header, payload)| Frame { peer: P, header, payload })
        .collect();
    assert_eq!(a.send(&frames), frames.len());
    let mut got = receive(&mut b, frames.len());
    // Packets sent before the kernel moved this thread to another core may arrive later.
    got.sort();
    for (i, (header, payload)) in got.iter().enumerate() {
        assert!(*header == headers[i] && *payload == payloads[i], "packet {i}");
    }
    assert_eq!(count(&a, "sent"), frames.len() as u64);
    a
}

#[test]
fn send__trains_with_offload() {
    let a = send_trains(&v4_only());
    assert!(!a.gso || count(&a, "sent_trains") >= 4);
}

#[test]
fn send__without_offload() {
    for (gso, gro) in [(false, true), (true, false), (false, false)] {
        let a = send_trains(&UdpConfig { gso, gro, ..v4_only() });
        assert!(gso || count(&a, "sent_trains") == 0);
    }
}

#[test]
fn recv__budget_is_kept_within_a_train() {
    let (mut a, mut b, _) = pair(Mode::Auth);
    let headers: Vec<Vec<u8>> = (0..20).map(data).collect();
    let payload = bytes(500, 1);
    let frames: Vec<Frame> =
        headers.iter().map(|header| Frame { peer: P, header, payload: &payload }).collect();
    assert_eq!(a.send(&frames), 20);
    let mut all = Keep::default();
    let start = Instant::now();
    while all.0.len() < 20 {
        assert!(b.recv(3, &mut all) <= 3);
        // Packets beyond the budget must be seen before sleeping.
        assert!(b.prepare_wait() || all.0.len() < 20);
        assert!(start.elapsed() < LONG);
    }
    let got: Vec<_> = all.0.iter().map(|(header, _)| header.clone()).collect();
    assert_eq!(got, headers);
}

/// A socket that sends any bytes to a link.
struct Outsider(UdpSocket, SocketAddr);

impl Outsider {
    fn near(link: &UdpLink) -> Outsider {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Outsider(socket, link.local_addrs()[0])
    }

    fn send(&self, frame: &[u8]) {
        self.0.send_to(frame, self.1).unwrap();
    }
}

fn sealed(secure: &mut Secure, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; header.len() + payload.len() + TRAILER];
    let len = secure.seal_into(P, header, payload, &mut out).unwrap();
    out.truncate(len);
    out
}

fn sealer(key: u8, to: EndpointId) -> Secure {
    let mut secure = Secure::new(&security(A, Mode::Auth, key), Lane::Udp);
    secure.add_peer(P, 1, to).unwrap();
    secure
}

/// Sends `frame` to B and waits until `counter` shows that it was refused; nothing may be
/// delivered.
fn refused(b: &mut UdpLink, frame: &[u8], counter: &'static str) {
    let before = count(b, counter);
    Outsider::near(b).send(frame);
    let mut keep = Keep::default();
    poll(b, &mut keep, |b| count(b, counter) > before);
    assert!(keep.0.is_empty(), "{counter}");
}

#[test]
fn recv__hostile_frames_are_dropped_and_counted() {
    let (_, mut b, _) = pair(Mode::Auth);
    let mut good = sealer(1, B);
    let frame = sealed(&mut good, &eager(TO_B), b"payload");

    for at in [24, 33, frame.len() - 1] {
        let mut tampered = frame.clone();
        tampered[at] ^= 1;
        refused(&mut b, &tampered, "auth_failed");
    }
    refused(&mut b, &[], "short");
    refused(&mut b, &frame[..30], "short");
    refused(&mut b, &[0xff; 2000], "malformed");
    refused(&mut b, &sealed(&mut sealer(2, B), &eager(TO_B), b"x"), "auth_failed");
    refused(&mut b, &sealed(&mut sealer(1, EndpointId(0xc)), &eager(TO_B), b"x"), "auth_failed");
    refused(&mut b, &sealed(&mut good, &eager(TO_B ^ (1 << 20)), b"x"), "stale_session");
    refused(&mut b, &sealed(&mut good, &eager(0), b"x"), "stale_session");

    Outsider::near(&b).send(&frame);
    assert_eq!(receive(&mut b, 1)[0].1, b"payload");
    refused(&mut b, &frame, "replayed");
}

#[test]
fn recv__nothing_is_answered_to_a_hostile_frame() {
    let (_, mut b, _) = pair(Mode::Auth);
    let outsider = Outsider::near(&b);
    outsider.0.set_nonblocking(true).unwrap();
    // Begins like a HELLO.
    outsider.send(&[1; 100]);
    poll(&mut b, &mut Keep::default(), |b| count(b, "auth_failed") > 0);
    assert_eq!(count(&b, "sent"), 0);
    assert!(outsider.0.recv(&mut [0; 100]).is_err());
}

#[test]
fn recv__a_flood_of_rubbish_does_not_hold_the_caller() {
    let (_, mut b, _) = pair(Mode::Auth);
    let outsider = Outsider::near(&b);
    for _ in 0..200 {
        outsider.send(&[7; 64]);
    }
    let before = count(&b, "received_calls");
    b.recv(8, &mut Keep::default());
    assert!(count(&b, "received_calls") - before <= 8);
}

#[test]
fn recv__hello_of_a_stranger_is_delivered() {
    let mut b = UdpLink::new(v4_only(), security(B, Mode::Auth, 1)).unwrap();
    let frame = sealed(&mut sealer(1, B), &hello(A, B), b"address");
    Outsider::near(&b).send(&frame);
    assert_eq!(receive(&mut b, 1), [(hello(A, B), b"address".to_vec())]);
    refused(&mut b, &frame, "replayed");
}

#[test]
fn recv__without_authentication_the_source_address_must_be_the_peers() {
    let (mut a, mut b, _) = pair(Mode::None);
    refused(&mut b, &eager(TO_B), "spoofed");
    assert_eq!(a.send(&[Frame { peer: P, header: &eager(TO_B), payload: b"x" }]), 1);
    assert_eq!(receive(&mut b, 1).len(), 1);
}

#[test]
fn disconnect__frames_from_the_peer_are_stale_and_to_it_dropped() {
    let (mut a, mut b, _) = pair(Mode::Auth);
    b.disconnect(P);
    assert_eq!(a.send(&[Frame { peer: P, header: &eager(TO_B), payload: b"x" }]), 1);
    poll(&mut b, &mut Keep::default(), |b| count(b, "stale_session") == 1);
    assert_eq!(b.send(&[Frame { peer: P, header: &eager(TO_A), payload: b"x" }]), 1);
    assert_eq!(count(&b, "send_dropped"), 1);
}

/// Assembles a message from DATA packets as a driver does, and predicts the next block; `wrong`
/// tells which predictions to spoil.
struct Assemble {
    message: Vec<u8>,
    arrived: usize,
    piece: usize,
    random: u64,
    /// Number of runs with one packet.
    alone: usize,
}

impl Assemble {
    fn random(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % n
    }
}

impl Sink for Assemble {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        if header[1] != weft_core::wire::PacketType::Data as u8 {
            return;
        }
        let at = u64::from_le_bytes(header[24..32].try_into().unwrap()) as usize;
        payload.copy_to(&mut self.message[at..at + payload.len()]);
        self.arrived += payload.len();
    }

    fn run(&mut self, header: &[u8], count: u32, len: u64) -> bool {
        let at = u64::from_le_bytes(header[24..32].try_into().unwrap());
        // The packets of a refused run come again one by one.
        if self.random(4) == 0 {
            return false;
        }
        assert!(at + len <= self.message.len() as u64);
        self.alone += usize::from(count == 1);
        self.arrived += len as usize;
        true
    }

    fn predict(&mut self) -> Option<Prediction<'_>> {
        let mut offset = self.arrived.min(self.message.len());
        match self.random(6) {
            0 => return None,
            1 => offset = (offset + self.piece).min(self.message.len()),
            _ => {}
        }
        // Only memory that has not received anything may be predicted.
        let len = (self.message.len() - offset).min(self.piece * (1 + self.random(60) as usize));
        let imm = if self.random(12) == 0 { 78 } else { 77 };
        let memory = &mut self.message[offset..offset + len];
        Some(Prediction {
            memory,
            kind: PacketType::Data,
            session: TO_B,
            imm,
            offset: offset as u64,
        })
    }
}

#[test]
fn recv__predictions_right_and_wrong_give_the_same_bytes() {
    let (mut placed, mut received, mut alone) = (0, 0, 0);
    for round in 0..60u64 {
        let (mut a, mut b, _) = pair(Mode::Auth);
        let mut sink = Assemble {
            message: vec![0; 100_000],
            arrived: 0,
            piece: 1424,
            random: round,
            alone: 0,
        };
        sink.piece = [1424, 700, 8000][round as usize % 3];
        let want = bytes(sink.message.len() - sink.random(1400) as usize, round);
        sink.message.truncate(want.len());
        let mut headers: Vec<Vec<u8>> =
            (0..want.len()).step_by(sink.piece).map(|at| data(at as u64)).collect();
        for (i, header) in headers.iter_mut().enumerate() {
            weft_core::wire::advance(header, i as u32, 0);
        }
        let small = eager(TO_B);
        let mut frames = Vec::new();
        for (header, payload) in headers.iter().zip(want.chunks(sink.piece)) {
            frames.push(Frame { peer: P, header, payload });
            if sink.random(9) == 0 {
                frames.push(Frame { peer: P, header: &small, payload: b"in between" });
            }
        }
        assert_eq!(a.send(&frames), frames.len());
        let start = Instant::now();
        while sink.arrived < want.len() {
            b.recv(1 + sink.random(70) as usize, &mut sink);
            assert!(start.elapsed() < LONG, "round {round}: {} of {}", sink.arrived, want.len());
        }
        assert!(sink.message == want, "round {round}");
        placed += count(&b, "received_placed");
        received += count(&b, "received");
        alone += sink.alone;
    }
    // A payload written to its destination is not copied again, also that of a single packet.
    assert!(alone > 10, "{alone}");
    assert!(placed > 100 && placed + 10 < received, "{placed} of {received} placed");
}

#[test]
fn connect__names_what_is_wrong() {
    let mut a = UdpLink::new(v4_only(), security(A, Mode::Auth, 1)).unwrap();
    let mut elsewhere = Address { endpoint: B, host: 2, ..Default::default() };
    elsewhere.udp.push("127.0.0.1:4000".parse().unwrap());
    let Err(LinkError::Unreachable(why)) = a.connect(&info(TO_A, B, elsewhere)) else {
        panic!("a loopback address of another host was taken");
    };
    assert!(why.contains("127.0.0.1:4000: belongs to this host"), "{why}");
}

#[test]
fn new__port_in_use_is_an_error_with_a_way_out() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = UdpConfig { ports: crate::Ports::one(port), ..v4_only() };
    let Err(e) = UdpLink::new(config, security(A, Mode::Auth, 1)) else { panic!("bound twice") };
    assert!(e.to_string().contains(&port.to_string()), "{e}");
}

#[test]
fn send__first_hello_tries_every_address_and_the_answer_decides() {
    let config = UdpConfig { v4: Some(Ipv4Addr::UNSPECIFIED), ..v4_only() };
    let mut a = UdpLink::new(config, security(A, Mode::Auth, 1)).unwrap();
    let mut b = UdpLink::new(v4_only(), security(B, Mode::Auth, 1)).unwrap();
    let mut to_b = address_of(&b, B);
    let right = to_b.udp[0];
    // An address of this host without a listener comes first.
    let dead = UdpSocket::bind("127.0.0.2:0").unwrap();
    to_b.udp.insert(0, dead.local_addr().unwrap());
    a.connect(&info(TO_A, B, to_b)).unwrap();
    assert_ne!(a.peer_addr(P), Some(right));
    assert_eq!(a.send(&[Frame { peer: P, header: &hello(A, B), payload: b"" }]), 1);
    assert_eq!(receive(&mut b, 1).len(), 1);

    let mut to_a = Address { endpoint: A, host: 1, ..Default::default() };
    to_a.udp.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), a.local_addrs()[0].port()));
    b.connect(&info(TO_B, A, to_a)).unwrap();
    assert_eq!(b.send(&[Frame { peer: P, header: &eager(TO_A), payload: b"" }]), 1);
    assert_eq!(receive(&mut a, 1).len(), 1);
    assert_eq!(a.peer_addr(P), Some(right));
    assert!(matches!(a.poll_event(), Some(LinkEvent::Mtu(P, _))));
}

#[test]
fn doubt__an_answer_over_another_way_does_not_outrun_the_one_in_use() {
    let mut a = UdpLink::new(v4_only(), security(A, Mode::Auth, 1)).unwrap();
    let here: [SocketAddr; 2] = ["127.0.0.1:9", "127.0.0.2:9"].map(|a| a.parse().unwrap());
    let mut to_b = Address { endpoint: B, host: 1, ..Default::default() };
    to_b.udp.extend(here);
    a.connect(&info(TO_A, B, to_b)).unwrap();
    a.confirm(P, a.peer_addr(P).unwrap(), Kind::Other);
    let used = a.peer_addr(P).unwrap();
    let other = here.into_iter().find(|addr| *addr != used).unwrap();
    for _ in 0..3 {
        a.doubt(P);
        a.confirm(P, other, Kind::Answer);
        assert_eq!(a.peer_addr(P), Some(used), "the answer over the way in use may be behind");
        a.confirm(P, used, Kind::Answer);
        a.confirm(P, other, Kind::Answer);
        assert_eq!((a.peer_addr(P), count(&a, "path_changes")), (Some(used), 0));
    }
    // No packet comes over the path in use any more.
    a.doubt(P);
    a.confirm(P, other, Kind::Answer);
    a.doubt(P);
    a.confirm(P, other, Kind::Answer);
    assert_eq!((a.peer_addr(P), count(&a, "path_changes")), (Some(other), 1));
}
