//! Trains that the kernel sends from our memory.

use super::*;

/// Packets of one train, and the payload of each.
const PACKETS: usize = 40;
const EACH: usize = 1424;
/// Slots of a lender.
const SLOTS: usize = 16;

/// The header of the first packet of train `n`.
fn first(n: usize) -> Vec<u8> {
    let common =
        Common { session: TO_B, seq: Seq((n * PACKETS) as u32), imm: 77, ..Default::default() };
    let offset = (n * PACKETS * EACH) as u64;
    emit(&common, &Packet::Data(Data { offset })).as_slice().to_vec()
}

fn payload(n: usize) -> Vec<u8> {
    bytes(PACKETS * EACH, n as u64 + 1)
}

fn send(link: &mut UdpLink, n: usize) {
    assert_eq!(link.send_run(P, &first(n), &payload(n), PACKETS), PACKETS);
}

/// What train `n` should bring.
fn expected(n: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let payload = payload(n);
    let packet = |(i, part): (usize, &[u8])| {
        let mut header = first(n);
        wire::advance(&mut header, i as u32, (i * EACH) as u64);
        (header, part.to_vec())
    };
    payload.chunks(EACH).enumerate().map(packet).collect()
}

/// Whether this kernel takes pages, said if not.
fn lends(link: &UdpLink) -> bool {
    let lends = link.lender.is_some();
    if !lends {
        println!("skipped: this kernel does not send pages from a pipe (Linux 6.5)");
    }
    lends
}

fn configs() -> Vec<UdpConfig> {
    [Some(v4_only()), v6_only()].into_iter().flatten().collect()
}

#[test]
fn send_run__lends_until_all_slots_are_out() {
    for config in configs() {
        let (mut a, mut b, _) = pair_with(&config, Mode::Auth);
        for n in 0..SLOTS + 3 {
            send(&mut a, n);
            assert!(receive(&mut b, PACKETS) == expected(n), "train {n}");
        }
        if lends(&a) {
            assert_eq!(count(&a, "sent_lent"), SLOTS as u64);
            assert_eq!(a.lent(), Some((P, PACKETS as u32)));
            a.settle();
            send(&mut a, SLOTS + 3);
            assert_eq!(count(&a, "sent_lent"), SLOTS as u64 + 1);
            assert_eq!(a.lent(), Some((P, 2 * PACKETS as u32)));
            assert!(receive(&mut b, PACKETS) == expected(SLOTS + 3));
        }
    }
}

#[test]
fn send_run__slots_are_used_again() {
    for config in configs() {
        let (mut a, mut b, _) = pair_with(&config, Mode::Auth);
        for n in 0..3 * SLOTS {
            send(&mut a, n);
            assert!(receive(&mut b, PACKETS) == expected(n), "train {n}");
            a.settle();
        }
        assert!(!lends(&a) || count(&a, "sent_lent") == 3 * SLOTS as u64);
        assert_eq!(a.lent(), None);
    }
}

#[test]
fn settle__too_early_spoils_packets_and_forges_none() {
    let (mut a, mut b, _) = pair_with(&v4_only(), Mode::Auth);
    let (mut keep, mut sent) = (Keep::default(), Vec::new());
    let start = Instant::now();
    let mut whole = false;
    while !whole {
        // More than there are slots, without receiving; a small buffer may lose some of them.
        for _ in 0..SLOTS + 4 {
            let n = sent.len() / PACKETS;
            send(&mut a, n);
            a.settle();
            sent.extend(expected(n));
        }
        while b.recv(64, &mut keep) > 0 {}
        let last = &sent[sent.len() - PACKETS..];
        whole = last.iter().all(|packet| keep.0.contains(packet));
        assert!(start.elapsed() < LONG, "no train comes whole");
    }
    for (i, packet) in keep.0.iter().enumerate() {
        assert!(sent.contains(packet), "a packet that was never sent");
        assert!(!keep.0[..i].contains(packet), "a packet that came twice");
    }
    lends(&a);
}

#[test]
fn disconnect__what_was_lent_for_the_peer_is_settled() {
    let (mut a, mut b, _) = pair_with(&v4_only(), Mode::Auth);
    for n in 0..SLOTS {
        send(&mut a, n);
        assert!(receive(&mut b, PACKETS) == expected(n), "train {n}");
    }
    a.disconnect(P);
    assert_eq!(a.lent(), None);
}

#[test]
fn send_run__only_what_is_authenticated_and_not_secret_is_lent() {
    for mode in [Mode::Encrypt, Mode::None] {
        let (mut a, mut b, _) = pair(mode);
        send(&mut a, 0);
        assert!(receive(&mut b, PACKETS) == expected(0), "{mode:?}");
        assert_eq!(count(&a, "sent_lent"), 0);
    }
}

#[test]
fn send_run__what_cannot_be_lent_is_copied() {
    for (config, fills) in configs().iter().flat_map(|c| [(c, false), (c, true)]) {
        let (mut a, mut b, _) = pair_with(config, Mode::Auth);
        for n in 0..4 {
            if let (Some(lender), 1) = (&mut a.lender, n) {
                lender.break_pipe(fills);
            }
            send(&mut a, n);
            assert!(receive(&mut b, PACKETS) == expected(n), "train {n}");
        }
        assert!(a.lender.is_none());
        assert!(count(&a, "sent_lent") <= 1);
        assert_eq!(count(&a, "sent"), 4 * PACKETS as u64);
    }
}
