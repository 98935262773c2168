//! Golden frames written by hand from the layout tables, round trips and hostile bytes.
#![allow(non_snake_case)]

use super::*;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

const BOTH: [Dialect; 2] = [Dialect::Compat, Dialect::Native];
const ENDS: Ends = Ends { to: 3, from: 1, generation: 2 };
const MESSAGE: Message = Message {
    ends: ENDS,
    len: 8,
    checksum: 0x0a0b,
    seq: 0x4001,
    ack: 0x4002,
    match_bits: 0x0102_0304_0506_0708,
    session: 0x1112_1314,
};
const WINDOW: Window = Window { id: 0x21, seq: 0x22, offset: 0x0345 };

fn medium() -> Medium {
    let message = Message { len: 4100, checksum: 0, ..MESSAGE };
    Medium { message, fragment_len: 4, fragment: 1, pipeline: 12, checksum: 0x0c0d }
}

fn pull() -> Pull {
    Pull {
        ends: ENDS,
        session: 0x1112_1314,
        total: 0x0010_0000,
        window: WINDOW,
        handle: 0x3132_3334,
        magic: 0x4142_4344,
        first_offset: 0x0345,
        block_len: 0x7cbb,
        frame_index: 8,
    }
}

/// A packet, its header in hexadecimal digits with the peer index in front, in both dialects, and
/// the length of its payload.
type Golden = (Packet, [&'static str; 2], usize);

/// Returns a packet of each type; the peer index is 0x0506.
fn golden() -> Vec<Golden> {
    [golden_hosts(), golden_messages(), golden_pulls(), golden_refusals()].concat()
}

fn same(text: &'static str) -> [&'static str; 2] {
    [text, text]
}

fn joined(parts: &[&str]) -> &'static str {
    alloc::boxed::Box::leak(parts.join(" ").into())
}

/// Questions for names, acknowledgements and connections.
fn golden_hosts() -> Vec<Golden> {
    let connect = "0506 24 03 01 02 10 000000 0007 0009 00000000";
    let host = Host { peer_index: 9, magic: 0x1305_2008, name_len: 0 };
    vec![
        (Packet::HostQuery(host), same("0506 03 00 0009 00000000 13052008 00000000"), 0),
        (
            Packet::HostReply(Host { name_len: 6, ..host }),
            same("0506 04 06 0009 00000000 13052008 00000000"),
            6,
        ),
        (
            Packet::Ack(Ack {
                ends: ENDS,
                session: 0x1112_1314,
                seq: 7,
                acked_session: 0x2122_2324,
                number: 5,
                send_seq: 6,
                resent: 1,
            }),
            same("0506 23 03 01 02 10 000000 11121314 55 00 0007 21222324 00000005 0006 01 00"),
            0,
        ),
        (
            Packet::ConnectRequest(ConnectRequest {
                ends: ENDS,
                seq: 7,
                peer_index: 9,
                session: 0x1112_1314,
                key: 0xaaaa_ffff,
                recv_start: 1,
                connect_seq: 4,
            }),
            same(joined(&[connect, "11121314 aaaaffff 0001 00 04 00000000"])),
            0,
        ),
        (
            Packet::ConnectReply(ConnectReply {
                ends: ENDS,
                seq: 7,
                peer_index: 9,
                asking_session: 0x1112_1314,
                session: 0x2122_2324,
                recv_start: 1,
                connect_seq: 4,
                status: 11,
            }),
            same(joined(&[connect, "11121314 21222324 0001 01 04 0b 000000"])),
            0,
        ),
    ]
}

fn golden_messages() -> Vec<Golden> {
    let message = "03 01 02 0008 0a0b 4001 4002 01020304 05060708 11121314";
    let with = |code: &str, rest: &str| joined(&[code, message, rest]);
    vec![
        (Packet::Tiny(MESSAGE), same(with("0506 25", "")), 8),
        (Packet::Small(MESSAGE), same(with("0506 26", "")), 8),
        (
            Packet::Medium(medium()),
            [
                "0506 27 03 01 02 1004 0000 4001 4002 01020304 05060708 11121314 \
                 0004 01 0c 0c0d 0000",
                "0506 27 03 01 02 00001004 4001 4002 01020304 05060708 11121314 \
                 0004 01 00 0c0d 0000",
            ],
            4,
        ),
        (
            Packet::Rendezvous(Rendezvous { message: MESSAGE, len: 0x0010_0000, window: WINDOW }),
            same(with("0506 28", "00100000 21 22 0345")),
            0,
        ),
    ]
}

const PULLED: &str = "03 01 02 11121314 00100000";

fn golden_pulls() -> Vec<Golden> {
    vec![
        (
            Packet::Pull(pull()),
            [
                joined(&["0506 29", PULLED, "21 22 0345 31323334 41424344 0345 7cbb 00000008"]),
                joined(&[
                    "0506 29",
                    PULLED,
                    "00000021 22 000000 00000345 31323334 41424344 00000345 00007cbb 00000008",
                ]),
            ],
            0,
        ),
        (
            Packet::PullReply(PullReply {
                seq: 8,
                len: 16,
                offset: 0x8000,
                handle: 0x3132_3334,
                magic: 0x4142_4344,
            }),
            same("0506 2a 08 0010 00008000 31323334 41424344"),
            16,
        ),
        (
            Packet::Notify(Notify {
                ends: ENDS,
                session: 0x1112_1314,
                total: 0x0010_0000,
                window: 0x21,
                window_seq: 0x22,
                seq: 0x4001,
                ack: 0x4002,
            }),
            same(joined(&["0506 2b", PULLED, "21 22 00000000 4001 4002 0000"])),
            0,
        ),
    ]
}

fn golden_refusals() -> Vec<Golden> {
    vec![
        (
            Packet::NackLib(NackLib {
                from: 1,
                generation: 2,
                refusal: Refusal::BadSession,
                to: 3,
                peer_index: 9,
                seq: 0x4001,
            }),
            same("0506 2c 01 02 03 00000000 00 03 0009 4001 0000"),
            0,
        ),
        (
            Packet::NackMcp(NackMcp {
                from: 1,
                generation: 2,
                refusal: Refusal::BadWindow,
                handle: 0x3132_3334,
                magic: 0x4142_4344,
            }),
            same("0506 2d 01 02 04 00000000 31323334 41424344"),
            0,
        ),
    ]
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| core::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// Returns the packet as the dialect carries it: the native one has no pipeline.
fn carried(packet: Packet, dialect: Dialect) -> Packet {
    match (packet, dialect) {
        (Packet::Medium(medium), Dialect::Native) => {
            Packet::Medium(Medium { pipeline: 0, ..medium })
        }
        (packet, _) => packet,
    }
}

#[test]
fn golden_frames__encode_and_parse_in_both_dialects() {
    for (packet, texts, payload) in golden() {
        for (dialect, text) in BOTH.into_iter().zip(texts) {
            let frame = Frame::new(0x0506, carried(packet, dialect));
            let mut wire = bytes(text);
            let header = frame.encode(dialect).unwrap();
            assert_eq!(*header, *wire, "{dialect:?} {frame}");
            // A short frame is padded to Ethernet's least length.
            wire.resize((header.len() + payload).max(46), 0xee);
            let view = View::new_checked(dialect, &wire).unwrap();
            assert_eq!((view.frame(), view.payload().len()), (&frame, payload));
            assert!(!view.to_string().contains('\n'));
        }
    }
}

#[test]
fn lengths__of_the_headers_are_those_of_the_tables() {
    let of = |code: u8, dialect| match (code, dialect) {
        (3 | 4 | 42 | 44 | 45, _) => 16,
        (35, _) => 28,
        (36 | 39 | 40, _) | (41, Dialect::Compat) => 32,
        (41, Dialect::Native) => 44,
        _ => 24,
    };
    for (packet, ..) in golden() {
        for dialect in BOTH {
            let len = Frame::new(0, packet).encode(dialect).unwrap().len();
            assert_eq!(len, 2 + of(packet.code(), dialect), "{dialect:?} {packet:?}");
        }
    }
}

#[test]
fn view__refuses_every_shorter_frame() {
    for (packet, texts, payload) in golden() {
        for (dialect, text) in BOTH.into_iter().zip(texts) {
            let mut wire = bytes(text);
            wire.resize(wire.len() + payload, 1);
            for len in 0..wire.len() {
                let cut = View::new_checked(dialect, &wire[..len]);
                assert!(
                    matches!(cut, Err(Malformed::Short | Malformed::Length(_))),
                    "{packet:?} of {len} bytes: {cut:?}"
                );
            }
        }
    }
}

#[test]
fn view__refuses_types_kinds_and_lengths_without_a_meaning() {
    let check = |text, fault| {
        let mut wire = bytes(text);
        wire.resize(9100, 0);
        for dialect in BOTH {
            assert_eq!(View::new_checked(dialect, &wire), Err(fault), "{dialect:?}");
        }
    };
    for code in [0, 1, 2, 5, 32, 33, 34, 46, 127] {
        let wire = [0, 0, code].into_iter().chain([0; 60]).collect::<Vec<_>>();
        assert_eq!(View::new_checked(Dialect::Native, &wire), Err(Malformed::Type(code)));
    }
    // Longer than tiny and small messages are, and a refusal, kind and reply that do not exist.
    check("0000 25 000000 0021", Malformed::Length(33));
    check("0000 26 000000 0081", Malformed::Length(129));
    check("0000 2a 00 2401", Malformed::Length(9217));
    check("0000 2c 0000 05", Malformed::Content(5));
    check("0000 2d 0000 00", Malformed::Content(0));
    check("0000 23 000000 10 000000 00000000 56", Malformed::Content(0x56));
    let connect = "0000 24 000000 10 000000 0000 0000 00000000 00000000 00000000 0000 02";
    check(connect, Malformed::Content(2));
    check("0000 28 000000 0009", Malformed::Length(9));
}

#[test]
fn medium__a_fragment_outside_of_its_message_is_refused() {
    let view = |medium, dialect| {
        let mut wire = Frame::new(0, Packet::Medium(medium)).encode(dialect).unwrap().to_vec();
        wire.resize(9000, 0);
        View::new_checked(dialect, &wire).map(|view| view.payload().len())
    };
    let good = medium();
    assert_eq!(view(good, Dialect::Compat), Ok(4));
    let beyond = Medium { fragment_len: 5, ..good };
    assert_eq!(view(beyond, Dialect::Compat), Err(Malformed::Length(5)));
    let far = Medium { fragment: 255, ..good };
    assert_eq!(view(far, Dialect::Compat), Err(Malformed::Length(4)));
    let wide = Medium { pipeline: 13, ..good };
    assert_eq!(view(wide, Dialect::Compat), Err(Malformed::Length(4)));
    let long = Medium { fragment_len: 4101, ..good };
    assert_eq!(view(long, Dialect::Native), Err(Malformed::Length(4101)));
    let message = Message { len: 32769, ..good.message };
    let huge = Medium { message, ..good };
    assert_eq!(view(huge, Dialect::Native), Err(Malformed::Length(32769)));
}

#[test]
fn encode__refuses_numbers_that_the_dialect_has_no_room_for() {
    let wide = [
        Pull { window: Window { id: 256, ..WINDOW }, ..pull() },
        Pull { window: Window { offset: 65536, ..WINDOW }, ..pull() },
        Pull { first_offset: 65536, ..pull() },
        Pull { block_len: 65536, ..pull() },
    ];
    for pull in wide {
        let frame = Frame::new(0, Packet::Pull(pull));
        assert_eq!(frame.encode(Dialect::Compat), Err(TooWide));
        assert!(frame.encode(Dialect::Native).is_ok());
    }
    let long = Frame::new(0, Packet::Tiny(Message { len: 65536, ..MESSAGE }));
    assert_eq!(BOTH.map(|dialect| long.encode(dialect)), [Err(TooWide); 2]);
}

#[test]
fn urgent__is_a_flag_beside_every_type() {
    for (packet, ..) in golden() {
        let frame = Frame { urgent: true, ..Frame::new(1, packet) };
        let mut wire = frame.encode(Dialect::Compat).unwrap().to_vec();
        assert_eq!(wire[2], packet.code() | 0x80);
        wire.resize(100, 0);
        assert_eq!(View::new_checked(Dialect::Compat, &wire).unwrap().frame(), &frame);
    }
}

/// Checks that accepted bytes keep their meaning: the header that they encode to is parsed to the
/// same frame with the same payload.
fn survives(dialect: Dialect, wire: &[u8]) -> bool {
    let Ok(view) = View::new_checked(dialect, wire) else { return false };
    let header = view.frame().encode(dialect).expect("parsed numbers fit");
    assert!(header.len() + view.payload().len() <= wire.len());
    let mut again = header.to_vec();
    again.extend_from_slice(view.payload());
    assert_eq!(View::new_checked(dialect, &again).as_ref(), Ok(&view));
    true
}

/// `WEFT_INPUTS` is the number of inputs.
#[test]
fn view__survives_hostile_bytes() {
    let inputs = std::env::var("WEFT_INPUTS").ok().and_then(|text| text.parse().ok());
    let inputs = inputs.unwrap_or(100_000);
    let good = golden();
    let mut state = 1_u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut accepted = 0;
    for _ in 0..inputs {
        let dialect = BOTH[random() % 2];
        let (_, texts, payload) = &good[random() % good.len()];
        let mut wire = bytes(texts[random() % 2]);
        wire.resize(wire.len() + payload + random() % 40, 0x5a);
        for _ in 0..random() % 4 {
            let at = random() % wire.len();
            match random() % 3 {
                0 => wire.truncate(at.max(1)),
                1 => wire.insert(at, random() as u8),
                _ => wire[at] ^= 1 << (random() % 8),
            }
        }
        accepted += usize::from(survives(dialect, &wire));
    }
    assert!(accepted > inputs / 10, "{accepted} accepted");
}
