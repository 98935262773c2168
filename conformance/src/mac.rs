//! The authentication code of frames against a plain transcription of its definition in
//! `PROTOCOL.md`, made of the crates `polyval` and `aes`: the body of a fuzz target.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use polyval::{universal_hash::UniversalHash, Polyval};
use weft_link::secure::{Backend, Mac, Message};

/// Bytes of an input before header and payload: two keys, a nonce, the receiver, and four bytes
/// that choose lengths and alignment.
const CHOICES: usize = 16 + 16 + 16 + 8 + 4;
/// Byte around a copy, which must stay as it is.
const GUARD: u8 = 0xee;

/// Tests the code on every implementation that this processor has, in all its forms, for any keys,
/// nonce, lengths and alignment that the input chooses.
pub fn mac_tag(data: &[u8]) {
    let Some((choices, bytes)) = data.split_at_checked(CHOICES) else { return };
    let key = |at: usize| -> [u8; 16] { choices[at..at + 16].try_into().expect("16 bytes") };
    let word =
        |at: usize| -> u64 { u64::from_le_bytes(choices[at..at + 8].try_into().expect("8 bytes")) };
    let (nonce, number) = ([word(32), word(40)], word(48));
    let [split, times, skew, copy_skew] = choices[56..].try_into().expect("4 bytes");
    let (header, once) = bytes.split_at(usize::from(split).min(bytes.len()));
    // A short input makes a payload of many groups, too, whose hash is reduced several times.
    let payload = once.repeat(1 + usize::from(times));
    let skew = usize::from(skew % 64);
    let mut memory = [&vec![GUARD; skew], &payload[..], &[GUARD; 64]].concat();
    let place = skew..skew + payload.len();
    let want = transcribed(key(0), key(16), nonce, &Message { number, header, payload: &payload });
    for backend in Backend::available() {
        let mac = Mac::new(key(0), key(16), backend);
        let message = Message { number, header, payload: &memory[place.clone()] };
        assert_eq!(mac.tag(nonce, &message), want, "{backend:?}");
        let mut copies = Copies::new(payload.len(), copy_skew);
        assert_eq!(mac.tag_copy(nonce, &message, copies.place()), want, "{backend:?} copies");
        copies.check(&payload, backend);
        let parts = (header, &mut memory[place.clone()]);
        assert_eq!(mac.tag_received(nonce, number, parts, None), want, "{backend:?} received");
        let mut copies = Copies::new(payload.len(), copy_skew);
        let parts = (header, &mut memory[place.clone()]);
        let tag = mac.tag_received(nonce, number, parts, Some(copies.place()));
        assert_eq!(tag, want, "{backend:?} received and copies");
        copies.check(&payload, backend);
        assert_eq!(memory[place.clone()], payload, "{backend:?} changed what was received");
        let around = memory[..skew].iter().chain(&memory[place.end..]);
        assert!(around.copied().all(|byte| byte == GUARD), "{backend:?} wrote beside");
    }
}

/// A place for a copy, with guards around it.
struct Copies(Vec<u8>, std::ops::Range<usize>);

impl Copies {
    fn new(len: usize, skew: u8) -> Copies {
        let start = 64 + usize::from(skew % 64);
        Copies(vec![GUARD; start + len + 64], start..start + len)
    }

    fn place(&mut self) -> &mut [u8] {
        &mut self.0[self.1.clone()]
    }

    fn check(&self, payload: &[u8], backend: Backend) {
        let Copies(memory, place) = self;
        assert_eq!(&memory[place.clone()], payload, "{backend:?} copied something else");
        let around = memory[..place.start].iter().chain(&memory[place.end..]);
        assert!(around.copied().all(|byte| byte == GUARD), "{backend:?} wrote beside the copy");
    }
}

/// Returns the tag, computed as the definition has it: the whole encoding in one piece.
fn transcribed(
    hash_key: [u8; 16],
    cipher_key: [u8; 16],
    nonce: [u64; 2],
    message: &Message<'_>,
) -> [u8; 8] {
    let Message { number, header, payload } = message;
    let mut encoded = number.to_le_bytes().to_vec();
    encoded.extend((header.len() as u32).to_le_bytes());
    encoded.extend((payload.len() as u32).to_le_bytes());
    for part in [header, payload] {
        encoded.extend_from_slice(part);
        encoded.resize(encoded.len().next_multiple_of(64), 0);
    }
    let mut hash = Polyval::new(&hash_key.into());
    hash.update_padded(&encoded);
    let mut pad = aes::Block::default();
    pad.copy_from_slice(nonce.map(u64::to_le_bytes).as_flattened());
    aes::Aes128::new(&cipher_key.into()).encrypt_block(&mut pad);
    let hash = hash.finalize();
    std::array::from_fn(|at| hash[at] ^ pad[at])
}
