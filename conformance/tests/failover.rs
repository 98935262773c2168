//! Two hosts joined by cables that break while messages flow: all arrive, in order.
#![allow(non_snake_case)]

use std::collections::VecDeque;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::time::{Duration, Instant};
use weft::{Clock, Config, Endpoint, EndpointId, PeerId};
use weft_conformance::hosts::{self, mac, Host};
use weft_conformance::skip;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Address, Frame, Link, PacketConfig, PacketLink, PeerInfo, UdpConfig, UdpLink};
use weft_link::{TcpConfig, TcpLink, XdpConfig, XdpLink};

const TAG: u64 = 5;
const LONG: usize = 1 << 20;
/// Messages in flight at a time.
const WINDOW: usize = 6;
/// Bound of every wait; reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(300);

/// The arguments of the bodies.
struct Side<'a> {
    host: &'a Host,
    endpoint: Endpoint,
    peer: PeerId,
    /// The other side's address.
    address: Address,
}

fn security(key: u8, mode: Mode) -> Security {
    let me = EndpointId(weft_link::random_u64());
    Security { mode, job_key: JobKey::from_bytes(&[key; 32]).unwrap(), me }
}

fn links(names: &str, ring: usize, id: EndpointId) -> Vec<Box<dyn Link>> {
    let security = Security { me: id, ..security(7, Mode::Auth) };
    let open = |name| -> Box<dyn Link> {
        match name {
            "xdp" => Box::new(XdpLink::new(XdpConfig::default(), security.clone()).unwrap()),
            "packet" | "gso" => {
                let config =
                    PacketConfig { ring, trains: name == "gso", ..PacketConfig::default() };
                Box::new(PacketLink::new(config, security.clone()).unwrap())
            }
            "tcp" => Box::new(TcpLink::new(TcpConfig::default(), security.clone()).unwrap()),
            _ => Box::new(UdpLink::new(UdpConfig::default(), security.clone()).unwrap()),
        }
    };
    names.split(',').map(open).collect()
}

fn open<'a>(
    host: &'a Host,
    names: &str,
    ring: usize,
    (to, from): (Sender<Address>, Receiver<Address>),
) -> Side<'a> {
    let id = EndpointId(weft_link::random_u64());
    let (peer_timeout_ms, connect_timeout_ms) = (120_000, 120_000);
    let config = Config { peer_timeout_ms, connect_timeout_ms, ..Config::default() };
    let endpoint = Endpoint::with_links(config, id, Clock::system(), links(names, ring, id));
    to.send(endpoint.address()).unwrap();
    let address = from.recv().unwrap();
    let peer = endpoint.connect(&address).unwrap();
    Side { host, endpoint, peer, address }
}

/// Returns message `i`: every other one is long.
fn message(i: usize) -> Vec<u8> {
    let mut data = vec![i as u8; if i.is_multiple_of(2) { 16 } else { LONG }];
    data[..8].copy_from_slice(&(i as u64).to_le_bytes());
    data
}

impl Side<'_> {
    /// Sends messages; before message `i`, calls `at(i)`. Ends when all have arrived.
    fn send(&self, count: usize, mut at: impl FnMut(usize, &Self)) {
        let endpoint = &self.endpoint;
        let mut window = VecDeque::new();
        for i in 0..count {
            at(i, self);
            window.push_back(endpoint.send(self.peer, TAG, message(i)));
            if window.len() == WINDOW {
                endpoint.block_on(window.pop_front().unwrap()).0.unwrap();
            }
        }
        for one in window {
            endpoint.block_on(one).0.unwrap();
        }
        endpoint.block_on(endpoint.recv(Some(self.peer), TAG, 0, vec![0; 1])).0.unwrap();
        endpoint.close(Duration::from_secs(1));
    }

    fn receive(&self, count: usize) {
        let endpoint = &self.endpoint;
        let mut buffer = vec![0; LONG];
        for i in 0..count {
            let recv = endpoint.recv(Some(self.peer), TAG, 0, buffer);
            let (status, data) = endpoint.block_on(recv);
            let wanted = message(i);
            assert!(data[..status.unwrap().len] == wanted, "message {i} is not as sent");
            buffer = data;
        }
        endpoint.block_on(endpoint.send(self.peer, TAG, vec![1])).0.unwrap();
        endpoint.close(Duration::from_secs(1));
    }

    fn describe(&self) -> String {
        let all = self.endpoint.peer(self.peer).describe();
        let links: Vec<_> = all.split(" over ").skip(1).collect();
        // Names without interfaces and addresses.
        let bare = links.iter().map(|link| match (link.find(" ("), link.find(')')) {
            (Some(from), Some(to)) => format!("{}{}", &link[..from], &link[to + 1..]),
            _ => (*link).to_string(),
        });
        bare.collect::<Vec<_>>().join(" over ")
    }

    /// Makes progress until `done`.
    fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !done(self) {
            assert!(
                Instant::now() < end,
                "not {what}: {}",
                self.endpoint.peer(self.peer).describe()
            );
            self.endpoint.block_on(self.endpoint.sleep(Duration::from_millis(1)));
        }
    }

    fn counter(&self, link: &str, name: &str) -> u64 {
        let all = self.endpoint.counters().links();
        all.iter().find(|(l, n, _)| (*l, *n) == (link, name)).map_or(0, |(_, _, v)| *v)
    }
}

/// Sends messages from one host to the other while `at` breaks cables.
fn flow(cables: usize, names: &str, count: usize, at: impl FnMut(usize, &Side<'_>) + Send) {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let ran = hosts::run(
        cables,
        |host| open(host, names, 1 << 20, (to_b, from_b)).send(count, at),
        |host| open(host, names, 1 << 20, (to_a, from_a)).receive(count),
    );
    if let Err(why) = ran {
        skip(&why);
    }
}

/// Returns the bytes that this thread's host has sent over each of two cables.
fn sent_bytes() -> [u64; 2] {
    // /sys shows the namespace in which it was mounted.
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    ["cable0:", "cable1:"].map(|name| {
        let line = table.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
        line.split_whitespace().nth(8).unwrap().parse().unwrap()
    })
}

#[test]
fn udp__one_message_goes_over_both_cables() {
    over_both_cables("udp", "udp");
}

#[test]
fn gso__one_message_goes_over_both_cables() {
    over_both_cables("packet,gso,udp", "gso");
    over_both_cables("gso", "gso");
}

fn over_both_cables(names: &str, link: &str) {
    const BYTES: usize = 64 << 20;
    let over_both = |carried: &[u64; 2]| carried.iter().all(|&bytes| bytes > BYTES as u64 / 4);
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let data: Vec<u8> =
        (0..BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let ran = hosts::run(
        2,
        |host| {
            let side = open(host, names, 1 << 20, (to_b, from_b));
            let send = |data| side.endpoint.block_on(side.endpoint.send(side.peer, TAG, data));
            // Waits until both paths are proven.
            let end = Instant::now() + LIMIT;
            while side.counter(link, "sent_striped") == 0 {
                assert!(Instant::now() < end, "never over both: {}", side.describe());
                send(vec![0; LONG]).0.unwrap();
            }
            // A path that was doubted or left meanwhile, because ranks got no processor, carries
            // nothing for a second or two.
            let mut all = Vec::new();
            while Instant::now() < end {
                let before = sent_bytes();
                send(data.clone()).0.unwrap();
                let after = sent_bytes();
                all.push([0, 1].map(|i| after[i] - before[i]));
                if all.last().is_some_and(over_both) {
                    break;
                }
            }
            send(vec![1]).0.unwrap();
            side.endpoint.close(Duration::from_secs(1));
            all
        },
        |host| {
            let side = open(host, names, 1 << 20, (to_a, from_a));
            let (mut got, mut whole) = (vec![0; BYTES], 0);
            loop {
                let recv = side.endpoint.recv(Some(side.peer), TAG, 0, got);
                let (status, filled) = side.endpoint.block_on(recv);
                got = filled;
                match status.unwrap().len {
                    BYTES => {
                        assert!(got == data, "message {whole} is not as sent");
                        whole += 1;
                        got.fill(0);
                    }
                    1 => break,
                    _ => {}
                }
            }
            side.endpoint.close(Duration::from_secs(1));
            whole
        },
    );
    match ran {
        Ok((all, whole)) => {
            assert_eq!(all.len(), whole);
            assert!(all.last().is_some_and(over_both), "bytes over each cable: {all:?}");
        }
        Err(why) => skip(&why),
    }
}

/// Puts a switch between each cable and its interface at the second host; it loses nothing yet.
fn switches(host: &Host) {
    for n in 0..2 {
        for words in [
            format!("link set cable{n} address 02:57:00:00:00:8{n}"),
            format!("addr del 10.9.{n}.2/24 dev cable{n}"),
            // Without ARP, the host does not use it itself.
            format!("link add switch{n} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"),
            format!("link set switch{n} arp off up"),
            format!("link set cable{n} master switch{n}"),
            format!("link add port{n} type veth peer name end{n}"),
            format!("link set port{n} master switch{n} up"),
            format!("link set end{n} address {} up", mac(n, 1)),
            format!("addr add 10.9.{n}.2/24 dev end{n}"),
        ] {
            host.ip(&words);
        }
        // A switch forwards only between interfaces that run.
        for name in ["cable", "port", "end"] {
            host.wait_running(&format!("{name}{n}"));
        }
    }
}

/// Makes the switch of a cable, at the other host, lose all DATA packets, whose type is at offset
/// `at` of a frame.
fn lose_data(host: &Host, cable: usize, at: u32) {
    for words in [
        format!("qdisc add dev port{cable} root handle 1: htb direct_qlen 10000"),
        format!("class add dev port{cable} parent 1: classid 1:2 htb rate 1gbit quantum 60000"),
        format!("qdisc add dev port{cable} parent 1:2 pfifo limit 0"),
    ] {
        host.other(&format!("tc {words}"));
    }
    let data = format!("4,48 0 0 {at},21 0 1 8,6 0 0 4294967295,6 0 0 0");
    let filter =
        format!("tc filter add dev port{cable} parent 1: protocol all prio 1 bpf bytecode");
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", host.other_space())).args(filter.split(' '));
    assert!(command.args([&data, "flowid", "1:2"]).status().unwrap().success());
}

/// Tests a path, in use or sharing data with the one in use, that passes questions but no data.
fn loses_data(link: &'static str, at: u32, in_use: bool) {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let count = 120;
    let ran = hosts::run(
        2,
        |host| {
            let side = open(host, link, 1 << 20, (to_b, from_b));
            side.send(count, |i, side| {
                if i == 60 {
                    assert!(side.counter(link, "sent_striped") > 0, "{}", side.describe());
                    let first = side.endpoint.peer(side.peer).describe().contains("cable0");
                    lose_data(host, usize::from(first != in_use), at);
                }
            });
            match in_use {
                true => assert!(side.counter(link, "path_changes") > 0, "{link}"),
                false => assert!(side.endpoint.stats().stripes_lost > 0, "{link}"),
            }
        },
        |host| {
            switches(host);
            open(host, link, 1 << 20, (to_a, from_a)).receive(count);
        },
    );
    if let Err(why) = ran {
        skip(&why);
    }
}

#[test]
fn stripe__passes_questions_but_no_data() {
    for (link, at) in [("gso", 51), ("udp", 43)] {
        loses_data(link, at, false);
    }
}

#[test]
fn path__in_use_passes_questions_but_no_data() {
    for (link, at) in [("gso", 51), ("udp", 43)] {
        loses_data(link, at, true);
    }
}

const BOTH: &str = "packet, data over udp";

#[test]
fn udp__dies_and_comes_back() {
    let mut sent = 0;
    flow(1, "packet,udp", 90, move |i, side| match i {
        20 => {
            side.until("over both", |s| s.describe() == BOTH);
            // To a station that does not exist.
            side.host
                .ip("neigh replace 10.9.0.2 lladdr 02:57:00:00:00:99 nud permanent dev cable0");
        }
        60 => {
            side.until("over packet alone", |s| s.describe() == "packet");
            side.host.ip("neigh del 10.9.0.2 dev cable0");
            side.until("over both", |s| s.describe() == BOTH);
            sent = side.counter("udp", "sent");
        }
        89 => assert!(side.counter("udp", "sent") > sent + 1000),
        _ => {}
    });
}

#[test]
fn packet__dies_and_comes_back() {
    flow(1, "packet,udp", 90, |i, side| match i {
        20 => {
            side.until("over both", |s| s.describe() == BOTH);
            let new = "02:57:00:00:00:77";
            side.host.other(&format!("ip link set cable0 address {new}"));
            side.host.ip(&format!("neigh replace 10.9.0.2 lladdr {new} nud permanent dev cable0"));
        }
        60 => {
            side.until("over udp alone", |s| s.describe() == "udp");
            side.host.other(&format!("ip link set cable0 address {}", mac(0, 1)));
            side.host.ip("neigh del 10.9.0.2 dev cable0");
            side.until("over both", |s| s.describe() == BOTH);
        }
        _ => {}
    });
}

/// Has both hosts drop UDP datagrams that come over the cable, without an answer, as a firewall
/// does; or take them again.
fn drop_udp(host: &Host, on: bool) {
    let rules = match on {
        true => ["add pref 100 lookup local", "add pref 10 iif cable0 ipproto udp blackhole"],
        false => ["del pref 10", "del pref 100"],
    };
    let local = if on { "del pref 0" } else { "add pref 0 lookup local" };
    let all = match on {
        true => [rules[0], rules[1], local],
        false => [local, rules[0], rules[1]],
    };
    for rule in all {
        host.ip(&format!("rule {rule}"));
        host.other(&format!("ip rule {rule}"));
    }
}

#[test]
fn tcp__carries_everything_where_udp_is_dropped() {
    flow(1, "udp,tcp", 30, |i, side| match i {
        0 => drop_udp(side.host, true),
        10 => side.until("over tcp alone", |s| s.describe() == "tcp"),
        _ => {}
    });
}

/// A test with a clock of its own (`ask_first__no_connection_is_made_while_others_may_answer`)
/// holds that udp is asked before a connection is made. Here a host that waits for its core may
/// ask a second time before the first answer.
#[test]
fn tcp__takes_over_from_udp_and_gives_back() {
    flow(1, "udp,tcp", 90, |i, side| match i {
        20 => {
            side.until("over udp alone", |s| s.describe() == "udp");
            drop_udp(side.host, true);
        }
        60 => {
            side.until("over tcp alone", |s| s.describe() == "tcp");
            drop_udp(side.host, false);
            side.until("over udp again", |s| s.describe() == "udp");
        }
        _ => {}
    });
}

/// A cable that is down for longer than a stream is trusted: another is made over the other cable.
#[test]
fn tcp__interface_goes_down_and_up() {
    flow(2, "tcp", 60, |i, side| match i {
        20 => side.host.ip("link set cable0 down"),
        40 => side.host.ip("link set cable0 up"),
        50 => side.host.other("ip link set cable1 down"),
        _ => {}
    });
}

/// Tests a path where the kernel begins to cut long frames while small ones pass: long packets go
/// in pieces over udp, if there is that link, else packets become short.
fn cut(names: &str, all: &'static str, rest: &'static str) {
    flow(1, names, 90, move |i, side| {
        let longest = |bytes: &str| {
            side.host.ip(&format!("link set cable0 gso_max_size {bytes}"));
            side.host.other(&format!("ip link set cable0 gso_max_size {bytes}"));
        };
        match i {
            20 => {
                side.until("over all", |s| s.describe() == all);
                longest("1500");
            }
            60 => {
                side.until("over the rest", |s| s.describe() == rest);
                longest("65536");
                side.until("over all again", |s| s.describe() == all);
            }
            _ => {}
        }
    });
}

#[test]
fn gso__is_cut_on_the_way_and_comes_back() {
    cut("packet,gso,udp", "packet, data over gso", "packet, data over udp");
    cut("packet,gso", "packet, data over gso", "packet");
}

#[test]
fn interface__goes_down_and_up_under_gso() {
    cables_in_turn("packet,gso,udp", "gso");
    cables_in_turn("gso", "gso");
}

/// Takes one interface down and up again, then the other.
fn cables_in_turn(names: &str, moves: &'static str) {
    flow(2, names, 120, |i, side| match i {
        20 => side.host.ip("link set cable0 down"),
        50 => side.host.ip("link set cable0 up"),
        60 => side.host.other("ip link set cable1 down"),
        100 => side.host.other("ip link set cable1 up"),
        119 => assert!(side.counter(moves, "path_changes") > 0, "{}", side.describe()),
        _ => {}
    });
}

#[test]
fn interface__goes_down_and_up_under_udp() {
    cables_in_turn("udp", "udp");
}

#[test]
fn interface__goes_down_and_up_under_packet() {
    cables_in_turn("packet", "packet");
}

#[test]
fn interface__goes_down_and_up_under_xdp() {
    cables_in_turn("xdp", "xdp");
}

#[test]
fn interface__goes_down_and_up_under_both() {
    cables_in_turn("packet,udp", "packet");
}

#[test]
fn interface__vanishes() {
    for names in ["packet", "udp", "tcp", "packet,udp", "packet,gso,udp", "xdp", "xdp,udp"] {
        flow(2, names, 60, |i, side| {
            if i == 20 {
                side.host.ip("link del cable0");
            }
        });
    }
}

#[test]
fn mtu__shrinks_and_grows() {
    for names in ["udp", "packet", "xdp", "packet,udp", "packet,gso,udp", "xdp,udp"] {
        flow(1, names, 120, |i, side| {
            let mtu = [(20, 1000), (50, 1500), (70, 600), (100, 1400)];
            if let Some((_, mtu)) = mtu.iter().find(|(at, _)| *at == i) {
                side.host.ip(&format!("link set cable0 mtu {mtu}"));
                side.host.other(&format!("ip link set cable0 mtu {mtu}"));
            }
        });
    }
}

/// The other end of the cable accepts shorter frames than this one sends, and silently drops longer
/// ones, as a switch between them would.
#[test]
fn mtu__shrinks_on_the_way_alone() {
    for names in ["udp", "packet", "xdp", "packet,udp", "packet,gso,udp", "xdp,udp"] {
        flow(1, names, 60, |i, side| {
            let mtu = [(20, 1000), (40, 600)];
            if let Some((_, mtu)) = mtu.iter().find(|(at, _)| *at == i) {
                side.host.other(&format!("ip link set cable0 mtu {mtu}"));
            }
        });
    }
}

/// The kernel refuses frames that the other end of a virtual cable does not accept (`ENOBUFS`), as
/// if a card were busy. The link takes them after a while, as lost, so that short ones behind them
/// get through.
#[test]
fn mtu__frames_that_a_cable_refuses_are_lost_and_not_in_the_way() {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let link = || PacketLink::new(PacketConfig::default(), security(7, Mode::Auth)).unwrap();
    let exchange = move |link: &PacketLink, to: &Sender<Address>, from: &Receiver<Address>| {
        let mut address = Address { endpoint: EndpointId(7), ..Address::default() };
        link.advertise(&mut address);
        to.send(address).unwrap();
        from.recv().unwrap()
    };
    let ran = hosts::run(
        1,
        move |host| {
            let mut link = link();
            let address = exchange(&link, &to_b, &from_b);
            let endpoint = address.endpoint;
            link.connect(&PeerInfo { peer: PeerId(0), session: 1, endpoint, address }).unwrap();
            host.other("ip link set cable0 mtu 1000");
            let (header, payload) = ([3; 24], [0; 1400]);
            let long = Frame { peer: PeerId(0), header: &header, payload: &payload };
            let end = Instant::now() + LIMIT;
            while link.send(&[long]) == 0 {
                assert!(Instant::now() < end, "the frame is still in the way");
            }
            to_b.send(Address::default()).unwrap();
        },
        move |_| {
            let link = link();
            exchange(&link, &to_a, &from_a);
            from_a.recv().unwrap();
        },
    );
    if let Err(why) = ran {
        skip(&why);
    }
}

/// Sends frames of random content to the interfaces of an address until told to stop; counts them.
fn flood(
    link: &str,
    address: &Address,
    security: Security,
    stop: &AtomicBool,
    begun: &AtomicBool,
) -> u64 {
    let config = PacketConfig { trains: link == "gso", ..PacketConfig::default() };
    let mut link = PacketLink::new(config, security).unwrap();
    // An attacker names the protection that suits it.
    let (endpoint, address) = (address.endpoint, Address { security: None, ..address.clone() });
    link.connect(&PeerInfo { peer: PeerId(0), session: 1, endpoint, address }).unwrap();
    let (mut bytes, mut sent) = ([0; 1024], 0);
    while !stop.load(Ordering::Relaxed) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&weft_link::random_u64().to_le_bytes());
        }
        // Packets of every type and length.
        bytes[0] = sent as u8;
        let (header, payload) = bytes.split_at(24 + sent as usize % 13 * 8);
        let payload = &payload[..sent as usize % payload.len()];
        sent += link.send(&[Frame { peer: PeerId(0), header, payload }; 32]) as u64;
        begun.store(sent > 20_000, Ordering::Relaxed);
    }
    sent
}

/// Sends messages while another process of the first host floods a link of the second one. Returns
/// the number of the flood's frames, of frames that the second host's ring lost, and of those it
/// refused.
fn flooded(link: &str, ring: usize, security: Security) -> Option<[u64; 3]> {
    let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
    let names = if link == "gso" { "packet,gso,udp" } else { "packet,udp" };
    let begun = &AtomicBool::new(false);
    let attack = |host: &Host| {
        let side = open(host, names, ring, (to_b, from_b));
        let stop = AtomicBool::new(false);
        let address = side.address.clone();
        std::thread::scope(|scope| {
            let flood = scope.spawn(|| flood(link, &address, security, &stop, begun));
            side.until("flooding", |_| begun.load(Ordering::Relaxed) || flood.is_finished());
            side.send(40, |_, _| {});
            stop.store(true, Ordering::Relaxed);
            flood.join().unwrap()
        })
    };
    let ran = hosts::run(1, attack, |host| {
        let side = open(host, names, ring, (to_a, from_a));
        // The ring is not read until the flood is far more than it holds.
        let end = Instant::now() + LIMIT;
        while !begun.load(Ordering::Relaxed) {
            assert!(Instant::now() < end, "no flood");
            std::thread::yield_now();
        }
        side.receive(40);
        let refused = ["short", "malformed", "stale_session", "auth_failed"];
        let refused = refused.map(|name| side.counter(link, name)).iter().sum::<u64>();
        [side.counter(link, "ring_drops"), refused]
    });
    match ran {
        Ok((sent, [drops, refused])) => Some([sent, drops, refused]),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

fn overload(link: &str) {
    let Some([sent, drops, _]) = flooded(link, 64 << 10, security(7, Mode::Auth)) else { return };
    assert!(drops > 0, "of {sent}");
}

#[test]
fn overload__drops_are_counted_and_messages_intact() {
    overload("packet");
}

#[test]
fn overload__of_long_frames_as_well() {
    overload("gso");
}

fn strangers(link: &str) {
    for security in [security(7, Mode::None), security(8, Mode::Auth)] {
        let Some([sent, _, refused]) = flooded(link, 1 << 20, security) else { return };
        assert!(refused > 0, "of {sent}");
    }
}

#[test]
fn strangers__random_content_and_a_wrong_key_are_refused() {
    strangers("packet");
}

#[test]
fn strangers__are_refused_in_long_frames_as_well() {
    strangers("gso");
}
