//! Faults between two hosts: policies, users, agents that are killed, firewalls, children, and
//! programs that get a connection while bytes wait.

use crate::harness::{
    argument, cabled, say, start, Process, Served, ADDRESS, LIMIT, LONG_LOOKS, LOOKS, ROLE,
};
use crate::hosts::{agent, joins, port, Two, SETTINGS};
use crate::roles::{self, Server};
use crate::sys;
use std::io::{BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};
use weft_cluster::KeyFile;
use weft_conformance::{cable, skip};
use weftd::options::Options;
use weftd::Agent;

const ENDS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const PORT: u16 = 7117;
/// Much more than the time for which a sender waits for an answer.
pub const LATE: Duration = Duration::from_millis(50);

/// Runs a role of these tests. False if there is none of this name.
pub fn run(name: &str) -> bool {
    match name {
        "agent" => serve_hosts(),
        "ask-as-nobody" => {
            sys::become_user(65534);
            roles::ask(crate::harness::dial(&argument()));
        }
        "forks" => forks(),
        "reset-heir" => reset_heir(),
        _ => return false,
    }
    true
}

/// Runs a case on a connection that is joined. False if there is none of this name.
pub fn attempt(case: &str, server: &mut Server) -> bool {
    match case {
        "off-and-on" => off_and_on(server),
        "restarted" => restarted(server),
        "walled" => walled(server),
        "walled-child" => walled_child(server),
        "severed" => severed(server),
        "left" => left(server),
        "lost-exec" => lost_by_exec(server),
        "lost-passed" => lost_by_passing(server),
        "lost-closed" => lost_by_closing(server),
        _ => return false,
    }
    true
}

/// Says something to the test, and waits until it lets this process go on.
fn pause(what: &str) {
    say(what);
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

/// Lets a process go on that waits so.
fn go_on(process: &mut Process) {
    process.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

/// Starts a server on one host, and a client on the other, which connects to it.
fn both(two: &Two, roles: [&str; 2], settings: [&[(&str, &str)]; 2]) -> [Process; 2] {
    let [here, there] = two.names();
    let mut server = start(roles[0], "", there, settings[0]);
    let client = start(roles[1], &server.says(), here, settings[1]);
    [server, client]
}

fn are_done([server, mut client]: [Process; 2]) {
    assert_eq!(client.says(), "done");
    client.ends_well();
    server.ends_well();
}

/// An agent in a process of its own, which the test may kill.
fn serve_hosts() {
    let words = argument();
    let mut agent = Agent::open(Options::parse(words.split(' ')).unwrap()).unwrap();
    say("serves");
    loop {
        agent.step();
    }
}

#[test]
fn hosts__a_policy_of_either_end_leaves_connections_to_tcp() {
    let two = Two::start();
    let all = SETTINGS;
    for policy in ["!:1-65535", "!127.0.0.0/8", "10.0.0.0/8"] {
        let own = [LOOKS, ("WEFT_SOCKETS_POLICY", policy)];
        for settings in [[&own[..], &all[..]], [&all, &own]] {
            let [server, mut client] = both(&two, ["echo", "ask"], settings);
            assert_eq!(client.number(), 0, "{policy}");
            client.ends_well();
            server.ends_well();
        }
    }
    assert_eq!(two.paired(), [0, 0]);
    let allows = [LOOKS, ("WEFT_SOCKETS_POLICY", "127.0.0.1:1-65535")];
    let [server, mut client] = both(&two, ["echo", "ask"], [&allows, &allows]);
    assert!(client.number() > 0, "all bytes came by TCP");
    client.ends_well();
    server.ends_well();
}

#[test]
fn hosts__ends_of_two_users_stay_by_tcp() {
    if !sys::is_root() {
        return skip("needs root to become another user");
    }
    let two = Two::start();
    let [server, mut client] = both(&two, ["echo", "ask-as-nobody"], [&SETTINGS, &SETTINGS]);
    assert_eq!(client.number(), 0);
    client.ends_well();
    server.ends_well();
    assert_eq!(two.paired(), [0, 0]);
    two.agents.iter().for_each(|agent| assert!(agent.counter("sockets_asked") > 0));
}

/// Sends and receives in both directions.
fn uses(server: &mut Server) {
    for n in [1, 100, 5000, 40_000] {
        server.get(n);
        server.command(b'r', n as u64);
        server.put(n);
        server.reads_yes();
    }
}

fn off_and_on(server: &mut Server) {
    pause("joined");
    assert_eq!(sys::poll_in(&server.stream, 1), 0);
    uses(server);
    let (at, received) = (server.at(), sys::received(&server.stream));
    (0..50).for_each(|_| server.get(1000));
    assert_eq!(sys::received(&server.stream) - received, server.at() - at);
    pause("by TCP");
    // Bytes whose acknowledgement is late come by TCP as well.
    let by_tcp = |server: &Server| sys::received(&server.stream) as i64 - server.at() as i64;
    let (before, mut rounds) = (by_tcp(server), 0);
    while by_tcp(server) >= before {
        server.get(1000);
        rounds += 1;
        assert!(rounds < 1_000_000, "all bytes come by TCP");
    }
}

#[test]
fn hosts__running_programs_are_turned_off_and_on() {
    let two = Two::start();
    let mut ends = both(&two, ["serve", "try-off-and-on"], [&SETTINGS, &SETTINGS]);
    let turn = |is_off| {
        for agent in &two.agents {
            let programs = weftd::lists::programs(&agent.name).unwrap();
            assert_eq!(programs.len(), 1);
            programs[0].turn(is_off).unwrap();
        }
    };
    for (said, is_off) in [("joined", true), ("by TCP", false)] {
        assert_eq!(ends[1].says(), said);
        turn(is_off);
        go_on(&mut ends[1]);
    }
    are_done(ends);
}

/// The agent of this end's host is killed, and started again.
fn restarted(server: &mut Server) {
    pause("joined");
    uses(server);
    pause("goes on");
    uses(server);
    server.ringed(100);
    // A second connection of this program, which has lost its agent.
    let again = argument().split(' ').nth(1).unwrap().to_string();
    let mut other = Server::upgraded(crate::harness::dial(&again));
    uses(&mut other);
}

#[test]
fn hosts__an_agent_that_was_killed_and_started_again_joins_new_connections() {
    let two = Two::start();
    let name = format!("@weft-sockets-test-{:016x}", weft_link::random_u64());
    let port = port();
    let words = format!("--name {name} --links udp --spin-us 0 {}", two.words(&port).join(" "));
    let starts = || {
        let mut agent = start("agent", &words, None, &[]);
        assert_eq!(agent.says(), "serves");
        joins(&Served::of_other(&name));
        agent
    };
    let mut third = starts();
    let [_, there] = two.names();
    let mut servers = [0, 1].map(|_| start("serve", "", there, &SETTINGS));
    let ports = servers.each_mut().map(Process::says).join(" ");
    let mut client = start("try-restarted", &ports, Some(&name), &SETTINGS);
    assert_eq!(client.says(), "joined");
    third.child.kill().unwrap();
    third.child.wait().unwrap();
    go_on(&mut client);
    assert_eq!(client.says(), "goes on");
    third = starts();
    go_on(&mut client);
    assert_eq!(client.says(), "done");
    client.ends_well();
    servers.into_iter().for_each(Process::ends_well);
    assert_eq!(Served::of_other(&name).counter("sockets_paired_between_hosts"), 1);
    assert_eq!(two.paired()[1], 2);
    drop(third);
}

/// Has bytes wait unread that came by packets: the phase goes on.
fn waits(server: &mut Server, n: usize) {
    wait(server, 0, n);
}

/// The same after bytes that came by TCP.
pub fn wait(server: &mut Server, before: usize, n: usize) {
    let there = |server: &Server| sys::queue(&server.stream, libc::FIONREAD) as usize;
    loop {
        server.get(100);
        let by_tcp = sys::received(&server.stream) + before as u64;
        for (part, all) in [(before, before), (n, before + n)] {
            if part > 0 {
                server.command(b's', part as u64);
            }
            while there(server) < all {
                std::thread::yield_now();
            }
        }
        if sys::received(&server.stream) == by_tcp {
            // A sender without an answer in time, at most 15 ms, sends the bytes by TCP as well.
            // tidy-allow(sleep): nothing happens if the answer came.
            std::thread::sleep(LATE);
            if sys::received(&server.stream) == by_tcp {
                return;
            }
        }
        server.read(before + n);
    }
}

fn walled(server: &mut Server) {
    waits(server, 100);
    server.read(100);
    pause("joined");
    (0..3).for_each(|_| uses(server));
}

/// A child goes on with the connection, of which its parent's agent knows.
fn walled_child(server: &mut Server) {
    waits(server, 100);
    server.read(100);
    pause("joined");
    let child = sys::fork(|| {
        (0..3).for_each(|_| uses(server));
        0
    });
    assert_eq!(sys::wait(child), 0);
}

/// Nothing goes by UDP any more, not even between the agents.
fn severed(server: &mut Server) {
    waits(server, 100);
    server.read(100);
    pause("joined");
    let mut buf = [0; 100];
    let error = loop {
        let mut command = [b's'; 9];
        command[1..].copy_from_slice(&100u64.to_le_bytes());
        if let Err(e) = server.stream.write_all(&command) {
            break e;
        }
        match server.stream.read_exact(&mut buf) {
            Ok(()) => server.check(&buf),
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
}

/// The peer's process ends, and the packet that states its last phase is lost.
fn left(server: &mut Server) {
    waits(server, 100);
    server.read(100);
    pause("joined");
    server.command(b's', 9000);
    server.command(b'c', 0);
    pause("asked");
    server.read(9000);
    assert_eq!(server.stream.read(&mut [0; 10]).unwrap(), 0);
}

/// The way of the two hosts' threads to each other.
struct Steps {
    told: Sender<String>,
    hears: Receiver<String>,
}

impl Steps {
    fn tell(&self, what: &str) {
        // The other one may have failed, and says why.
        let _ = self.told.send(what.into());
    }

    fn hear(&self) -> String {
        self.hears.recv_timeout(LIMIT).unwrap()
    }
}

/// Runs `near` with a client on one of two hosts that a cable joins, and `far` with its server on
/// the other one.
fn apart(
    role: &str,
    more: &[(&str, &str)],
    near: impl FnOnce(&Served, &mut Process, &Steps) + Send,
    far: impl FnOnce(&mut Process, &Steps) + Send,
) {
    let name = format!("weft-hosts-{:016x}", weft_link::random_u64());
    let folder = std::env::temp_dir().join(name);
    KeyFile::init(&folder.join("key")).unwrap();
    let (key, port) = (folder.join("key").display().to_string(), PORT.to_string());
    let first = format!("{}:{port}", ENDS[0]);
    let (key, port, first) = (key.as_str(), port.as_str(), first.as_str());
    let settings = &[&[(ADDRESS, ENDS[1]), LOOKS], more].concat();
    let ((told, hears), (says, said)) = (channel(), channel());
    let (nears, fars) = (Steps { told, hears: said }, Steps { told: says, hears });
    let on_near = move || {
        let here = agent(key, ENDS[0], port, first);
        joins(&here);
        let mut client = start(role, &nears.hear(), Some(&here.name), settings);
        assert_eq!(client.says(), "joined");
        near(&here, &mut client, &nears);
        assert_eq!(client.says(), "done");
        client.ends_well();
        assert_eq!(here.counter("sockets_paired_between_hosts"), 1);
        drop(nears);
    };
    let on_far = move || {
        let there = agent(key, ENDS[1], port, first);
        joins(&there);
        let mut server = start("serve", "", Some(&there.name), settings);
        fars.tell(&server.says());
        far(&mut server, &fars);
        // The other thread has ended.
        assert!(fars.hears.recv_timeout(LIMIT).is_err());
        server.ends_well();
    };
    let made = cabled(ENDS, on_near, on_far);
    let _ = std::fs::remove_dir_all(folder);
    if let Err(why) = made {
        skip(&why);
    }
}

fn lose_udp(side: usize, but: Option<u16>) {
    cable::lose_udp(cable::ENDS[side], ENDS[1 - side], but).unwrap();
}

/// Both hosts lose UDP once the connection is joined.
fn both_lose(role: &str, more: &[(&str, &str)], but: Option<u16>) {
    let near = |_: &Served, client: &mut Process, steps: &Steps| {
        steps.tell("lose");
        steps.hear();
        lose_udp(0, but);
        go_on(client);
    };
    let far = |_: &mut Process, steps: &Steps| {
        steps.hear();
        lose_udp(1, but);
        steps.tell("lost");
    };
    apart(role, more, near, far);
}

#[test]
fn hosts__a_firewall_that_drops_packets_later_leaves_the_connection_to_tcp() {
    both_lose("try-walled", &[], Some(PORT));
}

/// The agent knows a connection by the parent's number of it.
#[test]
fn hosts__a_child_learns_from_the_agent_what_packets_do_not_say() {
    both_lose("try-walled-child", &[], Some(PORT));
}

#[test]
fn hosts__a_firewall_that_cuts_off_the_agents_too_is_told_by_a_reset() {
    both_lose("try-severed", &[("WEFT_SOCKETS_PATIENCE_MS", "300")], None);
}

#[test]
fn hosts__the_agent_says_the_phase_of_a_peer_that_has_ended() {
    let near = |here: &Served, client: &mut Process, steps: &Steps| {
        steps.tell("lose");
        steps.hear();
        go_on(client);
        assert_eq!(client.says(), "asked");
        steps.tell("asked");
        steps.hear();
        // Nothing arrives at this host's agent for a while: the process asks several times.
        let before = here.counter("sockets_phases_asked");
        lose_udp(0, None);
        go_on(client);
        let from = Instant::now();
        while here.counter("sockets_phases_asked") < before + 5 {
            assert!(from.elapsed() < LIMIT, "the process does not ask");
            std::thread::yield_now();
        }
        cable::find_udp().unwrap();
    };
    let far = |server: &mut Process, steps: &Steps| {
        steps.hear();
        lose_udp(1, Some(PORT));
        steps.tell("lost");
        steps.hear();
        assert!(server.end().success());
        steps.tell("ended");
    };
    apart("try-left", &[], near, far);
}

/// A server with a child for each connection.
fn forks() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    say(listener.local_addr().unwrap().port());
    for _ in 0..3 {
        let (stream, _) = listener.accept().unwrap();
        let child = sys::fork(|| {
            roles::echo(stream.try_clone().unwrap());
            0
        });
        drop(stream);
        assert_eq!(sys::wait(child), 0);
    }
}

#[test]
fn hosts__a_server_with_a_child_for_each_connection() {
    let two = Two::start();
    let [here, there] = two.names();
    let mut server = start("forks", "", there, &SETTINGS);
    let port = server.says();
    for _ in 0..3 {
        let mut client = start("ask", &port, here, &SETTINGS);
        assert!(client.number() > 0, "all bytes came by TCP");
        client.ends_well();
    }
    server.ends_well();
    assert_eq!(two.paired(), [3, 3]);
}

/// A program without the library, which is to find an error instead of a part of the stream.
fn heir_of(fd: i32, when: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(std::env::args_os().skip(1)).env_remove("LD_PRELOAD").env(ROLE, "reset-heir");
    command.env(crate::harness::ARGUMENT, format!("{fd} {when}"));
    command
}

fn is_reset(stream: &mut TcpStream) {
    let error = stream.read(&mut [0; 1000]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET), "{error}");
}

fn reset_heir() {
    let words = argument();
    let (fd, when) = words.split_once(' ').unwrap();
    let mut stream = match fd.parse().unwrap() {
        0 => sys::take(&sys::unix_of(0)),
        fd => sys::stream_of(fd),
    };
    if when == "later" {
        pause("waits");
    }
    is_reset(&mut stream);
    say("done");
}

fn lost_by_exec(server: &mut Server) {
    waits(server, 100);
    pause("waits");
    let fd = server.stream.as_raw_fd();
    sys::keep_at_exec(fd);
    panic!("{}", heir_of(fd, "now").exec());
}

fn lost_by_passing(server: &mut Server) {
    waits(server, 100);
    pause("waits");
    let (one, other) = UnixStream::pair().unwrap();
    let mut command = heir_of(0, "now");
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(other)));
    sys::pass(&one, server.stream.as_raw_fd());
    assert!(command.stdout(Stdio::null()).status().unwrap().success());
    // This process has them, and an error after them.
    server.read(100);
    assert!(server.stream.read(&mut [0; 10]).is_err());
}

/// A child has the descriptor, of which nobody knows if it reads; then this process leaves it.
fn lost_by_closing(server: &mut Server) {
    waits(server, 100);
    pause("waits");
    let fd = server.stream.as_raw_fd();
    sys::keep_at_exec(fd);
    let mut command = heir_of(fd, "later");
    let mut heir = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    server.read(50);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    server.stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    heir.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert!(heir.wait().unwrap().success());
}

/// Nobody brings them back to TCP, as the agents have ended.
#[test]
fn hosts__bytes_that_wait_unread_are_not_lost_without_an_error() {
    let settings = [LONG_LOOKS, ("WEFT_SOCKETS_PATIENCE_MS", "300")];
    for case in ["lost-exec", "lost-passed", "lost-closed"] {
        eprintln!("case {case}");
        let mut two = Two::start();
        let role = format!("try-{case}");
        let mut ends = both(&two, ["serve", &role], [&settings, &settings]);
        assert_eq!(ends[1].says(), "waits");
        assert_eq!(two.paired(), [1, 1]);
        two.agents.iter_mut().for_each(Served::stop);
        go_on(&mut ends[1]);
        are_done(ends);
    }
}
