#![allow(non_snake_case)]

use super::*;
use crate::testing::ends;
use weft_core::wire::{emit, Common, Data, Packet};

const A: EndpointId = EndpointId(0xaaaa);
const B: EndpointId = EndpointId(0xbbbb);
const P: PeerId = PeerId(3);
const SESSION: u32 = (1 << 20) | 5;

fn secure(mode: Mode, me: EndpointId, key: u8) -> Secure {
    let job_key = JobKey::from_bytes(&[key; 16]).unwrap();
    Secure::new(&Security { mode, job_key, me }, Lane::Udp)
}

/// Makes a sealer at A and an opener at B that know each other.
fn pair(mode: Mode) -> (Secure, Secure) {
    let (mut a, mut b) = (secure(mode, A, 1), secure(mode, B, 1));
    a.add_peer(P, 9, B).unwrap();
    b.add_peer(P, SESSION, A).unwrap();
    (a, b)
}

fn data(session: u32) -> Vec<u8> {
    let common = Common { session, ..Default::default() };
    emit(&common, &Packet::Data(Data { offset: 4096 })).as_slice().to_vec()
}

fn hello(src: EndpointId) -> Vec<u8> {
    ends::hello(src, B)
}

fn sealed(s: &mut Secure, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; header.len() + payload.len() + TRAILER];
    let n = s.seal_into(P, header, payload, &mut out).unwrap();
    out.truncate(n);
    out
}

fn count(s: &Secure, name: &str) -> u64 {
    let mut found = 0;
    s.counters(&mut |n, v| found += if n == name { v } else { 0 });
    found
}

#[test]
fn open__what_seal_made_in_every_mode() {
    for mode in [Mode::Auth, Mode::Encrypt, Mode::None] {
        let (mut a, mut b) = pair(mode);
        for len in [0, 1, 15, 16, 40, 1424, 9000] {
            let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let header = data(SESSION);
            let mut frame = sealed(&mut a, &header, &payload);
            assert_eq!(frame.len(), header.len() + len + a.trailer_len());
            let plain = len == 0 || frame[header.len()..header.len() + len] == payload;
            assert_eq!(plain, mode != Mode::Encrypt || len == 0, "{mode:?} {len}");
            let opened = b.open(&mut frame).unwrap();
            assert_eq!((opened.peer, opened.header_len), (Some(P), header.len()));
            assert_eq!(frame[opened.header_len..opened.packet_len], payload);
        }
    }
}

#[test]
fn prefetch_keys__reaches_the_tag_and_changes_nothing() {
    for mode in [Mode::Auth, Mode::Encrypt, Mode::None] {
        let (mut a, mut b) = pair(mode);
        b.prefetch_keys(PeerId(77));
        for n in 0..5 {
            b.prefetch_keys(P);
            let mut frame = sealed(&mut a, &data(SESSION), &[n; 20]);
            assert!(b.open(&mut frame).is_ok(), "{mode:?}");
            a.prefetch_keys(P);
        }
        b.counters(&mut |name, refused| assert_eq!(refused, 0, "{name}"));
    }
    let (_, b) = pair(Mode::Auth);
    let (session, pn) = b.peers.expected(P).unwrap();
    assert!(b.admit(&data(session), &trailer(pn, [0; 8])).is_ok());
}

#[test]
fn open__any_altered_byte_is_refused() {
    for mode in [Mode::Auth, Mode::Encrypt] {
        let (mut a, mut b) = pair(mode);
        let good = sealed(&mut a, &data(SESSION), &[3; 100]);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            let cause = b.open(&mut bad).unwrap_err();
            let known = [Reject::AuthFailed, Reject::Malformed, Reject::StaleSession];
            assert!(
                known.contains(&cause) || cause == Reject::Replayed && at == good.len() - 9,
                "{at}"
            );
        }
        assert!(b.open(&mut good.clone()).is_ok());
    }
}

#[test]
fn open__wrong_key_and_wrong_destination() {
    let (mut a, _) = pair(Mode::Auth);
    let mut other_key = secure(Mode::Auth, B, 2);
    let mut other_end = secure(Mode::Auth, EndpointId(0xcccc), 1);
    for s in [&mut other_key, &mut other_end] {
        s.add_peer(P, SESSION, A).unwrap();
        let mut frame = sealed(&mut a, &data(SESSION), b"hello");
        assert_eq!(s.open(&mut frame), Err(Reject::AuthFailed));
        assert_eq!(count(s, "auth_failed"), 1);
    }
}

#[test]
fn open__auth_and_encrypt_do_not_mix() {
    let (mut a, _) = pair(Mode::Auth);
    let (_, mut b) = pair(Mode::Encrypt);
    let mut frame = sealed(&mut a, &data(SESSION), &[]);
    assert_eq!(b.open(&mut frame), Err(Reject::AuthFailed));
}

#[test]
fn open__replayed_is_refused_and_forgeries_do_not_move_the_window() {
    let (mut a, mut b) = pair(Mode::Auth);
    let frame = sealed(&mut a, &data(SESSION), b"once");
    let mut forged = frame.clone();
    let at = forged.len() - TRAILER;
    forged[at + 3] = 0x7f;
    assert_eq!(b.open(&mut forged), Err(Reject::AuthFailed));
    assert!(b.open(&mut frame.clone()).is_ok());
    assert_eq!(b.open(&mut frame.clone()), Err(Reject::Replayed));
    assert_eq!(count(&b, "replayed"), 1);
}

#[test]
fn open__another_lane_is_refused() {
    let (_, mut b) = pair(Mode::Auth);
    let job_key = JobKey::from_bytes(&[1; 16]).unwrap();
    let mut a = Secure::new(&Security { mode: Mode::Auth, job_key, me: A }, Lane::Packet);
    a.add_peer(P, 9, B).unwrap();
    let mut frame = sealed(&mut a, &data(SESSION), b"x");
    assert_eq!(b.open(&mut frame), Err(Reject::Replayed));
}

#[test]
fn open__stale_session() {
    let (mut a, mut b) = pair(Mode::Auth);
    for session in [0, SESSION ^ 1, SESSION ^ (1 << 20), u32::MAX] {
        let mut frame = sealed(&mut a, &data(session), b"x");
        assert_eq!(b.open(&mut frame), Err(Reject::StaleSession), "{session:#x}");
    }
    b.remove_peer(P);
    let mut frame = sealed(&mut a, &data(SESSION), b"x");
    assert_eq!(b.open(&mut frame), Err(Reject::StaleSession));
}

#[test]
fn open__short_and_malformed_never_panic() {
    for mode in [Mode::Auth, Mode::Encrypt, Mode::None] {
        let (mut a, mut b) = pair(mode);
        let good = sealed(&mut a, &data(SESSION), b"payload");
        for len in 0..data(0).len() + b.trailer_len() {
            assert_eq!(b.open(&mut good[..len].to_vec()), Err(Reject::Short), "{len}");
        }
        for (at, value) in [(0, 2), (1, 0), (1, 200), (1, 255)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(b.open(&mut bad), Err(Reject::Malformed));
        }
    }
}

#[test]
fn open__hello_of_a_stranger_once() {
    let (mut a, _) = pair(Mode::Auth);
    let mut b = secure(Mode::Auth, B, 1);
    let frame = sealed(&mut a, &hello(A), b"address");
    assert_eq!(b.open(&mut frame.clone()).unwrap().peer, None);
    assert_eq!(b.open(&mut frame.clone()), Err(Reject::Replayed));
    b.add_peer(P, SESSION, A).unwrap();
    assert_eq!(b.open(&mut frame.clone()), Err(Reject::Replayed));
    let mut next = sealed(&mut a, &hello(A), b"address");
    assert_eq!(b.open(&mut next.clone()).unwrap().peer, Some(P));
    b.remove_peer(P);
    assert_eq!(b.open(&mut next), Err(Reject::Replayed));
}

#[test]
fn open__hello_that_lies_about_its_source() {
    let (mut a, mut b) = pair(Mode::Auth);
    let mut frame = sealed(&mut a, &hello(EndpointId(0xdddd)), b"address");
    assert_eq!(b.open(&mut frame), Err(Reject::AuthFailed));
}

#[test]
fn seal__unknown_peer() {
    let (mut a, _) = pair(Mode::Auth);
    assert_eq!(a.seal(PeerId(77), &data(1), &[]), None);
    a.remove_peer(P);
    assert_eq!(a.seal(P, &data(1), &[]), None);
}

#[test]
fn seal__numbers_differ_between_peers_and_after_return() {
    let mut a = secure(Mode::Auth, A, 1);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..3 {
        for peer in 0..4 {
            a.add_peer(PeerId(peer), peer + 1, EndpointId(u64::from(peer))).unwrap();
            for _ in 0..5 {
                let end = a.seal(PeerId(peer), &data(1), &[round]).unwrap();
                assert!(seen.insert(end[..8].to_vec()));
            }
        }
    }
}

#[test]
fn add_peer__without_numbers_is_refused_and_changes_nothing() {
    let security =
        Security { mode: Mode::Auth, job_key: JobKey::from_bytes(&[1; 16]).unwrap(), me: A };
    let mut a = Secure::with_runs(&security, Lane::Udp, 3);
    (0..3).for_each(|peer| a.add_peer(PeerId(peer), peer + 1, B).unwrap());
    for peer in [1, 3] {
        assert_eq!(a.add_peer(PeerId(peer), 9, B), Err(NumbersUsedUp));
    }
    assert!(
        a.seal(PeerId(1), &data(1), &[]).is_some() && a.seal(PeerId(3), &data(1), &[]).is_none()
    );
    a.remove_peer(PeerId(1));
    assert_eq!(a.add_peer(PeerId(1), 9, B), Err(NumbersUsedUp), "a number is used once");
}

#[test]
fn add_peer__as_often_as_a_key_has_numbers_for_and_no_more() {
    let mut a = secure(Mode::Auth, A, 1);
    assert_eq!(RUNS_MAX, 1 << 24);
    for n in 0..RUNS_MAX {
        assert!(a.add_peer(P, 9, B).is_ok(), "{n}");
    }
    let last = a.seal(P, &data(1), &[]).unwrap();
    assert_eq!(last[..8], (((Lane::Udp as u64) << 56) + ((RUNS_MAX - 1) << 32) + 1).to_le_bytes());
    assert_eq!(a.add_peer(P, 9, B), Err(NumbersUsedUp));
}

#[test]
fn secure__backends_agree() {
    for backend in Backend::available() {
        let job_key = JobKey::from_bytes(&[1; 16]).unwrap();
        let security = Security { mode: Mode::Auth, job_key, me: A };
        let mut a = Secure::with_backend(&security, Lane::Udp, backend);
        let (_, mut b) = pair(Mode::Auth);
        a.add_peer(P, 9, B).unwrap();
        assert!(b.open(&mut sealed(&mut a, &data(SESSION), &[5; 77])).is_ok(), "{backend:?}");
    }
}

#[test]
fn measure_cost__reports_positive_times() {
    let cost = measure_cost(40);
    assert!(cost.packet_len == 40 && cost.seal_ns > 0.0 && cost.open_ns > 0.0);
}

/// `PROTOCOL.md` contains these frames as an example for other implementations of the protocol.
#[test]
fn seal__makes_the_frames_in_protocol_md() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../PROTOCOL.md");
    let text = std::fs::read_to_string(path).unwrap();
    for (mode, name) in [(Mode::Auth, "authenticated"), (Mode::Encrypt, "encrypted")] {
        let frame = sealed(&mut pair(mode).0, &data(9), b"weft over Ethernet");
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        let said = text.lines().filter_map(|l| l.strip_prefix(&format!("    {name} ")));
        let said: Vec<_> = said.map(|hex| hex.replace(' ', "")).collect();
        assert_eq!(said.concat(), hex, "{name}");
    }
}
