//! Tests of the connected socket for the peer with the most traffic.

use super::*;

const HUB: EndpointId = EndpointId(0x40);
/// Number of round trips after which a peer has the socket.
const ROUNDS: usize = 100;

/// Makes a link on all addresses; returns it and its address on this host.
fn everywhere(me: EndpointId) -> (UdpLink, Address) {
    let v4 = Some(Ipv4Addr::UNSPECIFIED);
    let config = UdpConfig { v4, v6: None, host: 1, ..Default::default() };
    let link = UdpLink::new(config, security(me, Mode::Auth, 1)).unwrap();
    let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), link.local_addrs()[0].port());
    let address = Address { endpoint: me, host: 1, udp: vec![at], ..Default::default() };
    (link, address)
}

/// Returns the `n`th peer's number at the hub, and the sessions to it and to the hub.
fn numbers(n: u32) -> (PeerId, u32, u32) {
    (PeerId(n), n << 20 | n, n << 20 | n)
}

/// Makes a hub and its peers.
fn star(peers: u32) -> (UdpLink, Vec<UdpLink>) {
    let (mut hub, hub_at) = everywhere(HUB);
    let connected = |n: u32| {
        let ((peer, there, here), endpoint) = (numbers(n), EndpointId(u64::from(n)));
        let (mut link, at) = everywhere(endpoint);
        hub.connect(&PeerInfo { peer, session: here, endpoint, address: at }).unwrap();
        link.connect(&info(there, HUB, hub_at.clone())).unwrap();
        link
    };
    let links = (1..=peers).map(connected).collect();
    (hub, links)
}

fn send(from: &mut UdpLink, peer: PeerId, session: u32, payload: &[u8]) {
    let header = eager(session);
    assert_eq!(from.send(&[Frame { peer, header: &header, payload }]), 1);
}

/// Does round trips with the first peer.
fn exchange_with(hub: &mut UdpLink, link: &mut UdpLink, rounds: usize) {
    exchange(hub, std::slice::from_mut(link), 1, rounds);
}

/// Does round trips with the `n`th peer, each with another payload.
fn exchange(hub: &mut UdpLink, peers: &mut [UdpLink], n: u32, rounds: usize) {
    let ((peer, there, here), link) = (numbers(n), &mut peers[n as usize - 1]);
    for round in 0..rounds {
        let payload = [n as u8, round as u8];
        send(hub, peer, there, &payload);
        assert_eq!(receive(link, 1)[0].1, payload);
        send(link, P, here, &payload);
        assert_eq!(receive(hub, 1)[0].1, payload);
    }
}

/// True if the peer has the hub's connected socket.
fn has_it(hub: &UdpLink, n: u32) -> bool {
    let peer = PeerId(n);
    hub.connected.to(peer, &hub.peer(peer).unwrap().to).is_some()
}

#[test]
fn connected__the_peer_of_a_row_gets_the_socket_and_another_takes_it_over() {
    let (mut hub, mut peers) = star(2);
    exchange(&mut hub, &mut peers, 1, ROUNDS);
    assert!(has_it(&hub, 1) && count(&hub, "sent_connected") > 0);
    assert!(count(&peers[0], "sent_connected") > 0);
    // Packets of other peers arrive in the meantime.
    exchange(&mut hub, &mut peers, 2, 5);
    assert!(has_it(&hub, 1));
    let (socket, mut fds) = (hub.connected.socket().unwrap().raw(), Vec::new());
    exchange(&mut hub, &mut peers, 2, 2 * ROUNDS);
    assert!(has_it(&hub, 2));
    exchange(&mut hub, &mut peers, 1, 2 * ROUNDS);
    assert!(has_it(&hub, 1));
    hub.wait_fds(&mut fds);
    assert!(fds.iter().any(|f| f.fd == socket), "sleepers know it by this number");
}

#[test]
fn connected__an_endpoint_that_sends_to_all_alike_has_none() {
    let (mut hub, mut peers) = star(3);
    exchange(&mut hub, &mut peers, 1, ROUNDS);
    assert!(has_it(&hub, 1));
    for _ in 0..ROUNDS {
        (1..=3).for_each(|n| exchange(&mut hub, &mut peers, n, 1));
    }
    assert!(!hub.connected.is_in_use());
}

#[test]
fn connected__what_came_before_it_was_parked_is_taken() {
    let (mut hub, mut peers) = star(2);
    exchange(&mut hub, &mut peers, 1, ROUNDS);
    let (_, _, here) = numbers(1);
    send(&mut peers[0], P, here, b"late");
    hub.connected.park();
    assert_eq!(receive(&mut hub, 1)[0].1, b"late");
    exchange(&mut hub, &mut peers, 1, 5);
    exchange(&mut hub, &mut peers, 2, 5);
}

#[test]
fn connected__a_peer_that_died_disturbs_no_other() {
    let (mut hub, mut peers) = star(2);
    exchange(&mut hub, &mut peers, 1, ROUNDS);
    assert!(has_it(&hub, 1));
    let (peer, there, _) = numbers(1);
    drop(peers.remove(0));
    // The first packet is refused at the other end; the socket reports the error with a later one.
    for _ in 0..5 {
        send(&mut hub, peer, there, b"anybody there?");
        hub.recv(1, &mut Keep::default());
    }
    peers.insert(0, everywhere(A).0);
    exchange(&mut hub, &mut peers, 2, 5);
    hub.disconnect(peer);
    assert!(!hub.connected.is_in_use());
}

#[test]
fn connected__trains_go_by_it_and_nothing_goes_by_it_to_another_address() {
    let (mut hub, mut peers) = star(1);
    exchange(&mut hub, &mut peers, 1, ROUNDS);
    let ((peer, there, _), header) = (numbers(1), eager(numbers(1).1));
    let payload = bytes(1000, 3);
    let frames: Vec<_> =
        (0..20).map(|_| Frame { peer, header: &header, payload: &payload }).collect();
    let before = count(&hub, "sent_connected");
    assert_eq!(hub.send(&frames), 20);
    assert!(receive(&mut peers[0], 20).iter().all(|(_, got)| *got == payload));
    assert_eq!(count(&hub, "sent_connected"), before + 20);
    hub.peers.get_mut(peer).unwrap().to = SockAddr::new("127.0.0.1:9".parse().unwrap());
    send(&mut hub, peer, there, b"lost");
    assert_eq!(count(&hub, "sent_connected"), before + 20);
}

#[test]
fn connected__packets_stay_in_order_when_it_is_given_and_parked() {
    let (mut hub, mut peers) = star(1);
    let ((peer, there, here), link) = (numbers(1), &mut peers[0]);
    exchange_with(&mut hub, link, 5);
    let mut sent = 0_u32;
    let mut send_some = |link: &mut UdpLink| {
        for _ in 0..5 {
            send(link, P, here, &sent.to_le_bytes());
            sent += 1;
        }
    };
    send_some(link);
    // By its own packets, the hub gives the socket to the peer.
    let mut given = 0;
    while !hub.connected.is_in_use() {
        send(&mut hub, peer, there, b"");
        given += 1;
    }
    send_some(link);
    let mut got: Vec<_> = receive(&mut hub, 7).into_iter().map(|(_, payload)| payload).collect();
    hub.connected.park();
    send_some(link);
    got.extend(receive(&mut hub, 8).into_iter().map(|(_, payload)| payload));
    let want: Vec<_> = (0..15_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    assert_eq!(got, want);
    receive(link, given);
}

#[test]
fn connected__is_not_given_before_all_is_taken_that_came_to_it() {
    let (mut hub, mut peers) = star(1);
    exchange(&mut hub, &mut peers, 1, ROUNDS);
    let ((peer, there, here), link) = (numbers(1), &mut peers[0]);
    send(link, P, here, b"first");
    hub.connected.park();
    send(link, P, here, b"second");
    (0..ROUNDS).for_each(|_| send(&mut hub, peer, there, b""));
    assert!(!hub.connected.is_in_use());
    let got: Vec<_> = receive(&mut hub, 2).into_iter().map(|(_, payload)| payload).collect();
    assert_eq!(got, [b"first".to_vec(), b"second".to_vec()]);
    send(&mut hub, peer, there, b"");
    assert!(has_it(&hub, 1));
}
