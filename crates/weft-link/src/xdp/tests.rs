//! Two interfaces joined by a cable, in network namespaces of each test. Needs root and the `ip`
//! command.
#![allow(non_snake_case)]

mod fallback;

use super::sys::testing::{send_raw, thread_number};
use super::sys::{bpf, Port, PortConfig};
use super::*;
use crate::ether::EtherAddr;
use crate::secure::{JobKey, Mode};
use crate::sys::testing::{new_namespace, without_rights};
use crate::testing::{run, skip, start};
use crate::{Bytes, Frame, Sink};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use weft_core::wire::{emit, session_number, Common, Eager, Packet};
use weft_core::EndpointId;

const LONG: Duration = Duration::from_secs(300);
const COPYING: [XdpMode; 2] = [XdpMode::Generic, XdpMode::Native];

/// Makes a cable v0-w0 with two queues in a namespace of this thread; `to` is the namespace of w0.
/// False, with a note, if this machine does not allow it.
fn cable_to(to: &str) -> bool {
    let made = new_namespace().map_err(|e| format!("new network namespace: {e}"));
    let queues = "numrxqueues 2 numtxqueues 2";
    let made = made.and_then(|()| {
        run(&format!("ip link add v0 {queues} type veth peer name w0 {queues} {to}"))?;
        run("ip link set v0 up")
    });
    if let Err(why) = &made {
        skip(&format!("needs root, AF_XDP and the ip command: {why}"));
    }
    made.is_ok()
}

fn cable() -> bool {
    cable_to("") && run("ip link set w0 up").is_ok()
}

fn on(interface: &str) -> XdpConfig {
    XdpConfig { interfaces: Some(vec![interface.into()]), ..XdpConfig::default() }
}

fn security(me: u64, key: u8) -> Security {
    let job_key = JobKey::from_bytes(&[key; 32]).unwrap();
    Security { mode: Mode::Auth, job_key, me: EndpointId(me) }
}

/// An endpoint with its link.
struct End {
    link: XdpLink,
    id: EndpointId,
}

impl End {
    /// Repeats the opening: the queue may be in use and the program attached for a moment, because
    /// the child process of another test has copies of descriptors that were closed here.
    fn open(config: XdpConfig, id: u64, key: u8) -> End {
        let begun = Instant::now();
        loop {
            let why = match XdpLink::new(config.clone(), security(id, key)) {
                Ok(link) => return End { link, id: EndpointId(id) },
                Err(why) => why.to_string(),
            };
            let taken = why.contains("open queue") || why.contains("attach the XDP program");
            assert!(taken && begun.elapsed() < LONG, "{why}");
        }
    }

    fn address(&self) -> Address {
        let mut address = Address { endpoint: self.id, ..Address::default() };
        self.link.advertise(&mut address);
        address
    }

    /// Makes a peer of that address; every end calls us by the number of our identity.
    fn knows(&mut self, address: Address) -> u32 {
        let number = address.endpoint.0 as u32;
        let session = session_number(number, 1);
        let endpoint = address.endpoint;
        let info = PeerInfo { peer: PeerId(number), session, endpoint, address };
        self.link.connect(&info).unwrap().mtu
    }

    fn send(&mut self, to: u64, tag: u64, payload: &[u8]) {
        assert!(self.try_send(to, tag, payload));
    }

    /// Sends a packet. False if there is no room now.
    fn try_send(&mut self, to: u64, tag: u64, payload: &[u8]) -> bool {
        let common = Common { session: session_number(self.id.0 as u32, 1), ..Default::default() };
        let header = emit(&common, &Packet::Eager(Eager { tag }));
        let frame = Frame { peer: PeerId(to as u32), header: header.as_slice(), payload };
        self.link.send(&[frame]) == 1
    }

    fn count(&self, name: &str) -> u64 {
        let mut found = None;
        self.link.counters(&mut |n, v| found = found.or((n == name).then_some(v)));
        found.unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// Receives until `done` returns true.
    fn until(&mut self, keep: &mut Keep, done: impl Fn(&Keep, &End) -> bool) {
        let start = Instant::now();
        while !done(keep, self) {
            self.link.recv(64, keep);
            assert!(start.elapsed() < LONG, "nothing more arrives: {:?}", keep.0.len());
        }
    }

    fn warnings(&mut self) -> String {
        std::iter::from_fn(|| self.link.poll_event()).map(|e| format!("{e:?}\n")).collect()
    }
}

#[derive(Default)]
struct Keep(Vec<Vec<u8>>);

impl Sink for Keep {
    fn frame(&mut self, _: Option<PeerId>, _: &[u8], payload: Bytes<'_>) {
        self.0.push(payload.to_vec());
    }
}

fn pair(mode: XdpMode) -> [End; 2] {
    let config = move |name| XdpConfig { modes: vec![mode], ..on(name) };
    let (mut a, mut b) = (End::open(config("v0"), 1, 1), End::open(config("w0"), 2, 1));
    a.knows(b.address());
    b.knows(a.address());
    [a, b]
}

fn attached(interface: &str) -> bool {
    run(&format!("ip -d link show dev {interface}")).unwrap().contains("xdp")
}

/// Waits until no program is attached. This is immediate with two exceptions: a child process that
/// another test has just started holds our descriptors until it executes its program, and a process
/// that searches the system's programs for its own opens each for a moment.
fn wait_detached(interface: &str) {
    let start = Instant::now();
    while attached(interface) {
        assert!(start.elapsed() < LONG, "a program stays on {interface}");
    }
}

#[test]
fn send__arrives_in_each_mode_that_copies() {
    if !cable() {
        return;
    }
    for mode in COPYING {
        wait_detached("v0");
        wait_detached("w0");
        let [mut a, mut b] = pair(mode);
        assert_eq!(a.link.modes().collect::<Vec<_>>(), [mode], "forced");
        assert!(a.link.describe()[0].contains(&mode.to_string()), "reported");
        let mut keep = Keep::default();
        let max = a.link.caps().mtu as usize - 32;
        let sizes = [0, 1, 16, 100, max - 1, max];
        for len in sizes {
            a.send(2, 1, &vec![len as u8; len]);
        }
        b.until(&mut keep, |keep, _| keep.0.len() == sizes.len());
        assert!(keep.0.iter().zip(sizes).all(|(got, len)| *got == vec![len as u8; len]));
    }
}

#[test]
fn drop__leaves_nothing_attached() {
    if !cable() {
        return;
    }
    for mode in COPYING {
        let ends = pair(mode);
        assert!(attached("v0") && attached("w0"));
        drop(ends);
        wait_detached("v0");
        wait_detached("w0");
    }
}

/// Uses one queue. In native mode veth delivers a frame to the queue from which it was sent.
fn native(interface: &str, queue: u32) -> XdpConfig {
    XdpConfig { modes: vec![XdpMode::Native], queue: Some(queue), ..on(interface) }
}

/// Not a test: the process that the next test kills.
#[test]
fn child__holds_a_link() {
    if std::env::var_os("WEFT_TEST_XDP_CHILD").is_none() {
        return;
    }
    let end = End::open(native("v0", 0), 7, 1);
    println!("\nopened {}", end.link.describe()[0]);
    // Wait until the other end closes.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Starts a process that has queue 0 of v0.
fn child_with_a_link() -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "xdp::tests::child__holds_a_link", "--nocapture"])
        .env("WEFT_TEST_XDP_CHILD", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = start(&mut command).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("opened ")), "the child's link");
    (child, lines)
}

#[test]
fn kill__detaches_when_the_last_rank_is_gone() {
    if !cable() {
        return;
    }
    let (mut child, _lines) = child_with_a_link();
    assert!(attached("v0"));
    // A second rank, on the other queue, joins the program and keeps it attached.
    let mut second = End::open(native("v0", 1), 1, 1);
    assert!(second.link.describe()[0].contains("shared"), "{:?}", second.link.describe());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(attached("v0"));
    let mut peer = End::open(native("w0", 1), 2, 1);
    second.knows(peer.address());
    peer.knows(second.address());
    peer.send(1, 1, b"still here");
    second.until(&mut Keep::default(), |keep, _| keep.0 == [b"still here"]);
    drop(second);
    wait_detached("v0");
}

#[test]
fn new__a_queue_that_serves_another_is_an_error_with_the_remedy() {
    if !cable() {
        return;
    }
    let _first = End::open(on("v0"), 1, 1);
    let named = XdpConfig { queue: Some(0), ..on("v0") };
    let second = XdpLink::new(named, security(2, 1));
    let why = second.err().expect("the queue is taken").to_string();
    assert!(why.contains("queue 0 of v0") && why.contains("WEFT_XDP_QUEUE"), "{why}");
}

#[test]
fn new__says_what_is_wrong() {
    if !cable() {
        return;
    }
    let refused = |config| XdpLink::new(config, security(1, 1)).err().unwrap().to_string();
    let why = refused(on("v7"));
    assert!(why.contains("v7: no such interface"), "{why}");
    let why = refused(XdpConfig { queue: Some(9), ..on("v0") });
    assert!(why.contains("no queue 9"), "{why}");
    wait_detached("v0");
    let why = refused(XdpConfig { modes: vec![XdpMode::ZeroCopy], ..on("v0") });
    assert!(why.contains("WEFT_XDP_MODE"), "{why}");
    let why = without_rights(|| refused(on("v0")));
    assert!(why.contains("CAP_NET_RAW"), "{why}");
    wait_detached("v0");
    let other = XdpConfig { ether_type: EtherType::parse("88b6").unwrap(), ..on("v0") };
    let _other = End::open(other, 1, 1);
    let why = refused(on("v0"));
    assert!(why.contains("another XDP program"), "{why}");
}

#[test]
fn load__a_program_that_the_verifier_refuses_says_why() {
    if !cable() {
        return;
    }
    // A program that exits without a verdict.
    let code = [bpf::Insn::new(0x95, 0, 0, 0, 0)];
    let why = bpf::load(&code, "wrong", false).unwrap_err().to_string();
    assert!(why.contains("the verifier says"), "{why}");
}

#[test]
fn program__takes_frames_for_taken_slots_only() {
    const PASS: u32 = 2;
    const REDIRECT: u32 = 4;
    if !cable() {
        return;
    }
    let index = Interfaces::list().unwrap().0.iter().find(|i| i.name == "v0").unwrap().index;
    let config = PortConfig { ifindex: index, queue: 0, frame_len: 1514, zero_copy: false };
    let port = Port::open(&config).unwrap();
    let map = bpf::socket_map(program::ENTRIES, "weft_test").unwrap();
    let kind = EtherType::default();
    let slot = EtherAddr::XDP + 5;
    bpf::insert(&map, program::key(slot, 0), port.fd()).unwrap();
    let other = Port::open(&PortConfig { queue: 1, ..config }).unwrap();
    let taken = bpf::insert(&map, program::key(slot, 0), other.fd());
    assert_eq!(taken.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    let code = program::assemble(&map, kind);
    let loaded = bpf::load(&code, "weft_test", false).unwrap();
    let frame = |slot, kind| {
        let (dst, src) = (Default::default(), Default::default());
        let head = EtherHead { dst, src, kind, slot, len: 0 }.encode();
        [&head[..], &[0; 46]].concat()
    };
    let verdict = |frame: &[u8]| bpf::test_run(&loaded, frame).unwrap();
    let good = frame(slot, kind);
    assert_eq!(verdict(&good), REDIRECT);
    assert_eq!(verdict(&good[..EtherHead::LEN]), REDIRECT);
    assert_eq!(verdict(&good[..EtherHead::LEN - 1]), PASS, "no whole shim");
    for other in [slot + 1, slot - EtherAddr::XDP, EtherAddr::XDP + program::SLOTS as u16, 0xffff] {
        assert_eq!(verdict(&frame(other, kind)), PASS, "slot {other:#x}");
    }
    assert_eq!(verdict(&frame(slot, EtherType::parse("88b6").unwrap())), PASS);
    let mut ip = good.clone();
    ip[12..14].copy_from_slice(&[8, 0]);
    assert_eq!(verdict(&ip), PASS);
}

#[test]
fn recv__bad_frames_are_dropped_and_counted() {
    if !cable() {
        return;
    }
    drops_bad_frames(pair(XdpMode::Generic));
}

fn drops_bad_frames([mut a, mut b]: [End; 2]) {
    let index = a.link.rails[0].interface.index;
    let slot = b.link.rails[0].slot;
    let (dst, src) = (b.link.rails[0].interface.mac, a.link.rails[0].interface.mac);
    let head = |len| EtherHead { dst, src, kind: EtherType::default(), slot, len }.encode();
    let mut sent = 0;
    for (len, body) in [(0, 46), (1000, 46), (46, 46), (u16::MAX, 1400), (1400, 1400)] {
        for fill in [0, 1, 0xff] {
            send_raw(index, &[&head(len)[..], &vec![fill; body]].concat());
            sent += 1;
        }
    }
    a.send(2, 1, b"good");
    let refused = |b: &End| {
        let causes = ["short", "malformed", "stale_session", "replayed", "auth_failed"];
        causes.iter().map(|name| b.count(name)).sum::<u64>()
    };
    let mut keep = Keep::default();
    b.until(&mut keep, |keep, b| !keep.0.is_empty() && refused(b) >= sent);
    assert_eq!((keep.0, refused(&b)), (vec![b"good".to_vec()], sent));
}

#[test]
fn recv__a_wrong_key_is_counted() {
    if !cable() {
        return;
    }
    counts_a_wrong_key(End::open(on("v0"), 1, 1), End::open(on("w0"), 2, 2));
}

fn counts_a_wrong_key(mut a: End, mut b: End) {
    a.knows(b.address());
    b.knows(a.address());
    a.send(2, 1, b"forged");
    let mut keep = Keep::default();
    b.until(&mut keep, |_, b| b.count("auth_failed") == 1);
    assert!(keep.0.is_empty());
}

#[test]
fn recv__overrun_tenfold_counts_what_it_lost() {
    if !cable() {
        return;
    }
    for mode in COPYING {
        wait_detached("v0");
        wait_detached("w0");
        survives_overload(pair(mode));
    }
}

/// Sends far more frames than the rings hold, while the other end takes none.
fn survives_overload([mut a, mut b]: [End; 2]) {
    let causes = ["rx_ring_full", "rx_no_buffer", "rx_dropped"];
    let lost = |b: &End| causes.iter().map(|name| b.count(name)).sum::<u64>();
    let (start, mut sent) = (Instant::now(), 0_u64);
    while sent < 10 * 2048 || lost(&b) == 0 {
        sent += u64::from(a.try_send(2, 1, &sent.to_le_bytes()));
        assert!(start.elapsed() < LONG, "of {sent} frames none was lost");
    }
    let keep = passes(&mut a, &mut b, 0xee);
    let numbers = keep.0.iter().filter_map(|p| Some(u64::from_le_bytes(p[..].try_into().ok()?)));
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.windows(2).all(|w| w[0] < w[1]) && (numbers.len() as u64) < sent);
}

/// Sends until a packet arrives: while a program is detached and while rings are full, frames are
/// lost. Returns all received packets.
fn passes(from: &mut End, to: &mut End, what: u8) -> Keep {
    let start = Instant::now();
    let mut keep = Keep::default();
    while !keep.0.iter().any(|p| *p == [what]) {
        from.try_send(to.id.0, 1, &[what]);
        for _ in 0..1000 {
            to.link.recv(64, &mut keep);
        }
        assert!(start.elapsed() < LONG, "nothing arrives");
    }
    keep
}

#[test]
fn interface__down_up_and_gone_is_said_once() {
    if !cable() {
        return;
    }
    comes_back_and_goes(pair(XdpMode::Generic));
}

fn comes_back_and_goes([mut a, mut b]: [End; 2]) {
    run("ip link set v0 down").unwrap();
    // Far more than the rings hold: they must not stay full for ever.
    for _ in 0..3000 {
        a.send(2, 1, b"lost");
    }
    let said = a.warnings();
    assert_eq!(said.matches("v0 is down").count(), 1, "{said}");
    run("ip link set v0 up").unwrap();
    let start = Instant::now();
    let mut keep = Keep::default();
    while !keep.0.iter().any(|p| p == b"back") {
        a.send(2, 1, b"back");
        a.link.finish_wait(true);
        a.link.recv(1, &mut Keep::default());
        b.link.recv(64, &mut keep);
        assert!(start.elapsed() < LONG, "does not come back");
    }
    assert!(a.warnings().contains("v0 is back"));
    run("ip link del v0").unwrap();
    a.send(2, 1, b"gone");
    a.link.finish_wait(true);
    a.link.recv(1, &mut Keep::default());
    assert!(a.warnings().contains("v0 is down or gone"));
}

#[test]
fn interface__a_new_mtu_is_passed_on() {
    if !cable() {
        return;
    }
    passes_a_new_mtu_on(pair(XdpMode::Generic));
}

fn passes_a_new_mtu_on([mut a, _b]: [End; 2]) {
    a.warnings();
    let before = a.link.caps().mtu;
    run("ip link set v0 mtu 1000").unwrap();
    let start = Instant::now();
    let event = loop {
        a.link.finish_wait(true);
        a.link.recv(1, &mut Keep::default());
        if let Some(event) = a.link.poll_event() {
            break event;
        }
        assert!(start.elapsed() < LONG, "nothing noticed");
    };
    assert_eq!(event, LinkEvent::Mtu(PeerId(2), before - 500));
}

/// Runs TCP over both interfaces while they carry weft's frames.
#[test]
fn program__tcp_passes_unharmed() {
    const BYTES: usize = 4 << 20;
    for mode in COPYING {
        let pattern: Vec<u8> = (0..BYTES).map(|i| (i / 7 % 251) as u8).collect();
        let (ready, is_ready) = channel();
        let (to_a, from_b) = channel();
        let (done, is_done) = channel::<()>();
        let config = move |name| XdpConfig { modes: vec![mode], ..on(name) };
        let expected = pattern.clone();
        let b = std::thread::spawn(move || {
            new_namespace().ok()?;
            ready.send(thread_number()).ok()?;
            is_done.recv().ok()?;
            run("ip addr add 10.91.7.2/24 dev w0").unwrap();
            run("ip link set w0 up").unwrap();
            let listener = TcpListener::bind("10.91.7.2:0").unwrap();
            let mut end = End::open(config("w0"), 2, 1);
            let mine = Address { endpoint: EndpointId(1), ..Address::default() };
            end.link.secure.add_peer(PeerId(1), session_number(1, 1), mine.endpoint).unwrap();
            to_a.send((end.address(), listener.local_addr().unwrap())).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let (mut got, mut keep) = (vec![0; BYTES], Keep::default());
            for part in got.chunks_mut(64 << 10) {
                stream.read_exact(part).unwrap();
                end.link.recv(64, &mut keep);
            }
            stream.write_all(&got[..100]).unwrap();
            end.until(&mut keep, |keep, _| keep.0.iter().any(|p| p == b"end"));
            Some(got == expected && keep.0.iter().any(|p| p == b"meanwhile"))
        });
        let Ok(tid) = is_ready.recv() else {
            return skip("needs root to make a network namespace");
        };
        if !cable_to(&format!("netns {tid}")) {
            return;
        }
        run("ip addr add 10.91.7.1/24 dev v0").unwrap();
        done.send(()).unwrap();
        let (address, tcp) = from_b.recv().unwrap();
        let mut end = End::open(config("v0"), 1, 1);
        end.knows(address);
        let mut stream = TcpStream::connect(tcp).unwrap();
        for part in pattern.chunks(64 << 10) {
            stream.write_all(part).unwrap();
            end.send(2, 1, b"meanwhile");
        }
        let mut back = [0; 100];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, pattern[..100]);
        end.send(2, 1, b"end");
        assert_eq!(b.join().unwrap(), Some(true), "bytes of TCP, frames of weft, {mode}");
    }
}
