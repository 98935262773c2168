//! Bulk data spread over several stripes: reordering between them is no loss, and a dead one is
//! left.

use super::*;
use alloc::rc::Rc;
use core::cell::RefCell;

fn striped(stripes: u8) -> LinkCaps {
    LinkCaps { train: 8, stripes, bulk_min: 8 << 10, ..network() }
}

/// Counts the packets on each stripe, and delays them by `delays`; 0 loses them.
fn counting(delays: [u64; 4]) -> (Script, Rc<RefCell<[u32; 4]>>) {
    let counts = Rc::new(RefCell::new([0; 4]));
    let seen = counts.clone();
    let script = move |f: &Flight| {
        let lane = usize::from(f.lane);
        seen.borrow_mut()[lane] += 1;
        if delays[lane] == 0 {
            vec![]
        } else {
            vec![delays[lane]]
        }
    };
    (Box::new(script), counts)
}

fn pass(net: &mut Net, len: u64) -> Duration {
    let (bytes, start) = (pattern(len, len), net.now);
    let recv = net.recv(1, Some(0), 7, len);
    let send = net.send(0, 1, 7, &bytes);
    net.wait(&[(0, send), (1, recv)]);
    assert_eq!(net.nodes[1].bytes(recv), bytes);
    net.now.since(start)
}

#[test]
fn emit__trains_take_turns_and_overtake_each_other_without_loss() {
    let mut net = Net::open((striped(3), Config::default()));
    let (script, counts) = counting([DELAY, 3 * DELAY, 30 * DELAY, 9 * DELAY]);
    net.script = script;
    for _ in 0..3 {
        pass(&mut net, 1 << 20);
    }
    let [_, first, second, third] = *counts.borrow();
    let near = |a: u32, b: u32| a.abs_diff(b) < 50;
    assert!(near(first, second) && near(second, third) && third > 500, "{counts:?}");
    let stats = net.nodes[0].engine.stats();
    assert_eq!((stats.retransmitted, stats.stripes_lost), (0, 0));
}

#[test]
fn emit__packets_of_a_link_without_trains_take_turns() {
    let caps = LinkCaps { train: 1, mtu: 9000, ..striped(2) };
    let mut net = Net::open((caps, Config::default()));
    let (script, counts) = counting([DELAY, 3 * DELAY, 30 * DELAY, 0]);
    net.script = script;
    pass(&mut net, 4 << 20);
    let [_, first, second, _] = *counts.borrow();
    assert!(first.abs_diff(second) < 20 && second > 200, "{counts:?}");
    assert_eq!(net.nodes[0].engine.stats().retransmitted, 0);
}

#[test]
fn emit__as_many_ways_as_configured() {
    let config = Config { stripes: 1, ..Config::default() };
    let mut net = Net::open((striped(3), config));
    let (script, counts) = counting([DELAY; 4]);
    net.script = script;
    pass(&mut net, 1 << 20);
    assert_eq!(counts.borrow()[2..], [0, 0]);
}

#[test]
fn acknowledged__a_way_that_loses_everything_is_left_and_tried_again_later() {
    let mut net = Net::open((striped(2), Config::default()));
    let (script, counts) = counting([DELAY, DELAY, 0, 0]);
    net.script = script;
    let took = pass(&mut net, 1 << 20);
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert_eq!(net.nodes[0].engine.stats().stripes_lost, 1);
    let lost = counts.borrow()[2];
    assert!((32..600).contains(&lost), "{lost}");
    for _ in 0..3 {
        pass(&mut net, 1 << 20);
    }
    assert_eq!(counts.borrow()[2], lost, "one way is enough for now");
    net.run(2_000);
    let (script, counts) = counting([DELAY; 4]);
    net.script = script;
    pass(&mut net, 1 << 20);
    assert!(counts.borrow()[2] > 200, "{counts:?}");
    assert_eq!(net.nodes[0].engine.stats().stripes_lost, 1);
}

#[test]
fn acknowledged__loss_on_every_way_leaves_none() {
    let mut net = Net::open((striped(2), Config::default()));
    net.script = rough(5, 2);
    for _ in 0..4 {
        pass(&mut net, 1 << 20);
    }
    assert_eq!(net.nodes[0].engine.stats().stripes_lost, 0);
}
