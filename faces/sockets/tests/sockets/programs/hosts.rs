//! Programs of two hosts, whose agents are one cluster.

use super::web::{Agents, Nginx};
use super::{good, lacks, port, scratch, serve, with, LIMIT};
use crate::harness::LOOKS;
use crate::hosts::Two;
use std::process::Stdio;
use std::time::Instant;
use weftd::lists::{self, State};

/// True if bytes of a program of this agent have gone by packets.
fn links(agent: &str) -> bool {
    let has_bytes = |one: &lists::Shown| {
        matches!(one.state, State::Links(_)) && one.sent > 0 && one.received > 0
    };
    let programs = lists::programs(agent).unwrap_or_default();
    programs.iter().flat_map(|program| &program.connections).any(has_bytes)
}

#[test]
fn redis__is_asked_from_another_host() {
    if lacks(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let (two, port, folder) = (Two::start(), port(), scratch("redis-hosts"));
    let [here, there] = &two.agents;
    let dir = folder.to_str().unwrap();
    let args = ["--port", &port, "--save", "", "--dir", dir, "--bind", "127.0.0.1"];
    let server = serve(there, &port, "redis-server", &args);
    let bench = |clients: &str, what: &str| {
        let args = ["-p", &port, "-t", what, "-d", "900", "-n", "400", "-q", "-c", clients];
        with(here, "redis-benchmark", &args)
    };
    let is_good = |said: &str| assert!(said.contains("GET") && !said.contains("rror"), "{said}");
    is_good(&good(&bench("20", "set,get,lrange_100").output().unwrap()));
    assert!(two.paired()[0] > 5, "{:?}", two.paired());
    // One client, whose requests and answers go by packets while it runs.
    let end = Instant::now() + LIMIT;
    let mut is_seen = false;
    while !is_seen {
        assert!(Instant::now() < end, "all bytes come by TCP");
        let mut client = bench("1", "set,get");
        let mut client = client.envs([LOOKS]).stdout(Stdio::piped()).spawn().unwrap();
        while client.try_wait().unwrap().is_none() {
            is_seen |= links(&here.name);
            std::thread::yield_now();
        }
        is_good(&good(&client.wait_with_output().unwrap()));
    }
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn nginx__serves_files_to_another_host() {
    if lacks(&["nginx", "openssl", "curl"]) {
        return;
    }
    let nginx = Nginx::start_at("nginx-hosts", Agents::Hosts(Two::start()));
    nginx.fetch_both();
    let Agents::Hosts(two) = &nginx.agents else { return };
    assert!(two.paired()[0] >= 2, "{:?}", two.paired());
}
