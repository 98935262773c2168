//! Programs of two hosts, which are two networks that a cable joins.

use super::{good, lacks, port, scratch, serve_at, with, LIMIT};
use crate::harness::{cabled, Served, LOOKS};
use crate::hosts::ENDS;
use std::process::Stdio;
use std::sync::mpsc::channel;
use std::time::Instant;
use weft_conformance::{cable, skip};
use weft_run::lists;

/// The server has no agent, and the client one that tells of its spins.
#[test]
fn redis__is_asked_from_another_host() {
    if lacks(&["redis-server", "redis-benchmark"]) {
        return;
    }
    let (port, folder) = (port(), scratch("redis-hosts"));
    let (says, said) = channel::<()>();
    let (over, is_over) = channel::<()>();
    let (port, dir) = (port.as_str(), folder.to_str().unwrap());
    let far = move || {
        cable::loopback().unwrap();
        let nobody = Served::of_other("@weft-sockets-test-nobody");
        let args = ["--port", port, "--save", "", "--dir", dir, "--bind", ENDS[1]];
        let args = [&args[..], &["--protected-mode", "no"]].concat();
        let _server = serve_at(&nobody, (ENDS[1], port), "redis-server", &args);
        says.send(()).unwrap();
        let _ = is_over.recv();
    };
    let near = move || {
        said.recv().unwrap();
        let agent = Served::start();
        let bench = |clients: &str, what: &str| {
            let args = ["-h", ENDS[1], "-p", port, "-t", what, "-d", "900", "-n", "400", "-q"];
            with(&agent, "redis-benchmark", &[&args[..], &["-c", clients]].concat())
        };
        let is_good =
            |said: &str| assert!(said.contains("GET") && !said.contains("rror"), "{said}");
        is_good(&good(&bench("20", "set,get,lrange_100").output().unwrap()));
        // One client, whose waits spin while it runs.
        let end = Instant::now() + LIMIT;
        let mut is_seen = false;
        while !is_seen {
            assert!(Instant::now() < end, "no wait spins");
            let mut client = bench("1", "set,get");
            let mut client = client.envs([LOOKS]).stdout(Stdio::piped()).spawn().unwrap();
            while client.try_wait().unwrap().is_none() {
                let programs = lists::programs(&agent.name).unwrap_or_default();
                let shown = programs.iter().flat_map(|program| &program.shows.connections);
                is_seen |= shown.into_iter().any(|one| one.spins);
                std::thread::yield_now();
            }
            is_good(&good(&client.wait_with_output().unwrap()));
        }
        drop(over);
    };
    if let Err(why) = cabled(ENDS, near, far) {
        skip(&why);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
