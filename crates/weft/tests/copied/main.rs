//! A fork while an endpoint is open: the endpoint goes on in the parent, and has ended in the
//! child.
#![allow(non_snake_case)]

#[path = "../../../../conformance/src/sys/fork.rs"]
mod sys;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft::job::open_endpoint;
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, Config, Endpoint, EndpointId, Links, OpError, PeerFailure, PeerId};
use weft_packets::Packets;

/// The variable with links and the answering process's address, for the process that forks.
const ROLE: &str = "WEFT_TEST_FORKS";
const LIMIT: Duration = Duration::from_secs(300);
/// Tags of questions; the answer's tag is one more. The last tag ends the test.
const FROM_ORIGINAL: u64 = 1;
const FROM_COPY: u64 = 3;
const END: u64 = 5;
/// A length that is copied straight between two processes of a host.
const LONG: usize = 1 << 20;

fn open(links: &str) -> Endpoint {
    open_endpoint(Config::default(), Links::parse(links).unwrap(), [9; 32]).unwrap()
}

/// Sends a question, and checks the answer.
fn ask(endpoint: &Endpoint, peer: PeerId, tag: u64) {
    let question = vec![tag as u8; LONG];
    endpoint.send_blocking(peer, tag, &question).unwrap();
    let mut answer = vec![0; LONG];
    endpoint.recv_blocking(Some(peer), tag + 1, 0, &mut answer).unwrap();
    assert_eq!(answer, question);
}

fn is_copied<T>(result: Result<T, OpError>) -> bool {
    matches!(result, Err(OpError::Peer { failure: PeerFailure::Copied, .. }))
}

/// Checks, in the child, the use of the parent's endpoint and of an endpoint of its own.
fn in_the_copy(endpoint: Endpoint, other: &Address, peer: PeerId, links: &str) -> [bool; 6] {
    let sent = is_copied(endpoint.send_blocking(peer, FROM_ORIGINAL, b"the copy's"));
    let received = is_copied(endpoint.recv_blocking(None, 0, !0, &mut [0; 8]));
    let sized = endpoint.block_on(endpoint.recv_sized(None, 0, !0, 8));
    let packet = Packets::new(&endpoint).unwrap().receive(None, 7, &mut [0; 8]).is_err();
    let stranger = Address { endpoint: EndpointId(77), ..other.clone() };
    let why = endpoint.connect(&stranger).unwrap_err().to_string();
    endpoint.close(Duration::from_secs(5));
    drop(endpoint);
    let own = open(links);
    ask(&own, own.connect(other).unwrap(), FROM_COPY);
    let served = own.close(Duration::from_secs(60));
    [sent, received, is_copied(sized), packet, why.contains("is a copy"), served]
}

/// The process that forks.
#[test]
fn forks__while_it_has_an_endpoint() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (links, address) = role.split_once(' ').unwrap();
    let other = Address::decode(&from_hex(address).unwrap()).unwrap();
    let endpoint = open(links);
    let peer = endpoint.connect(&other).unwrap();
    Packets::new(&endpoint).unwrap().mailbox(7);
    ask(&endpoint, peer, FROM_ORIGINAL);
    // One child only drops the endpoint, another uses it.
    let copy = endpoint.clone();
    let [nothing] = sys::in_a_fork(move || {
        drop(copy);
        [true]
    });
    assert!(nothing);
    ask(&endpoint, peer, FROM_ORIGINAL);
    let waiting = endpoint.recv(None, 99, 0, vec![0; 8]);
    let found = sys::in_a_fork(|| in_the_copy(endpoint.clone(), &other, peer, links));
    assert_eq!(found, [true; 6]);
    assert!(!waiting.is_done());
    ask(&endpoint, peer, FROM_ORIGINAL);
    endpoint.send_blocking(peer, END, &[]).unwrap();
    endpoint.close(Duration::from_secs(60));
    println!("it went on");
}

fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    let of = |&(_, n, _): &(&str, &str, u64)| n == name;
    endpoint.counters().links().iter().find(|it| of(it)).map_or(0, |&(_, _, value)| value)
}

fn fork(links: &str) {
    let endpoint = open(links);
    let role = format!("{links} {}", to_hex(&endpoint.address().encode()));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "forks__while_it_has_an_endpoint", "--nocapture"]).env(ROLE, role);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let mut asked = [0; 2];
    loop {
        let Some(found) = endpoint.probe(None, 0, !0) else {
            endpoint.progress();
            assert!(start.elapsed() < LIMIT, "{links}: {asked:?} questions");
            continue;
        };
        let mut message = vec![0; found.len as usize];
        let source = found.source;
        endpoint.recv_blocking(Some(source), found.tag, 0, &mut message).unwrap();
        if found.tag == END {
            break;
        }
        asked[usize::from(found.tag == FROM_COPY)] += 1;
        endpoint.send_blocking(source, found.tag + 1, &message).unwrap();
    }
    let direct = endpoint.stats().direct_failures;
    endpoint.close(Duration::from_secs(60));
    let output = child.wait_with_output().unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success() && texts[0].contains("it went on"), "{links}: {texts:?}");
    assert_eq!((asked, direct), ([3, 1], 0), "{links}");
    for name in ["auth_failed", "shm_lies"] {
        assert_eq!(counter(&endpoint, name), 0, "{links}: {name}");
    }
}

#[test]
fn fork__of_an_endpoint_over_udp() {
    fork("udp");
}

#[test]
fn fork__of_an_endpoint_over_shared_memory() {
    fork("shm");
}
