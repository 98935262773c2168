//! A process that is killed in the middle of a large transfer: the other side's operation ends with
//! an error that names the process, and no resource is left.
#![allow(non_snake_case)]

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft::job::open_endpoint;
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, Config, Endpoint, Links, OpError, PeerFailure, PeerId};

/// Far more bytes than are moved before the end.
const LARGE: usize = 256 << 20;
/// The variable with the victim's role (sender or not), its links and the other's address.
const ROLE: &str = "WEFT_TEST_VICTIM";
const HELLO: u64 = 1;
const BULK: u64 = 2;
/// The victim's line on standard output, which no full network buffer can lose.
const MIDWAY: &str = "midway";
/// Its line if the transfer is over already: it had to wait for its core meanwhile.
const OVER: &str = "over too soon";
/// Most transfers until one is met midway.
const TRIES: u32 = 50;
/// The bound of all waits.
const LIMIT: Duration = Duration::from_secs(300);

fn open(links: &str) -> Endpoint {
    let config = Config { peer_timeout_ms: 1_000, keepalive_ms: 100, ..Config::default() };
    open_endpoint(config, Links::parse(links).unwrap(), [9; 32]).unwrap()
}

/// Returns the packets and copies of the links so far.
fn moved(endpoint: &Endpoint) -> u64 {
    let names = ["shm_direct", "shm_sent", "shm_received", "sent", "received"];
    let all = endpoint.counters().links();
    all.iter().filter(|(_, name, _)| names.contains(name)).map(|(_, _, value)| value).sum()
}

/// The process that is killed: it begins a large transfer, prints a line once the transfer is under
/// way, and does nothing more.
#[test]
fn victim__waits_to_be_killed() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let [way, links, address] = words[..] else { panic!("{role}") };
    let endpoint = open(links);
    let address = Address::decode(&from_hex(address).unwrap()).unwrap();
    let other = endpoint.connect(&address).unwrap();
    endpoint.send_blocking(other, HELLO, &[]).unwrap();
    let bulk = match way {
        "sends" => endpoint.send(other, BULK, vec![7; LARGE]),
        _ => endpoint.recv(Some(other), BULK, 0, vec![0; LARGE]),
    };
    let start = Instant::now();
    while moved(&endpoint) < 200 && !bulk.is_done() && !has_begun(&endpoint, links, way) {
        endpoint.progress();
        assert!(start.elapsed() < LIMIT, "it does not begin");
    }
    println!("{}", if bulk.is_done() { OVER } else { MIDWAY });
    std::thread::park_timeout(LIMIT);
}

/// True once the transfer has begun, as far as this side sees it: if the other side copies, this
/// side sees little.
fn has_begun(endpoint: &Endpoint, links: &str, way: &str) -> bool {
    links == "shm" && (way == "sends" && moved(endpoint) >= 2 || moved(endpoint) >= 6)
}

struct Victim {
    child: Child,
    midway: Receiver<bool>,
}

impl Victim {
    fn start(way: &str, links: &str, address: &Address) -> Victim {
        let role = format!("{way} {links} {}", to_hex(&address.encode()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "victim__waits_to_be_killed", "--nocapture"]).env(ROLE, role);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (say, midway) = channel();
        std::thread::spawn(move || {
            let is_midway = |line: String| match &line {
                line if line.contains(MIDWAY) => Some(true),
                line => line.contains(OVER).then_some(false),
            };
            lines.filter_map(is_midway).try_for_each(|midway| say.send(midway))
        });
        Victim { child, midway }
    }

    fn kill(&mut self) {
        let _ended_before = self.child.kill();
        self.child.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Makes progress until `done` returns a value.
fn until<T>(endpoint: &Endpoint, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        endpoint.progress();
        assert!(start.elapsed() < LIMIT, "not {what}: {:?}", endpoint.stats());
    }
}

/// Returns the numbers of open descriptors and of mapped segments of shared memory.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    (fds, maps.lines().filter(|line| line.contains("memfd:weft")).count())
}

/// False if the transfer was over before the victim was killed.
fn die_midway(links: &str, way: &str) -> bool {
    let endpoint = open(links);
    // The first wait makes descriptors that stay open; the count begins after it.
    endpoint.wait(Some(Duration::from_millis(1)));
    let before = held();
    let mut victim = Victim::start(way, links, &endpoint.address());
    let peer = until(&endpoint, "connected", || said(&endpoint, HELLO));
    let mut bulk = pin!(match way {
        "sends" => endpoint.recv(Some(peer), BULK, 0, vec![0; LARGE]),
        _ => endpoint.send(peer, BULK, vec![7; LARGE]),
    });
    let is_midway = until(&endpoint, "under way", || victim.midway.try_recv().ok());
    if !is_midway || bulk.is_done() {
        return false;
    }
    let pid = victim.child.id();
    victim.kill();
    let mut cx = Context::from_waker(Waker::noop());
    let (result, _) = until(&endpoint, "ended", || match bulk.as_mut().poll(&mut cx) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => None,
    });
    let error = result.expect_err("the process is dead");
    let OpError::Peer { peer: named, failure } = error else { panic!("{links}, {way}: {error}") };
    assert_eq!(named, peer);
    let text = endpoint.explain(error);
    let place = if links == "shm" { format!("over shm (process {pid})") } else { " to ".into() };
    assert!(text.contains(&place) && text.contains(links), "{text}");
    let ended = matches!(failure, PeerFailure::Gone);
    assert!(ended || links == "udp" && matches!(failure, PeerFailure::Silent { .. }), "{text}");
    // The UDP link keeps its connected socket for the next busiest peer.
    let spare = usize::from(links == "udp");
    until(&endpoint, "let go", || {
        let (fds, segments) = held();
        (fds <= before.0 + spare && segments == before.1).then_some(())
    });
    assert_eq!(endpoint.peer(peer).queued(), 0);
    true
}

/// Returns the sender of a message with this tag, once there is one.
fn said(endpoint: &Endpoint, tag: u64) -> Option<PeerId> {
    let found = endpoint.probe(None, tag, 0)?;
    endpoint.recv_blocking(Some(found.source), tag, 0, &mut []).unwrap();
    Some(found.source)
}

// One test only, since it counts resources of the whole process.
#[test]
fn killed__in_the_middle_of_a_large_transfer() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    for links in ["shm", "udp"] {
        for way in ["sends", "receives"] {
            let met = (0..TRIES).any(|_| die_midway(links, way));
            assert!(met, "{links}, {way}: over too soon {TRIES} times");
        }
    }
}
