#![allow(non_snake_case)]

use super::*;
use crate::secure::Mode;
use crate::testing::ends::{address_of, security, A, B, LONG, P, TO_A, TO_B};
use crate::testing::start;
use crate::{Bytes, Frame, Network, Prediction, Sink};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use weft_core::wire::{advance, emit, Common, Data, Eager, Packet, PacketType};

mod hostile;

fn here() -> TcpConfig {
    TcpConfig { v4: Some(Ipv4Addr::LOCALHOST), v6: None, host: 1, ..Default::default() }
}

fn open(config: &TcpConfig, me: EndpointId) -> TcpLink {
    TcpLink::new(config.clone(), security(me, Mode::Auth, 1)).unwrap()
}

fn info(peer: PeerId, session: u32, endpoint: EndpointId, address: Address) -> PeerInfo {
    PeerInfo { peer, session, endpoint, address }
}

/// Makes two links on this host that know each other.
fn pair_of(config: [&TcpConfig; 2]) -> (TcpLink, TcpLink) {
    let (mut a, mut b) = (open(config[0], A), open(config[1], B));
    let (to_a, to_b) = (address_of(&a, A), address_of(&b, B));
    a.connect(&info(P, TO_A, B, to_b)).unwrap();
    b.connect(&info(P, TO_B, A, to_a)).unwrap();
    (a, b)
}

fn pair() -> (TcpLink, TcpLink) {
    pair_of([&here(), &here()])
}

fn count(link: &TcpLink, name: &str) -> u64 {
    let mut value = None;
    link.counters(&mut |n, v| value = value.or((n == name).then_some(v)));
    value.unwrap()
}

fn eager(session: u32, number: u64) -> Vec<u8> {
    let common = Common { session, ..Default::default() };
    emit(&common, &Packet::Eager(Eager { tag: number })).as_slice().to_vec()
}

/// Keeps the tags of all received packets, and the bytes of their payload.
#[derive(Default)]
struct Keep {
    tags: Vec<u64>,
    bytes: usize,
}

impl Sink for Keep {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.tags.push(u64::from_le_bytes(header[24..32].try_into().unwrap()));
        self.bytes += payload.len();
    }
}

/// Lets both links work until `enough` returns true.
fn work(
    (a, b): (&mut TcpLink, &mut TcpLink),
    sinks: (&mut dyn Sink, &mut dyn Sink),
    mut enough: impl FnMut(&mut TcpLink, &mut TcpLink) -> bool,
) {
    let start = Instant::now();
    while !enough(a, b) {
        a.recv(64, sinks.0);
        b.recv(64, sinks.1);
        assert!(start.elapsed() < LONG, "nothing more happens");
    }
}

/// Sends a packet to P as soon as there is room, and lets the other link work until it has come.
fn deliver(from: &mut TcpLink, to: &mut TcpLink, session: u32, number: u64) {
    let header = eager(session, number);
    let (mut own, mut keep, start) = (Keep::default(), Keep::default(), Instant::now());
    let mut sent = Instant::now();
    from.send(&[Frame { peer: P, header: &header, payload: b"x" }]);
    while !keep.tags.contains(&number) {
        from.recv(64, &mut own);
        to.recv(64, &mut keep);
        // The test does the engine's work: it sends a packet again that is not acknowledged.
        if sent.elapsed() > Duration::from_millis(50) {
            from.send(&[Frame { peer: P, header: &header, payload: b"x" }]);
            sent = Instant::now();
        }
        assert!(start.elapsed() < LONG, "packet {number} never comes");
    }
}

#[test]
fn send__makes_one_connection_and_few_calls() {
    let (mut a, mut b) = pair();
    assert_eq!((a.streams(), b.streams()), (0, 0), "nothing was sent");
    deliver(&mut a, &mut b, TO_B, 0);
    deliver(&mut b, &mut a, TO_A, 1);
    assert_eq!((a.streams(), b.streams()), (1, 1), "the answer goes over the same");
    let before = count(&a, "sent_calls");
    let headers: Vec<_> = (0..60).map(|n| eager(TO_B, n)).collect();
    let frames: Vec<_> =
        headers.iter().map(|header| Frame { peer: P, header, payload: &[7; 100] }).collect();
    assert_eq!(a.send(&frames), 60);
    assert_eq!(count(&a, "sent_calls"), before + 1);
    let mut keep = Keep::default();
    let calls = count(&b, "received_calls");
    let start = Instant::now();
    while keep.tags.len() < 60 {
        b.recv(64, &mut keep);
        assert!(start.elapsed() < LONG);
    }
    assert!(keep.tags.iter().copied().eq(0..60));
    assert!(count(&b, "received_calls") - calls < 40, "not a call for each frame");
}

#[test]
fn send__both_sides_connect_at_once_and_keep_one() {
    for round in 0..20 {
        let (mut a, mut b) = pair();
        let (to_b, to_a) = (eager(TO_B, 5), eager(TO_A, 6));
        a.send(&[Frame { peer: P, header: &to_b, payload: &[1] }]);
        b.send(&[Frame { peer: P, header: &to_a, payload: &[1] }]);
        if round % 2 == 0 {
            a.recv(0, &mut Keep::default());
        }
        let (mut of_a, mut of_b) = (Keep::default(), Keep::default());
        let start = Instant::now();
        let mut n = 10;
        while of_a.tags.is_empty() || of_b.tags.is_empty() || a.streams() + b.streams() > 2 {
            let (to_b, to_a) = (eager(TO_B, n), eager(TO_A, n));
            a.send(&[Frame { peer: P, header: &to_b, payload: &[1] }]);
            b.send(&[Frame { peer: P, header: &to_a, payload: &[1] }]);
            n += 1;
            a.recv(64, &mut of_a);
            b.recv(64, &mut of_b);
            assert!(start.elapsed() < LONG, "{} and {} streams", a.streams(), b.streams());
        }
        assert!(of_a.tags.contains(&6) && of_b.tags.contains(&5), "the first was lost");
        assert_eq!((count(&a, "streams_broken"), count(&b, "streams_broken")), (0, 0));
    }
}

/// Assembles a message from DATA packets as a driver does, and predicts what has not come yet.
struct Assemble {
    message: Vec<u8>,
    arrived: usize,
    runs: usize,
    refuse: bool,
    gone: bool,
}

impl Sink for Assemble {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        if header[1] == PacketType::Data as u8 {
            let at = u64::from_le_bytes(header[24..32].try_into().unwrap()) as usize;
            payload.copy_to(&mut self.message[at..at + payload.len()]);
            self.arrived = at + payload.len();
        }
    }

    fn run(&mut self, header: &[u8], count: u32, len: u64) -> bool {
        self.refuse = !self.refuse;
        if self.refuse {
            return false;
        }
        let at = u64::from_le_bytes(header[24..32].try_into().unwrap());
        self.runs += count as usize;
        self.arrived = (at + len) as usize;
        true
    }

    fn predict(&mut self) -> Option<Prediction<'_>> {
        let (offset, kind) = (self.arrived as u64, PacketType::Data);
        let memory = &mut self.message[self.arrived..];
        (!self.gone).then_some(Prediction { memory, kind, session: TO_B, imm: 77, offset })
    }
}

fn data(at: usize, number: u32) -> Vec<u8> {
    let common = Common { session: TO_B, imm: 77, ..Default::default() };
    let mut header = emit(&common, &Packet::Data(Data { offset: at as u64 })).as_slice().to_vec();
    advance(&mut header, number, 0);
    header
}

#[test]
fn recv__long_frames_arrive_in_their_places() {
    for each in [60_000, 9_000, 65_312] {
        let (mut a, mut b) = pair();
        let want: Vec<u8> =
            (0..2_000_000_u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
        let headers: Vec<_> =
            (0..want.len().div_ceil(each)).map(|n| data(n * each, n as u32)).collect();
        let small = eager(TO_B, 1);
        let mut frames = Vec::new();
        for (n, (header, payload)) in headers.iter().zip(want.chunks(each)).enumerate() {
            frames.push(Frame { peer: P, header, payload });
            if n % 7 == 3 {
                frames.push(Frame { peer: P, header: &small, payload: b"in between" });
            }
        }
        let message = vec![0; want.len()];
        let mut sink = Assemble { message, arrived: 0, runs: 0, refuse: false, gone: false };
        let (mut sent, start) = (0, Instant::now());
        while sink.arrived < want.len() {
            sent += a.send(&frames[sent..]);
            a.recv(8, &mut Keep::default());
            b.recv(1 + sent % 5, &mut sink);
            assert!(start.elapsed() < LONG, "{} of {}", sink.arrived, want.len());
        }
        assert!(sink.message == want, "{each}");
        assert!(sink.runs > 5, "{} of {} placed", sink.runs, headers.len());
        assert_eq!(count(&b, "places_lost"), 0);
        assert_eq!(count(&b, "auth_failed"), 0);
    }
}

#[test]
fn recv__memory_that_is_gone_costs_its_frame_and_nothing_else() {
    let (mut a, mut b) = pair();
    let mut sink =
        Assemble { message: vec![0; 200_000], arrived: 0, runs: 0, refuse: true, gone: false };
    deliver(&mut a, &mut b, TO_B, 3);
    // A part of a frame, without the rest.
    let id = a.peers.get(P).unwrap().outlet.unwrap();
    let (header, payload) = (data(0, 0), vec![1; 60_000]);
    let trailer = a.secure.seal(P, &header, &payload).unwrap();
    let all = [&frame::prefix(60_048)[..], &header, &payload, &trailer].concat();
    let send = |a: &TcpLink, bytes: &[u8]| {
        let stream = a.streams.get(id).unwrap();
        assert_eq!(stream.socket.send(&[io::IoSlice::new(bytes)]).unwrap(), bytes.len());
    };
    send(&a, &all[..30_000]);
    let start = Instant::now();
    while b.streams.iter().all(|(_, s)| s.direct.is_none()) {
        b.recv(64, &mut sink);
        assert!(start.elapsed() < LONG);
    }
    assert!(sink.message[..29_000] == payload[..29_000]);
    sink.gone = true;
    send(&a, &all[30_000..]);
    let (last, mut own) = (eager(TO_B, 9), Keep::default());
    a.send(&[Frame { peer: P, header: &last, payload: b"behind it" }]);
    let mut keep = Keep::default();
    work((&mut a, &mut b), (&mut own, &mut keep), |_, b| count(b, "received") == 2);
    assert_eq!((count(&b, "places_lost"), keep.tags[..].to_vec()), (1, vec![9]));
}

#[test]
fn send__goes_on_over_a_new_stream_when_one_breaks() {
    let (mut a, mut b) = pair();
    deliver(&mut a, &mut b, TO_B, 0);
    for n in 1..6 {
        // Closing with unread bytes resets the connection.
        a.send(&[Frame { peer: P, header: &eager(TO_B, 100), payload: &[0; 5000] }]);
        let streams = b.streams.find(|_| true);
        streams.into_iter().for_each(|id| b.close(id));
        deliver(&mut a, &mut b, TO_B, n);
        deliver(&mut b, &mut a, TO_A, n);
    }
    assert!(count(&a, "streams_broken") > 0 && a.streams() <= 2);
    let text = a.path_text(P);
    assert!(text.contains("connections ended, the last: 127.0.0.1:"), "{text}");
}

#[test]
fn send__no_process_listens() {
    let (mut a, b) = pair();
    drop(b);
    let start = Instant::now();
    while count(&a, "connects_failed") < 3 || count(&a, "send_dropped") == 0 {
        assert_eq!(a.send(&[Frame { peer: P, header: &eager(TO_B, 0), payload: &[] }]), 1);
        a.recv(8, &mut Keep::default());
        assert!(start.elapsed() < LONG);
    }
    assert!(a.path_text(P).contains("refused"), "{}", a.path_text(P));
}

#[test]
fn idle__streams_are_closed_and_made_again() {
    let config = TcpConfig { idle: Duration::from_millis(30), ..here() };
    let (mut a, mut b) = pair_of([&config, &here()]);
    for n in 0..3 {
        deliver(&mut a, &mut b, TO_B, n);
        let (mut own, mut keep) = (Keep::default(), Keep::default());
        work((&mut a, &mut b), (&mut own, &mut keep), |a, b| a.streams() + b.streams() == 0);
    }
    assert_eq!((count(&a, "streams_idle"), count(&a, "streams_broken")), (3, 0));
    assert_eq!(a.path_text(P).matches("ended").count(), 0, "{}", a.path_text(P));
}

#[test]
fn streams__are_bounded_and_all_peers_are_reached() {
    const PEERS: u32 = 12;
    let mut hub = open(&TcpConfig { streams: 4, ..here() }, A);
    let to_hub = address_of(&hub, A);
    let mut others = Vec::new();
    for n in 0..PEERS {
        let id = EndpointId(100 + u64::from(n));
        let mut other = open(&here(), id);
        let address = address_of(&other, id);
        hub.connect(&info(PeerId(n), (1 << 20) | n, id, address)).unwrap();
        other.connect(&info(P, (2 << 20) | n, A, to_hub.clone())).unwrap();
        others.push(other);
    }
    let mut keep = Keep::default();
    for round in 0..3_u64 {
        for n in 0..PEERS {
            let (tag, start) = (round * 100 + u64::from(n), Instant::now());
            let header = eager((2 << 20) | n, tag);
            let other = &mut others[n as usize];
            let mut theirs = Keep::default();
            while !theirs.tags.contains(&tag) {
                hub.send(&[Frame { peer: PeerId(n), header: &header, payload: &[] }]);
                hub.recv(64, &mut keep);
                other.recv(64, &mut theirs);
                assert!(hub.streams() <= 4);
                assert!(start.elapsed() < LONG);
            }
        }
    }
    assert!(count(&hub, "streams_over") > 0);
}

#[test]
fn drop__what_was_sent_last_arrives() {
    let (mut a, mut b) = pair();
    deliver(&mut a, &mut b, TO_B, 0);
    deliver(&mut b, &mut a, TO_A, 1);
    // Bytes that `a` never reads.
    b.send(&[Frame { peer: P, header: &eager(TO_A, 2), payload: &[1; 4000] }]);
    a.send(&[Frame { peer: P, header: &eager(TO_B, 77), payload: b"bye" }]);
    drop(a);
    let (mut keep, start) = (Keep::default(), Instant::now());
    while !keep.tags.contains(&77) {
        b.recv(64, &mut keep);
        assert!(start.elapsed() < LONG);
    }
}

#[test]
fn disconnect__what_was_sent_last_arrives_and_no_more() {
    let (mut a, mut b) = pair();
    deliver(&mut a, &mut b, TO_B, 0);
    a.send(&[Frame { peer: P, header: &eager(TO_B, 8), payload: b"bye" }]);
    a.disconnect(P);
    assert_eq!(a.send(&[Frame { peer: P, header: &eager(TO_B, 9), payload: b"" }]), 1);
    let (mut own, mut keep) = (Keep::default(), Keep::default());
    work((&mut a, &mut b), (&mut own, &mut keep), |a, b| a.streams() + b.streams() == 0);
    assert_eq!(keep.tags, [8]);
}

#[test]
fn doubt__a_stream_that_nothing_comes_over_is_made_anew() {
    let (mut a, mut b) =
        pair_of([&TcpConfig { doubt: Duration::from_millis(20), ..here() }, &here()]);
    deliver(&mut a, &mut b, TO_B, 0);
    deliver(&mut b, &mut a, TO_A, 0);
    let start = Instant::now();
    while count(&a, "streams_broken") == 0 {
        a.doubt(P);
        assert!(start.elapsed() < LONG);
    }
    deliver(&mut a, &mut b, TO_B, 1);
    assert!(a.path_text(P).contains("no answer came"), "{}", a.path_text(P));
}
