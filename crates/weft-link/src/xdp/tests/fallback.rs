//! Endpoints on an interface whose queue serves another endpoint.

use super::*;

/// Takes all queues of both ends of the cable, for endpoints of another job.
fn taken() -> [End; 2] {
    [End::open(on("v0"), 91, 9), End::open(on("w0"), 92, 9)]
}

/// Makes two endpoints that know each other, on packet sockets.
fn stand_ins() -> [End; 2] {
    let mut ends = [End::open(on("v0"), 1, 1), End::open(on("w0"), 2, 1)];
    let [a, b] = &mut ends;
    assert_eq!([a.count("interfaces_packet"), b.count("interfaces_packet")], [1, 1]);
    a.knows(b.address());
    b.knows(a.address());
    ends
}

#[test]
fn new__those_without_a_queue_exchange_frames_with_everybody() {
    if !cable() {
        return;
    }
    for mode in COPYING {
        let config = |name| XdpConfig { modes: vec![mode], ..on(name) };
        let mut left: Vec<End> = (1..4).map(|id| End::open(config("v0"), id, 1)).collect();
        let mut right: Vec<End> = (4..6).map(|id| End::open(config("w0"), id, 1)).collect();
        for (a, b) in (0..3).flat_map(|a| (0..2).map(move |b| (a, b))) {
            let (to_a, to_b) = (left[a].address(), right[b].address());
            assert!(to_a.ether[0].is_xdp() && to_b.ether[0].is_xdp());
            left[a].knows(to_b);
            right[b].knows(to_a);
        }
        let kinds: Vec<_> = left.iter().map(|e| e.link.modes().collect::<Vec<_>>()).collect();
        assert_eq!(kinds, [vec![mode], vec![], vec![]]);
        let max = left[0].link.caps().mtu as usize - 32;
        let sizes = [0, 16, max];
        for end in &mut left {
            for (to, len) in [4, 5].into_iter().flat_map(|to| sizes.map(|len| (to, len))) {
                end.send(to, 1, &vec![end.id.0 as u8; len]);
            }
        }
        for end in &mut right {
            let mut keep = Keep::default();
            end.until(&mut keep, |keep, _| keep.0.len() == 3 * sizes.len());
            (1..4).for_each(|to| end.send(to, 1, &[end.id.0 as u8; 100]));
        }
        for end in &mut left {
            let mut keep = Keep::default();
            end.until(&mut keep, |keep, _| keep.0.len() == 2);
            keep.0.sort();
            assert_eq!(keep.0, [vec![4; 100], vec![5; 100]]);
        }
        let said: String = left.iter_mut().map(End::warnings).collect();
        assert_eq!(said.matches("another rank has its queue").count(), 1, "{said}");
        assert!(left[2].link.describe()[0].contains("packet socket"));
        drop((left, right));
        wait_detached("v0");
        wait_detached("w0");
    }
}

#[test]
fn kill__of_the_queues_owner_leaves_the_others_at_work() {
    if !cable() {
        return;
    }
    let (mut child, _lines) = child_with_a_link();
    let config = |name| XdpConfig { modes: vec![XdpMode::Native], ..on(name) };
    let mut a = End::open(config("v0"), 1, 1);
    let mut b = End::open(config("w0"), 2, 1);
    assert_eq!([a.count("interfaces_packet"), b.count("interfaces_packet")], [1, 0]);
    a.knows(b.address());
    b.knows(a.address());
    for round in 1..=20 {
        passes(&mut a, &mut b, round);
        passes(&mut b, &mut a, round);
        if round == 10 {
            child.kill().unwrap();
            child.wait().unwrap();
            wait_detached("v0");
        }
    }
    // The next endpoint gets the queue as soon as the kernel has freed it.
    let start = Instant::now();
    loop {
        let next = End::open(config("v0"), 3, 1);
        if next.count("interfaces_native") == 1 {
            break;
        }
        assert!(start.elapsed() < LONG, "the queue is not freed");
    }
}

#[test]
fn recv__bad_frames_are_dropped_and_counted_without_a_queue_too() {
    if !cable() {
        return;
    }
    let _owners = taken();
    let [a, b] = stand_ins();
    let v0 = a.link.rails[0].interface.clone();
    let slot = b.link.rails[0].slot;
    let head = EtherHead {
        dst: crate::ether::Mac([2, 0xee, 0, 0, 0, 1]),
        src: v0.mac,
        kind: EtherType::default(),
        slot,
        len: 46,
    };
    send_raw(v0.index, &[&head.encode()[..], &[0; 46]].concat());
    let mut ends = [a, b];
    ends[1].until(&mut Keep::default(), |_, b| b.count("received_foreign") == 1);
    drops_bad_frames(ends);
}

#[test]
fn recv__a_wrong_key_is_counted_without_a_queue_too() {
    if !cable() {
        return;
    }
    let _owners = taken();
    counts_a_wrong_key(End::open(on("v0"), 1, 1), End::open(on("w0"), 2, 2));
}

#[test]
fn interface__down_up_and_gone_is_said_once_without_a_queue_too() {
    if !cable() {
        return;
    }
    let _owners = taken();
    comes_back_and_goes(stand_ins());
}

#[test]
fn interface__a_new_mtu_is_passed_on_without_a_queue_too() {
    if !cable() {
        return;
    }
    let _owners = taken();
    passes_a_new_mtu_on(stand_ins());
}

#[test]
fn recv__overrun_tenfold_counts_what_it_lost_without_a_queue_too() {
    if !cable() {
        return;
    }
    let _owners = taken();
    survives_overload(stand_ins());
}
