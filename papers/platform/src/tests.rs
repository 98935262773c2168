//! The model as a whole.
#![allow(non_snake_case)]

use super::choice::Choice;
use super::claims::claims;
use super::compare::{summary, Comparison, Lab};
use super::costs::{ADDRESS, BUFFERS_TOGETHER, HEADER};
use super::hardware::{Hardware, MICROSECOND};
use super::measure::Setup;
use super::reference::Parameter;
use weft_core::group::tree::Tree;

fn errors(rows: &[Comparison], calibrated: bool) -> impl Iterator<Item = f64> + '_ {
    rows.iter().filter(move |row| row.number.calibrated == calibrated).map(Comparison::error)
}

/// The figures of the results page, as bounds: a change that makes the model worse fails.
#[test]
fn model__errors_and_orderings_are_those_reported() {
    let lab = Lab::new(1);
    let rows = lab.rows("all");
    assert_eq!(rows.len(), 108);
    let predicted = summary(errors(&rows, false));
    assert_eq!(predicted.count, 69);
    assert!(predicted.median <= 0.07, "{predicted:?}");
    assert!(predicted.within_quarter >= 0.94, "{predicted:?}");
    let calibrated = summary(errors(&rows, true));
    assert!(calibrated.median <= 0.02, "{calibrated:?}");
    let claims = claims(&lab);
    assert_eq!(claims.len(), 78);
    let broken = claims.iter().filter(|claim| !claim.kept);
    let broken: Vec<_> = broken.map(|claim| (claim.platform, claim.text.as_str())).collect();
    assert_eq!(broken, [("p3", "multicast latency, l-sdma-hmc: binomial below binary")]);
}

#[test]
fn model__same_seed_same_bits_other_seed_other_places() {
    let bits = |seed| {
        let setup = Setup::new(&Hardware::ppro(), Choice::SDMA, seed);
        let logp = setup.logp(16);
        [
            logp.l,
            logp.g,
            logp.end_to_end,
            setup.fetch_add(),
            setup.throughput(16 << 10, true),
            setup.multicast_latency(16),
            setup.multicast_throughput(8 << 10),
        ]
        .map(f64::to_bits)
    };
    assert_eq!(bits(7), bits(7));
    assert_ne!(bits(7), bits(8));
}

#[test]
fn stream__everything_lost_is_sent_again_in_order() {
    for hw in Hardware::all() {
        for choice in [Choice::NIRX, Choice::HRX] {
            let setup = Setup::new(&hw, choice, 3);
            let (good, counts) = setup.lossy(1024, 400, 20_000);
            assert!(good, "{choice} on {}: {counts:?}", hw.name);
            assert!(counts.lost > 0 && counts.resent > 0, "{choice} on {}: {counts:?}", hw.name);
        }
    }
}

#[test]
fn stream__without_loss_nothing_is_sent_twice() {
    for hw in Hardware::all() {
        for choice in [Choice::SDMA, Choice::PIO, Choice::RCPY, Choice::NIRX, Choice::HRX] {
            let (good, counts) = Setup::new(&hw, choice, 3).lossy(16, 300, 0);
            assert!(good, "{choice} on {}", hw.name);
            assert_eq!((counts.lost, counts.resent), (0, 0), "{choice} on {}", hw.name);
        }
    }
}

/// Section 5.1.3: credits for 64 nodes make small windows, shared buffers large ones.
#[test]
fn stream__credits_need_more_acknowledgements_than_shared_buffers() {
    let acks = |hw: &Hardware, choice| Setup::new(hw, choice, 1).lossy(16, 320, 0).1.acks;
    let (ppro, p3) = (Hardware::ppro(), Hardware::p3());
    // Every second, fourth and single packet; the run ends before the last acknowledgements.
    assert!((155..=160).contains(&acks(&ppro, Choice::SDMA)));
    assert!((75..=80).contains(&acks(&p3, Choice::SDMA)));
    assert!((310..=320).contains(&acks(&ppro, Choice::SDMA.with_mtu(4096))));
    assert!(acks(&ppro, Choice::HRX) <= 20 && acks(&ppro, Choice::NIRX) <= 20);
}

/// Section 4.1: a completion says that the user's data may change. It does not wait for the
/// acknowledgement; only the buffer does.
#[test]
fn stream__data_is_reported_when_fetched_and_buffers_together() {
    let bus = |count| {
        let (good, counts) = Setup::new(&Hardware::p3(), Choice::NIRX, 1).lossy(16, count, 0);
        assert!(good);
        counts.bus
    };
    // Header, descriptor, fetch, its report, delivery; the two runs begin and end alike.
    let more = 512;
    let wanted = 5 * more + more / u64::from(BUFFERS_TOGETHER);
    let found = bus(2 * more) - bus(more);
    assert!(found.abs_diff(wanted) <= 16, "{found}, not about {wanted}");
}

/// The host writes header and address of l-sdma and waits for the bus; it does not wait for the
/// descriptor.
#[test]
fn logp__a_descriptor_is_posted() {
    let setup = Setup::new(&Hardware::p3(), Choice::SDMA, 1);
    let mut slow = setup.clone();
    slow.hw.bus_clock *= 2;
    let bytes = HEADER + ADDRESS;
    let one = setup.hw.bus_time(bytes, setup.hw.pio_clocks) as f64 / MICROSECOND as f64;
    assert!((slow.logp(16).os - setup.logp(16).os - one).abs() < 1e-9);
}

/// Every tree and both forwarders deliver everything in order (the program checks that).
#[test]
fn multicast__every_tree_and_forwarder_ends() {
    for &tree in Tree::ALL {
        for choice in [Choice::SDMA, Choice::PIO, Choice::HMC, Choice::NIRX, Choice::HRX] {
            let setup = Setup::new(&Hardware::p3(), choice.with_tree(tree), 1);
            let rate = setup.multicast_throughput(2048);
            assert!(rate > 1.0 && rate.is_finite(), "{choice} {tree}: {rate}");
        }
    }
}

#[test]
fn logp__parts_add_up() {
    let lab = Lab::new(5);
    let of = |parameter| lab.logp("p3", Choice::SDMA, parameter);
    let sum = of(Parameter::SendOverhead) + of(Parameter::Latency) + of(Parameter::ReceiveOverhead);
    assert!((sum - of(Parameter::EndToEnd)).abs() < 1e-9);
}
