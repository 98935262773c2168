//! What a sender may leave at its peer.

use super::*;

#[test]
fn cost__counts_payload_and_descriptor() {
    let costs = [0, 1, 64, 65, 4096].map(cost);
    assert_eq!(costs, [1, 2, 2, 3, 65]);
    assert_eq!(cost(usize::MAX), u32::MAX);
}

#[test]
fn credit__bounds_what_is_outstanding_across_the_wrap() {
    let mut rng = Rng::new(9);
    let mut out = CreditOut::new(16 * 1024);
    let mut sender = CreditIn::default();
    sender.on_grant(out.grant());
    let mut outstanding: Vec<usize> = Vec::new();
    let mut moved = 0u64;
    while moved < 3 << 32 {
        // Large consumption without a message moves both counters towards their wrap quickly.
        let skip = 1 << 27;
        sender.skip(skip);
        out.skip(skip);
        moved += u64::from(skip);
        for _ in 0..50 {
            let len = rng.below(3_000) as usize;
            if sender.try_take(len) {
                assert!(out.arrived(len));
                outstanding.push(len);
            } else if !outstanding.is_empty() {
                let at = rng.below(outstanding.len() as u64) as usize;
                out.consumed(outstanding.swap_remove(at));
            }
            let units: u32 = outstanding.iter().map(|&len| cost(len)).sum();
            assert!(units <= 256);
            let old = out.grant().wrapping_sub(rng.below(500) as u32);
            sender.on_grant(if rng.percent(50) { old } else { out.grant() });
            assert!(sender.available() <= out.grant().wrapping_sub(sender.used()));
        }
    }
}

#[test]
fn on_grant__ignores_old_and_hostile_ones() {
    let mut sender = CreditIn::default();
    assert!(!sender.try_take(0));
    assert!(sender.on_grant(100));
    assert!(sender.try_take(50 * 64));
    for hostile in [99, 40, 0, u32::MAX, 1 << 31, (1 << 29) + 52] {
        assert!(!sender.on_grant(hostile), "{hostile}");
        assert_eq!(sender.available(), 49);
    }
    assert!(!sender.try_take(usize::MAX));
    assert!(sender.on_grant(101));
}

#[test]
fn arrived__refuses_an_overdrawn_grant() {
    let mut out = CreditOut::new(10 * 64);
    assert!(out.arrived(8 * 64));
    assert!(!out.arrived(64));
    assert!(out.arrived(0));
    assert!(!out.arrived(0));
    out.consumed(0);
    assert!(out.arrived(0));
}

#[test]
fn worth_announcing__after_a_quarter_of_the_window() {
    let mut out = CreditOut::new(16 * 64);
    assert!(!out.worth_announcing());
    out.consumed(2 * 64);
    assert!(!out.worth_announcing());
    out.consumed(0);
    assert!(out.worth_announcing());
    out.announced();
    assert!(!out.worth_announcing());
    assert_eq!(out.grant(), 20);
}
