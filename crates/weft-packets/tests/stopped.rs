//! A multicast member whose process is stopped: its parent reports it as stopped, not only as slow.
#![allow(non_snake_case)]

#[path = "../../weft/tests/kept/mod.rs"]
mod kept;
#[path = "../../../conformance/src/started.rs"]
mod started;

use started::Started;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weft::choices::Tree;
use weft::job::open_endpoint;
use weft::launch::wire::{from_hex, to_hex};
use weft::{Address, Config, Endpoint, Links};
use weft_packets::{MulticastError, Packets};

/// The address of the root, in the member's environment.
const ROOT: &str = "WEFT_TEST_ROOT";
const GROUP: u16 = 3;
/// The bound of all waits.
const LIMIT: Duration = Duration::from_secs(300);

fn open(rank: u32) -> Endpoint {
    // The link checks the process many times before the warning is due.
    let config =
        Config { rank: Some(rank), warn_after_ms: 3_000, keepalive_ms: 50, ..Config::default() };
    open_endpoint(config, Links::parse("shm").unwrap(), [9; 32]).unwrap()
}

fn address(hex: &str) -> Address {
    Address::decode(&from_hex(hex).unwrap()).unwrap()
}

/// The process that is stopped; it answers the root until then.
#[test]
fn member__answers_until_it_is_stopped() {
    let Ok(root) = std::env::var(ROOT) else { return };
    let endpoint = open(1);
    let root = endpoint.connect(&address(&root)).unwrap();
    let me = endpoint.connect(&endpoint.address()).unwrap_or(weft::PeerId(u32::MAX));
    let packets = Packets::new(&endpoint).unwrap();
    packets.handle(1, |_, _| {});
    let _group = packets.group(GROUP, vec![root, me], 1).unwrap();
    println!("address {}", to_hex(&endpoint.address().encode()));
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        packets.wait(Some(Duration::from_millis(10)));
    }
}

#[test]
fn slow__a_member_that_is_stopped_is_called_so() {
    kept::start();
    let endpoint = open(0);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "member__answers_until_it_is_stopped", "--nocapture"]);
    command.env(ROOT, to_hex(&endpoint.address().encode())).stdout(Stdio::piped());
    let mut member = Started(command.spawn().unwrap());
    let mut lines = BufReader::new(member.stdout.take().unwrap()).lines().map(Result::unwrap);
    let at = lines.find_map(|line| Some(line.split_once("address ")?.1.to_string())).unwrap();
    let peer = endpoint.connect(&address(&at)).unwrap();
    let me = endpoint.connect(&endpoint.address()).unwrap_or(weft::PeerId(u32::MAX));
    let packets = Packets::new(&endpoint).unwrap();
    let group = packets.group(GROUP, vec![me, peer], 0).unwrap();
    group.send_blocking(Tree::Flat, 1, 0, b"first").unwrap();
    member.signal("STOP");
    let said = |part: &str| kept::has_line(&[part]);
    let start = Instant::now();
    while !said("has taken no packet") {
        match group.try_send(Tree::Flat, 1, 0, b"more") {
            Ok(()) => {}
            Err(MulticastError::Busy { .. }) => {
                packets.wait(Some(Duration::from_millis(10)));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < LIMIT, "{:?}", kept::lines());
    }
    let all = kept::lines();
    assert!(all.iter().any(|line| line.contains("as its process is stopped")), "{all:?}");
}
