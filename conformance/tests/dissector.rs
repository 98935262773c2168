//! Checks that Wireshark's dissector accepts the packets that the code accepts, and no others.
#![allow(non_snake_case)]

use weft_conformance::capture;
use weft_core::wire::{self, WireError};
use weft_link::rng::Rng;

/// Returns a datagram that is often a packet, and nearly one in most other cases.
fn datagram(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; 24 + rng.below(90) as usize];
    bytes[0] = if rng.chance(900_000) { wire::VERSION } else { rng.next_u64() as u8 };
    bytes[1] = rng.below(20) as u8;
    let flag = 1_u16 << rng.below(16);
    bytes[2..4].copy_from_slice(&if rng.chance(500_000) { flag } else { 0 }.to_le_bytes());
    // Reserved bytes, and sequence numbers of types without them, are often valid.
    for byte in bytes.iter_mut().skip(4) {
        if rng.chance(100_000) {
            *byte = rng.next_u64() as u8;
        }
    }
    bytes
}

#[test]
fn dissector__takes_what_the_code_takes() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("datagrams-{}.pcap", std::process::id()));
    let mut rng = Rng::new(30);
    let all: Vec<Vec<u8>> = (0..4000).map(|_| datagram(&mut rng)).collect();
    capture::write(&file, &all).unwrap();
    let seen = match capture::read(&file, "udp") {
        Ok(seen) => seen,
        Err(why) => return weft_conformance::skip(&why),
    };
    assert_eq!(seen.len(), all.len());
    let mut taken = [0; 2];
    for (bytes, seen) in all.iter().zip(&seen) {
        let parsed = wire::parse(bytes);
        let good = match &parsed {
            // No endpoint sends such a packet, and the rule helps to tell packets from other
            // datagrams.
            Ok((common, packet, _)) => packet.is_sequenced() || common.seq.0 == 0,
            // The dissector shows a value without a meaning as such.
            Err(WireError::Field) => continue,
            Err(_) => false,
        };
        assert_eq!(!seen.types.is_empty(), good, "{parsed:?}: {bytes:02x?}");
        taken[usize::from(good)] += 1;
    }
    assert!(taken.iter().all(|count| *count > 500), "{taken:?}");
    std::fs::remove_file(file).unwrap();
}
