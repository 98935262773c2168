//! A process of the same host that does not call weft for longer than a peer may be silent: while
//! it runs, the peer waits; if it is stopped or killed, the wait ends with an error that says so.
#![allow(non_snake_case)]

#[path = "../../../conformance/src/started.rs"]
mod started;

use started::Started;
use std::future::Future;
use std::io::{BufRead, BufReader, Read};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft::job::open_endpoint;
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, Config, Endpoint, Links, OpError, PeerFailure, PeerId};

/// The variable that tells the process when to compute, and the other's address.
const ROLE: &str = "WEFT_TEST_COMPUTES";
const TAG: u64 = 1;
/// Longest silence of a peer, and longest wait for its first answer.
const PATIENCE_MS: u32 = 400;
/// A time much longer than that.
const LONG: Duration = Duration::from_millis(1_500);
/// The bound of all waits.
const LIMIT: Duration = Duration::from_secs(300);

fn open() -> Endpoint {
    let config = Config {
        peer_timeout_ms: PATIENCE_MS,
        connect_timeout_ms: PATIENCE_MS,
        keepalive_ms: 50,
        ..Config::default()
    };
    open_endpoint(config, Links::parse("shm").unwrap(), [9; 32]).unwrap()
}

/// The process that computes, until its standard input ends.
#[test]
fn worker__computes_until_the_word_comes() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (when, address) = role.split_once(' ').unwrap();
    let endpoint = open();
    println!("address {}", to_hex(&endpoint.address().encode()));
    if when == "later" {
        let other = endpoint.connect(&Address::decode(&from_hex(address).unwrap()).unwrap());
        let other = other.unwrap();
        endpoint.send_blocking(other, TAG, &[]).unwrap();
        endpoint.recv_blocking(Some(other), TAG, 0, &mut []).unwrap();
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let other = endpoint.connect(&Address::decode(&from_hex(address).unwrap()).unwrap()).unwrap();
    endpoint.send_blocking(other, TAG, b"done").unwrap();
    // Progress until the other has received the message.
    let _ended = endpoint.recv_blocking(Some(other), TAG, 0, &mut []);
}

struct Worker {
    child: Started,
    peer: PeerId,
}

impl Worker {
    fn start(when: &str, endpoint: &Endpoint) -> Worker {
        let role = format!("{when} {}", to_hex(&endpoint.address().encode()));
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker__computes_until_the_word_comes", "--nocapture"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Started(command.spawn().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address = lines.find_map(|l| Some(l.split_once("address ")?.1.to_string())).unwrap();
        let address = Address::decode(&from_hex(&address).unwrap()).unwrap();
        let peer = endpoint.connect(&address).unwrap();
        if when == "later" {
            endpoint.recv_blocking(Some(peer), TAG, 0, &mut []).unwrap();
            endpoint.send_blocking(peer, TAG, &[]).unwrap();
        }
        Worker { child, peer }
    }
}

/// Waits for a message of a worker, and calls `then` once it has waited for long.
fn wait(when: &str, then: impl FnOnce(&mut Worker)) -> (Result<Vec<u8>, OpError>, String) {
    let endpoint = open();
    let mut worker = Worker::start(when, &endpoint);
    let mut recv = pin!(endpoint.recv(Some(worker.peer), TAG, 0, vec![0; 16]));
    let mut cx = Context::from_waker(Waker::noop());
    let (start, mut then) = (Instant::now(), Some(then));
    loop {
        endpoint.progress();
        if let Poll::Ready((result, data)) = recv.as_mut().poll(&mut cx) {
            assert!(then.is_none(), "{when}: {}", endpoint.explain(result.unwrap_err()));
            let text = result.map_or_else(|error| endpoint.explain(error), |_| String::new());
            return (result.map(|status| data[..status.len].to_vec()), text);
        }
        assert!(start.elapsed() < LIMIT, "{when}: it does not end");
        if start.elapsed() > LONG {
            if let Some(then) = then.take() {
                then(&mut worker);
            }
        }
    }
}

fn failure(result: Result<Vec<u8>, OpError>) -> PeerFailure {
    match result {
        Err(OpError::Peer { failure, .. }) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn computes__a_process_that_runs_is_waited_for() {
    for when in ["first", "later"] {
        let (result, _) = wait(when, |worker| drop(worker.child.stdin.take()));
        assert_eq!(result.unwrap(), b"done", "{when}");
    }
}

#[test]
fn computes__a_process_that_is_stopped_fails() {
    for when in ["first", "later"] {
        let (result, text) = wait(when, |worker| worker.child.signal("STOP"));
        let failure = failure(result);
        assert!(matches!(failure, PeerFailure::Stopped { .. }), "{when}: {text}");
        for part in ["over shm (process ", "has been stopped for ", "SIGCONT"] {
            assert!(text.contains(part), "{when}: {text}");
        }
    }
}

#[test]
fn computes__a_process_that_is_killed_has_ended() {
    for when in ["first", "later"] {
        let (result, text) = wait(when, |worker| worker.child.signal("KILL"));
        assert_eq!(failure(result), PeerFailure::Gone, "{when}: {text}");
    }
}
