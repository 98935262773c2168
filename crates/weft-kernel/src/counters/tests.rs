//! Tests the program on frames of a simulated wire, and between two interfaces joined by a cable;
//! see the tests of the link.
#![allow(non_snake_case)]

use super::request::{Request, ADD, ANSWER, LAST, LEN};
use super::*;
use crate::testing::run;
use crate::testing::{attached, cable, interface, wait_detached};
use weft_link::rng::Rng;
use weft_link::xdp::assembler::{UDP_DATA, XDP_DROP, XDP_PASS, XDP_TX};
use weft_link::xdp::bpf;

const KEY: SipKey = SipKey(*b"a key of 16 byte");
const IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CLIENT_PORT: u16 = 4321;

/// The answer was computed with Python's `hmac` and `hashlib`.
#[test]
fn client_key__known_answer() {
    let job = JobKey::from_bytes(&[1; 16]).unwrap();
    let key = client_key(&job, EndpointId(0xaaaa), EndpointId(0xbbbb), 7);
    assert_eq!(u128::from_be_bytes(key.0), 0x608e462c4942347b36f3076d7b11088f);
}

/// Makes counters without an interface, and their program.
fn loose() -> Option<(KernelCounters, OwnedFd)> {
    if !cable() {
        return None;
    }
    let mut counters = KernelCounters::detached(Ports::ANY).unwrap();
    counters.addresses = vec![IP];
    let program = counters.load(IP).unwrap();
    Some((counters, program))
}

/// Makes a frame with a datagram.
fn frame(port: u16, data: &[u8]) -> Vec<u8> {
    let mut frame = vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0, 0x45, 0];
    frame.extend_from_slice(&(20 + 8 + data.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0x40, 0, 64, 17, 0xab, 0xcd]);
    frame.extend_from_slice(&CLIENT_IP.octets());
    frame.extend_from_slice(&IP.octets());
    frame.extend_from_slice(&CLIENT_PORT.to_be_bytes());
    frame.extend_from_slice(&port.to_be_bytes());
    frame.extend_from_slice(&(8 + data.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0xde, 0xad]);
    frame.extend_from_slice(data);
    frame
}

struct Wire {
    counters: KernelCounters,
    program: OwnedFd,
}

impl Wire {
    /// Runs the program on a request; returns its verdict and the value of the answer.
    fn give(&self, request: &Request, key: &SipKey) -> (i32, Option<u64>) {
        let sent = frame(self.counters.port, &request.encode(key));
        let (verdict, out) = bpf::test_frame(&self.program, &sent).unwrap();
        let verdict = verdict as i32;
        let answer = request.answered_by(&out[UDP_DATA..], key);
        (verdict, answer.filter(|_| verdict == XDP_TX))
    }
}

/// The number from which the first admitted client counts.
const BASE: u64 = 1 << 32;

/// Makes request `number` of the first admission.
fn add(client: u16, number: u64, n: u64) -> Request {
    Request { client, kind: ADD, counter: 0, number: BASE + number, value: n }
}

#[test]
fn program__answers_a_datagram_with_its_addresses_swapped() {
    let Some((counters, program)) = loose() else { return };
    let first = counters.open(7, 1, 40).unwrap();
    let client = counters.admit(7, &KEY, first, 1).unwrap().client;
    let request = add(client, 1, 2);
    let sent = frame(counters.port, &request.encode(&KEY));
    let (verdict, out) = bpf::test_frame(&program, &sent).unwrap();
    assert_eq!(verdict as i32, XDP_TX);
    assert_eq!((&out[..6], &out[6..12]), (&sent[6..12], &sent[..6]));
    assert_eq!((&out[26..30], &out[30..34]), (&sent[30..34], &sent[26..30]));
    assert_eq!((&out[34..36], &out[36..38]), (&sent[36..38], &sent[34..36]));
    assert_eq!(
        (&out[12..26], &out[38..40], &out[40..42]),
        (&sent[12..26], &sent[38..40], &[0, 0][..])
    );
    assert_eq!(request.answered_by(&out[UDP_DATA..], &KEY), Some(40));
    assert_eq!(counters.word(first).load(SeqCst), 42);
}

#[test]
fn program__repeated_old_and_foreign_requests_add_nothing() {
    let Some((counters, program)) = loose() else { return };
    let wire = Wire { counters, program };
    let counters = &wire.counters;
    let (other, first) = (counters.open(7, 1, 0).unwrap(), counters.open(7, 2, 0).unwrap());
    let client = counters.admit(7, &KEY, first, 2).unwrap().client;
    let give = |request: Request| wire.give(&request, &KEY);
    assert_eq!(give(add(client, 7, 5)), (XDP_TX, Some(0)));
    assert_eq!(give(add(client, 7, 5)), (XDP_TX, Some(0)), "the same answer");
    assert_eq!(give(Request { kind: LAST, ..add(client, 0, 0) }), (XDP_TX, Some(BASE + 7)));
    let refused = (XDP_DROP, None);
    assert_eq!(give(add(client, 6, 5)), refused);
    assert_eq!(give(Request { kind: ANSWER, ..add(client, 8, 5) }), refused);
    assert_eq!(give(Request { counter: 2, ..add(client, 8, 5) }), refused, "not its own");
    assert_eq!(give(Request { counter: u32::MAX, ..add(client, 8, 5) }), refused);
    assert_eq!(give(add(client + 1, 8, 5)), refused, "nobody has this place");
    assert_eq!(give(add(CLIENTS, 8, 5)), refused);
    assert_eq!(wire.give(&add(client, 8, 5), &SipKey([0; 16])), refused, "another key");
    for at in 0..LEN {
        let mut bytes = add(client, 8, 5).encode(&KEY);
        bytes[at] ^= 1;
        let verdict = bpf::test_run(&wire.program, &frame(counters.port, &bytes)).unwrap();
        assert_eq!(verdict as i32, XDP_DROP, "altered at {at}");
    }
    assert_eq!(give(Request { counter: 1, ..add(client, 8, 1) }), (XDP_TX, Some(0)));
    let values = [other, first, first + 1].map(|at| counters.word(at).load(SeqCst));
    assert_eq!(values, [0, 5, 1]);
}

#[test]
fn program__other_frames_pass() {
    let Some((counters, program)) = loose() else { return };
    let good = frame(counters.port, &add(0, 1, 1).encode(&KEY));
    let run = |frame: &[u8]| bpf::test_run(&program, frame).unwrap() as i32;
    assert_eq!(run(&good), XDP_DROP, "it is looked at");
    for len in [14, 33, 42, good.len() - 1] {
        assert_eq!(run(&good[..len]), XDP_PASS, "{len} bytes");
    }
    // EtherType, options, fragments, protocol, address and port.
    for at in [12, 14, 20, 21, 23, 30, 33, 36, 37] {
        let mut other = good.clone();
        other[at] ^= 0x20;
        assert_eq!(run(&other), XDP_PASS, "altered at {at}");
    }
}

/// Each request is served once on a wire that loses, repeats and delays frames. If the client stops
/// using the wire, the server knows if the last request was served.
#[test]
fn requests__are_served_once_over_a_bad_wire() {
    let Some((counters, program)) = loose() else { return };
    let wire = Wire { counters, program };
    let counters = &wire.counters;
    let first = counters.open(7, 1, 0).unwrap();
    let (mut total, mut moved, mut seen) = (0, 0, 0);
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let key = SipKey::random();
        let client = counters.admit(7, &key, first, 1).unwrap().client;
        let mut late: Vec<Request> = Vec::new();
        let begin = Request { kind: LAST, ..add(client, 0, 0) };
        let base = wire.give(&begin, &key).1.unwrap();
        assert!(base > seen, "no number of a client before");
        for number in base + 1..=base + 40 {
            let request = Request { number, ..add(client, 0, 3) };
            seen = number;
            let mut answer = None;
            for _ in 0..6 {
                // A delayed earlier request arrives now.
                if !late.is_empty() && rng.below(3) == 0 {
                    let old = late.swap_remove(rng.below(late.len() as u64) as usize);
                    let (_, value) = wire.give(&old, &key);
                    assert!(value.is_none() || old.number + 1 >= number);
                }
                let (lost, back) = (rng.below(3) == 0, rng.below(3) > 0);
                if rng.below(4) == 0 {
                    late.push(request);
                }
                let got = if lost { None } else { wire.give(&request, &key).1 };
                answer = got.filter(|_| back);
                if answer.is_some() {
                    break;
                }
            }
            if answer.is_none() {
                let (done, value) = counters.end(client);
                assert!(done == number || done + 1 == number, "{done} of {number}");
                moved += 1;
                if done == number {
                    assert_eq!(value, total);
                    total += 3;
                }
                for old in &late {
                    assert_eq!(wire.give(old, &key), (XDP_DROP, None), "its place has ended");
                }
                break;
            }
            assert_eq!(answer, Some(total));
            total += 3;
        }
        counters.dismiss(client);
    }
    assert_eq!(counters.word(first).load(SeqCst), total);
    assert!(moved > 0 && total > 0, "{moved} moved, {total} in all");
}

#[test]
fn counters__places_and_words_are_given_back() {
    let Some((counters, _program)) = loose() else { return };
    assert_eq!((counters.open(7, 0, 0), counters.open(7, u32::MAX, 0)), (None, None));
    assert_eq!(counters.open(7, 768, 9), Some(0));
    assert_eq!((counters.open(7, 1, 0), counters.word(767).load(SeqCst)), (None, 9));
    // Another user finds a quarter left.
    assert_eq!((counters.open(8, 257, 0), counters.open(8, 256, 0)), (None, Some(768)));
    counters.close(0, 768);
    assert_eq!((counters.open(7, 3, 0), counters.open(7, 2, 0)), (Some(0), Some(3)));
    counters.close(0, 3);
    assert_eq!((counters.open(7, 4, 0), counters.open(7, 3, 0)), (Some(5), Some(0)));
    let admit = |user| counters.admit(user, &KEY, 0, 1).map(|place| place.client);
    for client in 0..768 {
        assert_eq!(admit(7), Some(client));
    }
    assert_eq!((admit(7), admit(8)), (None, Some(768)));
    counters.dismiss(5);
    assert_eq!((admit(7), counters.in_use()), (Some(5), (256 + 9, 769)));
    assert_eq!((counters.address(0), counters.address(1)), (Some(IP), None));
}

#[test]
fn serve__detaches_and_says_what_is_in_the_way() {
    if !cable() {
        return;
    }
    run("ip addr add 10.0.0.1/24 dev v0").unwrap();
    let far = [interface("v0")];
    let counters = KernelCounters::serve(&far, Ports::ANY).unwrap();
    assert!(attached("v0"));
    assert!(KernelCounters::serve(&far, Ports::ANY).is_err(), "one program at a time");
    assert!(KernelCounters::serve(&[], Ports::ANY)
        .unwrap_err()
        .to_string()
        .contains("IPv4 address"));
    drop(counters);
    wait_detached("v0");
}
