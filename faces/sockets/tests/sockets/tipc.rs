//! Programs of AF_TIPC in C, compiled against the system's header and run with the library: on one
//! host, and on two, each with an agent of its own.

use crate::harness::{Served, LIMIT};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;
use weft_conformance::programs::{text, Face, Way};

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
        let mut command = Command::new("timeout");
        command.arg("60").arg(program).args(words);
        command.env("LD_PRELOAD", crate::harness::library());
        command.env("WEFT_AGENT", &self.agents[host % self.agents.len()].name);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
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
fn tipc__members_of_a_group_send_in_four_ways() {
    all_is_well(1, "tipc_group", &["1", "2", "3"]);
    all_is_well(3, "tipc_group", &["1", "2", "3"]);
}
