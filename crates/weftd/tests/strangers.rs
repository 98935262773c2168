//! Processes of another user at the sockets of agents and ranks: what they pass, what they fill,
//! and what they pretend to be. Each of them is this test program again.
#![allow(non_snake_case)]

#[path = "../../weft-sys/src/foreign/lingering.rs"]
mod lingering;
mod serving;

use lingering::lingering;
use serving::serving;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;
use weft_cluster::client::Event;
use weft_cluster::{KeyFile, Name, Names, Spec};
use weft_conformance::{skip, Started};
use weft_core::EndpointId;
use weft_link::{Address, Link, ShmConfig, ShmLink};
use weft_run::lists;
use weft_streams::message::Message;
use weft_sys::agent::{connect_to, Kind};
use weft_sys::passing;
use weftd::status;

/// The stranger's user.
const STRANGER: u32 = 12_345;
/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(120);
/// Variables with a role and its argument.
const ROLE: &str = "WEFT_TEST_STRANGER";
const ARGUMENT: &str = "WEFT_TEST_ARGUMENT";
/// The sockets of an agent.
const SOCKETS: [(&str, Kind); 6] = [
    ("", Kind::Messages),
    ("-share", Kind::Messages),
    ("-sockets", Kind::Messages),
    ("-tipc", Kind::Messages),
    ("-names", Kind::Stream),
    ("-desk", Kind::Stream),
];

/// A process of the stranger, which lives until this is dropped.
struct Stranger {
    _child: Started,
    lines: BufReader<ChildStdout>,
}

impl Stranger {
    /// Starts one that plays a role. `None`, and a reason in the log: this user cannot become
    /// another one.
    fn start(role: &str, argument: &str) -> Option<Stranger> {
        if weft_sys::user::effective() != 0 {
            skip("only root becomes another user");
            return None;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "role__plays_what_the_environment_names", "--nocapture"]);
        command.env(ROLE, role).env(ARGUMENT, argument).env("RUST_BACKTRACE", "0");
        command.uid(STRANGER).gid(STRANGER).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Started(command.spawn().unwrap());
        let lines = BufReader::new(child.stdout.take().unwrap());
        Some(Stranger { _child: child, lines })
    }

    /// Waits until it says a word.
    fn says(&mut self, word: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(word) {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended before {word}");
        }
    }
}

/// Runs a role, in a process that a test has started; nothing otherwise.
#[test]
fn role__plays_what_the_environment_names() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let argument = std::env::var(ARGUMENT).unwrap();
    let kept: Box<dyn std::any::Any> = match role.as_str() {
        "pretend" => Box::new(pretend(&argument)),
        "linger" => Box::new(SOCKETS.map(|(end, kind)| linger(&format!("{argument}{end}"), kind))),
        "linger at a rank" => Box::new(linger(&argument, Kind::Messages)),
        "fill" => Box::new(fill(&argument)),
        "crowd" => Box::new(crowd(&argument)),
        "flood" => Box::new(flood(&argument)),
        other => panic!("{other}"),
    };
    println!("\nready");
    // Until the test has seen enough.
    let _ = std::io::stdin().read(&mut [0]);
    drop(kept);
}

/// Takes all names of an agent, and never says a word.
fn pretend(name: &str) -> (Vec<UnixListener>, Vec<OwnedFd>) {
    let of = |kind| SOCKETS.into_iter().filter(move |(_, of)| *of == kind).map(|(end, _)| end);
    let name = name.trim_start_matches('@');
    let streams = of(Kind::Stream).map(|end| {
        let address = SocketAddr::from_abstract_name(format!("{name}{end}")).unwrap();
        UnixListener::bind_addr(&address).unwrap()
    });
    let streams = streams.collect();
    let messages = of(Kind::Messages);
    let messages =
        messages.map(|end| weftd::sys::passing::listen(&format!("@{name}{end}")).unwrap());
    (streams, messages.collect())
}

/// Passes sockets whose last close takes an hour: in messages of every kind, on connections that
/// stay and on some that end at once. Returns what keeps them so.
fn linger(name: &str, kind: Kind) -> Vec<(TcpStream, Option<OwnedFd>)> {
    let mut kept = Vec::new();
    let hello = [&b"weft"[..], &[1; 52]].concat();
    let board = [&b"wefs"[..], &[5, 4, 0, 0], &7u64.to_le_bytes()].concat();
    let bell = Message::Bell(7).encode();
    for bytes in [&b"s"[..], &[0xff; 64], &hello, &board, &bell] {
        for stays in [true, false] {
            let Ok((socket, _)) = connect_to(name, kind) else { continue };
            let (one, other) = lingering();
            // The other side may have ended the connection meanwhile.
            let _ = passing::send(&socket, bytes, Some(one.as_fd()));
            // If it has taken no copy, or has closed it already, this close is the last one.
            std::thread::spawn(move || drop(one));
            kept.push((other, stays.then_some(socket)));
        }
    }
    kept
}

/// Sends messages to a name by four connections, until none of them may send another.
fn fill(agent: &str) -> Vec<Names> {
    let mut all: Vec<Names> = (0..4).map(|_| Names::at(agent).unwrap()).collect();
    all[0].wait(&name("busy:1"), 1, LIMIT).unwrap();
    for names in &mut all {
        let mut refused = 0;
        while refused < 3 {
            refused += u32::from(names.send(&name("busy:1"), false, b"mine").is_err());
        }
    }
    all
}

/// Passes such sockets, each by a connection of its own, until the agent refuses one and says why.
fn crowd(agent: &str) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    loop {
        let (one, other) = lingering();
        let (desk, _) = connect_to(&format!("{agent}-desk"), Kind::Stream).unwrap();
        // The agent may have ended the connection meanwhile.
        let _ = passing::send(&desk, b"s", Some(one.as_fd()));
        // If the agent has closed its copy already, or has taken none, this close is the last one.
        std::thread::spawn(move || drop(one));
        kept.push(other);
        let mut desk = UnixStream::from(desk);
        desk.set_nonblocking(false).unwrap();
        desk.set_read_timeout(Some(LIMIT)).unwrap();
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(len @ 1..) = desk.read(&mut part) {
            said.extend(&part[..len]);
        }
        if String::from_utf8_lossy(&said).contains("have to be closed first") {
            return kept;
        }
    }
}

/// Leaves such sockets in connections that are refused, at every socket of an agent: several times
/// as many as the agent may have descriptors.
fn flood(agent: &str) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    for (end, kind) in SOCKETS.into_iter().cycle().take(900) {
        let (one, other) = lingering();
        // Another thread closes this copy: before the agent closes its own, or as the last one.
        let (copy, is_sent) = (one.try_clone().unwrap(), Arc::new(AtomicBool::new(false)));
        let may_close = Arc::clone(&is_sent);
        std::thread::spawn(move || {
            while !may_close.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            drop(copy);
        });
        let name = format!("{agent}{end}");
        let Ok((socket, _)) = connect_to(&name, kind) else { break };
        let _ = passing::send(&socket, b"s", Some(one.as_fd()));
        drop(one);
        is_sent.store(true, Ordering::Release);
        kept.push(other);
        // Until the agent has ended it.
        let mut part = [0; 4096];
        let ends = || passing::awaits(&socket, Duration::from_secs(10)).is_ok();
        let goes_on = |read| matches!(read, Ok(1..));
        let mut has_ended = ends();
        while has_ended && goes_on(rustix::io::read(&socket, &mut part)) {
            has_ended = ends();
        }
        if !has_ended {
            break;
        }
    }
    kept
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// An agent of a cluster, in a process of its own.
struct Agent {
    _process: Started,
    name: String,
    folder: PathBuf,
}

impl Agent {
    fn start() -> Agent {
        Agent::with_command(&mut Command::new(env!("CARGO_BIN_EXE_weftd")))
    }

    /// Starts one whose processes may have so many descriptors.
    fn with_descriptors(most: usize) -> Agent {
        let start = format!("ulimit -n {most} && exec {} \"$@\"", env!("CARGO_BIN_EXE_weftd"));
        Agent::with_command(Command::new("sh").args(["-c", &start, "weftd"]))
    }

    fn with_command(command: &mut Command) -> Agent {
        let random = weft_link::random_u64();
        let name = format!("@weft-test-{random:016x}");
        let folder = std::env::temp_dir().join(format!("weft-strangers-{random:016x}"));
        KeyFile::init(&folder.join("key")).unwrap();
        command.args(["--links", "udp", "--user=", "--name", &name, "--cluster", "test"]);
        command.args(["--cluster-port", "0", "--cluster-multicast", "off", "--cluster-key"]);
        command.arg(folder.join("key")).stdin(Stdio::null());
        let (process, _) = serving(command);
        Agent { _process: process, name, folder }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Does something on another thread; fails where that takes too long.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = channel();
    std::thread::spawn(move || done.send(work()));
    is_done.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{what} is held up"))
}

#[test]
fn agent__what_a_stranger_passes_holds_nobody_up() {
    let agent = Agent::start();
    let Some(mut stranger) = Stranger::start("linger", &agent.name) else { return };
    stranger.says("ready");
    // Every socket answers, after all messages before.
    let text = status::status(&agent.name).unwrap();
    assert!(text.contains("cluster"), "{text}");
    lists::programs(&agent.name).unwrap();
    let mut names = Names::at(&agent.name).unwrap();
    names.claim(&Spec::new(&name("here:1"))).unwrap();
    assert_eq!(names.list().unwrap().iter().filter(|b| b.name.alias == "here").count(), 1);
    // All answer once the connections of the stranger have ended, with what they had not read.
    drop(stranger);
    status::status(&agent.name).unwrap();
    names.withdraw(1).unwrap();
}

#[test]
fn agent__a_stranger_who_takes_its_descriptors_is_refused_and_others_are_served() {
    let agent = Agent::with_descriptors(256);
    let Some(mut stranger) = Stranger::start("crowd", &agent.name) else { return };
    stranger.says("ready");
    status::status(&agent.name).unwrap();
    lists::programs(&agent.name).unwrap();
    assert!(Names::at(&agent.name).unwrap().list().is_ok());
}

#[test]
fn agent__connections_of_a_stranger_that_do_not_close_keep_nobody_out() {
    let agent = Agent::with_descriptors(256);
    let mut before = Names::at(&agent.name).unwrap();
    let Some(mut stranger) = Stranger::start("flood", &agent.name) else { return };
    stranger.says("ready");
    status::status(&agent.name).unwrap();
    lists::programs(&agent.name).unwrap();
    assert!(Names::at(&agent.name).unwrap().list().is_ok() && before.list().is_ok());
}

#[test]
fn rank__receives_nothing_of_a_stranger_and_is_not_held_up_by_it() {
    let mut link = ShmLink::new(ShmConfig::new(EndpointId(1))).unwrap();
    let mut address = Address::default();
    link.advertise(&mut address);
    let name = format!("@weft-{:016x}", address.shm);
    let Some(mut stranger) = Stranger::start("linger at a rank", &name) else { return };
    stranger.says("ready");
    let refused = in_time("a rank", move || {
        link.poll_sockets();
        let mut refused = 0;
        link.counters(&mut |name, value| {
            refused += if name == "shm_refused" { value } else { 0 };
        });
        refused
    });
    assert_eq!(refused, 10, "all its connections");
}

#[test]
fn client__believes_no_agent_of_a_stranger() {
    let agent = format!("@weft-test-{:016x}", weft_link::random_u64());
    let Some(mut stranger) = Stranger::start("pretend", &agent) else { return };
    stranger.says("ready");
    let why = [
        Names::at(&agent).map(drop).unwrap_err().to_string(),
        status::status(&agent).unwrap_err().to_string(),
        lists::programs(&agent).unwrap_err().to_string(),
        status::distrust(&agent).unwrap().unwrap(),
    ];
    assert!(why.iter().all(|why| why.contains("runs as user 12345")), "{why:?}");
}

#[test]
fn client__an_agent_that_says_nothing_is_named() {
    let agent = format!("@weft-test-{:016x}", weft_link::random_u64());
    let _kept = pretend(&agent);
    let user = weft_sys::user::effective();
    for (why, end) in [
        (Names::at(&agent).map(drop).unwrap_err().to_string(), "-names"),
        (status::status(&agent).unwrap_err().to_string(), "-desk"),
        (status::stop(&agent).unwrap_err().to_string(), "-desk"),
        (lists::programs(&agent).unwrap_err().to_string(), "-sockets"),
    ] {
        let parts = [format!("{agent}{end}"), format!("of user {user}"), "within 2 s".into()];
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    }
}

#[test]
fn send__a_stranger_who_fills_a_programs_messages_keeps_nobody_out() {
    let agent = Agent::start();
    let mut owner = Names::at(&agent.name).unwrap();
    owner.claim(&Spec::new(&name("busy:1")).messages()).unwrap();
    let Some(mut stranger) = Stranger::start("fill", &agent.name) else { return };
    stranger.says("ready");
    let mut sender = Names::at(&agent.name).unwrap();
    for _ in 0..100 {
        sender.send(&name("busy:1"), false, b"ours").unwrap();
    }
    let mut ours = 0;
    while ours < 100 {
        match owner.event(LIMIT).unwrap() {
            Some(Event::Mail { payload, .. }) => ours += usize::from(payload == b"ours"),
            other => panic!("{other:?}"),
        }
    }
}
