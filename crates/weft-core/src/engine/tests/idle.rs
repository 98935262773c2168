//! The memory of an idle peer.

use super::*;
use crate::peer::Peer;

/// Bytes an idle peer may take, its share of tables included.
const IDLE_MAX: usize = 2048;

fn idle_bytes(p: &Peer) -> usize {
    let queues = p.queue.ctrl.capacity() * size_of_val_of(&p.queue.ctrl)
        + p.queue.msgs.capacity() * size_of_val_of(&p.queue.msgs)
        + p.queue.data.capacity() * size_of_val_of(&p.queue.data)
        + p.queue.stalled.capacity() * size_of_val_of(&p.queue.stalled);
    let windows =
        p.conn.windows.as_ref().map_or(0, |w| core::mem::size_of_val(&**w) + w.send.heap_bytes());
    core::mem::size_of::<Peer>() + queues + windows
}

fn size_of_val_of<T>(_: &VecDeque<T>) -> usize {
    core::mem::size_of::<T>()
}

#[test]
fn idle__peer_costs_at_most_2_kib_after_a_burst_of_traffic() {
    for (caps, config) in every_kind() {
        let mut net = Net::pair((caps, config));
        let sends: Vec<_> = (0..500).map(|i| (0, net.send(0, 1, i, &[0; 5000]))).collect();
        let recvs: Vec<_> = (0..500).map(|i| (1, net.recv(1, Some(0), i, 5000))).collect();
        net.wait(&sends);
        net.wait(&recvs);
        net.run(3000);
        for n in &net.nodes {
            let bytes = idle_bytes(n.engine.kept_of(PeerId(0)));
            std::println!("an idle peer over {:?}: {bytes} bytes", caps.reliable);
            assert!(bytes <= IDLE_MAX, "{bytes}");
            assert_eq!(n.engine.next_timeout(), None, "and no timer");
        }
        // The session still works.
        let recv = net.recv(1, None, 1, 10);
        net.send(0, 1, 1, b"again");
        net.wait(&[(1, recv)]);
    }
}

#[test]
fn thousand__peers_each_exchange_and_rest() {
    let n = 1001;
    let mut net = Net::new(n, network(), Config::default());
    let mut ops = Vec::new();
    for i in 1..n {
        ops.push((0, net.recv(0, Some(i), i as u64, 8)));
        ops.push((i, net.recv(i, None, 7, 2000)));
        net.send(i, 0, i as u64, &(i as u64).to_le_bytes());
        net.send(0, i, 7, &pattern(i as u64, 2000));
    }
    net.wait(&ops);
    for i in 1..n {
        assert_eq!(net.nodes[0].bytes(ops[2 * i - 2].1), (i as u64).to_le_bytes());
    }
    net.run(3000);
    assert_eq!(net.nodes[0].engine.peers().count(), n - 1);
    assert!(net.nodes[0].engine.quiet());
    assert_eq!(net.nodes[0].engine.next_timeout(), None);
    let total: usize =
        (0..n - 1).map(|i| idle_bytes(net.nodes[0].engine.kept_of(PeerId(i as u32)))).sum();
    assert!(total <= (n - 1) * IDLE_MAX, "{total}");
}

#[test]
fn peers__beyond_the_table_are_refused_and_counted() {
    let config = Config { peers_max: 3, ..Config::default() };
    let mut net = Net::new(6, memory(), config);
    for i in 1..6 {
        let to = net.peer(i, 0);
        net.nodes[i].engine.peer_mut(to).open(net.now);
    }
    net.run(10);
    assert_eq!(net.nodes[0].engine.peers().count(), 3);
    assert!(net.nodes[0].engine.stats().peers_refused > 0);
}
