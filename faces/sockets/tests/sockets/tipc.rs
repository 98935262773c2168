//! Programs of AF_TIPC in C, compiled against the system's header and run with the library: on one
//! host, and on two, each with an agent of its own.

use crate::harness::{Served, LIMIT};
use crate::torture::Random;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;
use weft_conformance::programs::{text, Face, Way};
use weft_conformance::{hosts, skip};
use weft_streams::tipc::control::{DONT_WAIT, HAS_ADDRESS};
use weft_streams::tipc::{kind, Answer, Op, Request, SockAddr};
use weft_sys::agent::{connect_to, Kind};
use weft_sys::foreign::{Foreign, ANYBODY};
use weftd::sys::{pairs, passing};

const FACE: Face = Face {
    name: "sockets",
    sources: env!("CARGO_MANIFEST_DIR"),
    scratch: env!("CARGO_TARGET_TMPDIR"),
    built: "libweft_sockets.so",
    names: &["libweft-sockets.so"],
    linked: "-lc",
};

/// A cluster of agents; each stands for a host.
struct Hosts {
    folder: PathBuf,
    agents: Vec<Served>,
}

impl Hosts {
    fn start(count: usize) -> Hosts {
        let name = format!("weft-tipc-{:016x}", weft_link::random_u64());
        let folder = std::env::temp_dir().join(name);
        let key = folder.join("key");
        weft_cluster::KeyFile::init(&key).unwrap();
        let key = key.display().to_string();
        let mut agents: Vec<Served> = Vec::new();
        let mut join = String::new();
        for _ in 0..count {
            let words = [
                "--cluster",
                "tipc",
                "--cluster-key",
                &key,
                "--cluster-port",
                "0",
                "--cluster-multicast",
                "off",
            ];
            let mut words = words.to_vec();
            if !join.is_empty() {
                words.extend(["--join", &join]);
            }
            let agent = Served::with_words(&words);
            let names = weft_cluster::Names::at(&agent.name);
            let report = names.unwrap().report().unwrap();
            let address = |l: &str| l.strip_prefix("cluster_address ").map(str::to_string);
            join = report.lines().find_map(address).unwrap();
            agents.push(agent);
        }
        let hosts = Hosts { folder, agents };
        hosts.wait(|ups| ups == count);
        hosts
    }

    /// Waits until all agents know so many hosts.
    fn wait(&self, is_right: impl Fn(usize) -> bool) {
        let until = Instant::now() + LIMIT;
        for agent in &self.agents {
            let mut names = weft_cluster::Names::at(&agent.name).unwrap();
            loop {
                let ups = names.hosts().unwrap().iter().filter(|h| h.is_up).count();
                if is_right(ups) {
                    break;
                }
                assert!(Instant::now() < until, "{ups} hosts");
                std::thread::yield_now();
            }
        }
    }

    fn command(&self, host: usize, program: &Path, words: &[&str]) -> Command {
        command_at(&self.agents[host % self.agents.len()].name, program, words)
    }

    /// Runs a program with each of several words, in turn on the hosts; returns what they said.
    fn run(&self, name: &'static str, words: &[&str]) -> Option<String> {
        let program = FACE.compile(name, Way::C)?;
        let started = words.iter().enumerate();
        let started: Vec<Child> = started
            .map(|(host, word)| self.command(host, &program, &[word]).spawn().unwrap())
            .collect();
        let ended: Vec<Output> =
            started.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let said: String = ended.iter().map(text).collect();
        assert!(ended.iter().all(|one| one.status.success()), "{name}: {said}");
        Some(said)
    }
}

/// A program with the library and this agent.
fn command_at(agent: &str, program: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(words);
    command.env("LD_PRELOAD", crate::harness::library());
    command.env("WEFT_AGENT", agent);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn tipc__hello_between_two_programs_of_one_host_and_of_two() {
    for count in [1, 2] {
        let hosts = Hosts::start(count);
        let Some(said) = hosts.run("tipc_hello", &["server", "client"]) else { return };
        assert!(said.contains("server got: Hello World"), "{said}");
        assert!(said.contains("client got: Uh ?"), "{said}");
    }
}

/// Runs programs that say that all is as it has to be, on so many hosts.
fn all_is_well(hosts: usize, name: &'static str, words: &[&str]) {
    let hosts = Hosts::start(hosts);
    let Some(said) = hosts.run(name, words) else { return };
    assert_eq!(said.matches("all is as it has to be").count(), words.len(), "{said}");
}

#[test]
fn tipc__names_options_messages_and_descriptors_of_one_process() {
    all_is_well(1, "tipc_alone", &["alone"]);
}

#[test]
fn tipc__subscriptions_and_their_events() {
    all_is_well(1, "tipc_topology", &["1"]);
    all_is_well(2, "tipc_topology", &["2"]);
}

#[test]
fn tipc__multicast_connections_and_streams_of_two_processes() {
    all_is_well(1, "tipc_pair", &["server", "client"]);
    all_is_well(2, "tipc_pair", &["server", "client"]);
}

#[test]
fn tipc__the_last_messages_of_a_socket_arrive_and_unread_ones_go_back() {
    all_is_well(1, "tipc_last", &["server", "client"]);
    all_is_well(2, "tipc_last", &["server", "client"]);
}

#[test]
fn tipc__members_of_a_group_send_in_four_ways() {
    all_is_well(1, "tipc_group", &["1", "2", "3"]);
    all_is_well(3, "tipc_group", &["1", "2", "3"]);
}

#[test]
fn tipc__connections_end_with_their_host_and_sockets_with_their_agent() {
    let mut hosts = Hosts::start(2);
    let Some(program) = FACE.compile("tipc_ends", Way::C) else { return };
    let mut started: Vec<Child> = ["survivor", "orphan"]
        .iter()
        .enumerate()
        .map(|(host, word)| hosts.command(host, &program, &[word]).spawn().unwrap())
        .collect();
    let lines = started.iter_mut().map(|one| BufReader::new(one.stdout.take().unwrap()));
    let mut lines: Vec<_> = lines.collect();
    for (child, lines) in started.iter_mut().zip(&mut lines) {
        let (mut line, mut told) = (String::new(), String::new());
        lines.read_line(&mut line).unwrap();
        if line != "ready\n" {
            child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        }
        assert_eq!(line, "ready\n", "{told}");
    }
    hosts.agents[1].stop();
    for (mut child, mut lines) in started.into_iter().zip(lines) {
        let (mut said, mut told) = (String::new(), String::new());
        lines.read_to_string(&mut said).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(child.wait().unwrap().success(), "{said}{told}");
    }
}

/// One of two hosts with a network of its own: its agent joins the cluster, its program runs until
/// it says that it is ready; after `then` it ends well.
fn on_host(host: &hosts::Host, key: &str, program: &Path, word: &str, then: impl FnOnce()) {
    let [own, other] = [host.side, 1 - host.side].map(|side| format!("10.9.0.{}:7417", side + 1));
    let address = own.trim_end_matches(":7417").to_string();
    let agent = Served::with_words(&[
        "--cluster",
        "tipc",
        "--cluster-key",
        key,
        "--cluster-port",
        "7417",
        "--cluster-multicast",
        "off",
        "--cluster-address",
        &address,
        "--join",
        &other,
        "--tolerance-ms",
        "400",
    ]);
    let until = Instant::now() + LIMIT;
    let mut names = weft_cluster::Names::at(&agent.name).unwrap();
    while names.hosts().unwrap().iter().filter(|host| host.is_up).count() < 2 {
        assert!(Instant::now() < until, "{address}: the other host does not come");
        std::thread::yield_now();
    }
    let mut child = command_at(&agent.name, program, &[word]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let (mut line, mut said, mut told) = (String::new(), String::new(), String::new());
    lines.read_line(&mut line).unwrap();
    if line == "ready\n" {
        then();
    }
    lines.read_to_string(&mut said).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success(), "{word}: {line}{said}{told}");
}

#[test]
fn tipc__two_hosts_of_a_cluster_until_the_cable_is_cut() {
    let Some(program) = FACE.compile("tipc_hosts", Way::C) else { return };
    let folder = std::env::temp_dir().join(format!("weft-tipc-{:016x}", weft_link::random_u64()));
    let key = folder.join("key");
    weft_cluster::KeyFile::init(&key).unwrap();
    let key = key.display().to_string();
    let (says, both) = std::sync::mpsc::channel();
    let (key, program) = (&key, &program);
    // A server that fails drops its end of the channel.
    let server = move |host: &hosts::Host| {
        on_host(host, key, program, "server", || says.send(()).unwrap());
    };
    let client = move |host: &hosts::Host| {
        on_host(host, key, program, "client", || {
            both.recv().unwrap();
            host.ip("link set cable0 down");
        });
    };
    if let Err(why) = hosts::run(1, client, server) {
        skip(&why);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A program without the library, which says to the agent what it likes.
struct Stranger(OwnedFd);

impl Stranger {
    fn new(agent: &Served) -> Stranger {
        let name = format!("{}-tipc", agent.name);
        Stranger(connect_to(&name, Kind::Messages).unwrap().0)
    }

    fn says(&self, bytes: &[u8], pass: Option<&OwnedFd>) -> bool {
        passing::send(&self.0, bytes, pass.map(AsFd::as_fd)).is_ok()
    }

    /// Returns the answer. `None`: the connection has ended.
    fn hears(&self) -> Option<(Answer, Option<OwnedFd>)> {
        let mut bytes = [0; 64];
        passing::awaits(&self.0, LIMIT).unwrap();
        let (len, passed) = passing::recv(&self.0, &mut bytes, ANYBODY).ok()?.only().ok()?;
        Some((Answer::decode(bytes.get(..len)?)?, passed.map(Foreign::into_inner)))
    }

    fn asks(&self, request: Request, pass: Option<&OwnedFd>) -> Option<(Answer, Option<OwnedFd>)> {
        self.says(&request.encode(), pass).then(|| self.hears()).flatten()
    }

    fn socket(&self, kind: u8) -> OwnedFd {
        let (answer, socket) = self.asks(Request::new(Op::Socket, kind.into()), None).unwrap();
        assert_eq!(answer.error, 0);
        socket.unwrap()
    }
}

/// Makes random requests about sockets, and sends random records from them.
fn babble(agent: &Served) {
    use Op::{Accept, Bind, Connect, Get, Listen, Node, Own, Peer, Send, Set, Shutdown};
    let ops = [Bind, Own, Peer, Connect, Listen, Accept, Send, Set, Get, Shutdown, Node];
    let kinds = [kind::STREAM, kind::DGRAM, kind::RDM, kind::SEQPACKET];
    let mut random = Random(11);
    for round in 0..300 {
        let bad = Stranger::new(agent);
        let socket = bad.socket(kinds[round % 4]);
        for _ in 0..8 {
            let mut field = [0; 16];
            field.iter_mut().for_each(|byte| *byte = random.next(4) as u8);
            field[..2].copy_from_slice(&30u16.to_ne_bytes());
            let value = if random.next(2) == 0 { 127 + random.next(12) } else { random.next(4) };
            let op = ops[random.next(ops.len() as u64) as usize];
            // Without the flag a connection waits for its time.
            let flags = HAS_ADDRESS | DONT_WAIT;
            let request = Request { op, flags, value: value as u32, field };
            let mut bytes = request.encode().to_vec();
            bytes.resize(bytes.len() + random.next(100) as usize, 7);
            assert!(bad.says(&bytes, Some(&socket)));
            assert!(bad.hears().is_some(), "{request:?}");
            let _ = pairs::write(&socket, &bytes[..random.next(bytes.len() as u64) as usize]);
        }
    }
}

#[test]
fn tipc__hostile_requests_end_their_own_connection_alone() {
    let hosts = Hosts::start(1);
    let agent = &hosts.agents[0];
    let good = Stranger::new(agent);
    let own = good.socket(kind::RDM);
    // Bytes that are no request end the connection that they came by.
    for bytes in [&b"x"[..], &[0; 32], &[0xff; 80], b"weft\x02\x01                          "] {
        let bad = Stranger::new(agent);
        assert!(bad.says(bytes, None));
        assert!(bad.hears().is_none(), "{bytes:?}");
    }
    // A descriptor that is no socket of TIPC has no state.
    let (one, other) = pairs::pair(false, b"weft-tipc-4-0").unwrap();
    for fd in [Some(&one), Some(&other), None] {
        let bad = Stranger::new(agent);
        let (answer, _) = bad.asks(Request::new(Op::Own, 0), fd).unwrap();
        assert_eq!(answer.error, libc::EBADF);
    }
    babble(agent);
    // Some ask and are gone, or ask twice at once.
    let bad = Stranger::new(agent);
    bad.says(&Request::new(Op::Socket, 4).encode(), None);
    drop(bad);
    let listener = good.socket(kind::SEQPACKET);
    assert_eq!(good.asks(Request::new(Op::Listen, 1), Some(&listener)).unwrap().0.error, 0);
    let (name, _) = good.asks(Request::new(Op::Own, 0), Some(&listener)).unwrap();
    let bad = Stranger::new(agent);
    let caller = bad.socket(kind::SEQPACKET);
    let call = Request { op: Op::Connect, flags: HAS_ADDRESS, value: 0, field: name.field };
    assert!(bad.says(&call.encode(), Some(&caller)) && bad.says(&call.encode(), Some(&caller)));
    assert_eq!(bad.hears().unwrap().0.error, libc::EINTR);
    assert!(bad.hears().is_none());
    // The others are served as before.
    let (answer, _) = good.asks(Request::new(Op::Own, 0), Some(&own)).unwrap();
    assert!(SockAddr::decode(&answer.field).is_some());
    drop((own, caller, listener));
    let until = Instant::now() + LIMIT;
    let left = || {
        let report = weft_cluster::Names::at(&agent.name).unwrap().report().unwrap();
        report.lines().find_map(|l| l.strip_prefix("tipc_sockets ")?.parse::<u32>().ok()).unwrap()
    };
    while left() > 0 {
        assert!(Instant::now() < until, "{} sockets are left", left());
        std::thread::yield_now();
    }
}
