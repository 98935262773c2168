//! Programs of two hosts whose agents are one cluster. Mostly both hosts are this machine, in one
//! network: the agents do not know each other's programs.

use crate::harness::{cabled, start, Served, ADDRESS, LIMIT, LONG_LOOKS, LOOKS};
use crate::torture;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;
use weft_cluster::KeyFile;
use weft_conformance::skip;
use weftd::lists::{self, State};

pub const SETTINGS: [(&str, &str); 1] = [LOOKS];

/// The options of the agent of a host, which joins another one.
fn words<'a>(key: &'a str, address: &'a str, port: &'a str, first: &'a str) -> Vec<&'a str> {
    let mut words = vec!["--cluster", "sockets", "--cluster-key", key, "--cluster-port", port];
    words.extend(["--cluster-multicast", "off", "--cluster-address", address, "--join", first]);
    words
}

/// Starts such an agent.
pub fn agent(key: &str, address: &str, port: &str, first: &str) -> Served {
    Served::with_words(&words(key, address, port, first))
}

/// Ports below those that the system gives to sockets without one, which could take a port between
/// its choice and its use.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// A port of UDP that nobody has now, and no other test of this process gets.
pub fn port() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() * 64;
    loop {
        let next = first + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (next % PORTS.len() as u32) as u16;
        if UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return port.to_string();
        }
    }
}

/// Waits until an agent has joined the other one.
pub fn joins(agent: &Served) {
    let from = Instant::now();
    while agent.counter("cluster_hosts ") < 2 {
        assert!(from.elapsed() < LIMIT, "the agents are no cluster");
        std::thread::yield_now();
    }
}

/// The agents of two hosts.
pub struct Two {
    pub agents: [Served; 2],
    folder: PathBuf,
    key: String,
    first: String,
}

impl Two {
    pub fn start() -> Two {
        let name = format!("weft-hosts-{:016x}", weft_link::random_u64());
        let folder = std::env::temp_dir().join(name);
        KeyFile::init(&folder.join("key")).unwrap();
        let key = folder.join("key").display().to_string();
        let ports = [port(), port()];
        let first = format!("127.0.0.1:{}", ports[0]);
        let agents = ports.each_ref().map(|port| agent(&key, "127.0.0.1", port, &first));
        agents.iter().for_each(joins);
        Two { agents, folder, key, first }
    }

    /// The options of one more agent of the cluster.
    pub fn words<'a>(&'a self, port: &'a str) -> Vec<&'a str> {
        words(&self.key, "127.0.0.1", port, &self.first)
    }

    pub fn names(&self) -> [Option<&str>; 2] {
        [0, 1].map(|i| Some(self.agents[i].name.as_str()))
    }

    /// Connections joined, as both agents say.
    pub fn paired(&self) -> [u64; 2] {
        [0, 1].map(|i| self.agents[i].counter("sockets_paired_between_hosts"))
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.agents.iter_mut().for_each(Served::stop);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn hosts__requests_and_answers_go_by_packets() {
    let two = Two::start();
    let [here, there] = two.names();
    let mut server = start("serve", "", there, &SETTINGS);
    let mut client = start("try-idle", &server.says(), here, &SETTINGS);
    assert_eq!(client.says(), "joined");
    // The server's agent hears a message later that the ends are joined.
    let connection = |agent: &Served| {
        let programs = lists::programs(&agent.name).unwrap();
        programs.into_iter().next().and_then(|one| one.connections.into_iter().next())
    };
    let is_between = |agent: &Served| {
        let shown = connection(agent);
        shown.is_some_and(|shown| matches!(&shown.state, State::Links(host) if !host.is_empty()))
    };
    let from = Instant::now();
    while two.paired() != [1, 1] || !two.agents.iter().all(is_between) {
        let shown = two.agents.each_ref().map(connection);
        assert!(from.elapsed() < LIMIT, "paired: {:?}, {shown:?}", two.paired());
        std::thread::yield_now();
    }
    // The client has got bytes by packets.
    assert!(connection(&two.agents[0]).unwrap().received > 0);
    drop(client.child.stdin.take());
    client.ends_well();
    server.ends_well();
}

/// Unless packets are chosen.
const ALL_TCP: [(&str, &str); 2] = [LOOKS, ("WEFT_SOCKETS_PACKETS", "0")];

#[test]
fn hosts__no_packet_is_sent_unless_both_ends_choose_it() {
    let two = Two::start();
    let [here, there] = two.names();
    for (ours, theirs) in [(&ALL_TCP[..], &ALL_TCP[..]), (&ALL_TCP, &SETTINGS)] {
        let mut echo = start("echo", "", there, theirs);
        let mut ask = start("ask", &echo.says(), here, ours);
        assert_eq!(ask.says(), "0", "bytes past TCP");
        ask.ends_well();
        echo.ends_well();
    }
    assert_eq!(two.paired(), [2, 2]);
}

#[test]
fn hosts__torture_by_tcp_alone() {
    let two = Two::start();
    for seed in torture::seeds().take(3) {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        torture::both(two.names(), seed, 0, &ALL_TCP);
    }
    assert!(two.paired()[0] > 0);
}

#[test]
fn hosts__torture_moves_every_byte_once_and_in_order() {
    let two = Two::start();
    for seed in torture::seeds() {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        torture::both(two.names(), seed, 0, &SETTINGS);
    }
    assert!(two.paired()[0] > 0);
}

/// Statements of phases are among the packets that are lost: the agents have them.
#[test]
fn hosts__torture_with_lost_packets() {
    let two = Two::start();
    let settings = [LOOKS, ("WEFT_SOCKETS_LOSS", "10")];
    for seed in torture::seeds().take(3) {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        torture::both(two.names(), seed, 0, &settings);
    }
}

#[test]
fn hosts__connections_outlive_both_agents() {
    let mut two = Two::start();
    let [here, there] = two.names().map(|name| name.map(String::from));
    let mut server = start("serve", "", there.as_deref(), &SETTINGS);
    let mut client = start("try-ended", &server.says(), here.as_deref(), &SETTINGS);
    assert_eq!(client.says(), "ready");
    two.agents.iter_mut().for_each(Served::stop);
    drop(client.child.stdin.take());
    assert_eq!(client.says(), "done");
    client.ends_well();
    server.ends_well();
}

/// Cases of `roles`; `WEFT_CASES=all` runs those that follow, too.
const CASES: [&str; 8] = ["peek", "count", "half", "wait", "edge", "fork", "mark", "beyond"];
const MORE: [&str; 15] = [
    "partly",
    "seen",
    "none",
    "all",
    "killed",
    "nested",
    "once",
    "interrupt",
    "dup",
    "fly",
    "reset",
    "closed",
    "closeall",
    "mode",
    "urgent",
];

#[test]
fn hosts__calls_behave_as_inside_a_host() {
    let two = Two::start();
    let [here, there] = two.names();
    let chosen = std::env::var("WEFT_CASES").unwrap_or(CASES.join(","));
    let is_chosen = |case: &&&str| chosen == "all" || chosen.split(',').any(|one| one == **case);
    for case in CASES.iter().chain(&MORE).filter(is_chosen) {
        eprintln!("case {case}: WEFT_CASES={case} repeats it");
        let before = two.paired()[0];
        let settings = if *case == "beyond" { [LONG_LOOKS] } else { SETTINGS };
        let mut server = start("serve", "", there, &settings);
        let mut client = start(&format!("try-{case}"), &server.says(), here, &settings);
        assert_eq!(client.says(), "done");
        client.ends_well();
        assert!(two.paired()[0] > before);
        let status = server.end();
        assert!(status.success() || *case == "killed", "{status}");
    }
}

#[test]
fn hosts__torture_with_an_end_that_is_killed() {
    let two = Two::start();
    for seed in torture::seeds().take(3) {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        let kill = 1 + torture::Random(seed).next(1 << 20);
        torture::both(two.names(), seed, kill, &SETTINGS);
    }
}

/// Two networks that a cable joins, as of two hosts.
#[test]
fn hosts__have_networks_of_their_own() {
    const ENDS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
    const PORT: &str = "7117";
    let name = format!("weft-hosts-{:016x}", weft_link::random_u64());
    let folder = std::env::temp_dir().join(name);
    KeyFile::init(&folder.join("key")).unwrap();
    let key = folder.join("key").display().to_string();
    let first = format!("{}:{PORT}", ENDS[0]);
    let (key, first) = (key.as_str(), first.as_str());
    let settings = [(ADDRESS, ENDS[1]), LOOKS];
    let (says, said) = channel::<String>();
    let (over, is_over) = channel::<()>();
    let near = move || {
        let here = agent(key, ENDS[0], PORT, first);
        joins(&here);
        let mut asks = start("ask", &said.recv().unwrap(), Some(&here.name), &settings);
        assert!(asks.number() > 0, "all bytes came by TCP");
        asks.ends_well();
        assert_eq!(here.counter("sockets_paired_between_hosts"), 1);
        drop(over);
    };
    let far = move || {
        let there = agent(key, ENDS[1], PORT, first);
        joins(&there);
        let mut echo = start("echo", "", Some(&there.name), &settings);
        says.send(echo.says()).unwrap();
        let _ = is_over.recv();
        echo.ends_well();
    };
    let made = cabled(ENDS, near, far);
    let _ = std::fs::remove_dir_all(folder);
    if let Err(why) = made {
        skip(&why);
    }
}
