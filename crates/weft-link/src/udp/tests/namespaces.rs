//! Two hosts: network namespaces joined by a veth pair. Needs root and the `ip` command.

use super::*;
use crate::testing::run;
use crate::udp::sys::testing::enter_namespace;
use crate::Network;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Two namespaces, removed on drop.
struct Hosts([String; 2]);

impl Hosts {
    fn up(test: &str, mtu: u32) -> Option<Hosts> {
        let names = ["a", "b"].map(|side| format!("weft-{}-{test}-{side}", std::process::id()));
        let hosts = Hosts(names);
        match hosts.build(mtu) {
            Ok(()) => Some(hosts),
            Err(why) => {
                skip(&format!("cannot make network namespaces: {why}"));
                None
            }
        }
    }

    fn build(&self, mtu: u32) -> Result<(), String> {
        let [a, b] = &self.0;
        run(&format!("ip netns add {a}"))?;
        run(&format!("ip netns add {b}"))?;
        run(&format!("ip -n {a} link add eth0 type veth peer name eth0 netns {b}"))?;
        for (i, name) in self.0.iter().enumerate() {
            run(&format!("ip -n {name} link set lo up"))?;
            run(&format!("ip -n {name} link set eth0 mtu {mtu} up"))?;
            run(&format!("ip -n {name} addr add 10.91.0.{}/24 dev eth0", i + 1))?;
            // An address like that of a bridge, which both hosts have.
            run(&format!("ip -n {name} addr add 172.31.0.1/16 dev lo"))?;
        }
        // The kernel detects the carrier of a new cable a little later.
        let start = Instant::now();
        for name in &self.0 {
            while !run(&format!("ip -n {name} link show eth0 up"))?.contains("state UP") {
                if start.elapsed() > LONG {
                    return Err(format!("no carrier on eth0 of {name}"));
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Adds a second cable between the hosts.
    fn second_cable(&self) {
        let [a, b] = &self.0;
        run(&format!("ip -n {a} link add eth1 type veth peer name eth1 netns {b}")).unwrap();
        for (i, name) in self.0.iter().enumerate() {
            run(&format!("ip -n {name} link set eth1 mtu 1500 up")).unwrap();
            run(&format!("ip -n {name} addr add 10.92.0.{}/24 dev eth1", i + 1)).unwrap();
        }
        // An address is usable once its cable has a carrier; sending waits for neither.
        let start = Instant::now();
        for name in &self.0 {
            let route = format!("ip -n {name} route get 10.92.0.9");
            while run(&route).is_err() && start.elapsed() < LONG {
                std::thread::yield_now();
            }
        }
    }

    /// Runs each side in a thread inside its namespace, after an exchange of addresses.
    fn run<R: Send>(
        &self,
        config: UdpConfig,
        a_side: impl FnOnce(UdpLink, usize) -> R + Send,
        b_side: impl FnOnce(UdpLink) -> R + Send,
    ) -> (R, R) {
        let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
        let host = config.host;
        let open = move |name: &str, me, host| {
            enter_namespace(name).unwrap();
            let config = UdpConfig { host, ..config.clone() };
            let link = UdpLink::new(config, security(me, Mode::Auth, 1)).unwrap();
            let mut address = Address { endpoint: me, host, ..Default::default() };
            link.advertise(&mut address);
            (link, address)
        };
        let open = &open;
        std::thread::scope(|scope| {
            let a = scope.spawn(move || {
                let (mut link, mine) = open(&self.0[0], A, host);
                to_b.send(mine).unwrap();
                let caps = link.connect(&info(TO_A, B, from_b.recv().unwrap())).unwrap();
                a_side(link, caps.mtu as usize)
            });
            let b = scope.spawn(move || {
                let (mut link, mine) = open(&self.0[1], B, host + 1);
                to_a.send(mine).unwrap();
                link.connect(&info(TO_B, A, from_a.recv().unwrap())).unwrap();
                b_side(link)
            });
            (a.join().unwrap(), b.join().unwrap())
        })
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}

fn two_hosts() -> UdpConfig {
    UdpConfig { host: 11, v6: None, ..Default::default() }
}

#[test]
fn connect__two_hosts_at_mtu_1500() {
    let Some(hosts) = Hosts::up("mtu", 1500) else { return };
    let total = 400;
    let (sent, mut got) = hosts.run(
        two_hosts(),
        |mut a, mtu| {
            assert_eq!(mtu, 1472 - TRAILER);
            assert_eq!(a.peer_addr(P).unwrap().ip(), "10.91.0.2".parse::<IpAddr>().unwrap());
            let payload = bytes(mtu - 32, 3);
            let headers: Vec<Vec<u8>> = (0..total).map(data).collect();
            let frames: Vec<Frame> =
                headers.iter().map(|header| Frame { peer: P, header, payload: &payload }).collect();
            let mut done = 0;
            while done < frames.len() {
                done += a.send(&frames[done..]);
            }
            vec![(Vec::new(), payload)]
        },
        |mut b| receive(&mut b, total as usize),
    );
    assert_eq!(got.len(), total as usize);
    // Packets of a sender that moves between cores may overtake each other.
    let mut want: Vec<_> = (0..total).map(|i| (data(i), sent[0].1.clone())).collect();
    want.sort();
    got.sort();
    assert!(got == want);
}

#[test]
fn send__a_path_that_shrinks_is_noticed_and_old_packets_still_arrive() {
    let Some(hosts) = Hosts::up("shrink", 9000) else { return };
    let narrow = format!("ip -n {} link set eth0 mtu 1500", hosts.0[0]);
    hosts.run(
        two_hosts(),
        |mut a, mtu| {
            assert_eq!(mtu, 8972 - TRAILER);
            run(&narrow).unwrap();
            let payload = bytes(mtu - 32, 3);
            let headers = [data(0), data(1), data(2)];
            let frames =
                headers.each_ref().map(|header| Frame { peer: P, header, payload: &payload });
            assert_eq!(a.send(&frames), 3);
            assert_eq!(a.poll_event(), Some(LinkEvent::Mtu(P, (1472 - TRAILER) as u32)));
            assert_eq!(count(&a, "send_fragmented"), 3);
            assert!(a.gso, "offload works, only the packets were too large");
        },
        |mut b| assert_eq!(receive(&mut b, 3).len(), 3),
    );
}

#[test]
fn send__a_path_that_grows_again_is_noticed() {
    let Some(hosts) = Hosts::up("grow", 9000) else { return };
    let set = |mtu: u32| run(&format!("ip -n {} link set eth0 mtu {mtu}", hosts.0[0])).unwrap();
    hosts.run(
        two_hosts(),
        |mut a, mtu| {
            let (header, payload) = (data(0), bytes(mtu - 32, 3));
            set(1500);
            assert_eq!(a.send(&[Frame { peer: P, header: &header, payload: &payload }]), 1);
            assert_eq!(a.poll_event(), Some(LinkEvent::Mtu(P, (1472 - TRAILER) as u32)));
            set(9000);
            let small = Frame { peer: P, header: &header, payload: &payload[..64] };
            let found = (0..5000).find_map(|_| {
                assert_eq!(a.send(&[small]), 1);
                a.poll_event()
            });
            assert_eq!(found, Some(LinkEvent::Mtu(P, mtu as u32)));
        },
        |_| (),
    );
}

#[test]
fn send__a_full_link_takes_a_prefix() {
    let Some(hosts) = Hosts::up("full", 1500) else { return };
    let slow = format!(
        "tc -n {} qdisc add dev eth0 root tbf rate 1mbit burst 5kb limit 900mb",
        hosts.0[0]
    );
    if let Err(why) = run(&slow) {
        return skip(&format!("cannot slow the link: {why}"));
    }
    let config = UdpConfig { buffer: 64 << 10, ..two_hosts() };
    hosts.run(
        config,
        |mut a, mtu| {
            let (header, payload) = (data(0), bytes(mtu - 32, 3));
            let frames = [Frame { peer: P, header: &header, payload: &payload }; 40];
            let mut accepted = 0;
            // The size of 100 trains far exceeds the buffer.
            let full = (0..100).find_map(|_| {
                let n = a.send(&frames);
                accepted += n;
                (n < frames.len()).then_some(n)
            });
            assert!(full.is_some(), "{accepted} accepted");
            assert!(count(&a, "send_full") == 1 && count(&a, "sent") == accepted as u64);
        },
        |_| (),
    );
}

/// Answers each question to the address from which it came, and keeps all other packets.
struct Answering {
    questions: usize,
    frames: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Sink for Answering {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        match Kind::of(header) {
            Kind::Question => self.questions += 1,
            _ => self.frames.push((header.to_vec(), payload.to_vec())),
        }
    }
}

fn answer() -> Vec<u8> {
    let Ok((common, packet, _)) = weft_core::wire::parse(&hello(B, B)) else { panic!("no HELLO") };
    let flags = weft_core::wire::flags::REPLY;
    emit(&Common { flags, ..common }, &packet).as_slice().to_vec()
}

#[test]
fn send_striped__over_two_cables_once_both_are_proven() {
    let Some(hosts) = Hosts::up("stripes", 1500) else { return };
    hosts.second_cable();
    let total = 40;
    let payload = bytes(1424 * total, 3);
    let (_, got) = hosts.run(
        two_hosts(),
        |mut a, mtu| {
            assert_eq!(mtu, 1472 - TRAILER);
            let mut stripes = Vec::new();
            let (mut asked, mut keep) = (None::<Instant>, Keep::default());
            poll(&mut a, &mut keep, |a| {
                if asked.is_none_or(|at| at.elapsed() > Duration::from_millis(100)) {
                    asked = Some(Instant::now());
                    let question = hello(A, B);
                    a.send(&[Frame { peer: P, header: &question, payload: b"address" }]);
                }
                while let Some(event) = a.poll_event() {
                    if let LinkEvent::Stripes(_, n) = event {
                        stripes.push(n);
                    }
                }
                !stripes.is_empty()
            });
            assert_eq!(stripes, [2]);
            let (first, second) = payload.split_at(1424 * total / 2);
            let half = total / 2;
            for (stripe, payload) in [(0, first), (1, second)] {
                let header = data(if stripe == 0 { 0 } else { first.len() as u64 });
                let run = DataRun { peer: P, stripe, header: &header, payload, packets: half };
                assert_eq!(a.send_run(&run), Some(half));
            }
            assert_eq!((count(&a, "sent_striped"), count(&a, "path_changes")), (half as u64, 0));
            // A doubt about the path removes all proofs.
            a.doubt(P);
            assert_eq!(a.poll_event(), Some(LinkEvent::Stripes(P, 1)));
            Vec::new()
        },
        |mut b| {
            let mut sink = Answering { questions: 0, frames: Vec::new() };
            let (start, mut answered) = (Instant::now(), 0);
            while sink.frames.len() < total {
                b.recv(64, &mut sink);
                while answered < sink.questions {
                    answered += 1;
                    assert_eq!(b.send(&[Frame { peer: P, header: &answer(), payload: b"" }]), 1);
                }
                assert!(start.elapsed() < LONG, "{} of {total} arrived", sink.frames.len());
            }
            // Data came over the second cable, too: bulk data may be sent back over it.
            assert_eq!(b.poll_event(), Some(LinkEvent::Stripes(P, 2)));
            sink.frames
        },
    );
    let mut all: Vec<_> = got.iter().map(|(header, part)| (header.clone(), part.clone())).collect();
    all.sort_by_key(|(header, _)| {
        let Ok((_, Packet::Data(d), _)) = weft_core::wire::parse(header) else { return 0 };
        d.offset
    });
    let arrived: Vec<u8> = all.into_iter().flat_map(|(_, part)| part).collect();
    assert_eq!(arrived, payload);
}

/// A dormant interface (RFC 2863) has a carrier, and packets pass: raw links take it, and so does
/// UDP.
#[test]
fn interfaces__udp_takes_those_that_raw_links_take() {
    let Some(hosts) = Hosts::up("dormant", 1500) else { return };
    let name = &hosts.0[0];
    run(&format!("ip -n {name} link set eth0 mode dormant")).unwrap();
    run(&format!("ip -n {name} link set eth0 down")).unwrap();
    run(&format!("ip -n {name} link set eth0 up")).unwrap();
    let start = Instant::now();
    while !run(&format!("ip -n {name} link show eth0")).unwrap().contains("state DORMANT") {
        assert!(start.elapsed() < LONG, "eth0 of {name} is not dormant");
        std::thread::yield_now();
    }
    let lists = std::thread::scope(|scope| {
        let look = || {
            enter_namespace(name).unwrap();
            (crate::ip::sys::interfaces().unwrap(), crate::ether::Interfaces::list().unwrap())
        };
        scope.spawn(look).join().unwrap()
    });
    let (udp, raw) = lists;
    assert!(udp.iter().any(|i| i.ip.to_string() == "10.91.0.1"), "{udp:?}");
    assert!(raw.usable(None).unwrap().iter().any(|i| i.name == "eth0"), "{raw:?}");
}
