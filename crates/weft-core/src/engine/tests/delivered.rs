//! Messages that are complete only when the peer has them.

use super::eager::sizes;
use super::*;

fn delivered(a: SendArgs) -> SendArgs {
    SendArgs { delivered: true, ..a }
}

/// Returns true if a message with this tag has arrived whole at node 1.
fn is_there(net: &Net, tag: u64) -> bool {
    let node = &net.nodes[1];
    let whole = node.stored.values().any(|body| matches!(body, Body::Bytes(b) if !b.is_empty()));
    whole && node.engine.matching().probe(None, tag, 0).is_some()
}

#[test]
fn delivered__every_size_is_there_when_it_completes() {
    for (caps, config) in every_kind() {
        let eager = crate::transfer::select::eager_max(&config, &caps);
        for len in
            sizes(caps.mtu.into(), eager.into()).into_iter().filter(|&len| len <= 2 * eager as u64)
        {
            for early in [false, true] {
                let mut net = Net::open((caps, config.clone()));
                let data = pattern(len, len);
                let recv = early.then(|| net.recv(1, Some(0), 1, len));
                let send = net.send_with(0, 1, 1, &data, delivered);
                net.flush(0);
                assert!(!net.nodes[0].done.contains_key(&send), "{len}: it has only left");
                if len > eager.into() && !early {
                    continue;
                }
                net.run_until(|net| net.nodes[0].done.contains_key(&send));
                let recv = recv.unwrap_or_else(|| net.recv(1, Some(0), 1, len));
                net.flush(1);
                assert!(net.nodes[1].bytes(recv) == data, "{len} bytes");
                assert_eq!(net.nodes[0].ok(send).len, len);
                net.settle(5000);
                assert_eq!(net.nodes[0].engine.stats().violations, 0);
                assert!(net.nodes.iter().all(|n| n.engine.quiet()));
            }
        }
    }
}

#[test]
fn delivered__not_before_what_was_sent_before() {
    let mut net = Net::open((network(), Config::default()));
    let mut lost = false;
    net.script = Box::new(move |f| {
        let first = f.kind() == PacketType::Eager && !lost;
        lost |= first;
        if first {
            vec![]
        } else {
            vec![DELAY]
        }
    });
    net.send(0, 1, 1, b"lost at first");
    let send = net.send_with(0, 1, 2, b"held behind it", delivered);
    net.run_until(|net| net.nodes[0].done.contains_key(&send));
    assert!(is_there(&net, 1) && is_there(&net, 2));
}

#[test]
fn delivered__through_loss() {
    for percent in [1, 5, 20] {
        let mut net = Net::open((network(), Config::default()));
        net.script = rough(percent, percent);
        let sizes = [0, 8, 1400, 3000, 20_000];
        let ops: Vec<_> = (0..200)
            .flat_map(|i| {
                let data = pattern(i, sizes[i as usize % sizes.len()]);
                let recv = net.recv(1, Some(0), i, data.len() as u64);
                [(0, net.send_with(0, 1, i, &data, delivered)), (1, recv)]
            })
            .collect();
        net.wait(&ops);
        net.settle(5000);
    }
}

#[test]
fn delivered__more_than_may_be_unanswered() {
    let mut net = Net::open((memory(), Config::default()));
    let ops: Vec<_> = (0..10_000u64)
        .flat_map(|i| {
            let recv = net.recv(1, Some(0), i, 8);
            [(0, net.send_with(0, 1, i, &i.to_le_bytes(), delivered)), (1, recv)]
        })
        .collect();
    net.wait(&ops);
    net.settle(50);
    assert!(net.nodes.iter().all(|n| n.engine.stats().violations == 0));
}

#[test]
fn delivered__an_active_message_when_it_can_be_handled() {
    for len in [0, 8, 20_000] {
        let mut net = Net::open((memory(), Config::default()));
        let active = |a| SendArgs { active: true, delivered: true, tag: 5, ..a };
        let send = net.send_with(0, 1, 5, &pattern(1, len), active);
        net.flush(0);
        assert!(!net.nodes[0].done.contains_key(&send));
        net.run_until(|net| net.nodes[0].done.contains_key(&send));
        assert_eq!(net.nodes[1].upcalls.len(), 1);
        net.settle(50);
    }
}

#[test]
fn delivered__an_injected_message_is_complete_at_once() {
    let mut net = Net::open((memory(), Config::default()));
    let send = net.send_with(0, 1, 1, b"copy", |a| SendArgs { inject: true, ..delivered(a) });
    net.flush(0);
    assert!(net.nodes[0].done.contains_key(&send));
    net.run(50);
    assert_eq!(net.sent(1, PacketType::Fin), 0);
}

#[test]
fn delivered__fails_with_a_peer_that_does_not_answer() {
    let mut net = Net::open((memory(), Config::default()));
    let send = net.send_with(0, 1, 1, b"never seen", delivered);
    net.flush(0);
    let peer = net.peer(0, 1);
    net.nodes[0].engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
    net.flush(0);
    assert_eq!(net.nodes[0].error(send), OpError::Peer { peer, failure: PeerFailure::Gone });
}
