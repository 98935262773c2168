//! A rank that forks while its path through the agent is open: the path of the original continues,
//! that of the copy ends.
#![allow(non_snake_case)]

#[path = "../common/mod.rs"]
mod common;

use common::Served;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, OpError, PeerFailure};
use weft_conformance::in_a_fork;

/// Name of the variable with the agent's name and the address of the peer, for the process that
/// forks.
const ROLE: &str = "WEFT_TEST_FORKS";
const LIMIT: Duration = Duration::from_secs(300);

/// The process that forks.
#[test]
fn forks__while_an_agent_serves_it() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (name, address) = role.split_once(' ').unwrap();
    let served = Served { name: name.into(), end: Default::default(), thread: None };
    let rank = served.rank(7);
    let peer = rank.endpoint.connect(&Address::decode(&from_hex(address).unwrap()).unwrap());
    let peer = peer.unwrap();
    let ask = |question: u8| {
        rank.endpoint.send_blocking(peer, 1, &[question; 100]).unwrap();
        let mut answer = [0; 100];
        rank.endpoint.recv_blocking(Some(peer), 2, 0, &mut answer).unwrap();
        assert_eq!(answer, [question; 100]);
    };
    ask(1);
    let [copied] = in_a_fork(|| {
        let sent = rank.endpoint.send_blocking(peer, 1, &[9; 100]);
        rank.endpoint.close(Duration::from_secs(5));
        [matches!(sent, Err(OpError::Peer { failure: PeerFailure::Copied, .. }))]
    });
    assert!(copied);
    ask(2);
    println!("it went on");
}

#[test]
fn fork__of_a_rank_that_an_agent_serves() {
    let served = Served::start("");
    let rank = served.rank(7);
    let role = format!("{} {}", served.name, to_hex(&rank.endpoint.address().encode()));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "forks__while_an_agent_serves_it", "--nocapture"]).env(ROLE, role);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    for question in 1..=2 {
        let found = loop {
            rank.endpoint.progress();
            if let Some(found) = rank.endpoint.probe(None, 1, 0) {
                break found;
            }
            assert!(start.elapsed() < LIMIT, "question {question} does not come");
        };
        let mut message = [0; 100];
        rank.endpoint.recv_blocking(Some(found.source), 1, 0, &mut message).unwrap();
        assert_eq!(message, [question; 100]);
        rank.endpoint.send_blocking(found.source, 2, &message).unwrap();
    }
    // Waits until the answer has been sent.
    rank.endpoint.close(Duration::from_secs(60));
    let output = child.wait_with_output().unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && texts[0].contains("it went on"), "{texts:?}");
}
