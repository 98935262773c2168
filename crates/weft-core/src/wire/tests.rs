#![allow(non_snake_case)]
use super::*;
use crate::Seq;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Xorshift (Marsaglia 2003), so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|b| *b = self.next() as u8);
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// Makes a valid header of a type with every field random.
fn random_header(random: &mut Random, kind: PacketType) -> Vec<u8> {
    let mut bytes = Vec::from([0; HEADER_MAX]);
    random.fill(&mut bytes);
    bytes.truncate(kind.header_len());
    bytes[field::VERSION] = VERSION;
    bytes[field::TYPE] = kind as u8;
    bytes[field::FLAGS.start + 1] = 0;
    for pad in kind.fields().iter().filter(|f| f.name == "pad") {
        bytes[pad.offset..pad.offset + pad.size].fill(0);
    }
    match kind {
        PacketType::Hello => {
            let low = 1 + random.below(255) as u8;
            bytes[Hello::VERSION_MIN.range().start] = low;
            bytes[Hello::VERSION_MAX.range().start] = low.max(random.next() as u8);
        }
        PacketType::Piece => {
            let total = 1 + random.below(PIECES_MAX as usize) as u32;
            let offset = random.below(total as usize) as u32 / PIECE_UNIT * PIECE_UNIT;
            bytes[Piece::OFFSET.range()].copy_from_slice(&offset.to_le_bytes());
            bytes[Piece::TOTAL.range()].copy_from_slice(&total.to_le_bytes());
        }
        PacketType::Atomic => bytes[Atomic::CODE.range().start] = 1 + random.below(6) as u8,
        _ => {}
    }
    bytes
}

fn common() -> Common {
    Common {
        flags: flags::ACKNOW,
        session: 0x0010_0007,
        seq: Seq(5),
        ack: Seq(3),
        credit: 9,
        imm: 0x0403_0201,
    }
}

#[test]
fn emit__inverts_parse_for_every_type() {
    let mut random = Random(1);
    for &kind in PacketType::ALL {
        for _ in 0..500 {
            let mut bytes = random_header(&mut random, kind);
            let (common, packet, len) = parse(&bytes).unwrap();
            assert_eq!((packet.packet_type(), len), (kind, bytes.len()));
            assert_eq!(emit(&common, &packet).as_slice(), &bytes[..], "{kind:?}");
            bytes.extend_from_slice(b"payload");
            assert_eq!(parse(&bytes), Ok((common, packet, len)), "payload changes nothing");
        }
    }
}

#[test]
fn emit__eager_bytes() {
    let header = emit(&common(), &Packet::Eager(Eager { tag: 0x1122_3344_5566_7788 }));
    #[rustfmt::skip]
    assert_eq!(header.as_slice(), [
        1, 3, 0x40, 0, 7, 0, 0x10, 0, 5, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 1, 2, 3, 4,
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
    ]);
}

#[test]
fn emit_into__leaves_nothing_of_what_was_there() {
    let mut random = Random(2);
    let mut reused = HeaderBuf { len: 0, bytes: [0xff; HEADER_MAX] };
    for round in 0..10_000 {
        let kind = PacketType::ALL[round % PacketType::ALL.len()];
        let bytes = random_header(&mut random, kind);
        let (common, packet, _) = parse(&bytes).unwrap();
        emit_into(&common, &packet, &mut reused);
        assert_eq!(reused.as_slice(), &bytes[..]);
        random.fill(&mut reused.bytes);
    }
}

#[test]
fn patch_ack__changes_ack_and_credit_only() {
    let packet = Packet::Put(Put { key: 1, offset: 2, total: 3 });
    let mut header = emit(&common(), &packet);
    patch_ack(&mut header, Seq(u32::MAX), 77);
    let expected = Common { ack: Seq(u32::MAX), credit: 77, ..common() };
    assert_eq!(parse(header.as_slice()), Ok((expected, packet, Put::LEN)));
}

#[test]
fn parse__refuses_every_shorter_length() {
    let mut random = Random(3);
    for &kind in PacketType::ALL {
        let bytes = random_header(&mut random, kind);
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), Err(WireError::Short), "{kind:?} cut to {len}");
            assert_eq!(View::new_checked(&bytes[..len]).err(), Some(WireError::Short));
        }
    }
}

#[test]
fn parse__refuses_each_reserved_bit() {
    let mut random = Random(4);
    for &kind in PacketType::ALL {
        let clean = random_header(&mut random, kind);
        let pads = kind.fields().iter().filter(|f| f.name == "pad");
        let reserved = pads.flat_map(|f| f.offset..f.offset + f.size).map(|at| (at, 0));
        // Bit 0 of byte 3 is APART.
        for (at, first) in reserved.chain([(3, 1)]) {
            for bit in first..8 {
                let mut bytes = clean.clone();
                bytes[at] |= 1 << bit;
                assert_eq!(parse(&bytes), Err(WireError::Pad), "{kind:?} byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn parse__refuses_other_versions_and_types() {
    let mut bytes = random_header(&mut Random(5), PacketType::Eager);
    for version in (0..=255).filter(|v| *v != VERSION) {
        bytes[field::VERSION] = version;
        assert_eq!(parse(&bytes), Err(WireError::Version { found: version }));
        assert_eq!(session_of(&bytes), None);
    }
    bytes[field::VERSION] = VERSION;
    for number in [0].into_iter().chain(21..=255) {
        bytes[field::TYPE] = number;
        assert_eq!(parse(&bytes), Err(WireError::Type { found: number }));
    }
}

#[test]
fn parse__refuses_pieces_that_cannot_be() {
    let piece = |offset, total| {
        let header = emit(&common(), &Packet::Piece(Piece { offset, total }));
        parse(header.as_slice()).map(|_| ())
    };
    assert_eq!((piece(0, 1), piece(128, 129), piece(0, PIECES_MAX)), (Ok(()), Ok(()), Ok(())));
    for (offset, total) in
        [(0, 0), (1, 9), (64, 64), (0, PIECES_MAX + 1), (u32::MAX - 63, u32::MAX)]
    {
        assert_eq!(piece(offset, total), Err(WireError::Field), "{offset} of {total}");
    }
}

#[test]
fn parse__refuses_fields_outside_their_domain() {
    let hello = |version_min, version_max| {
        let hello = Hello { version_min, version_max, ..Hello::default() };
        parse(emit(&common(), &Packet::Hello(hello)).as_slice()).map(|_| ())
    };
    assert_eq!(hello(1, 1), Ok(()));
    assert_eq!(hello(0, 1), Err(WireError::Field));
    assert_eq!(hello(3, 2), Err(WireError::Field));
    for code in 0..=255 {
        let atomic = Packet::Atomic(Atomic { code, ..Atomic::default() });
        assert_eq!(parse(emit(&common(), &atomic).as_slice()).is_ok(), (1..=7).contains(&code));
    }
}

#[test]
fn parse__survives_random_bytes() {
    let mut random = Random(6);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let mut bytes = [0; HEADER_MAX + 16];
        random.fill(&mut bytes);
        // Half of them have a valid common header, so that the part of the type is reached.
        if random.below(2) == 0 {
            bytes[field::VERSION] = VERSION;
            bytes[field::TYPE] = random.below(18) as u8;
            bytes[field::FLAGS.start + 1] = 0;
        }
        accepted += usize::from(agree(&bytes[..random.below(HEADER_MAX + 17)]));
    }
    assert!(accepted > 1_000, "the generator reaches the accepting paths: {accepted}");
}

#[test]
fn parse__survives_mutations() {
    let mut random = Random(7);
    for round in 0..200_000 {
        let mut bytes = random_header(&mut random, PacketType::ALL[round % PacketType::ALL.len()]);
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                _ => bytes.truncate(at.max(1)),
            }
        }
        agree(&bytes);
    }
}

/// Checks that every reader of a packet agrees on these bytes; returns true if they were accepted.
fn agree(bytes: &[u8]) -> bool {
    let view = View::new_checked(bytes);
    match parse(bytes) {
        Ok((common, packet, len)) => {
            let view = view.unwrap();
            assert_eq!(emit(&common, &packet).as_slice(), view.header());
            assert_eq!(view.payload().len(), bytes.len() - len);
            assert_eq!(session_of(bytes), Some(view.session()));
            assert_eq!((view.session(), view.imm()), (common.session, common.imm));
            true
        }
        Err(error) => {
            assert_eq!(view.err(), Some(error));
            false
        }
    }
}

#[test]
fn fields__fill_each_header_without_gap() {
    for &kind in PacketType::ALL {
        let mut fields: Vec<_> = COMMON_FIELDS.iter().chain(kind.fields()).collect();
        fields.sort_by_key(|f| f.offset);
        let end = fields.iter().fold(0, |end, f| {
            assert_eq!(f.offset, end, "{kind:?}.{}", f.name);
            end + f.size
        });
        assert_eq!(end, kind.header_len(), "{kind:?}");
    }
    assert_eq!(PacketType::ALL.iter().map(|k| k.header_len()).max(), Some(HEADER_MAX));
}

#[test]
fn is_sequenced__all_but_hello_ack_bye_and_what_concerns_lengths() {
    for &kind in PacketType::ALL {
        let alone = matches!(kind, PacketType::Hello | PacketType::Ack | PacketType::Bye)
            || matches!(kind, PacketType::Probe | PacketType::Piece);
        assert_eq!(kind.is_sequenced(), !alone, "{kind:?}");
    }
}

#[test]
fn view__reads_fields_of_its_own_type_only() {
    let rts = Rts { tag: 1, total: 2, msg: 3, data: 0, addr: 4 };
    let header = emit(&common(), &Packet::Rts(rts));
    let view = View::new_checked(header.as_slice()).unwrap();
    assert_eq!((view.get(Rts::TAG), view.get(Rts::TOTAL)), (Some(1), Some(2)));
    assert_eq!((view.get(Rts::MSG), view.get(Rts::ADDR)), (Some(3), Some(4)));
    assert_eq!(view.get(Eager::TAG), None);
    assert_eq!((view.flags(), view.seq(), view.ack()), (flags::ACKNOW, Seq(5), Seq(3)));
    assert_eq!((view.credit(), view.imm()), (9, 0x0403_0201));
}

#[test]
fn display__one_line() {
    let mut bytes = emit(&common(), &Packet::Eager(Eager { tag: 42 })).as_slice().to_vec();
    bytes.extend_from_slice(b"12345678");
    assert_eq!(
        View::new_checked(&bytes).unwrap().to_string(),
        "EAGER|ACKNOW #5 ack #3 session 0x100007 credit 9 imm 67305985 tag 0x2a len 8"
    );
    let mut random = Random(8);
    for &kind in PacketType::ALL {
        let bytes = random_header(&mut random, kind);
        let line = View::new_checked(&bytes).unwrap().to_string();
        assert!(line.starts_with(kind.name()) && !line.contains('\n'), "{line}");
        let (common, packet, _) = parse(&bytes).unwrap();
        assert_eq!(line, format!("{} len 0", Line(&common, &packet)));
    }
}

#[test]
fn wire_error__says_what_to_do() {
    assert_eq!(
        WireError::Version { found: 9 }.to_string(),
        "packet of protocol version 9, this build speaks 1: \
         run the same release of weft on every host"
    );
}

#[test]
fn session_of__reads_the_session_of_any_packet() {
    let mut random = Random(9);
    for &kind in PacketType::ALL {
        let bytes = random_header(&mut random, kind);
        assert_eq!(session_of(&bytes), Some(parse(&bytes).unwrap().0.session));
    }
    assert_eq!(session_of(&[VERSION; 7]), None);
}

#[test]
fn session_number__holds_index_and_generation() {
    let number = session_number(0xf_ffff, 0xabc);
    assert_eq!((session_index(number), session_generation(number)), (0xf_ffff, 0xabc));
    assert_eq!(session_number(0, 1), 1 << 20);
    assert_eq!(session_generation(session_number(3, 0x1001)), 1, "generations wrap at 12 bits");
}

#[test]
fn common_version__highest_both_speak() {
    let of = |version_min, version_max| {
        Hello { version_min, version_max, ..Hello::default() }.common_version()
    };
    assert_eq!(of(1, 1), Some(1));
    assert_eq!(of(1, 9), Some(1));
    assert_eq!(of(2, 9), None);
}

#[test]
fn is_answer__only_a_whole_hello_with_the_flag() {
    let mut random = Random(7);
    for &kind in PacketType::ALL {
        let mut bytes = random_header(&mut random, kind);
        bytes[field::FLAGS.start] |= flags::REPLY as u8;
        assert_eq!(Hello::is_answer(&bytes), kind == PacketType::Hello, "{kind:?}");
        assert!(!Hello::is_answer(&bytes[..bytes.len() - 1]));
        bytes[field::FLAGS.start] &= !(flags::REPLY as u8);
        assert!(!Hello::is_answer(&bytes));
    }
}
