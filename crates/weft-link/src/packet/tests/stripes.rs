//! Two cables between two endpoints, which share bulk data.

use super::*;
use crate::stripes::Stripes;
use crate::{DataRun, Network};
use weft_core::wire::{flags, Data};

const EACH: usize = 1000;

/// Answers each question over the path on which it came, and keeps all other packets.
#[derive(Default)]
struct Answering {
    questions: usize,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Sink for Answering {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        match weft_core::wire::parse(header) {
            Ok((_, Packet::Data(data), _)) => self.parts.push((data.offset, payload.to_vec())),
            _ if Kind::of(header) == Kind::Question => self.questions += 1,
            _ => {}
        }
    }
}

fn data(from: &End, offset: u64) -> Vec<u8> {
    let common = Common { session: session_number(from.id.0 as u32, 1), ..Default::default() };
    emit(&common, &Packet::Data(Data { offset })).as_slice().to_vec()
}

/// Makes the answer to a question of the other end.
fn answer(from: &End, to: u64) -> Vec<u8> {
    let Ok((_, packet, _)) = weft_core::wire::parse(&hello(from, to)) else { panic!("no HELLO") };
    let session = session_number(from.id.0 as u32, 1);
    let common = Common { flags: flags::REPLY, session, ..Default::default() };
    emit(&common, &packet).as_slice().to_vec()
}

fn stripes(end: &End) -> &Stripes {
    &end.link.peer(PeerId(3 - end.id.0 as u32)).unwrap().stripes
}

fn proven(end: &End) -> Vec<usize> {
    (0..4).filter(|&at| stripes(end).is_proven(at)).collect()
}

/// Makes ends that know each other. No network number tells which interfaces are connected.
fn ends(trains: bool) -> (End, End) {
    let with = |names: &str| PacketConfig { trains, ..on(names) };
    let mut a = End::with(with("v0,v1"), 1, Mode::Auth, 1);
    let mut b = End::with(with("w0,w1"), 2, Mode::Auth, 1);
    a.knows(&b);
    b.knows(&a);
    (a, b)
}

/// Receives at both ends until the condition holds; answers questions to the second end.
fn exchange(
    a: &mut End,
    b: &mut End,
    got: &mut Answering,
    done: impl Fn(&End, &Answering) -> bool,
) {
    let start = Instant::now();
    while !done(a, got) {
        a.link.recv(64, &mut Answering::default());
        b.link.recv(64, got);
        for _ in 0..std::mem::take(&mut got.questions) {
            let header = answer(b, 1);
            assert_eq!(b.link.send(&[Frame { peer: PeerId(1), header: &header, payload: b"" }]), 1);
        }
        assert!(start.elapsed() < LONG, "{:?}, {} parts", stripes(a), got.parts.len());
    }
}

fn ask(a: &mut End) {
    let header = hello(a, 2);
    assert_eq!(a.link.send(&[Frame { peer: PeerId(2), header: &header, payload: b"here" }]), 1);
}

/// Sends parts alternately over both paths. All must arrive; those of the second stripe over the
/// second path if `striped`.
fn send_parts(a: &mut End, b: &mut End, got: &mut Answering, striped: bool) {
    let (payload, count) = (bytes(8 * EACH), 8);
    let before = a.count("sent_striped");
    for (stripe, half) in payload.chunks(4 * EACH).enumerate() {
        let header = data(a, (stripe * 4 * EACH) as u64);
        let (peer, stripe) = (PeerId(2), stripe as u8);
        let run = DataRun { peer, stripe, header: &header, payload: half, packets: 4 };
        assert_eq!(crate::link::send_run(&mut a.link, &run), 4);
    }
    got.parts.clear();
    exchange(a, b, got, |_, got| got.parts.len() >= count);
    got.parts.sort();
    let parts = payload.chunks(EACH).enumerate();
    let all: Vec<_> = parts.map(|(i, part)| ((i * EACH) as u64, part.to_vec())).collect();
    assert!(got.parts == all);
    assert_eq!(a.count("sent_striped") - before, if striped { 4 } else { 0 });
}

fn share(trains: bool) {
    let (mut a, mut b) = ends(trains);
    let mut got = Answering::default();
    ask(&mut a);
    exchange(&mut a, &mut b, &mut got, |a, _| stripes(a).count() == 2);
    assert!(a.warnings().contains("Stripes(PeerId(2), 2)"));
    let moves = a.count("path_changes");
    send_parts(&mut a, &mut b, &mut got, true);
    // Data came over both paths: the other end shares both for its own data, too, and stays on its
    // path in use.
    assert!(b.warnings().contains("Stripes(PeerId(1), 2)") && stripes(&b).count() == 2);
    for _ in 0..20 {
        send_parts(&mut a, &mut b, &mut got, true);
    }
    assert_eq!(a.count("path_changes"), moves);
    // One interface goes down: the other carries all data at once.
    let used = a.link.peer_path(PeerId(2)).unwrap().0.to_string();
    ip(&format!("link set {used} down"));
    exchange(&mut a, &mut b, &mut got, |a, _| stripes(a).count() == 1);
    assert_ne!(a.link.peer_path(PeerId(2)).unwrap().0, used, "one that is known to work");
    assert!(a.link.peer(PeerId(2)).unwrap().proof.is_confirmed());
    exchange(&mut a, &mut b, &mut got, |_, _| true);
    send_parts(&mut a, &mut b, &mut got, false);
    // The interface is up again at both ends: its path shares again without a command.
    ip(&format!("link set {used} up"));
    let up = |end: &mut End| {
        end.link.check_interfaces();
        end.link.ports.iter().all(|port| port.up)
    };
    let start = Instant::now();
    while !up(&mut b) || !up(&mut a) {
        assert!(start.elapsed() < LONG, "no carrier");
    }
    exchange(&mut a, &mut b, &mut got, |a, _| stripes(a).count() == 2);
    send_parts(&mut a, &mut b, &mut got, true);
    // A doubt about the path removes all proofs.
    a.link.doubt(PeerId(2));
    assert_eq!(stripes(&a).count(), 1);
    send_parts(&mut a, &mut b, &mut got, false);
}

#[test]
fn send_striped__over_two_cables_once_both_are_proven() {
    for trains in [true, false] {
        if !cables(2, 1500) {
            return;
        }
        share(trains);
    }
}

#[test]
fn recv__a_full_ring_keeps_no_frame_from_another() {
    if !cables(2, 1500) {
        return;
    }
    let (mut busy, mut quiet) = (End::open("v0", 1), End::open("v1", 2));
    let mut b = End::open("w0,w1", 3);
    busy.knows(&b);
    // Leave only the second interface in the address: `quiet` cannot know that it reaches no other.
    let mut address = b.address();
    address.ether.remove(0);
    let session = session_number(3, 1);
    let info = PeerInfo { peer: PeerId(3), session, endpoint: b.id, address };
    quiet.link.connect(&info).unwrap();
    b.knows(&busy);
    b.knows(&quiet);
    (0..200).for_each(|tag| busy.send(3, tag, b"many"));
    quiet.send(3, 1000, b"one");
    let start = Instant::now();
    while !b.link.ports.iter_mut().all(|port| port.membership.ring.ready()) {
        assert!(start.elapsed() < LONG, "nothing came");
    }
    let mut keep = Keep::default();
    b.link.recv(16, &mut keep);
    assert!(keep.0.iter().any(|(tag, _)| *tag == 1000), "{:?}", keep.0);
}

#[test]
fn share__only_what_carries_as_much() {
    if !cables(2, 1500) {
        return;
    }
    let (mut a, mut b) = ends(true);
    ip("link set v1 mtu 1400");
    a.link.check_interfaces();
    let mut got = Answering::default();
    ask(&mut a);
    exchange(&mut a, &mut b, &mut got, |a, _| proven(a).len() == 2);
    assert_eq!(stripes(&a).count(), 1);
    ip("link set v1 mtu 1500");
    a.link.check_interfaces();
    exchange(&mut a, &mut b, &mut got, |a, _| stripes(a).count() == 2);
}

#[test]
fn came_from__strangers_and_replays_prove_and_move_nothing() {
    if !cables(2, 1500) {
        return;
    }
    let (mut a, mut b) = ends(false);
    let header = hello(&a, 2);
    let question = Frame { peer: PeerId(2), header: &header, payload: b"" };
    assert_eq!(a.link.send(&[question]), 1);
    b.until(&mut Keep::default(), |keep, _| keep.0.len() == 2);
    let answer = answer(&b, 1);
    b.link.send(&[Frame { peer: PeerId(1), header: &answer, payload: b"" }]);
    a.until(&mut Keep::default(), |keep, _| keep.0.len() == 1);
    a.send(2, 1, b"over one cable");
    // Receive both: the frame, and a question over the other cable.
    b.until(&mut Keep::default(), |keep, _| keep.0.len() == 2);
    let used = b.link.peer_path(PeerId(1)).unwrap().0.to_string();
    let (from, to) = if used == "w0" { ("v1", "w1") } else { ("v0", "w0") };
    // The frame is sent once more, over the other cable, as if sent from the interface there.
    let port = |end: &End, name: &str| {
        let port = end.link.ports.iter().find(|p| p.interface.name == name).unwrap();
        (port.interface.index, port.interface.mac, port.membership.slot)
    };
    let (index, src, _) = port(&a, from);
    let (_, dst, slot) = port(&b, to);
    let len = a.link.tx.lens[0] as usize;
    let mut frame = a.link.tx.bytes[..len].to_vec();
    frame[..6].copy_from_slice(&dst.0);
    frame[6..12].copy_from_slice(&src.0);
    frame[EtherHead::SLOT..EtherHead::SLOT + 2].copy_from_slice(&slot.to_le_bytes());
    let raw = Socket::open().unwrap();
    raw.bind(Carries::Packets(EtherType::default()), index).unwrap();
    // The strange frame has a packet number that has not arrived yet.
    let mut strange = frame.clone();
    strange[frame.len() - TRAILER] ^= 0x40;
    let known = |b: &End| {
        let settled = b.link.peer(PeerId(1)).unwrap().proof.is_decided();
        (b.count("received"), b.count("path_changes"), proven(b), settled)
    };
    let before = known(&b);
    // A busy host may lose some.
    b.until(&mut Keep::default(), |_, b| {
        raw.send(&frame).unwrap();
        raw.send(&strange).unwrap();
        ["replayed", "auth_failed"].iter().all(|name| b.count(name) >= 20)
    });
    assert_eq!(known(&b), before);
}
