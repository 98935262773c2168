//! A rank behind an agent that sends nothing. While its process runs, peers wait for it, however
//! long it computes. If its process is stopped, it fails after the peer timeout, though its agent
//! answers for it.
#![allow(non_snake_case)]

mod common;

use common::*;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, Clock, Config, Endpoint, EndpointId, OpError, PeerFailure, PeerId};
use weft_conformance::Started;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{UdpConfig, UdpLink};

/// Name of the variable with the agent and the address of the waiting rank, for the process that is
/// waited for.
const ROLE: &str = "WEFT_TEST_STILL";
const KEY: u8 = 3;
const TAG: u64 = 1;

/// Returns short timeouts, with many probes in each.
fn config() -> Config {
    Config { peer_timeout_ms: 1_000, keepalive_ms: 100, ..Config::default() }
}

/// The process that is waited for: it sends one message, and nothing more until its input ends.
#[test]
fn worker__says_one_word_and_then_computes() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (agent, address) = role.split_once(' ').unwrap();
    let served = Served { name: agent.into(), end: Arc::default(), thread: None };
    let rank = served.try_rank_with(KEY, config()).unwrap();
    let other = Address::decode(&from_hex(address).unwrap()).unwrap();
    let other = rank.endpoint.connect(&other).unwrap();
    println!("address {}", to_hex(&rank.address().encode()));
    rank.endpoint.send_blocking(other, TAG, b"here").unwrap();
    rank.endpoint.recv_blocking(Some(other), TAG, 0, &mut [0; 8]).unwrap();
    println!("computes");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    rank.endpoint.send_blocking(other, TAG, b"done").unwrap();
    // Waits until the other rank has received it.
    let _ended = rank.endpoint.recv_blocking(Some(other), TAG, 0, &mut [0; 8]);
}

struct Worker {
    child: Started,
    peer: PeerId,
}

impl Worker {
    /// Starts a worker behind an agent, and opens a session with it.
    fn start(agent: &Served, me: &Rank) -> Worker {
        let role = format!("{} {}", agent.name, to_hex(&me.address().encode()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker__says_one_word_and_then_computes", "--nocapture"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Started(command.spawn().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|l| Some(l.split_once("address ")?.1.to_string())).unwrap();
        let peer = Address::decode(&from_hex(&address).unwrap()).unwrap();
        let peer = me.endpoint.connect(&peer).unwrap();
        me.endpoint.recv_blocking(Some(peer), TAG, 0, &mut [0; 8]).unwrap();
        me.endpoint.send_blocking(peer, TAG, b"hello").unwrap();
        assert!(lines.any(|line| line.contains("computes")));
        Worker { child, peer }
    }
}

/// Returns a rank that no agent serves.
fn without_agent() -> Rank {
    let (me, job_key) = (EndpointId(weft_link::random_u64()), JobKey::from_bytes(&[KEY; 32]));
    let security = Security { mode: Mode::Auth, job_key: job_key.unwrap(), me };
    let link = UdpLink::new(UdpConfig::default(), security).unwrap();
    let endpoint = Endpoint::with_links(config(), me, Clock::system(), vec![Box::new(link)]);
    Rank { endpoint, services: Default::default() }
}

/// Waits for a message of a worker; calls `then` after more probes were answered than fit into a
/// peer timeout.
fn wait(me: &Rank, worker: &mut Worker, then: impl FnOnce(&mut Worker)) -> Result<usize, OpError> {
    let mut then = Some(then);
    let before = me.endpoint.stats().packets_received;
    let got = me.endpoint.recv(Some(worker.peer), TAG, 0, vec![0; 8]);
    until(&[me], || {
        if me.endpoint.stats().packets_received >= before + 25 {
            then.take().into_iter().for_each(|then| then(worker));
        }
        got.is_done()
    });
    let result = me.endpoint.block_on(got).0.map(|status| status.len);
    assert!(then.is_none(), "{result:?} while it ran and was asked");
    result
}

fn both(test: impl Fn(&Served, &Rank)) {
    let (here, there) = (Served::start(""), Served::start(""));
    test(&there, &here.try_rank_with(KEY, config()).unwrap());
    test(&there, &without_agent());
}

#[test]
fn still__a_rank_that_computes_behind_its_agent_is_waited_for() {
    both(|agent, me| {
        let mut worker = Worker::start(agent, me);
        let got = wait(me, &mut worker, |worker| drop(worker.child.stdin.take()));
        assert_eq!(got, Ok(4));
    });
}

#[test]
fn still__a_rank_that_is_stopped_behind_its_agent_fails() {
    both(|agent, me| {
        let mut worker = Worker::start(agent, me);
        let failed = wait(me, &mut worker, |worker| worker.child.signal("STOP")).unwrap_err();
        let said = me.endpoint.explain(failed);
        match failed {
            OpError::Peer { failure: PeerFailure::Stopped { .. }, .. } => {}
            _ => panic!("{said}"),
        }
        assert!(said.contains("has been stopped for") && said.contains("SIGCONT"), "{said}");
    });
}

#[test]
fn still__a_rank_that_is_stopped_and_takes_no_more_fails_at_its_senders() {
    both(|agent, me| {
        let worker = Worker::start(agent, me);
        worker.child.signal("STOP");
        // More bytes than its agent keeps for it.
        let sends: Vec<_> =
            (0..200).map(|n| me.endpoint.send(worker.peer, 7, pattern(n, 256 << 10))).collect();
        until(&[me], || sends.iter().all(|send| send.is_done()));
        let failed = sends.into_iter().find_map(|send| me.endpoint.block_on(send).0.err());
        let failed = failed.expect("it takes none of it");
        let said = me.endpoint.explain(failed);
        assert!(said.contains("has been stopped for"), "{said}");
    });
}

#[test]
fn still__a_rank_that_goes_on_in_time_has_not_failed() {
    both(|agent, me| {
        let mut worker = Worker::start(agent, me);
        let asked = me.endpoint.stats().packets_sent;
        worker.child.signal("STOP");
        let got = me.endpoint.recv(Some(worker.peer), TAG, 0, vec![0; 8]);
        until(&[me], || me.endpoint.stats().packets_sent >= asked + 3);
        worker.child.signal("CONT");
        drop(worker.child.stdin.take());
        until(&[me], || got.is_done());
        assert_eq!(me.endpoint.block_on(got).0.map(|status| status.len), Ok(4));
    });
}
