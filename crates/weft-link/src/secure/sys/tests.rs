#![allow(non_snake_case)]

use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn key_and_nonce() -> ([u8; 16], [u8; 16]) {
    (std::array::from_fn(|i| i as u8), std::array::from_fn(|i| 0x10 + i as u8))
}

#[test]
fn encrypt__draft_vector() {
    let (key, nonce) = key_and_nonce();
    let ad = Ad::new(u64::from_le_bytes([1, 2, 3, 4, 1, 2, 3, 4]), &[]);
    let msg = [4u8, 5, 6, 7].repeat(30);
    let want = hex(concat!(
        "5795544301997f93621b278809d6331b3bfa6f18e90db12c4aa35965b5e98c5fc6fb4e54bcb6111842c20637",
        "252eff747cb3a8f85b37de80919a589fe0f24872bc926360696739e05520647e390989e1eb5fd42f99678a02",
        "76a498f8c454761c9d6aacb647ad56be62b29c22cd4b5761b38f43d5a5ee062f"
    ));
    for backend in Backend::available() {
        let aegis = Aegis::new(key, backend);
        let mut out = vec![0; msg.len()];
        let tag = aegis.encrypt(&nonce, &ad, &msg, &mut out);
        assert_eq!(out, want, "{backend:?}");
        assert_eq!(tag.to_vec(), hex("1aebc200804f405cab637f2adebb6d77"), "{backend:?}");
    }
}

#[test]
fn encrypt__equals_the_reference_implementation_at_every_length() {
    use ::aegis::aegis128x2::Aegis128X2;
    let (key, nonce) = key_and_nonce();
    let bytes: Vec<u8> = (0..2000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let lengths = (0..200).chain([1424, 1456, 1999]);
    for len in lengths {
        let header = &bytes[100..100 + len % 121];
        let mut flat = 0xfeed_u64.to_le_bytes().to_vec();
        flat.extend_from_slice(header);
        let (ct, want) = Aegis128X2::<16>::new(&key, &nonce).encrypt(&bytes[..len], &flat);
        for backend in Backend::available() {
            let aegis = Aegis::new(key, backend);
            let ad = Ad::new(0xfeed, header);
            let mut data = vec![0; len];
            let tag = aegis.encrypt(&nonce, &ad, &bytes[..len], &mut data);
            assert_eq!(tag, want, "{backend:?} {len}");
            assert_eq!(data, ct);
            assert_eq!(aegis.decrypt(&nonce, &ad, &mut data), want);
            assert_eq!(data, &bytes[..len]);
        }
    }
}

/// The test vector of RFC 8452, appendix A, checks the crate `polyval`; this test checks our code
/// against that crate.
#[test]
fn mac__backends_agree_at_every_length() {
    let bytes: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let macs: Vec<Mac> =
        Backend::available().into_iter().map(|b| Mac::new([5; 16], [6; 16], b)).collect();
    let lengths = (0..300).chain([1424, 1456, 1984, 2047, 2048, 2049, 4096, 8940, 32_700, 40_000]);
    for len in lengths {
        for header in [0, 1, 3, 4, 7, 8, 9, 15, 24, 32, 48, 49, 56, 64, 113] {
            let message =
                Message { number: 9, header: &bytes[3..3 + header], payload: &bytes[..len] };
            let tags: Vec<_> = macs.iter().map(|m| m.tag([1, 2], &message)).collect();
            assert!(tags.iter().all(|t| *t == tags[0]), "{header} {len}: {tags:?}");
        }
    }
}

/// Calls a test with each implementation and length, and bytes.
fn each_length(test: impl Fn(&Mac, &[u8], usize, Backend)) {
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    for backend in Backend::available() {
        let mac = Mac::new([5; 16], [6; 16], backend);
        for len in (0..300).chain([1424, 1456, 2047, 2048, 2049, 4096]) {
            test(&mac, &bytes, len, backend);
        }
    }
}

#[test]
fn mac__copies_the_payload_and_nothing_else() {
    each_length(|mac, bytes, len, backend| {
        let message = Message { number: 9, header: &bytes[..32], payload: &bytes[7..7 + len] };
        let mut copy = vec![0xee; len + 128];
        let tag = mac.tag_copy([1, 2], &message, &mut copy[64..64 + len]);
        assert_eq!(tag, mac.tag([1, 2], &message), "{backend:?} {len}");
        assert_eq!(&copy[64..64 + len], message.payload, "{backend:?} {len}");
        let (before, after) = (&copy[..64], &copy[64 + len..]);
        assert!(before.iter().chain(after).all(|b| *b == 0xee), "{backend:?} {len}");
    });
}

#[test]
fn mac__leaves_a_received_message_as_it_was() {
    each_length(|mac, bytes, len, backend| {
        let (header, mut memory) = (&bytes[..32], bytes.to_vec());
        let range = 7..7 + len;
        let message = Message { number: 9, header, payload: &bytes[range.clone()] };
        let want = mac.tag([1, 2], &message);
        let mut copy = vec![0xee; len];
        let payload = &mut memory[range.clone()];
        let tag = mac.tag_received([1, 2], 9, (header, payload), Some(&mut copy));
        assert_eq!((tag, &copy[..]), (want, message.payload), "{backend:?} {len}");
        let payload = &mut memory[range.clone()];
        let tag = mac.tag_received([1, 2], 9, (header, payload), None);
        assert_eq!(tag, want, "{backend:?} {len}");
        assert_eq!(memory, bytes, "{backend:?} {len}");
    });
}

#[test]
fn mac__is_polyval_hidden_by_aes() {
    use aes::cipher::{BlockCipherEncrypt, KeyInit};
    use polyval::universal_hash::UniversalHash;
    let message = Message { number: 9, header: &[1; 24], payload: &[2; 70] };
    let mut encoded = vec![0; 64 + 128];
    encoded[0] = 9;
    encoded[8] = 24;
    encoded[12] = 70;
    encoded[16..40].fill(1);
    encoded[64..134].fill(2);
    let mut hash = polyval::Polyval::new(&[5; 16].into());
    hash.update_padded(&encoded);
    let mut pad = aes::Block::from([0; 16]);
    (pad[0], pad[8]) = (3, 4);
    aes::Aes128::new(&[6; 16].into()).encrypt_block(&mut pad);
    let want: Vec<u8> = hash.finalize().iter().zip(&pad).map(|(a, b)| a ^ b).take(8).collect();
    for backend in Backend::available() {
        let tag = Mac::new([5; 16], [6; 16], backend).tag([3, 4], &message);
        assert_eq!(tag.to_vec(), want, "{backend:?}");
    }
}

#[test]
fn mac__every_part_counts() {
    let mac = Mac::new([5; 16], [6; 16], Backend::detect());
    let base = Message { number: 9, header: &[1; 24], payload: &[0; 70] };
    let others = [
        Message { number: 8, ..base },
        Message { header: &[1; 25], ..base },
        Message { header: &[2; 24], ..base },
        Message { payload: &[0; 71], ..base },
        Message { payload: &[], ..base },
    ];
    let tag = mac.tag([1, 2], &base);
    assert!(others.iter().all(|m| mac.tag([1, 2], m) != tag));
    assert!(mac.tag([2, 1], &base) != tag && mac.tag([1, 3], &base) != tag);
}
