//! The fuzz targets on seeded inputs: random bytes, and good inputs damaged in a few places.
#![allow(non_snake_case)]

use weft_agent::{Attach, Control, GroupRole};
use weft_conformance::hostile;
use weft_core::group::tree::Tree;
use weft_core::wire::{self, Atomic, Common, Eager, Grant, Mcast, Packet, PacketType, VERSION};
use weft_core::{Config, EndpointId, PeerId, Seq};
use weft_link::ether::{EtherAddr, EtherHead, EtherType, Mac, TrainHead};
use weft_link::rng::Rng;
use weft_link::secure::Mode;
use weft_link::Address;

const ROUNDS: u64 = 20_000;

/// Feeds `body` random bytes and damaged copies of `good`. A failure prints the round, which is the
/// seed of its input.
fn feed(good: &[Vec<u8>], body: fn(&[u8])) {
    for seed in 0..ROUNDS {
        let mut rng = Rng::new(seed);
        let mut input = match good.get(rng.below(good.len() as u64 + 1) as usize) {
            Some(good) => good.clone(),
            None => {
                let mut bytes = vec![0; rng.below(200) as usize];
                rng.fill(&mut bytes);
                bytes
            }
        };
        for _ in 0..rng.below(4) {
            damage(&mut input, &mut rng);
        }
        let result = std::panic::catch_unwind(|| body(&input));
        assert!(result.is_ok(), "round {seed}: input {input:02x?}");
    }
}

fn damage(input: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(input.len() as u64 + 1) as usize;
    match rng.below(4) {
        0 => input.truncate(at),
        1 => input.insert(at, rng.next_u64() as u8),
        2 => input.extend_from_within(..at),
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
    }
}

/// Returns a packet of every type, all fields zero, with some payload.
fn packets() -> Vec<Vec<u8>> {
    let types = (0..=u8::MAX).filter_map(|n| PacketType::try_from(n).ok());
    let packet = |kind: PacketType| {
        let mut bytes = vec![0; kind.header_len() + 9];
        bytes[..2].copy_from_slice(&[VERSION, kind as u8]);
        bytes
    };
    types.map(packet).collect()
}

#[test]
fn wire_parse__survives_hostile_bytes() {
    let packets = packets();
    assert!(packets.len() >= 16);
    feed(&packets, hostile::wire_parse);
}

#[test]
fn address_decode__survives_hostile_bytes() {
    let udp = ["10.0.0.1:7", "[fe80::1]:9", "[::1]:1"];
    let udp = udp.iter().map(|a| a.parse().expect("a socket address")).collect();
    let full = Address {
        endpoint: EndpointId(1),
        host: 2,
        shm: 3,
        udp,
        tcp: ["10.0.0.1:9", "10.0.0.2:9"].map(|a| a.parse().expect("a socket address")).to_vec(),
        ether: vec![EtherAddr {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            slot: 2,
            train: 4,
            mtu: 1500,
            net: 3,
        }],
        sim: Some(4),
        rank: Some(5),
        security: Some(Mode::Auth),
        agent: Some(6),
        moves: 7,
    };
    feed(&[full.encode(), Address::default().encode()], hostile::address_decode);
}

#[test]
fn ether_frame__survives_hostile_bytes() {
    let mac = Mac([2, 0, 0, 0, 0, 1]);
    let head = EtherHead { dst: mac, src: mac, kind: EtherType::default(), slot: 5, len: 40 };
    let long = TrainHead { dst: mac, src: mac, slot: 5, each: 30, len: 50, padding: 10 };
    let good = [[&head.encode()[..], &[7; 60]].concat(), [&long.encode()[..], &[7; 60]].concat()];
    feed(&good, hostile::ether_frame);
}

#[test]
fn mxoe_frame__survives_hostile_bytes() {
    let codes = [3, 4, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45];
    let frame = |code: u8| {
        let mut bytes = vec![0; 80];
        bytes[2] = code;
        // The fields with one value only: lengths, the kind of an acknowledgement, refusals.
        match code {
            35 => (bytes[6], bytes[14]) = (16, 0x55),
            36 => bytes[6] = 16,
            40 => bytes[7] = 8,
            44 | 45 => bytes[5] = 1,
            _ => {}
        }
        assert!(weft_mxoe::View::new_checked(weft_mxoe::Dialect::Native, &bytes).is_ok(), "{code}");
        bytes
    };
    feed(&codes.map(frame), hostile::mxoe_frame);
}

#[test]
fn mxoe_node__survives_hostile_frames() {
    use weft_mxoe::{
        Dialect, Ends, Frame, Medium, Message, Notify, Packet, Pull, Rendezvous, Window,
    };
    let ends = Ends { to: 3, from: 1, generation: 0 };
    let session = 0x22;
    let message = Message { ends, session, seq: 1, ack: 1, ..Message::default() };
    let window = Window { id: 0, seq: 1, offset: 0 };
    let announced = Message { len: 8, ..message };
    let part = Message { len: 100, ..message };
    let packets = [
        Packet::Tiny(Message { len: 4, ..message }),
        Packet::Medium(Medium {
            message: part,
            fragment_len: 100,
            pipeline: 12,
            ..Medium::default()
        }),
        Packet::Rendezvous(Rendezvous { message: announced, len: 100_000, window }),
        Packet::Pull(Pull { ends, session, window, block_len: 10_000, ..Pull::default() }),
        Packet::Notify(Notify {
            ends,
            session,
            seq: 1,
            ack: 1,
            window_seq: 1,
            ..Notify::default()
        }),
    ];
    let one = |packet: &Packet| {
        let mut bytes = Frame::new(0, *packet).encode(Dialect::Native).unwrap().to_vec();
        bytes.extend(match packet {
            Packet::Tiny(_) => vec![1; 4],
            Packet::Medium(_) => vec![1; 100],
            _ => Vec::new(),
        });
        bytes.insert(0, bytes.len() as u8);
        bytes
    };
    let mut good: Vec<Vec<u8>> = packets.iter().map(one).collect();
    good.push(good.concat());
    feed(&good, hostile::mxoe_node);
}

#[test]
fn agent_control__survives_hostile_bytes() {
    let role = GroupRole {
        group: 5,
        tree: Tree::Binary,
        size: 9,
        me: 3,
        parent: PeerId(1),
        children: vec![PeerId(7), PeerId(8)],
    };
    let attach = Attach::new(EndpointId(9), Mode::Auth, [3; 32], &Config::default());
    let good = [
        Control::Attach(attach),
        Control::Refused("no".into()),
        Control::CounterIs(1, 2, Some(3)),
        Control::GroupJoin(role),
        Control::GroupPacket(1, 2, vec![3; 40]),
        Control::GroupMember(1, 2, true),
    ];
    feed(&good.map(|message| message.encode()), hostile::agent_control);
}

/// Encodes a step of [`hostile::agent_rank`].
fn step(choice: u8, bytes: &[u8]) -> Vec<u8> {
    [&[choice, bytes.len() as u8], bytes].concat()
}

/// Encodes a packet with this session and type fields, as a rank or a peer sends it.
fn packet(packet: Packet, session: u32, seq: u32) -> Vec<u8> {
    let common = Common { session, seq: Seq(seq), ..Common::default() };
    wire::emit(&common, &packet).as_slice().to_vec()
}

#[test]
fn agent_rank__survives_hostile_messages_packets_and_peers() {
    let session = |peer| wire::session_number(peer, 1);
    let says = |message: Control| step(0, &message.encode());
    let address = Address::default().encode();
    let connect = |peer: u32| {
        let (endpoint, address) = (EndpointId(u64::from(peer) + 9), address.clone());
        says(Control::Connect(PeerId(peer), session(peer), 0, endpoint, address))
    };
    let role = |me: u32, parent: u32, children: &[u32]| GroupRole {
        group: 5,
        tree: Tree::Flat,
        size: 4,
        me,
        parent: PeerId(parent),
        children: children.iter().map(|&c| PeerId(c)).collect(),
    };
    let eager = || packet(Packet::Eager(Eager { tag: 1 }), 77, 0);
    let of_rank = |peer: u8, bytes: &[u8]| step(1, &[&[peer], bytes].concat());
    let of_peer = |kind: Packet, seq| step(2, &packet(kind, session(1), seq));
    let mcast = |number| Packet::Mcast(Mcast { group: 5, number });
    let grant = Packet::Grant(Grant { group: 5, granted: 60, ..Grant::default() });
    let atomic = Atomic { key: 3, offset: 8, operand: 1, compare: 0, code: 0 };
    let good = [
        [connect(1), connect(2), of_rank(1, &eager()), of_rank(2, &eager()), step(4, &[])].concat(),
        [connect(1), of_peer(Packet::Eager(Eager { tag: 2 }), 1), of_peer(mcast(0), 0)].concat(),
        [
            [connect(0), connect(1), says(Control::GroupJoin(role(0, u32::MAX, &[1, 2, 3])))]
                .concat(),
            [of_rank(1, &eager()), of_peer(grant, 0)].concat(),
            says(Control::GroupPacket(5, 0, vec![1; 9])),
            [step(3, &[]), step(4, &[0; 200]), says(Control::GroupLeave(5))].concat(),
        ]
        .concat(),
        [
            connect(1),
            says(Control::GroupJoin(role(2, 1, &[]))),
            [of_peer(mcast(0), 0), of_peer(mcast(1), 1), says(Control::GroupGrant(5, 70))].concat(),
            [step(3, &[0; 9]), says(Control::Disconnect(PeerId(1)))].concat(),
        ]
        .concat(),
        [
            [connect(1), says(Control::CounterOpen(3, 2, 9, true))].concat(),
            [says(Control::CounterDo(1, atomic)), of_peer(Packet::Atomic(atomic), 0)].concat(),
            [says(Control::CounterRead(3, 1)), says(Control::CounterClose(3))].concat(),
        ]
        .concat(),
    ];
    feed(&good, hostile::agent_rank);
}

#[test]
fn chain_answers__survive_hostile_bytes() {
    let good = weft_kernel::chain::example_answer();
    let kinds = [1, 2, 3].map(|kind| {
        let mut frame = good.clone();
        frame[19] = kind;
        frame
    });
    let row = [&kinds[2][..], &kinds[0][..], &kinds[1][..], &good[..]].concat();
    let all: Vec<_> = kinds.into_iter().chain([row]).collect();
    feed(&all, hostile::chain_answers);
}

#[test]
fn shm_hello__survives_hostile_bytes() {
    let good = weft_link::shm::example_hello();
    let mut answer = good.clone();
    answer[5] = 2;
    let proven = [&good[..], &[9; 24]].concat();
    feed(&[good, answer, proven], hostile::shm_hello);
}

#[test]
fn sockets_message__survives_hostile_bytes() {
    feed(&weft_streams::message::example_messages(), hostile::sockets_message);
}

#[test]
fn broker_message__survives_hostile_bytes() {
    feed(&weft_link::shm::broker::example_messages(), hostile::broker_message);
}

#[test]
fn agents_datagram__survives_hostile_bytes() {
    let mut good = Vec::new();
    for choice in 0..8 {
        for which in 0..6 {
            let mut steps = vec![choice, which];
            steps.extend([0; 100]);
            good.push(steps);
        }
    }
    feed(&good, hostile::agents_datagram);
}

#[test]
fn group_parts__survive_hostile_bytes() {
    let good: Vec<Vec<u8>> = (0..=255).map(|choice| [&[choice][..], &[0; 186]].concat()).collect();
    feed(&good, hostile::group_parts);
}

#[test]
fn names_local__survive_hostile_bytes() {
    let (requests, says) = weft_cluster::local::examples();
    let mut good: Vec<Vec<u8>> = requests.iter().map(|one| one.encode(1)).collect();
    good.extend(says.iter().map(|one| one.encode(1)));
    feed(&good, hostile::names_local);
    // A withdrawal by the owner has no detail.
    let lost = [
        &[23, 0, 0, 0, 8, 163, 138, 138, 138, 138, 10, 6, 10, 36, 0, 0, 0][..],
        &[1, 1, 2, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 16],
    ];
    hostile::names_local(&lost.concat());
    // A claim without an address that has one.
    let claim = [
        &[85, 0, 0, 0, 2, 0, 0, 0, 92, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 43, 0, 0, 0, 0, 229, 0, 0, 8, 0, 0, 2, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 252, 0, 45, 0, 0, 98, 0, 0, 0][..],
        &[36, 0, 0, 0, 64, 72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 223, 2, 0, 33, 45][..],
        &[0][..],
    ];
    hostile::names_local(&claim.concat());
}

#[test]
fn pmi_lines__survive_hostile_bytes() {
    let good = [
        &b"cmd=init pmi_version=1 pmi_subversion=1\n"[..],
        b"cmd=put kvsname=k key=weft-address value=00ff0a\ncmd=barrier_in\n",
        br"cmd=abort exitcode=3 message=a\ \\ b=c\ d\ ",
        b"cmd=get_result rc=0 value=(vector,(0,1,4)) \r\n\0",
        b"00ff0a",
    ];
    feed(&good.map(<[u8]>::to_vec), weft::launch::wire::check);
}

#[test]
fn packet_headers__survive_hostile_bytes() {
    let good: Vec<_> = [4, 8, 12, 24, 40, 64].map(|len| vec![1; len]).to_vec();
    feed(&good, weft_packets::wire::check);
}

#[test]
fn secure_open__accepts_only_what_was_sealed() {
    let change = |choice: u8| [vec![choice], vec![0; 80]].concat();
    let mut good: Vec<Vec<u8>> = (0..4).map(change).collect();
    let raw = |packet: Vec<u8>| [&[0], &packet[..], &[0; 16]].concat();
    good.extend(packets().into_iter().map(raw));
    // A change with its valid tag, which a fuzzer had learned under the single key of that time.
    let mut learned = vec![0; 129];
    (learned[0], learned[2]) = (10, 10);
    learned[61..69].copy_from_slice(&[0x05, 0x77, 0xf3, 0x68, 0x9c, 0x22, 0x89, 0x2a]);
    good.push(learned);
    feed(&good, hostile::secure_open);
}

#[test]
fn tcp_frames__are_the_same_however_they_arrive() {
    let frame = |len: usize| [&(len as u32).to_le_bytes()[..], &vec![7; len]].concat();
    let of = |frames: &[usize], tail: &[u8]| {
        let frames: Vec<u8> = frames.iter().flat_map(|&len| frame(len)).collect();
        [&[0, 100], &frames[..], tail].concat()
    };
    let good =
        [of(&[40, 41, 1000], &[]), of(&[60], &[9, 0, 0, 0]), of(&[65_360], &[50, 0, 0, 0, 1, 2])];
    feed(&good, hostile::tcp_frames);
}

#[test]
fn mac_tag__is_the_definition_on_every_implementation() {
    let mut good = Vec::new();
    for (seed, len) in [0, 1, 15, 40, 63, 64, 65, 150, 300, 1472].into_iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        let mut input = vec![0; 60 + len];
        rng.fill(&mut input);
        // Headers of the protocol's lengths, payloads of up to some groups of powers.
        (input[56], input[57]) = ([0, 24, 56, 113][seed % 4], rng.below(6) as u8);
        good.push(input.clone());
        // Keys and payload of zeros or ones alone.
        input.fill([0, 0xff][seed % 2]);
        (input[56], input[57]) = (32, 5);
        good.push(input);
    }
    feed(&good, hostile::mac_tag);
}

#[test]
fn engine__survives_hostile_packets_amid_traffic() {
    let bytes = |seed| {
        let mut bytes = vec![0; 1500];
        Rng::new(seed).fill(&mut bytes);
        bytes
    };
    let good: Vec<Vec<u8>> = (0..40).map(bytes).collect();
    feed(&good, hostile::engine);
}
