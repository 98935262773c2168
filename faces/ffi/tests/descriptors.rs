//! Descriptors that run out while a process waits at an address. One test, since the limit is that
//! of the process.
#![allow(non_snake_case)]

use rustix::process::{setrlimit, Resource, Rlimit};
use rustix::time::{clock_gettime, ClockId};
use std::fs::File;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use weft_core::EndpointId;
use weft_ffi::address::NetAddress;
use weft_ffi::rendezvous::{post, seek, Sought};
use weft_link::secure::JobKey;
use weft_link::Address;

/// Takes all descriptors that the process may have.
fn take_all() -> Vec<File> {
    let few = Rlimit { current: Some(64), maximum: Some(64) };
    setrlimit(Resource::Nofile, few).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Returns the processor time of this process.
fn busy() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

#[test]
fn post__descriptors_that_ran_out_are_missed_for_a_while_only() {
    let key = JobKey::random().unwrap();
    let at = |name: &[u8]| NetAddress::new(Ipv4Addr::LOCALHOST, name).unwrap();
    let address = Address { endpoint: EndpointId(7), host: 9, ..Address::default() };
    // One descriptor is left: enough for the socket, and not for what wakes its thread.
    let mut taken = take_all();
    taken.pop();
    assert!(post(&key, &at(b"one"), &address).is_err());
    drop(taken);
    let _post = post(&key, &at(b"one"), &address).unwrap();
    assert_eq!(seek(&key, &at(b"one"), None), Sought::Found(address.clone()));
    // The one that is left is the asker's: nobody can answer, and nobody polls meanwhile.
    let mut taken = take_all();
    taken.pop();
    let (asks, place) = (key.clone(), at(b"one"));
    let end = Some(Instant::now() + Duration::from_secs(4));
    let asker = std::thread::spawn(move || loop {
        // The loop below may have the descriptor at this moment.
        match seek(&asks, &place, end) {
            Sought::Unreachable => {}
            got => break got,
        }
    });
    while let Ok(free) = File::open("/dev/null") {
        drop(free);
        std::thread::yield_now();
    }
    let before = busy();
    // tidy-allow(sleep): a thread that polls shows in processor time alone.
    std::thread::sleep(Duration::from_millis(300));
    assert!(busy() - before < Duration::from_millis(150), "a thread polls without an end");
    drop(taken);
    assert_eq!(asker.join().unwrap(), Sought::Found(address));
}
