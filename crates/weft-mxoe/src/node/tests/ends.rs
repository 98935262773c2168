//! Peers that end, fall silent or are opened anew.

use super::*;

#[test]
fn fail__a_peer_that_is_silent_or_opened_anew() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    net.faults = 100;
    send(&mut net, 0, peer, 0, b"lost", 0).unwrap();
    assert_eq!(net.event(0), Event::Failed(peer, Failure::Silent));
    net.faults = 0;
    let peer = net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    // Another endpoint in its place does not know the session.
    let settings = net.nodes[1].settings;
    net.nodes[1] = Node::new(settings, 3, KEY, 0x33);
    send(&mut net, 0, peer, 0, b"late", 0).unwrap();
    assert_eq!(net.event(0), Event::Failed(peer, Failure::Closed));
    let peer = net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    send(&mut net, 0, peer, 5, b"new", 0).unwrap();
    let got = net.event(1);
    assert!(matches!(&got, Event::Received { match_bits: 5, .. }), "{got:?}");
}

#[test]
fn fail__a_peer_that_dies_while_a_message_is_pulled_or_waits() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 1_000_000), 9);
    announce(&mut net, peer, 2, message(2, 10), 10);
    let ((first, _), (second, _)) = (offer(&mut net), offer(&mut net));
    net.now += 20_000;
    net.nodes[1].handle_timeout(net.now);
    net.round();
    assert!(net.nodes[0].peers[0].next_timeout(&net.nodes[0].settings) > Some(1_000_000));
    net.nodes[1].pull(net.now, first, u32::MAX, 5);
    // The receiver dies while the sender, whose announcements have arrived, waits for it.
    net.faults = 100;
    assert_eq!(net.event(0), Event::Failed(peer, Failure::Silent));
    // The sender answers no more.
    assert_eq!(net.event(1), Event::NotPulled { peer: first.peer, context: 5 });
    assert_eq!(net.event(1), Event::Failed(first.peer, Failure::Silent));
    net.nodes[1].pull(net.now, second, u32::MAX, 6);
    assert_eq!(net.event(1), Event::NotPulled { peer: first.peer, context: 6 });
    assert!(net.nodes[0].windows.announcement(0).is_none() && net.nodes[1].pulls.is_quiet());
}

#[test]
fn fail__a_sender_that_was_opened_anew_has_no_window() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 1_000_000), 9);
    let (first, _) = offer(&mut net);
    let settings = net.nodes[0].settings;
    net.nodes[0] = Node::new(settings, 1, 0, 0x44);
    net.nodes[1].pull(net.now, first, u32::MAX, 5);
    assert_eq!(net.event(1), Event::NotPulled { peer: first.peer, context: 5 });
}

#[test]
fn probe__a_silent_peer_that_lives_keeps_its_messages() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    announce(&mut net, peer, 1, message(1, 10), 9);
    let (offer, _) = offer(&mut net);
    for _ in 0..20 {
        // The endpoint asks, and gets answers.
        net.now = net.nodes[0].next_timeout().expect("a time to ask");
        net.nodes.iter_mut().for_each(|node| node.handle_timeout(net.now));
        net.round();
        net.round();
    }
    assert!(net.now > 60_000_000, "{}", net.now);
    assert!(net.nodes.iter().all(|node| node.events.is_empty()));
    // One that connected by itself asks without knowing the key.
    let outgoing = Outgoing { match_bits: 0, data: vec![1], context: 3, is_sync: true };
    net.nodes[1].send(net.now, offer.peer, outgoing).unwrap();
    assert!(matches!(net.event(0), Event::Announced { .. }));
    for _ in 0..20 {
        net.now = net.nodes[1].next_timeout().expect("a time to ask").max(net.now);
        net.nodes.iter_mut().for_each(|node| node.handle_timeout(net.now));
        net.round();
        net.round();
    }
    assert!(net.nodes.iter().all(|node| node.events.is_empty()));
}

#[test]
fn close__peers_learn_of_it_at_once() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    assert!(matches!(net.event(1), Event::Received { .. }));
    announce(&mut net, peer, 2, message(2, 100), 9);
    let (_, _) = offer(&mut net);
    net.nodes[1].close();
    while !matches!(net.event(0), Event::Failed(of, Failure::Closed) if of == peer) {}
    assert_eq!(net.now, 0);
    let late = send(&mut net, 0, peer, 3, b"late", 0);
    assert_eq!(late, Err(NotSent::Failed(Failure::Closed)));
}

#[test]
fn fail__late_frames_of_an_endpoint_that_was_opened_anew_bring_nothing() {
    let mut net = Net::new(Dialect::Native, 1500, 0, 1);
    let settings = net.nodes[0].settings;
    let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
    let mut late = frames_of(&mut net, 0);
    net.nodes[1].handle(0, A, &late[0]);
    assert_eq!(net.event(0), Event::Connected(peer));
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    late.extend(frames_of(&mut net, 0));
    net.nodes[1].handle(0, A, &late[1]);
    assert!(matches!(net.event(1), Event::Received { match_bits: 1, .. }));
    net.nodes[0] = Node::new(settings, 1, 0, 0x44);
    let peer = net.nodes[0].connect(0, B, 3, KEY).unwrap();
    assert_eq!(net.event(0), Event::Connected(peer));
    assert_eq!(net.event(1), Event::Failed(PeerIndex(0), Failure::Closed));
    // The request and the message of the session before come once more.
    late.iter().for_each(|frame| net.nodes[1].handle(0, A, frame));
    assert_eq!(net.nodes[1].poll_event(), None);
    assert_eq!(net.nodes[1].counters().dropped, 2);
    send(&mut net, 0, peer, 2, b"two", 0).unwrap();
    assert!(matches!(net.event(1), Event::Received { match_bits: 2, .. }));
}

#[test]
fn disconnect__the_same_endpoints_connect_anew() {
    let (mut net, peer) = Net::connected(Dialect::Native, 1500, 0, 1);
    send(&mut net, 0, peer, 1, b"one", 0).unwrap();
    let Event::Received { peer: back, .. } = net.event(1) else { panic!("no message") };
    for bits in 2..5 {
        send(&mut net, 1, back, bits, b"answer", 0).unwrap();
        while !matches!(net.event(0), Event::Received { match_bits, .. } if match_bits == bits) {}
    }
    // One side forgets the connection, and asks for another.
    net.nodes[0].disconnect(net.now, peer);
    net.nodes[0].connect(net.now, B, 3, KEY).unwrap();
    while net.event(0) != Event::Connected(peer) {}
    send(&mut net, 1, back, 7, b"again", 0).unwrap();
    while !matches!(net.event(0), Event::Received { match_bits: 7, .. }) {}
    send(&mut net, 0, peer, 8, b"forth", 0).unwrap();
    while !matches!(net.event(1), Event::Received { match_bits: 8, .. }) {}
    // The other side does not know that, and asks by itself.
    net.nodes[0].disconnect(net.now, peer);
    net.nodes[1].connect(net.now, A, 1, 0).unwrap();
    while net.event(1) != Event::Connected(back) {}
    send(&mut net, 1, back, 9, b"once more", 0).unwrap();
    while !matches!(net.event(0), Event::Received { match_bits: 9, .. }) {}
    send(&mut net, 0, peer, 10, b"forth", 0).unwrap();
    while !matches!(net.event(1), Event::Received { match_bits: 10, .. }) {}
}
