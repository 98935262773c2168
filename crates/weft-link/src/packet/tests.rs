//! Two interfaces joined by a cable, in a network namespace of each test. Needs root and the `ip`
//! command.
#![allow(non_snake_case)]

mod stripes;

use super::*;
use crate::ether::EtherAddr;
use crate::kind::Kind;
use crate::secure::{JobKey, Mode, TRAILER};
use crate::sys::testing::{new_namespace, without_rights};
use crate::testing::{none_starts, run, skip};
use crate::{Bytes, Frame, Sink};
use std::time::{Duration, Instant};
use sys::Socket;
use weft_core::wire::{emit, session_number, Common, Eager, Hello, Packet};
use weft_core::EndpointId;

const LONG: Duration = Duration::from_secs(300);

fn ip(words: &str) {
    run(&format!("ip {words}")).unwrap();
}

/// Makes `cables` pairs v0-w0, v1-w1, ... in a namespace of this thread. False, with a note, if
/// this machine does not allow it.
fn cables(cables: usize, mtu: u32) -> bool {
    let made = new_namespace().map_err(|e| format!("new network namespace: {e}"));
    let made = made.and_then(|()| {
        (0..cables).try_for_each(|i| {
            run(&format!("ip link add v{i} type veth peer name w{i}"))?;
            run(&format!("ip link set v{i} mtu {mtu} up"))?;
            run(&format!("ip link set w{i} mtu {mtu} up")).map(drop)
        })
    });
    if let Err(why) = &made {
        skip(&format!("needs root and the ip command: {why}"));
    }
    made.is_ok()
}

fn on(interfaces: &str) -> PacketConfig {
    let names = interfaces.split(',').map(str::to_string).collect();
    PacketConfig { interfaces: Some(names), ..PacketConfig::default() }
}

fn security(me: u64, mode: Mode, key: u8) -> Security {
    Security { mode, job_key: JobKey::from_bytes(&[key; 32]).unwrap(), me: EndpointId(me) }
}

/// An endpoint with its link.
struct End {
    link: PacketLink,
    id: EndpointId,
}

impl End {
    fn with(config: PacketConfig, id: u64, mode: Mode, key: u8) -> End {
        let link = PacketLink::new(config, security(id, mode, key)).unwrap();
        End { link, id: EndpointId(id) }
    }

    fn open(interfaces: &str, id: u64) -> End {
        End::with(on(interfaces), id, Mode::Auth, 1)
    }

    fn address(&self) -> Address {
        let mut address = Address { endpoint: self.id, ..Address::default() };
        self.link.advertise(&mut address);
        address
    }

    /// Makes `other` our peer with this number; every end calls us by the number of our identity.
    fn knows(&mut self, other: &End) -> u32 {
        let number = other.id.0 as u32;
        let info = PeerInfo {
            peer: PeerId(number),
            session: session_number(number, 1),
            endpoint: other.id,
            address: other.address(),
        };
        self.link.connect(&info).unwrap().mtu
    }

    fn send(&mut self, to: u64, tag: u64, payload: &[u8]) {
        let header = self.header(tag);
        let frame = Frame { peer: PeerId(to as u32), header: &header, payload };
        assert_eq!(self.link.send(&[frame]), 1);
    }

    fn header(&self, tag: u64) -> Vec<u8> {
        let common = Common { session: session_number(self.id.0 as u32, 1), ..Default::default() };
        emit(&common, &Packet::Eager(Eager { tag })).as_slice().to_vec()
    }

    fn count(&self, name: &str) -> u64 {
        let mut found = None;
        self.link.counters(&mut |n, v| found = found.or((n == name).then_some(v)));
        found.unwrap_or_else(|| panic!("no counter {name}"))
    }

    fn slot(&self) -> u16 {
        self.link.ports()[0].1
    }

    /// Waits for packets and asserts that they have these tags, in rising order. Packets may
    /// overtake each other if the kernel moved the sender to another core.
    fn expect(&mut self, tags: &[u64]) -> Vec<Vec<u8>> {
        let mut keep = Keep::default();
        self.until(&mut keep, |keep, _| keep.0.len() >= tags.len());
        keep.0.sort();
        let got: Vec<u64> = keep.0.iter().map(|(tag, _)| *tag).collect();
        assert_eq!(got, tags);
        keep.0.into_iter().map(|(_, payload)| payload).collect()
    }

    fn until(&mut self, keep: &mut Keep, done: impl Fn(&Keep, &End) -> bool) {
        let start = Instant::now();
        while !done(keep, self) {
            self.link.recv(64, keep);
            assert!(start.elapsed() < LONG, "nothing more arrives");
        }
    }

    fn warnings(&mut self) -> String {
        let mut all = String::new();
        while let Some(event) = self.link.poll_event() {
            all += &format!("{event:?}\n");
        }
        all
    }
}

#[derive(Default)]
struct Keep(Vec<(u64, Vec<u8>)>);

impl Sink for Keep {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        let tag = header[24..32].try_into().map(u64::from_le_bytes).unwrap();
        self.0.push((tag, payload.to_vec()));
    }
}

/// Makes endpoint 1 on v0 and endpoint 2 on w0.
fn pair(mode: Mode) -> (End, End, u32) {
    let (mut a, mut b) = (End::with(on("v0"), 1, mode, 1), End::with(on("w0"), 2, mode, 1));
    let mtu = a.knows(&b);
    b.knows(&a);
    (a, b, mtu)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

#[test]
fn send__all_sizes_in_every_mode() {
    if !cables(1, 1500) {
        return;
    }
    for mode in [Mode::Auth, Mode::Encrypt, Mode::None] {
        let (mut a, mut b, mtu) = pair(mode);
        assert_eq!(mtu as usize, 1496 - if mode == Mode::None { 0 } else { TRAILER });
        for len in [0, 1, 16, 63, 64, 65, 1000, mtu as usize - 33, mtu as usize - 32] {
            a.send(2, len as u64, &bytes(len));
            assert_eq!(b.expect(&[len as u64]), [bytes(len)], "{mode:?} {len}");
        }
    }
}

#[test]
fn send__bursts_to_two_peers_over_jumbo_frames() {
    // One ring holds two thirds of them.
    const FRAMES: u64 = 90;
    if !cables(1, 9000) {
        return;
    }
    let (mut a, mut b, mtu) = pair(Mode::Auth);
    let mut c = End::open("w0", 3);
    a.knows(&c);
    c.knows(&a);
    let payload = bytes(mtu as usize - 32);
    let headers: Vec<Vec<u8>> = (0..FRAMES).map(|tag| a.header(tag)).collect();
    let to = |i: usize| PeerId(if i.is_multiple_of(3) { 3 } else { 2 });
    let frames: Vec<Frame> = headers
        .iter()
        .enumerate()
        .map(|(i, header)| Frame { peer: to(i), header, payload: &payload })
        .collect();
    let mut done = 0;
    while done < frames.len() {
        done += a.link.send(&frames[done..]);
    }
    assert_eq!(c.expect(&(0..FRAMES).step_by(3).collect::<Vec<_>>()).len(), 30);
    let rest: Vec<u64> = (0..FRAMES).filter(|i| i % 3 != 0).collect();
    assert!(b.expect(&rest).iter().all(|p| *p == payload));
    assert!(a.count("sent_calls") < FRAMES);
}

#[test]
fn recv__each_member_gets_its_own_while_others_come_and_go() {
    if !cables(1, 1500) {
        return;
    }
    let mut far = End::open("w0", 1);
    let mut near: Vec<End> = (10..15).map(|id| End::open("v0", id)).collect();
    let slots: Vec<u16> = near.iter().map(|e| e.slot() & 0x3ff).collect();
    assert_eq!(slots, [0, 1, 2, 3, 4]);
    let mut next = 100;
    let mut check = |far: &mut End, near: &mut Vec<End>| {
        for one in near.iter_mut() {
            far.knows(one);
            one.knows(far);
        }
        for one in near.iter_mut() {
            next += 1;
            far.send(one.id.0, next, b"for you");
            one.expect(&[next]);
            let lost = (one.count("other_slot"), one.count("auth_failed"));
            assert_eq!(lost, (0, 0), "{}", one.id);
        }
    };
    check(&mut far, &mut near);
    // The first member leaves, then one in the middle: the kernel would move the last socket to
    // each free index. A member that leaves keeps its name until no process has a copy of its
    // descriptors.
    let alone = none_starts();
    near.remove(0);
    check(&mut far, &mut near);
    near.remove(1);
    check(&mut far, &mut near);
    // New members take the free indices again, then new indices are added.
    for id in 20..24 {
        near.push(End::open("v0", id));
    }
    let slots: Vec<u16> = near.iter().map(|e| e.slot() & 0x3ff).collect();
    assert_eq!(slots, [1, 3, 4, 0, 2, 5, 6]);
    check(&mut far, &mut near);
    // Only the last member remains; then a new group begins.
    near.drain(..6);
    check(&mut far, &mut near);
    assert_eq!(near[0].link.ports[0].membership.members(), 7);
    near.clear();
    near.push(End::open("v0", 30));
    drop(alone);
    assert_eq!(near[0].link.ports[0].membership.members(), 1);
    check(&mut far, &mut near);
}

#[test]
fn recv__members_keep_their_places_when_the_interface_goes_down_and_up() {
    if !cables(1, 1500) {
        return;
    }
    let mut far = End::open("w0", 1);
    let mut near: Vec<End> = (10..14).map(|id| End::open("v0", id)).collect();
    near.remove(1);
    ip("link set v0 down");
    near[0].until(&mut Keep::default(), |_, e| !e.link.ports[0].up);
    far.until(&mut Keep::default(), |_, e| !e.link.ports[0].up);
    ip("link set v0 up");
    far.until(&mut Keep::default(), |_, e| e.link.ports[0].up);
    for (tag, one) in near.iter_mut().enumerate() {
        one.until(&mut Keep::default(), |_, e| e.link.ports[0].up);
        far.knows(one);
        one.knows(&far);
        far.send(one.id.0, tag as u64, b"still here");
        one.expect(&[tag as u64]);
    }
    let said = near[0].warnings();
    assert!(said.contains("v0 is down") && said.contains("v0 is up again"), "{said}");
    assert!(far.warnings().contains("w0 is down"), "no carrier");
}

#[test]
fn take__many_at_once_get_a_place_each() {
    if !cables(1, 1500) {
        return;
    }
    let start = std::sync::Barrier::new(8);
    let ends: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (10..18)
            .map(|id| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    let end = End::open("v0", id);
                    // All members have joined before the first leaves.
                    start.wait();
                    end.slot() & 0x3ff
                })
            })
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut sorted = ends.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..8).collect::<Vec<u16>>());
}

#[test]
fn recv__frames_of_others_are_dropped_and_counted() {
    if !cables(1, 1500) {
        return;
    }
    let (mut a, mut b, _) = pair(Mode::Auth);
    // A member of another group on the same interface, and a member of the same group with another
    // key.
    let mut stranger = End::with(on("v0"), 9, Mode::Auth, 2);
    stranger.knows(&b);
    let raw = Socket::open().unwrap();
    raw.bind(Carries::Packets(EtherType::default()), a.link.ports[0].interface.index).unwrap();
    let to = b.link.ports[0].interface.address(b.slot());
    let head = |to: EtherAddr, len| {
        let (dst, src) = (to.mac, a.link.ports[0].interface.mac);
        EtherHead { dst, src, kind: EtherType::default(), slot: to.slot, len }.encode()
    };
    let send = |head: [u8; EtherHead::LEN], rest: usize| {
        raw.send(&[&head[..], &vec![3; rest]].concat()).unwrap();
    };
    send(head(EtherAddr { slot: to.slot + 1, ..to }, 40), 40);
    send(head(EtherAddr { mac: Mac([0xff; 6]), ..to }, 40), 40);
    send(head(EtherAddr { mac: Mac([2, 2, 2, 2, 2, 2]), ..to }, 40), 40);
    send(head(to, 900), 60);
    send(head(to, 0), 46);
    send(head(to, 40), 40);
    stranger.send(2, 5, b"with another key");
    a.send(2, 77, b"after all that");
    let names = ["other_slot", "other_station", "short", "malformed", "received"];
    let refusals = ["auth_failed", "stale_session", "replayed"];
    let mut keep = Keep::default();
    b.until(&mut keep, |_, b| names.iter().chain(&refusals).map(|n| b.count(n)).sum::<u64>() >= 8);
    assert_eq!(keep.0, [(77, b"after all that".to_vec())]);
    assert_eq!(names.map(|n| b.count(n)), [1, 2, 2, 1, 1]);
    // The filter in the kernel refuses the slots of other jobs, unless their tag equals ours.
    assert_eq!(refusals.map(|n| b.count(n)).iter().sum::<u64>(), 1);
}

/// Makes ends of the gso link on v0 and w0.
fn trains(mode: Mode) -> (End, End) {
    let with = |end: &str| PacketConfig { trains: true, ..on(end) };
    let (mut a, mut b) = (End::with(with("v0"), 1, mode, 1), End::with(with("w0"), 2, mode, 1));
    assert_eq!(a.knows(&b) as usize, 65_360 - if mode == Mode::None { 0 } else { TRAILER });
    b.knows(&a);
    (a, b)
}

#[test]
fn trains__carry_long_packets_and_several_of_one_size() {
    if !cables(1, 1500) {
        return;
    }
    for mode in [Mode::Auth, Mode::Encrypt, Mode::None] {
        let (mut a, mut b) = trains(mode);
        for len in [0, 1, 1400, 1500, 9000, 65_000] {
            a.send(2, len as u64, &bytes(len));
            assert_eq!(b.expect(&[len as u64]), [bytes(len)], "{mode:?} {len}");
        }
        let before = a.count("sent_calls");
        let lens = [2000; 20].into_iter().chain([700, 2000]);
        let (headers, payloads): (Vec<_>, Vec<_>) =
            lens.enumerate().map(|(tag, len)| (a.header(tag as u64), bytes(len))).unzip();
        let frame = |(header, payload)| Frame { peer: PeerId(2), header, payload };
        let frames: Vec<Frame> =
            headers.iter().zip(&payloads).map(|(h, p)| (&h[..], &p[..])).map(frame).collect();
        assert_eq!(a.link.send(&frames), 22);
        assert_eq!(b.expect(&(0..22).collect::<Vec<_>>()), payloads);
        assert_eq!(a.count("sent_calls") - before, 2, "the short one ends a train");
    }
}

#[test]
fn trains__a_hello_is_as_long_as_a_train_and_is_lost_where_those_are_cut() {
    if !cables(1, 1500) {
        return;
    }
    let hello = |a: &End, b: &End| {
        let (src_eid, dst_eid) = (a.id.0, b.id.0);
        let hello = Hello { src_eid, dst_eid, mtu: 1456, ..Hello::default() };
        emit(&Common::default(), &Packet::Hello(hello)).as_slice().to_vec()
    };
    let (mut a, mut b) = trains(Mode::Auth);
    let header = hello(&a, &b);
    let ask = |a: &mut End| {
        a.link.send(&[Frame { peer: PeerId(2), header: &header, payload: b"where I am" }])
    };
    assert_eq!(ask(&mut a), 1);
    assert_eq!((a.count("sent"), a.count("sent_trains")), (1, 1));
    b.until(&mut Keep::default(), |keep, _| keep.0.len() == 1);
    // From now on the kernel cuts trains that are longer than the MTU.
    ip("link set v0 gso_max_size 1500");
    ask(&mut a);
    a.send(2, 8, &bytes(9000));
    a.send(2, 9, b"short");
    let mut keep = Keep::default();
    b.until(&mut keep, |keep, _| keep.0.iter().any(|(tag, _)| *tag == 9));
    assert_eq!(keep.0.len(), 1, "no pieces");
    assert_eq!(a.count("send_errors"), 2);
}

#[test]
fn trains__leave_the_interface_to_others() {
    if !cables(1, 1500) {
        return;
    }
    let (mut a, mut b) = trains(Mode::Auth);
    let raw = Socket::open().unwrap();
    let index = a.link.ports[0].interface.index;
    raw.bind(Carries::Trains, index).unwrap();
    let (dst, src) = (b.link.ports[0].interface.mac, a.link.ports[0].interface.mac);
    let head = TrainHead { dst, src, slot: b.slot(), each: 40, len: 40, padding: 0 };
    let good = [&head.encode()[..], &[7; 40]].concat();
    // Other protocols, ports and versions of IP; fragments and options are not parsed.
    for (at, value) in [(14, 0x65), (14, 0x46), (23, 6), (36, 0), (37, 0)] {
        let mut other = good.clone();
        other[at] = value;
        raw.send(&other).unwrap();
    }
    let no_host = TrainHead { slot: b.slot() ^ 1, ..head };
    raw.send(&[&no_host.encode()[..], &[7; 40]].concat()).unwrap();
    let elsewhere = TrainHead { dst: Mac([2, 2, 2, 2, 2, 2]), ..head };
    raw.send(&[&elsewhere.encode()[..], &[7; 40]].concat()).unwrap();
    raw.send(&[&TrainHead { len: 900, ..head }.encode()[..], &[7; 40]].concat()).unwrap();
    raw.send(&[&TrainHead { padding: 900, ..head }.encode()[..], &[7; 40]].concat()).unwrap();
    raw.send(&good).unwrap();
    a.send(2, 77, b"after all that");
    assert_eq!(b.expect(&[77]), [b"after all that".to_vec()]);
    let names = ["other_slot", "other_station", "short", "malformed", "received"];
    assert_eq!(names.map(|n| b.count(n)), [1, 1, 2, 1, 1]);
}

#[test]
fn recv__an_overrun_ring_counts_what_it_lost() {
    if !cables(1, 1500) {
        return;
    }
    let small = PacketConfig { ring: 1 << 17, ..on("w0") };
    let (mut a, mut b) = (End::open("v0", 1), End::with(small, 2, Mode::Auth, 1));
    a.knows(&b);
    b.knows(&a);
    for tag in 0..640 {
        a.send(2, tag, b"too many");
    }
    // The last frame may still be in flight.
    let start = Instant::now();
    while b.count("ring_drops") < 576 {
        assert!(start.elapsed() < LONG, "{} were lost", b.count("ring_drops"));
        std::thread::yield_now();
    }
    let mut keep = Keep::default();
    b.until(&mut keep, |keep, _| keep.0.len() >= 64);
    assert_eq!(keep.0.len(), 64);
    assert_eq!(b.count("ring_drops"), 576, "the kernel's counter starts anew, ours does not");
    a.send(2, 1000, b"one more");
    b.expect(&[1000]);
}

#[test]
fn send__a_changed_mtu_is_noticed() {
    if !cables(1, 9000) {
        return;
    }
    let (mut a, mut b, mtu) = pair(Mode::Auth);
    let old = bytes(mtu as usize - 32);
    ip("link set v0 mtu 1500");
    a.send(2, 1, &old);
    assert_eq!(a.count("send_too_long"), 1);
    let said = a.warnings();
    assert!(said.contains("from 9000 to 1500"), "{said}");
    let now = 1496 - TRAILER;
    assert!(said.contains(&format!("Mtu(PeerId(2), {now})")), "{said}");
    a.send(2, 2, &bytes(now - 32));
    b.expect(&[2]);
}

#[test]
fn recv__a_vanished_interface_is_a_warning() {
    if !cables(1, 1500) {
        return;
    }
    let (mut a, mut b, _) = pair(Mode::Auth);
    ip("link del v0");
    a.until(&mut Keep::default(), |_, e| e.link.ports[0].gone);
    a.send(2, 1, b"into the void");
    assert_eq!((a.count("send_errors"), b.link.recv(9, &mut Keep::default())), (1, 0));
    assert!(a.warnings().contains("v0 is gone"));
    assert!(a.link.prepare_wait(), "nothing to receive, and nothing that keeps waking");
}

fn hello(from: &End, to: u64) -> Vec<u8> {
    let hello = Hello {
        src_eid: from.id.0,
        dst_eid: to,
        session_offer: 1,
        mtu: 1400,
        version_min: 1,
        version_max: 1,
        credit: 0,
    };
    emit(&Common::default(), &Packet::Hello(hello)).as_slice().to_vec()
}

#[test]
fn send__first_hello_takes_every_path_and_a_broken_one_is_left() {
    if !cables(2, 1500) {
        return;
    }
    // No network number tells which interfaces are connected.
    let (mut a, mut b) = (End::open("v0,v1", 1), End::open("w0,w1", 2));
    a.knows(&b);
    let header = hello(&a, 2);
    let frame = Frame { peer: PeerId(2), header: &header, payload: &[] };
    assert_eq!(a.link.send(&[frame]), 1);
    assert_eq!(a.count("sent"), 4);
    let mut keep = Keep::default();
    b.until(&mut keep, |k, _| k.0.len() == 2);
    // Frames that came over two cables tell the path back.
    b.knows(&a);
    assert!(b.link.peer(PeerId(1)).unwrap().proof.is_confirmed());
    b.send(1, 7, b"here");
    a.expect(&[7]);
    assert!(a.link.peer(PeerId(2)).unwrap().proof.is_confirmed());
    let (used, _) = a.link.peer_path(PeerId(2)).unwrap();
    let (used, other) = if used == "v0" { ("v0", "v1") } else { ("v1", "v0") };
    ip(&format!("link set {used} down"));
    a.until(&mut Keep::default(), |_, e| e.link.peer_path(PeerId(2)).unwrap().0 == other);
    for tag in 0..10 {
        a.send(2, tag, b"the other way");
    }
    let mut keep = Keep::default();
    let there = |keep: &Keep| keep.0.iter().filter(|(_, what)| what == b"the other way").count();
    b.until(&mut keep, |keep, _| there(keep) == 10);
    assert!(keep.0.len() > 10, "and a question: does that one share data with others?");
    b.send(1, 8, b"follows");
    a.expect(&[8]);
}

#[test]
fn new__without_the_right_to_raw_sockets_says_how_to_get_it() {
    if !cables(1, 1500) {
        return;
    }
    let made = without_rights(|| PacketLink::new(on("v0"), security(1, Mode::Auth, 1)).map(drop));
    let why = made.unwrap_err().to_string();
    assert!(why.contains("packet socket") && why.contains("CAP_NET_RAW"), "{why}");
}

#[test]
fn new__names_the_interfaces_that_cannot_be_used() {
    if !cables(1, 1500) {
        return;
    }
    ip("link set v0 down");
    let made = PacketLink::new(PacketConfig::default(), security(1, Mode::Auth, 1));
    let why = made.map(drop).unwrap_err().to_string();
    assert!(why.contains("v0: down") && why.contains("lo: loopback"), "{why}");
}
