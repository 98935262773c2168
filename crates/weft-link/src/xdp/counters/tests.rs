//! Two interfaces joined by a cable; see the tests of the link.
#![allow(non_snake_case)]

use super::super::sys::bpf;
use super::super::sys::testing::send_raw;
use super::super::tests::{attached, cable, interface, wait_detached};
use super::program::{
    self, ADD, ANSWER, CLIENT, COUNTER, KIND, LEN, NUMBER, TAG, TAGGED, VALUE, VERSION,
};
use super::*;
use crate::ether::EtherHead;
use crate::packet::BarePacket;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(300);
const REPLY: u16 = 0x7abc;
const KEY: SipKey = SipKey(*b"a key of 16 byte");

fn client(number: u16) -> CounterClient {
    let (own, far) = (interface("w0"), interface("v0"));
    CounterClient::open(&own, EtherType::default(), far.mac, (number, REPLY), KEY, LONG).unwrap()
}

#[test]
fn fetch_add__every_ticket_once() {
    if !cable() {
        return;
    }
    let counters = KernelCounters::serve(&interface("v0"), EtherType::default(), KEY).unwrap();
    counters.set(5, 100).unwrap();
    let (mut a, mut b) = (client(0), client(1));
    for i in 0..200 {
        assert_eq!(a.fetch_add(5, 1, LONG).unwrap(), 100 + 4 * i);
        assert_eq!(b.fetch_add(5, 3, LONG).unwrap(), 101 + 4 * i);
    }
    assert_eq!((counters.read(5).unwrap(), counters.read(6).unwrap()), (900, 0));
    // The next client of that number goes on where the last one ended.
    drop(a);
    assert_eq!(client(0).fetch_add(5, u64::MAX, LONG).unwrap(), 900);
    assert_eq!(counters.read(5).unwrap(), 899, "modulo 2^64");
    assert!(counters.read(COUNTERS).is_err());
}

#[test]
fn fetch_add__repeated_old_and_foreign_requests_add_nothing() {
    if !cable() {
        return;
    }
    let (own, far) = (interface("w0"), interface("v0"));
    let counters = KernelCounters::serve(&far, EtherType::default(), KEY).unwrap();
    let kind = EtherType::default();
    let mut socket = BarePacket::open(&own, kind, 64 << 10).unwrap();
    let send = |number: u64, change: &dyn Fn(&mut [u8])| {
        let len = (LEN - EtherHead::LEN) as u16;
        let head = EtherHead { dst: far.mac, src: own.mac, kind, slot: SLOT, len };
        let mut frame = [0; 60];
        frame[..EtherHead::LEN].copy_from_slice(&head.encode());
        (frame[VERSION], frame[KIND]) = (1, ADD);
        frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_le_bytes());
        frame[VALUE] = 1;
        change(&mut frame);
        let tag = KEY.hash(&[&frame[TAGGED..TAG]]);
        if frame[TAG] == 0 {
            frame[TAG..LEN].copy_from_slice(&tag.to_le_bytes());
        }
        send_raw(own.index, &frame);
    };
    // The value in the next answer.
    let mut answer = || {
        let (start, mut frame) = (Instant::now(), [0; 60]);
        while socket.take_into(&mut frame).is_none() || frame[KIND] != ANSWER {
            assert!(start.elapsed() < LONG, "no answer");
        }
        u64::from_le_bytes(frame[VALUE..VALUE + 8].try_into().unwrap())
    };
    send(7, &|_| {});
    assert_eq!(answer(), 0);
    send(7, &|_| {});
    assert_eq!(answer(), 0, "the same answer");
    send(6, &|_| {});
    send(8, &|f| f[TAG] = 1);
    send(8, &|f| f[VERSION] = 2);
    send(8, &|f| f[KIND] = ANSWER);
    send(8, &|f| f[CLIENT + 1] = 0xff);
    send(8, &|f| f[COUNTER + 3] = 1);
    send(8, &|f| f[5] ^= 1);
    send(8, &|f| f[EtherHead::SLOT] = 0);
    send(9, &|_| {});
    assert_eq!(answer(), 1, "nothing in between");
    assert_eq!(counters.read(0).unwrap(), 2);
}

#[test]
fn serve__detaches_and_says_what_is_in_the_way() {
    if !cable() {
        return;
    }
    let far = interface("v0");
    let counters = KernelCounters::serve(&far, EtherType::default(), KEY).unwrap();
    assert!(attached("v0"));
    assert!(
        KernelCounters::serve(&far, EtherType::default(), KEY).is_err(),
        "one program at a time"
    );
    let (own, kind) = (interface("w0"), EtherType::default());
    let soon = Duration::from_millis(50);
    drop(counters);
    wait_detached("v0");
    let nobody = CounterClient::open(&own, kind, far.mac, (0, REPLY), KEY, soon);
    assert!(matches!(nobody.err(), Some(CounterError::Timeout(_))));
}

#[test]
fn assemble__the_verifier_takes_it_and_other_frames_pass() {
    if !cable() {
        return;
    }
    let array = |size| bpf::array(4, size, "weft_test").unwrap();
    let (clients, counters) = (array(16), array(8));
    let mac = interface("v0").mac;
    let code = program::assemble(&clients, &counters, (EtherType::default(), mac), KEY);
    let program = bpf::load(&code, "weft_test", false).unwrap();
    for len in [14, 17, 55, 60, 1500] {
        assert_eq!(bpf::test_run(&program, &vec![0; len]).unwrap(), 2, "{len} zeros");
    }
}
