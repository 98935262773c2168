//! SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed hash short enough for a BPF program:
//! additions, rotations and exclusive or. Processes use the code of the crate, programs the code
//! made here.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use weft_link::xdp::assembler::{Assembler, Width, R0, R1, R2, R3, R4, R5};

/// A secret shared by the sides that authenticate frames to each other.
#[derive(Clone, Copy)]
pub struct SipKey(pub [u8; 16]);

impl std::fmt::Debug for SipKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SipKey(..)")
    }
}

impl SipKey {
    /// Makes a new key from the kernel's random source.
    pub fn random() -> SipKey {
        let mut key = [0; 16];
        weft_link::random_bytes(&mut key);
        SipKey(key)
    }

    /// Returns the hash of the parts, joined, under this key.
    pub(crate) fn hash(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        parts.iter().for_each(|part| hasher.write(part));
        hasher.finish()
    }

    /// Returns the initial state of the hash for a program.
    pub(super) fn state(&self) -> [u64; 4] {
        let half = |at: usize| (0..8).fold(0, |n, i| n | u64::from(self.0[at + i]) << (8 * i));
        let (low, high) = (half(0), half(8));
        [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ]
    }
}

const V: [u8; 4] = [R1, R2, R3, R4];

/// `r1` = the hash of `words` times 8 bytes at `from`, under the key whose state is at `state`;
/// both are registers with offsets. The registers must not be among 0 to 5, which are used.
pub(super) fn siphash(asm: &mut Assembler, state: (u8, i16), from: (u8, i16), words: i16) {
    for (i, v) in V.into_iter().enumerate() {
        asm.load(Width::Double, v, state.0, state.1 + 8 * i as i16);
    }
    for word in 0..words {
        asm.load(Width::Double, R5, from.0, from.1 + 8 * word);
        asm.swap_le(R5, 64);
        block(asm);
    }
    asm.set_wide(R5, (8 * words as u64) << 56);
    block(asm);
    asm.xor(V[2], 0xff);
    (0..4).for_each(|_| round(asm));
    V[1..].iter().for_each(|&v| asm.xor_reg(V[0], v));
}

/// Adds the 8 bytes in `r5` to the hash.
fn block(asm: &mut Assembler) {
    asm.xor_reg(V[3], R5);
    round(asm);
    round(asm);
    asm.xor_reg(V[0], R5);
}

/// Mixes the four words of state once (SipRound).
fn round(asm: &mut Assembler) {
    let [a, b, c, d] = V;
    mix(asm, a, b, 13);
    mix(asm, c, d, 16);
    rotate(asm, a, 32);
    mix(asm, a, d, 21);
    mix(asm, c, b, 17);
    rotate(asm, c, 32);
}

/// `p += q; q = rotate(q, bits) ^ p`
fn mix(asm: &mut Assembler, p: u8, q: u8, bits: i32) {
    asm.add_reg(p, q);
    rotate(asm, q, bits);
    asm.xor_reg(q, p);
}

/// `dst = dst << bits | dst >> (64 - bits)`
fn rotate(asm: &mut Assembler, dst: u8, bits: i32) {
    asm.copy(R0, dst);
    asm.shift_left(dst, bits);
    asm.shift_right(R0, 64 - bits);
    asm.or_reg(dst, R0);
}
