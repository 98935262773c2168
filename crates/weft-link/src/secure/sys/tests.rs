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
fn tag__equals_the_reference_implementation_at_every_length() {
    use aegis::aegis128x2::Aegis128X2;
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
            assert_eq!(aegis.tag(&nonce, &ad, &bytes[..len]), want, "{backend:?} {len}");
            let mut data = vec![0; len];
            assert_eq!(aegis.encrypt(&nonce, &ad, &bytes[..len], &mut data), want);
            assert_eq!(data, ct);
            assert_eq!(aegis.decrypt(&nonce, &ad, &mut data), want);
            assert_eq!(data, &bytes[..len]);
        }
    }
}

#[test]
fn random_bytes__fills_and_differs() {
    let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
    random_bytes(&mut a).unwrap();
    random_bytes(&mut b).unwrap();
    assert_ne!(a, b);
}
