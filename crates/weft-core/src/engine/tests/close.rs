//! Closing: quiet and BYE.

use super::*;

fn close(net: &mut Net, at: usize) {
    for t in net.nodes[at].engine.close() {
        net.carry(at, t.peer, t.header.as_slice(), Body::Bytes(vec![]));
    }
}

#[test]
fn bye__ends_the_session_and_what_waits_for_it() {
    for kind in every_kind() {
        let mut net = Net::open(kind);
        let recv = net.recv(1, Some(0), 1, 10);
        let wild = net.recv(1, None, 1, 10);
        net.send(0, 1, 2, b"last");
        net.run_until(|net| net.nodes[0].engine.quiet());
        close(&mut net, 0);
        net.run(10);
        let failure = PeerFailure::Closed;
        assert_eq!(net.nodes[1].failed, [(PeerId(0), failure)]);
        assert_eq!(net.nodes[1].error(recv), OpError::Peer { peer: PeerId(0), failure });
        assert!(!net.nodes[1].done.contains_key(&wild));
        let last = net.recv(1, Some(0), 2, 4);
        assert_eq!(net.nodes[1].bytes(last), b"last");
        assert!(net.nodes[1].engine.quiet());
    }
}

#[test]
fn peer_failed__a_peer_that_has_learnt_of_the_end_closes_by_ending() {
    for (told, failure) in [(false, PeerFailure::Gone), (true, PeerFailure::Closed)] {
        let mut net = Net::open(every_kind()[0].clone());
        if told {
            // Its own BYE does not come: for the other side there is no session any more.
            drop(net.nodes[0].engine.close());
        }
        let peer = net.peer(0, 1);
        net.nodes[0].engine.peer_mut(peer).handle_failure(PeerFailure::Gone);
        net.run(10);
        assert_eq!(net.nodes[0].failed, [(peer, failure)]);
    }
}

#[test]
fn quiet__means_that_closing_loses_nothing() {
    for (caps, config) in every_kind() {
        for seed in 0..20 {
            let mut rng = Rng(seed);
            let config = Config { eager_credit: 64 << 10, ..config.clone() };
            let mut net = Net::rough((caps, config), (seed, 10));
            // Injected: for their sender they are done, whether they arrive or not.
            let n = 40;
            let lens: Vec<_> = (0..n).map(|_| rng.below(9000)).collect();
            for (i, &len) in (0..).zip(&lens) {
                let inject = |a| SendArgs { inject: true, ..a };
                net.send_with(0, 1, i, &pattern(i, len), inject);
            }
            net.run(rng.below(5));
            let recvs: Vec<_> = (0..n).map(|i| net.recv(1, None, i, lens[i as usize])).collect();
            net.run_until(|net| net.nodes[0].engine.quiet());
            close(&mut net, 0);
            net.nodes[0] = Node::new(Config::default(), 9);
            net.script = Box::new(|_| vec![]);
            net.run(2000);
            for (i, op) in recvs.into_iter().enumerate() {
                net.nodes[1].ok(op);
                assert!(net.nodes[1].bytes(op) == pattern(i as u64, lens[i]));
            }
        }
    }
}

#[test]
fn quiet__a_long_message_to_itself_that_nobody_receives_is_not_waited_for() {
    let kind = every_kind()[0].clone();
    for received in [false, true] {
        let mut net = Net::pair(kind.clone());
        let send = net.send(0, 0, 1, &[7; 300_000]);
        net.run(50);
        assert!(!net.nodes[0].done.contains_key(&send), "a long message waits for its receive");
        let elsewhere = net.send(0, 1, 1, &[7; 300_000]);
        net.run(50);
        // Closing takes both back: their memory is the caller's again.
        net.nodes[0].engine.ops_mut().take_back(send);
        assert!(net.nodes[0].engine.quiet());
        net.nodes[0].engine.ops_mut().take_back(elsewhere);
        assert!(!net.nodes[0].engine.quiet(), "the other endpoint may receive its message");
        if received {
            net.recv(1, None, 1, 300_000);
            net.run(1000);
            assert!(net.nodes[0].engine.quiet());
        }
    }
}
