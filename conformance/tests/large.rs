//! Messages beyond 4 GiB from end to end: lengths and offsets of 33 bits.
#![allow(non_snake_case)]

use std::sync::{Barrier, Mutex};
use std::time::Duration;
use weft::{Clock, Config, Endpoint, EndpointId};
use weft_conformance::skip;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Address, Link, LinkError, ShmConfig, ShmLink, UdpConfig, UdpLink};

const GIB: usize = 1 << 30;
/// Beyond 4 GiB, and no multiple of anything.
const LEN: usize = 4 * GIB + (300 << 20) + 12_345;
/// Distance of the marks. Few, since memory that is never touched costs nothing.
const STEP: usize = 64 << 20;

/// Returns the offsets of marks of 8 bytes each: both ends, around 4 GiB, and some in between.
fn places() -> impl Iterator<Item = usize> {
    let boundary = 4 * GIB;
    let around = [boundary - 12, boundary - 4, boundary + 4];
    let between = (1..LEN / STEP).map(|i| i * STEP + i * 40).filter(|&at| at + 8 <= LEN);
    [0, LEN - 8].into_iter().chain(around).chain(between)
}

fn mark(at: usize) -> [u8; 8] {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

/// Returns the free memory in bytes, as the system reports it.
fn available() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}

fn open(link: &str, id: EndpointId) -> Result<Box<dyn Link>, LinkError> {
    if link == "shm" {
        return Ok(Box::new(ShmLink::new(ShmConfig::new(id))?));
    }
    let job_key = JobKey::from_bytes(&[7; 32]).expect("a key of 32 bytes");
    let security = Security { mode: Mode::Auth, job_key, me: id };
    let v4 = Some(std::net::Ipv4Addr::LOCALHOST);
    let config = UdpConfig { v4, v6: None, host: 1, ..UdpConfig::default() };
    Ok(Box::new(UdpLink::new(config, security)?))
}

/// Sends one message over `link` and checks the received marks.
fn pass(link: &str) {
    let met = Barrier::new(2);
    let addresses = Mutex::new([const { None::<Address> }; 2]);
    let side = |me: usize| {
        let id = EndpointId(weft_link::random_u64());
        let links = vec![open(link, id).expect("every machine has it")];
        let endpoint = Endpoint::with_links(Config::default(), id, Clock::system(), links);
        addresses.lock().expect("no panic")[me] = Some(endpoint.address());
        met.wait();
        let other = addresses.lock().expect("no panic")[1 - me].clone().expect("both are there");
        let peer = endpoint.connect(&other).expect("it is reached");
        // The system allocates pages of zeros only when they are written.
        let mut memory = vec![0; LEN];
        if me == 0 {
            for at in places() {
                memory[at..at + 8].copy_from_slice(&mark(at));
            }
            endpoint.block_on(endpoint.send(peer, 1, memory)).0.expect("it is taken");
        } else {
            let (status, got) = endpoint.block_on(endpoint.recv(Some(peer), 1, 0, memory));
            let len = status.map(|s| s.len);
            let wrong = places().find(|&at| got[at..at + 8] != mark(at));
            assert_eq!((len, wrong), (Ok(LEN), None), "{link}: where the first mark is missing");
        }
        endpoint.close(Duration::from_secs(60));
    };
    let side = &side;
    std::thread::scope(|s| {
        let sides = [0, 1].map(|me| s.spawn(move || side(me)));
        sides.into_iter().for_each(|side| side.join().expect("a side has failed"));
    });
}

fn beyond_4_gib(link: &str) {
    let need = 2 * LEN + GIB;
    let free = available();
    if free < need {
        return skip(&format!("{} MiB of memory are free, {} needed", free >> 20, need >> 20));
    }
    pass(link);
}

/// One test at a time: each needs the memory.
static ONE: Mutex<()> = Mutex::new(());

#[test]
#[ignore = "moves 4.3 GiB: cargo xtask test --suite large"]
fn message__beyond_4_gib_over_shm() {
    let _one = ONE.lock();
    beyond_4_gib("shm");
}

#[test]
#[ignore = "moves 4.3 GiB: cargo xtask test --suite large"]
fn message__beyond_4_gib_over_udp() {
    let _one = ONE.lock();
    beyond_4_gib("udp");
}
