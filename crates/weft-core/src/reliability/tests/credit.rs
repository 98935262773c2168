//! The bytes that a sender may have at its peer.

use super::*;

#[test]
fn cost__counts_payload_and_descriptor() {
    let costs = [0, 1, 64, 65, 4096].map(cost);
    assert_eq!(costs, [1, 2, 2, 3, 65]);
    assert_eq!(cost(usize::MAX), i32::MAX as u32);
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
            let sent = match rng.percent(20) {
                true => sender.try_take_active(len),
                false => sender.try_take(len),
            };
            if sent {
                assert!(out.arrived(len));
                outstanding.push(len);
            } else if !outstanding.is_empty() {
                let at = rng.below(outstanding.len() as u64) as usize;
                out.consumed(outstanding.swap_remove(at));
            }
            let units: u32 = outstanding.iter().map(|&len| cost(len)).sum();
            assert!(units <= 256 + RESERVE);
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
    assert!(sender.on_grant(RESERVE + 100));
    assert!(sender.try_take(50 * 64));
    for hostile in [RESERVE + 99, 40, 0, u32::MAX, 1 << 31, (1 << 29) + 52] {
        assert!(!sender.on_grant(hostile), "{hostile}");
        assert_eq!(sender.available(), RESERVE + 49);
    }
    assert!(!sender.try_take(usize::MAX) && !sender.try_take_active(usize::MAX));
    assert!(sender.on_grant(RESERVE + 101));
}

#[test]
fn arrived__refuses_an_overdrawn_grant() {
    let mut out = CreditOut::new(10 * 64);
    assert!(out.arrived((8 + RESERVE as usize) * 64));
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
    assert_eq!(out.grant(), RESERVE + 20);
}

#[test]
fn try_take__leaves_the_reserve_to_active_messages() {
    let mut sender = CreditIn::default();
    sender.on_grant(RESERVE + 10);
    assert!(!sender.try_take(10 * 64));
    assert!(sender.try_take(9 * 64));
    assert!(!sender.try_take(0));
    assert!(sender.try_take_active(64 << 10));
    assert!(!sender.try_take_active(0) && !sender.try_take(0));
    assert!(sender.on_grant(RESERVE + 11));
    assert!(!sender.try_take(0), "the reserve is filled first");
    assert!(sender.try_take_active(0));
    assert_eq!(cost(crate::engine::ACTIVE_MAX as usize), RESERVE);
}

#[test]
fn lend__is_paid_back_by_what_leaves() {
    let mut out = CreditOut::new(1 << 20);
    assert_eq!(out.lacks(), None);
    let first = out.grant();
    let mut kept = 0;
    for _ in 0..30_000 {
        assert!(out.arrived(64));
        kept += 1;
        if let Some(units) = out.lacks() {
            out.extend(units);
        }
    }
    assert!(out.grant() > first + 2 * 30_000 - (1 << 14));
    let mut before = out.grant();
    let mut paid = 0;
    for _ in 0..kept {
        match out.repay(64) {
            Some(units) => paid += units,
            None => out.consumed(64),
        }
        assert!(out.grant().wrapping_sub(before) <= 2, "it never shrinks");
        before = out.grant();
    }
    assert_eq!(out.repay(64), None);
    assert_eq!(out.grant(), first + 2 * 30_000, "as if none had been lent");
    assert!(paid > 0);
}

#[test]
fn repay__long_messages_pay_all_back() {
    // The last length is that of the longest active message. The grant lacks some of the credit;
    // the repayment of messages pays it back.
    for len in [64usize, 400, 40_000, 64 << 10] {
        let mut out = CreditOut::new(64 << 10);
        let (mut kept, mut lent, mut repaid) = (0, 0, 0);
        for _ in 0..40 {
            while out.arrived(len) {
                kept += 1;
            }
            if let Some(units) = out.lacks() {
                out.extend(units);
                lent += units;
            }
        }
        for _ in 0..kept {
            match out.repay(len) {
                Some(units) => repaid += units,
                None => out.consumed(len),
            }
        }
        assert!(lent > 0 && !out.is_extended(), "{len}: {repaid} of {lent}");
        assert_eq!(repaid, lent, "{len}");
    }
}
