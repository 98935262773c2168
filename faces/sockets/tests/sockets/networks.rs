//! Programs in network namespaces of their own, as containers have them, and the agent of the host.

use crate::harness::{across, argument, start, Process, Served, ADDRESS, LIMIT};
use crate::hosts::ENDS;
use crate::{roles, sys};
use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{channel, Receiver};
use std::time::Instant;
use weft_conformance::skip;

/// The port of servers of connections of one name, and that of their clients.
const PORTS: [&str; 2] = ["7700", "7701"];

/// An agent whose socket has a path: programs of all namespaces reach it.
struct Host {
    agent: Served,
    folder: PathBuf,
}

impl Host {
    fn start() -> Host {
        let name = format!("weft-networks-{:016x}", weft_link::random_u64());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("agent.sock");
        Host { agent: Served::at(path.to_str().unwrap().into(), &[]), folder }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.agent.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs an echo at one end of a new cable, with the library if an agent is named, and `asks` at the
/// other end, which is told the echo's port.
fn between(agent: Option<&str>, port: &str, asks: impl FnOnce(&str) + Send) -> Result<(), String> {
    let serves = || start("echo", port, agent, &[(ADDRESS, ENDS[1])]);
    across(ENDS, serves, asks, Process::ends_well)
}

#[test]
fn networks__programs_of_two_containers_share_memory() {
    let host = Host::start();
    let name = Some(host.agent.name.as_str());
    let made = between(name, "", |port| {
        let mut asks = start("ask", port, name, &[(ADDRESS, ENDS[1])]);
        assert!(asks.number() > 0, "all bytes came by TCP");
        asks.ends_well();
    });
    match made {
        Ok(()) => assert_eq!(host.agent.counter("sockets_paired"), 1),
        Err(why) => skip(&why),
    }
}

/// Asks an echo until its input ends.
pub fn ask_on() {
    let [port, from] = PORTS.map(|port| port.parse().unwrap());
    let [own, to] = ENDS.map(|address| address.parse().unwrap());
    let to = std::net::SocketAddrV4::new(to, port);
    let mut stream = sys::dial_from(std::net::SocketAddrV4::new(own, from), to);
    let over = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()).unwrap());
    let mut at = 0;
    while !over.is_finished() {
        at += roles::exchange(&mut stream, at, 100);
    }
    assert_eq!(at, sys::received(&stream), "{}: bytes came by memory", argument());
}

/// Asks until the test is over.
fn asks_until(agent: Option<&str>, over: Receiver<()>) {
    let mut asks: Process = start("ask-on", "", agent, &[(ADDRESS, ENDS[1])]);
    let _ = over.recv();
    drop(asks.child.stdin.take());
    asks.ends_well();
}

/// Two connections of the same names in different networks of the host: one end of each asks.
#[test]
fn networks__ends_of_two_connections_of_the_same_names_are_kept_apart() {
    let host = Host::start();
    let agent = &host.agent;
    let name = Some(agent.name.as_str());
    let ((one, is_one), (two, is_two)) = (channel(), channel());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| between(None, PORTS[0], |_| asks_until(name, is_one)));
        let second = scope.spawn(|| between(name, PORTS[0], |_| asks_until(None, is_two)));
        let from = Instant::now();
        let failed = || from.elapsed() > LIMIT || first.is_finished() || second.is_finished();
        while !failed() && agent.counter("sockets_refused") < 2 {
            std::thread::yield_now();
        }
        drop((one, two));
        for made in [first, second] {
            if let Err(why) = made.join().unwrap() {
                skip(&why);
            }
        }
    });
    assert_eq!(agent.counter("sockets_paired"), 0);
    assert!(agent.counter("sockets_asked") >= 2);
}
