//! Tests of the link: within one process if two links behave like two processes, and with real
//! child processes (this test binary, run again) if the end of a process matters.
#![allow(non_snake_case)]

use super::*;
use crate::Bytes;
use crate::DirectMemory;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
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

/// A child process: this test binary, run again as `role`. It prints its address first.
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
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "shm::tests::child__process", "--nocapture", "--test-threads=1"])
            .env("WEFT_SHM_TEST_ROLE", role)
            .env("WEFT_SHM_TEST_PEER", hex(&peer.encode()))
            .stdout(Stdio::piped());
        let mut child = crate::testing::start(&mut command).unwrap();
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

/// The main function of a child; does nothing if the binary was not started as one.
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
        "idle" => child_idle(&mut link, &parent),
        "starved" => child_starved(&mut link, &parent),
        "full" => child_full(&mut link, 1),
        "fuller" => child_full(&mut link, 0),
        _ => panic!("role {role}"),
    }
}

/// Echoes packets until the parent is gone.
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

/// Sends numbered packets as fast as it can, without end.
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

/// Connects and then takes no packets, without end.
fn child_idle(link: &mut ShmLink, parent: &Address) {
    link.connect(&info(0, parent)).unwrap();
    loop {
        std::thread::park();
    }
}

/// Uses up all descriptors, prints that, recovers, and echoes packets.
fn child_starved(link: &mut ShmLink, parent: &Address) {
    // Standard input, output and error; a limit of less than one would also forbid to poll.
    let before = sys::misc::limit_files(3);
    let Err(error) = ShmLink::new(config(3)) else { panic!("no descriptor is left") };
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let error = link.connect(&info(0, parent)).unwrap_err();
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    while link.events.is_empty() {
        wait(link);
        link.finish_wait(true);
    }
    assert!(matches!(events(link)[..], [LinkEvent::Warning(_)]));
    let mut fds = Vec::new();
    link.wait_fds(&mut fds);
    assert!(!sys::misc::wait_readable(fds[0].fd, 0), "waiting would spin");
    sys::misc::limit_files(before);
    link.service();
    child_echo(link, parent);
}

/// Limits descriptors so that `connections` can be accepted, but no descriptor in a message.
fn child_full(link: &mut ShmLink, connections: u64) -> ! {
    sys::misc::limit_files(sys::misc::next_file() + connections);
    loop {
        wait(link);
        link.finish_wait(true);
    }
}

/// Sends one packet and waits for its echo.
fn round_trip(link: &mut ShmLink, n: usize) {
    let (header, payload) = (pattern(n, 32), pattern(n, n * 100));
    assert_eq!(link.send(&[frame(&header, &payload)]), 1);
    let mut log = Log::default();
    recv_until(link, &mut log, |log, link| !log.0.is_empty() || !link.events.is_empty());
    assert_eq!(log.0, [(Some(PEER), header, payload)]);
}

#[test]
fn processes__out_of_descriptors_is_said_and_recovered_from() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start("starved", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    round_trip(&mut link, 5);
}

#[test]
fn processes__without_a_descriptor_for_the_segment_refuse() {
    refused_by("full");
}

#[test]
fn processes__without_a_descriptor_for_the_connection_refuse() {
    refused_by("fuller");
}

fn refused_by(role: &str) {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start(role, &address_of(&link));
    // The child hangs up before or after the segment was passed.
    match link.connect(&info(0, &child.address)) {
        Err(error) => assert!(matches!(error, LinkError::Unreachable(_)), "{error}"),
        Ok(_) => {
            recv_until(&mut link, &mut Log::default(), |_, link| !link.events.is_empty());
            let events = events(&mut link);
            let [LinkEvent::PeerRefused(PEER, why)] = &events[..] else { panic!("{events:?}") };
            assert!(why.contains("no descriptor is left"), "{why}");
        }
    }
}

#[test]
fn connect__to_one_that_takes_this_process_for_another_users_is_refused_with_the_reason() {
    let [mut ours, mut theirs] = [1, 2].map(|id| ShmLink::new(config(id)).unwrap());
    // As in another user namespace, where users have other numbers.
    theirs.user += 1;
    ours.connect(&info(0, &address_of(&theirs))).unwrap();
    theirs.poll_sockets();
    recv_until(&mut ours, &mut Log::default(), |_, link| !link.events.is_empty());
    let events = events(&mut ours);
    let [LinkEvent::PeerRefused(PEER, why)] = &events[..] else { panic!("{events:?}") };
    assert!(why.contains("its process runs as user"), "{why}");
}

#[test]
fn connect__to_one_that_ended_says_so() {
    let [mut ours, mut theirs] = [1, 2].map(|id| ShmLink::new(config(id)).unwrap());
    let there = info(2, &address_of(&theirs));
    // It connects and ends: nothing of that is a refusal.
    theirs.connect(&info(1, &address_of(&ours))).unwrap();
    drop(theirs);
    ours.poll_sockets();
    assert_eq!(counter(&ours, "shm_refused"), 0);
    assert!(matches!(ours.connect(&there), Err(LinkError::Ended)));
}

#[test]
fn processes__death_frees_a_full_sender() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let mut child = Process::start("idle", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    while link.send(&[frame(&header(0), &[0; 999])]) == 1 {}
    child.child.kill().unwrap();
    // The failure of a direct copy from its memory may be reported first.
    let gone = LinkEvent::PeerGone(PEER);
    recv_until(&mut link, &mut Log::default(), |_, link| link.events.contains(&gone));
    assert!(events(&mut link).contains(&gone));
    assert_eq!(link.send(&[frame(&header(0), &[]); 3]), 3);
    assert_eq!(counter(&link, "shm_dropped"), 3);
}

#[test]
fn processes__exchange_packets() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let child = Process::start("echo", &address_of(&link));
    link.connect(&info(0, &child.address)).unwrap();
    for n in 0..200 {
        round_trip(&mut link, n);
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
fn direct__copies_between_processes() {
    let (mut a, b) = pair();
    let source = pattern(1, 3 << 20);
    let mut target = vec![0; source.len()];
    a.read_direct(PEER, source.as_ptr() as u64, &mut target).unwrap();
    assert_eq!(source, target);
    let mut target = vec![0; source.len()];
    a.write_direct(PEER, target.as_mut_ptr() as u64, &source).unwrap();
    assert_eq!(source, target);
    let bad = a.read_direct(PEER, 8, &mut target);
    assert!(matches!(bad, Err(LinkError::System { .. })));
    drop(b);
}

#[test]
fn take_back_memory__the_peer_copies_no_more_and_we_do() {
    let (mut a, mut b) = pair();
    let (source, mut target) = (pattern(1, 5000), vec![0; 5000]);
    let at = source.as_ptr() as u64;
    b.read_direct(PEER, at, &mut target).unwrap();
    a.take_back_memory(PEER);
    let refused = b.read_direct(PEER, at, &mut target);
    assert!(refused.is_err_and(|e| e.to_string().contains("taken its memory back")));
    assert!(b.write_direct(PEER, target.as_mut_ptr() as u64, &source).is_err());
    a.read_direct(PEER, at, &mut target).unwrap();
    // The end of a connection revokes all access.
    a.disconnect(PEER);
    let (mut a, mut b) = pair();
    b.read_direct(PEER, at, &mut target).unwrap();
    b.disconnect(PEER);
    assert!(a.write_direct(PEER, target.as_mut_ptr() as u64, &source).is_err());
    let (mut a, b) = pair();
    drop(b);
    assert!(a.write_direct(PEER, target.as_mut_ptr() as u64, &source).is_err());
}

#[test]
fn take_back_memory__waits_for_a_copy_that_is_under_way() {
    let (mut a, b) = pair();
    let (copied, done) = (std::sync::atomic::AtomicBool::new(false), std::sync::mpsc::channel());
    std::thread::scope(|s| {
        let copying = b.peers[0].begin_copy().unwrap();
        let copied = &copied;
        s.spawn(move || {
            a.take_back_memory(PEER);
            done.0.send(copied.load(std::sync::atomic::Ordering::SeqCst)).unwrap();
        });
        // The peer has set the flag, and may not return before the copy has ended.
        while b.peers[0].tx_area.hint().taken_back.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(b.peers[0].tx_area.producer().copying.load(Ordering::SeqCst) == 1);
        copied.store(true, std::sync::atomic::Ordering::SeqCst);
        drop(copying);
    });
    assert!(done.1.recv().unwrap(), "it returned while the copy was under way");
    assert!(b.peers[0].begin_copy().is_none());
}

#[test]
fn direct__forbidden_falls_back() {
    let off = ShmConfig { direct: DirectCopy::Off, ..config(1) };
    let (mut a, b) = pair_of(off, config(2));
    assert!(!a.path_caps(a.peer(PEER).unwrap()).direct);
    let mut into = [0; 8];
    assert!(matches!(a.read_direct(PEER, 0, &mut into), Err(LinkError::Unsupported)));
    assert!(matches!(a.write_direct(PEER, 0, &into), Err(LinkError::Unsupported)));
    drop(b);
}

/// Returns the contents of a block.
fn bytes_of(block: &Block, len: usize) -> Vec<u8> {
    block.bytes(len).to_vec()
}

#[test]
fn share__memory_is_written_and_read_where_it_is_mapped_until_it_is_forgotten() {
    let (mut a, mut b) = pair();
    let (block, source) = (Block::new(3 << 20).unwrap(), pattern(1, 3 << 20));
    let addr = block.start().addr() as u64;
    assert!(b.share(PEER, 7, &block));
    a.service();
    a.write_direct(PEER, addr, &source).unwrap();
    assert_eq!(counter(&a, "shm_mapped"), 1);
    assert_eq!(bytes_of(&block, source.len()), source);
    let mut got = vec![0; 100];
    a.read_direct(PEER, addr + 5000, &mut got).unwrap();
    assert_eq!((counter(&a, "shm_mapped"), &got[..]), (2, &source[5000..5100]));
    // This memory is outside the block.
    let other = [0_u8; 64];
    a.write_direct(PEER, other.as_ptr() as u64, &[5; 64]).unwrap();
    assert_eq!(counter(&a, "shm_mapped"), 2);
    // A block shared before the call is forgotten, whether its message was read or not.
    assert!(b.share(PEER, 8, &block));
    a.forget_shared(PEER, 8);
    a.forget_shared(PEER, 7);
    a.write_direct(PEER, addr, &[9; 10]).unwrap();
    assert_eq!((counter(&a, "shm_mapped"), bytes_of(&block, 10)), (2, vec![9; 10]));
    // The same key again names other memory.
    for key in [7, 7] {
        let next = Block::new(1 << 16).unwrap();
        assert!(b.share(PEER, key, &next));
        a.service();
        a.write_direct(PEER, next.start().addr() as u64, &[3; 8]).unwrap();
        assert_eq!(bytes_of(&next, 8), [3; 8]);
    }
    assert_eq!(counter(&a, "shm_mapped"), 4);
}

#[test]
fn share__a_rank_without_it_gets_no_message_about_it() {
    let off = ShmConfig { direct: DirectCopy::Off, ..config(1) };
    let (mut a, mut b) = pair_of(off, config(2));
    let block = Block::new(1 << 16).unwrap();
    assert!(b.share(PEER, 7, &block) && !a.share(PEER, 7, &block));
    a.service();
    b.service();
    let written = a.write_direct(PEER, block.start().addr() as u64, &[1; 8]);
    assert!(matches!(written, Err(LinkError::Unsupported)));
    assert_eq!((counter(&a, "shm_lies"), a.poll_event().is_none()), (0, true));
}

#[test]
fn share__bad_files_and_too_many_are_left_and_the_connection_lives() {
    let (mut a, mut b) = pair();
    let blocks: Vec<_> = (0..300).map(|_| Block::new(1 << 16).unwrap()).collect();
    for (block, key) in blocks.iter().zip(0..) {
        while !b.share(PEER, key, block) {
            a.service();
        }
    }
    let plain = std::fs::File::open("/proc/self/exe").unwrap();
    let (addr, file) = (blocks[0].start().addr() as u64, plain.as_fd());
    for (key, addr, len) in [(1000, addr, 1 << 16), (1001, u64::MAX, 1 << 16), (1002, 0, 0)] {
        let message = rendezvous::Shared { key, addr, len }.encode();
        sys::socket::send(&b.peer(PEER).unwrap().socket.fd, &message, Some(file)).unwrap();
    }
    a.service();
    for block in &blocks {
        a.write_direct(PEER, block.start().addr() as u64, &[4; 100]).unwrap();
        assert_eq!(bytes_of(block, 100), [4; 100]);
    }
    assert_eq!(counter(&a, "shm_mapped"), 256);
    assert_eq!((counter(&a, "shm_lies"), a.poll_event().is_none()), (0, true));
}

#[test]
fn share__memory_of_a_rank_that_has_ended_is_not_written() {
    let (mut a, mut b) = pair();
    let block = Block::new(1 << 16).unwrap();
    assert!(b.share(PEER, 7, &block));
    a.service();
    let addr = block.start().addr() as u64;
    a.write_direct(PEER, addr, &[1; 8]).unwrap();
    // A killed peer revokes nothing. Its end is noticed after some copies at the latest, without
    // progress of the link.
    b.peers[0].copies = false;
    drop(b);
    let ended = (0..2 * DIRECT_CALLS).any(|_| {
        a.write_direct(PEER, addr, &[1; 8]).unwrap();
        counter(&a, "shm_mapped") < counter(&a, "shm_direct")
    });
    assert!(ended, "it goes by the kernel then, which knows the process");
}

#[test]
fn direct__of_the_wrong_process_is_noticed() {
    let (mut a, mut b) = (ShmLink::new(config(1)).unwrap(), ShmLink::new(config(2)).unwrap());
    *b.probe ^= 1;
    let wrong = *b.probe;
    a.connect(&info(0, &address_of(&b))).unwrap();
    b.service();
    *b.probe = wrong ^ 1;
    assert!(a.read_direct(PEER, 0, &mut [0; 8]).is_err());
    assert!(matches!(events(&mut a)[..], [LinkEvent::Warning(_)]));
    assert!(!a.path_caps(a.peer(PEER).unwrap()).direct);
}

fn word(tag: u32, header: u32, payload: u32) -> u64 {
    u64::from(header | payload << 8) << 32 | u64::from(tag)
}

#[test]
fn recv__a_lying_slot_ends_the_connection() {
    let mtu = ShmConfig::new(EndpointId(1)).mtu;
    for (bad, what) in [
        (word(5, 32, 0), "slot tag"),
        (word(u32::MAX, 32, 0), "slot tag"),
        (word(2, 23, 0), "header length"),
        (word(2, 0, 0), "header length"),
        (word(2, 129, 0), "header length"),
        (word(2, 32, mtu - 31), "packet length"),
        (word(2, 255, 0xff_ffff), "header length"),
        (word(2, 24, 0xff_ffff), "packet length"),
    ] {
        let (mut a, mut b) = pair();
        a.send(&[frame(&header(1), b"good")]);
        use ring::Area;
        a.peers[0].tx_area.slot(1).word.store(bad, Ordering::Release);
        assert_eq!(numbers(&drain(&mut b)), [1]);
        let events = events(&mut b);
        let [LinkEvent::Warning(text), LinkEvent::PeerFailed(PEER, PeerFailure::Protocol)] =
            &events[..]
        else {
            panic!("{events:?}")
        };
        assert!(text.contains(what), "{text}");
        assert_eq!(counter(&b, "shm_lies"), 1);
        drain(&mut a);
        assert_eq!(events_gone(&mut a), 1, "the liar is told by the end of the socket");
    }
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

fn events_gone(link: &mut ShmLink) -> usize {
    events(link).iter().filter(|e| matches!(e, LinkEvent::PeerGone(_))).count()
}

#[test]
fn send__lying_credits_end_the_connection() {
    use ring::Area;
    for (bad, lies) in [(u64::MAX, 1), (300, 1), (u64::from(u32::MAX), 1), (1, 0), (1 << 32, 0)] {
        let (mut a, b) = pair();
        // Stored before the packets exist; the last two values become true and do no harm.
        b.peers[0].rx_area.consumer().credits.store(bad, Ordering::Release);
        for n in 0..600 {
            a.send(&[frame(&header(n), &[0; 3000])]);
        }
        drain(&mut a);
        let failed = LinkEvent::PeerFailed(PEER, PeerFailure::Protocol);
        assert_eq!(events(&mut a).iter().filter(|&e| *e == failed).count(), lies, "{bad:#x}");
        assert_eq!(counter(&a, "shm_lies"), lies as u64);
    }
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
fn recv__random_garbage_anywhere_never_panics() {
    use ring::Area;
    for seed in 0..300 {
        let mut random = Random(seed);
        let small = |id| ShmConfig { slots: 8, data_bytes: 4096, mtu: 1024, ..config(id) };
        let (mut a, mut b) = pair_of(small(1), small(2));
        for _ in 0..60 {
            let payload = pattern(1, random.below(900));
            a.send(&[frame(&header(0), &payload)]);
            b.send(&[frame(&header(0), &payload)]);
            let value = if random.below(2) == 0 { random.next() } else { random.next() & 0xf };
            let at = random.below(8) as u32;
            if let (0, Some(p)) = (random.below(8), a.peers.first()) {
                match random.below(5) {
                    0 => p.tx_area.slot(at).word.store(value, Ordering::Release),
                    1 => p.tx_area.slot(at).body[random.below(7)].store(value, Ordering::Relaxed),
                    2 => p.rx_area.consumer().credits.store(value, Ordering::Release),
                    3 => p.rx_area.consumer().sleeping.store(value as u32, Ordering::Release),
                    _ => p.tx_area.producer().blocked.store(value as u32, Ordering::Release),
                }
            }
            drain(&mut a);
            drain(&mut b);
            b.prepare_wait();
            b.finish_wait(true);
        }
    }
}

#[test]
fn service__refuses_nonsense_on_the_socket() {
    use std::os::fd::{AsFd, OwnedFd};
    let mut link = ShmLink::new(config(1)).unwrap();
    let sizes = link.config.sizes();
    let offer = Hello { from: EndpointId(3), ..link.hello(Kind::Offer, EndpointId(1), sizes) };
    let sealed = sys::map::create(sizes.segment_len()).unwrap();
    let short = sys::map::create(4096).unwrap();
    let loose: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let wrong_target = Hello { to: EndpointId(9), ..offer }.encode();
    let answer = Hello { kind: Kind::Answer, ..offer }.encode();
    let good = offer.encode();
    let cases: [(&[u8], Option<&OwnedFd>); 8] = [
        (b"?", None),
        (&[1], None),
        (&[0; 200], None),
        (&good, None),
        (&good, Some(&short)),
        (&good, Some(&loose)),
        (&wrong_target, Some(&sealed)),
        (&answer, Some(&sealed)),
    ];
    for (n, (bytes, fd)) in cases.into_iter().enumerate() {
        let socket = dial(&link);
        sys::socket::send(&socket, bytes, fd.map(|f| f.as_fd())).unwrap();
        link.service();
        assert!(sys::socket::hung_up(&socket), "case {n}");
        assert_eq!((link.peers.len(), counter(&link, "shm_refused")), (0, n as u64 + 1));
    }
    let socket = dial(&link);
    sys::socket::send(&socket, &good, Some(sealed.as_fd())).unwrap();
    link.service();
    assert_eq!(link.peers.len(), 1);
    let again = dial(&link);
    sys::socket::send(&again, &good, Some(sealed.as_fd())).unwrap();
    link.service();
    assert!(sys::socket::hung_up(&again), "an endpoint connects once");
}

#[test]
fn service__silent_connections_are_bounded() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let silent: Vec<_> = (0..200).map(|_| dial(&link)).collect();
    link.service();
    let closed = silent.iter().filter(|s| sys::socket::hung_up(s)).count();
    assert_eq!(closed, 200 - 64);
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

#[test]
fn hub__a_rank_with_false_counters_is_ended_alone_and_no_rank_is_served_before_admission() {
    use ring::Area;
    let name = format!("@weft-hub-{:016x}", crate::random_u64());
    let mut hub = ShmLink::hub(config(100), &name, 8).unwrap();
    let mut ranks: Vec<_> = (1..3).map(|n| ShmLink::new(config(n)).unwrap()).collect();
    for rank in &mut ranks {
        rank.connect_agent(&name, EndpointId(100), PEER).unwrap();
        assert_eq!(rank.send(&[frame(&header(1), b"early")]), 1);
    }
    hub.poll_sockets();
    assert!(drain(&mut hub).is_empty(), "nobody is admitted");
    let callers = hub.callers();
    let mut who: Vec<_> = callers.iter().map(|c| (c.endpoint.0, c.user)).collect();
    who.sort_unstable();
    let user = sys::misc::effective_user();
    assert_eq!(who, [(1, user), (2, user)]);
    for (n, endpoint) in [(0, 1), (1, 2)] {
        assert!(hub.admit_caller(EndpointId(endpoint), PeerId(n)));
        assert!(!hub.admit_caller(EndpointId(endpoint), PeerId(9)));
    }
    assert!(!hub.has_callers());
    assert_eq!(drain(&mut hub).len(), 2);
    ranks[0].peers[0].tx_area.slot(1).word.store(u64::MAX, Ordering::Release);
    assert!(drain(&mut hub).is_empty());
    let events = events(&mut hub);
    let [LinkEvent::Warning(_), LinkEvent::PeerFailed(PEER, PeerFailure::Protocol)] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(ranks[1].send(&[frame(&header(2), b"on")]), 1);
    assert_eq!(drain(&mut hub).len(), 1, "the other one is served on");
    hub.mute(PeerId(1), true);
    assert_eq!(ranks[1].send(&[frame(&header(3), b"wait")]), 1);
    assert!(drain(&mut hub).is_empty());
    hub.mute(PeerId(1), false);
    assert_eq!(drain(&mut hub).len(), 1);
}

#[test]
fn hub__callers_without_end_are_met_some_at_a_time() {
    let name = format!("@weft-hub-{:016x}", crate::random_u64());
    let mut hub = ShmLink::hub(config(100), &name, 64).unwrap();
    let mut ranks: Vec<_> = (1..30).map(|n| ShmLink::new(config(n)).unwrap()).collect();
    for rank in &mut ranks {
        rank.connect_agent(&name, EndpointId(100), PEER).unwrap();
    }
    hub.service();
    assert!(!hub.has_callers(), "not while it polls");
    let mut met = 0;
    while met < ranks.len() {
        hub.poll_sockets();
        let now = hub.callers().len();
        assert!(now > met && now <= met + 8, "{met} to {now}");
        met = now;
    }
}

#[test]
fn hub__rings_of_other_sizes_than_its_own_are_refused() {
    let name = format!("@weft-hub-{:016x}", crate::random_u64());
    let mut hub = ShmLink::hub(config(100), &name, 8).unwrap();
    let own = config(1);
    let others = [
        ShmConfig { data_bytes: 2 * own.data_bytes, ..own.clone() },
        ShmConfig { slots: own.slots / 2, ..own.clone() },
        ShmConfig { mtu: 512, ..own },
    ];
    for (n, other) in (1..).zip(others) {
        let mut rank = ShmLink::new(other).unwrap();
        rank.connect_agent(&name, EndpointId(100), PEER).unwrap();
        hub.poll_sockets();
        assert!(!hub.has_callers());
        assert_eq!(counter(&hub, "shm_refused"), n);
    }
}

/// The variable that tells a child process of the test below its role.
const ROLE: &str = "WEFT_TEST_UNMAPPED";

/// Accepts connections until one was admitted or two were refused, and prints the result.
fn accept_some() {
    let mut link = ShmLink::new(config(1)).unwrap();
    let address = address_of(&link);
    let hex: String = address.encode().iter().map(|b| format!("{b:02x}")).collect();
    // The test harness may have printed on this line.
    println!("\naddress {hex}");
    while link.peers.is_empty() && counter(&link, "shm_refused") < 2 {
        sys::misc::wait_readable(link.listeners.epoll.as_raw_fd(), 1_000);
        link.service();
    }
    println!("admitted {}", link.peers.len());
}

/// Connects as a link does; if its own side refuses, connects without the check.
fn connect_twice(hex: &str) {
    let bytes =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    let address = Address::decode(&bytes.collect::<Vec<u8>>()).unwrap();
    let mut link = ShmLink::new(config(2)).unwrap();
    match link.connect(&info(1, &address)) {
        Ok(_) => {
            println!("\nconnected");
            // Wait until the other process has seen the connection and ended.
            while events(&mut link).is_empty() {
                sys::misc::wait_readable(link.listeners.epoll.as_raw_fd(), 1_000);
                link.service();
                link.recv(1, &mut Log::default());
            }
        }
        Err(why) => {
            println!("\nrefused {why}");
            let socket = sys::socket::connect(sys::socket::Name::Key(address.shm)).unwrap();
            let sizes = link.config.sizes();
            let offer = link.hello(Kind::Offer, EndpointId(1), sizes).encode();
            let segment = sys::map::create(sizes.segment_len()).unwrap();
            // The other process may have ended already.
            let _ = sys::socket::send(&socket, &offer, Some(segment.as_fd()));
        }
    }
}

/// Runs this test once more in another process, with the command `words` before it and one of the
/// two roles above; returns its output.
fn child(
    words: &str,
    role: &str,
) -> (std::process::Child, std::io::BufReader<std::process::ChildStdout>) {
    let own = std::env::current_exe().unwrap();
    let mut words = words.split(' ');
    let mut command = std::process::Command::new(words.next().unwrap());
    command.args(words).arg(own).env(ROLE, role).stdout(std::process::Stdio::piped());
    command.args([
        "--exact",
        "shm::tests::connect__the_overflow_user_proves_nothing",
        "--nocapture",
    ]);
    let mut child = crate::testing::start(&mut command).unwrap();
    let out = std::io::BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

/// Finds the next line with this beginning; returns the rest of the line.
fn said(out: &mut impl std::io::BufRead, what: &str) -> String {
    let mut lines = out.lines().map_while(Result::ok);
    let found = lines.find_map(|line| Some(line.strip_prefix(what)?.trim().to_string()));
    found.unwrap_or_else(|| panic!("it did not say {what}"))
}

#[test]
fn connect__the_overflow_user_proves_nothing() {
    match std::env::var(ROLE) {
        Ok(role) if role == "accept" => return accept_some(),
        Ok(address) => return connect_twice(&address),
        Err(_) => {}
    }
    let root = sys::misc::effective_user() == 0;
    let by = |user: u32, how: &str| match root {
        true => format!("setpriv --reuid={user} --regid={user} --clear-groups unshare {how}"),
        false => format!("unshare {how}"),
    };
    // As root, two different users; the kernel shows both as the overflow user.
    let unmapped = [by(12_345, "--user"), by(12_346, "--user")];
    let mapped = [by(12_345, "--user --map-current-user"), by(12_345, "--user --map-current-user")];
    if let Err(why) = crate::testing::run(&format!("{} true", unmapped[0])) {
        return crate::testing::skip(&format!("no user namespaces: {why}"));
    }
    for ([first, second], are_admitted) in [(unmapped, false), (mapped, true)] {
        let (mut listener, mut heard) = child(&first, "accept");
        let address = said(&mut heard, "address ");
        let (mut dialer, mut told) = child(&second, &address);
        match are_admitted {
            true => drop(said(&mut told, "connected")),
            false => {
                let why = said(&mut told, "refused ");
                assert!(
                    why.contains("without a number") && why.contains("--map-current-user"),
                    "{why}"
                );
            }
        }
        assert_eq!(said(&mut heard, "admitted "), if are_admitted { "1" } else { "0" });
        assert!(dialer.wait().unwrap().success() && listener.wait().unwrap().success());
    }
}
