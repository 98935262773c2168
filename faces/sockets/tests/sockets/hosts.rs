//! Programs of two hosts, which are two networks that a cable joins. All bytes go by TCP; a
//! receiver looks for them for a moment before it sleeps. One end alone may have the library, and
//! no agent is needed, but for the list that tells of the looks.

use crate::harness::{across, cabled, start, Process, Served, ADDRESS, BY_TCP, LOOKS};
use crate::torture::{self, Random};
use std::sync::mpsc::channel;
use weft_conformance::skip;
use weft_run::lists::{self, State};

/// The addresses of both hosts.
pub const ENDS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// The settings of programs there.
const SETTINGS: [(&str, &str); 3] = [(ADDRESS, ENDS[1]), BY_TCP, LOOKS];
/// The name of an agent that is not there.
const NOBODY: &str = "@weft-sockets-test-nobody";

/// Runs `asks` on one host with the port of a server, which plays this role on the other host. The
/// server has the library if an agent is named.
fn between(role: &str, argument: &str, agent: Option<&str>, asks: impl FnOnce(&str) + Send) {
    let serves = || start(role, argument, agent, &SETTINGS);
    if let Err(why) = across(ENDS, serves, asks, drop) {
        skip(&why);
    }
}

/// Returns the list that a process shows to its agent.
fn shown(agent: &Served, process: &Process) -> lists::List {
    let programs = lists::programs(&agent.name).unwrap();
    let own = u64::from(process.child.id());
    programs.into_iter().find(|one| one.process == own).unwrap().shows
}

/// Has a program wait in this way until more looks than these have found bytes.
fn looks(agent: &Served, client: &mut Process, way: &str, before: u64) -> lists::List {
    for _ in 0..1000 {
        assert_eq!(client.says(), way);
        let shows = shown(agent, client);
        if shows.spun > before {
            return shows;
        }
        client.goes_on(b'a');
    }
    panic!("{way}: no look has found bytes");
}

#[test]
fn hosts__a_receiver_looks_and_its_peer_needs_no_library() {
    for peer in [None, Some(NOBODY)] {
        between("serve", "", peer, |port| {
            let agent = Served::start();
            let mut client = start("try-looks", port, Some(&agent.name), &SETTINGS);
            // Waits of a receive, poll, select and an epoll set, in turn.
            let mut spun = 0;
            for way in ["recv", "poll", "select", "epoll"] {
                let shows = looks(&agent, &mut client, way, spun);
                spun = shows.spun;
                let [one] = &shows.connections[..] else { panic!("{shows:?}") };
                assert!(one.spins && one.state != State::Shares, "{one:?}");
                client.goes_on(b'\n');
            }
            client.ends_done();
        });
    }
}

#[test]
fn hosts__a_program_that_is_turned_off_does_not_look() {
    between("serve", "", None, |port| {
        let agent = Served::start();
        let mut client = start("try-looks", port, Some(&agent.name), &SETTINGS);
        looks(&agent, &mut client, "recv", 0);
        let programs = lists::programs(&agent.name).unwrap();
        programs.iter().for_each(|one| one.turn(true).unwrap());
        let before = shown(&agent, &client).spun;
        for way in ["poll", "select", "epoll"] {
            client.goes_on(b'\n');
            assert_eq!(client.says(), way);
        }
        assert_eq!(shown(&agent, &client).spun, before);
        client.goes_on(b'\n');
        client.ends_well();
    });
}

#[test]
fn hosts__a_policy_leaves_a_connection_as_it_is() {
    between("serve", "", None, |port| {
        let agent = Served::start();
        let policy = ("WEFT_SOCKETS_POLICY", "!10.0.0.0/8");
        let settings = [&SETTINGS[..], &[policy]].concat();
        let mut client = start("try-looks", port, Some(&agent.name), &settings);
        for way in ["recv", "poll", "select", "epoll"] {
            assert_eq!(client.says(), way);
            let shows = shown(&agent, &client);
            assert!(shows.spun == 0 && !shows.connections[0].spins, "{shows:?}");
            client.goes_on(b'\n');
        }
        client.ends_well();
    });
}

/// Cases of `roles` that need no memory. The server of each has the library as well.
const CASES: [&str; 22] = [
    "peek",
    "count",
    "half",
    "wait",
    "edge",
    "fork",
    "mark",
    "all",
    "nested",
    "once",
    "interrupt",
    "dup",
    "fly",
    "closed",
    "closeall",
    "mode",
    "urgent",
    "signalled",
    "left",
    "wrong",
    "gone",
    "bulk",
];

#[test]
fn hosts__calls_behave_as_tcp_has_them() {
    let chosen = std::env::var("WEFT_CASES").ok();
    for case in CASES.iter().filter(|case| chosen.as_deref().is_none_or(|one| one == **case)) {
        eprintln!("case {case}: WEFT_CASES={case} repeats it");
        between("serve", "", Some(NOBODY), |port| {
            let client = start(&format!("try-{case}"), port, Some(NOBODY), &SETTINGS);
            client.ends_done();
        });
    }
}

#[test]
fn hosts__torture_moves_every_byte_once_and_in_order() {
    for seed in torture::seeds() {
        eprintln!("seed {seed}: WEFT_SEEDS={seed}..{} repeats it", seed + 1);
        let kill = if seed % 3 == 2 { 1 + Random(seed).next(1 << 20) } else { 0 };
        let (says, said) = channel::<String>();
        let near = move || {
            let port = said.recv().unwrap();
            torture::dial(Some(NOBODY), &port, seed, kill, &SETTINGS);
        };
        let far = move || {
            torture::accept(Some(NOBODY), seed, kill, &SETTINGS, |port| says.send(port).unwrap());
        };
        if let Err(why) = cabled(ENDS, near, far) {
            return skip(&why);
        }
    }
}
