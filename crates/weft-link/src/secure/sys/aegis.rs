//! AEGIS-128X2, sections 3 and 6 of draft-irtf-cfrg-aegis-aead, for any type of two AES blocks.

/// Two AES blocks side by side: lane 0 and lane 1 of the draft's `V[i]`.
pub(super) trait Pair: Copy {
    /// Reads 32 bytes.
    ///
    /// # Safety
    /// `p` is readable for 32 bytes, and the processor has the implementation's instructions.
    unsafe fn load(p: *const u8) -> Self;
    /// Writes 32 bytes.
    ///
    /// # Safety
    /// `p` is writable for 32 bytes, and the processor has the implementation's instructions.
    unsafe fn store(self, p: *mut u8);
    /// Computes the exclusive or.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn xor(self, other: Self) -> Self;
    /// Computes the bitwise and.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn and(self, other: Self) -> Self;
    /// Computes one AES round of both blocks; `key` is added last (AESENC).
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn round(self, key: Self) -> Self;
}

/// Bytes absorbed by one update.
const RATE: usize = 64;

/// Absorb the payload, write its encryption.
pub(super) const ENCRYPT: bool = true;
/// Decrypt, absorb the result.
pub(super) const DECRYPT: bool = false;

/// A message and the parameters of the cipher.
pub(super) struct Job<'a> {
    /// The key.
    pub key: &'a [u8; 16],
    /// The nonce; must not repeat under one key.
    pub nonce: &'a [u8; 16],
    /// Associated data, zero-padded.
    pub ad: &'a [u8; super::AD_MAX],
    /// Its length.
    pub ad_len: usize,
    /// The payload.
    pub src: *const u8,
    /// Destination of the encrypted or decrypted payload.
    pub dst: *mut u8,
    /// Length of both.
    pub len: usize,
}

const C0: [u8; 16] = [
    0x00, 0x01, 0x01, 0x02, 0x03, 0x05, 0x08, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62,
];
const C1: [u8; 16] = [
    0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd,
];

type State<P> = [P; 8];

#[inline(always)]
unsafe fn both<P: Pair>(block: &[u8; 16]) -> P {
    let mut twice = [0u8; 32];
    twice[..16].copy_from_slice(block);
    twice[16..].copy_from_slice(block);
    // SAFETY: 32 readable bytes; instructions by the caller's contract.
    unsafe { P::load(twice.as_ptr()) }
}

#[inline(always)]
unsafe fn update<P: Pair>(s: &mut State<P>, m0: P, m1: P) {
    // SAFETY: instructions by the caller's contract.
    unsafe {
        *s = [
            s[7].round(s[0].xor(m0)),
            s[0].round(s[1]),
            s[1].round(s[2]),
            s[2].round(s[3]),
            s[3].round(s[4].xor(m1)),
            s[4].round(s[5]),
            s[5].round(s[6]),
            s[6].round(s[7]),
        ];
    }
}

#[inline(always)]
unsafe fn init<P: Pair>(key: &[u8; 16], nonce: &[u8; 16]) -> State<P> {
    // SAFETY: `ctx` is 32 readable bytes; instructions by the caller's contract.
    unsafe {
        let (k, n): (P, P) = (both(key), both(nonce));
        let (c0, c1): (P, P) = (both(&C0), both(&C1));
        // The lane number and the number of lanes minus one make the two lanes differ.
        let mut ctx = [0u8; 32];
        (ctx[1], ctx[16], ctx[17]) = (1, 1, 1);
        let ctx = P::load(ctx.as_ptr());
        let kn = k.xor(n);
        let kc0 = k.xor(c0);
        let mut s = [kn, c1, c0, c1, kn, kc0, k.xor(c1), kc0];
        for _ in 0..10 {
            s[3] = s[3].xor(ctx);
            s[7] = s[7].xor(ctx);
            update(&mut s, n, k);
        }
        s
    }
}

#[inline(always)]
unsafe fn finish<P: Pair>(s: &mut State<P>, ad_len: usize, len: usize) -> [u8; 16] {
    let mut bits = [0u8; 16];
    bits[..8].copy_from_slice(&(ad_len as u64 * 8).to_le_bytes());
    bits[8..].copy_from_slice(&(len as u64 * 8).to_le_bytes());
    let mut lanes = [0u8; 32];
    // SAFETY: `lanes` is 32 writable bytes; instructions by the caller's contract.
    unsafe {
        let t = both::<P>(&bits).xor(s[2]);
        for _ in 0..7 {
            update(s, t, t);
        }
        let t = s[0].xor(s[1]).xor(s[2]).xor(s[3]).xor(s[4]).xor(s[5]).xor(s[6]);
        t.store(lanes.as_mut_ptr());
    }
    let mut tag = [0u8; 16];
    for i in 0..16 {
        tag[i] = lanes[i] ^ lanes[16 + i];
    }
    tag
}

/// Processes one block of payload of which `len` bytes are valid (the rest of `src` is zero).
#[inline(always)]
unsafe fn block<P: Pair, const MODE: bool>(
    s: &mut State<P>,
    src: *const u8,
    dst: *mut u8,
    len: usize,
) {
    // SAFETY: RATE readable and RATE writable bytes by the caller's contract.
    unsafe {
        let (x0, x1) = (P::load(src), P::load(src.add(32)));
        let z0 = s[6].xor(s[1]).xor(s[2].and(s[3]));
        let z1 = s[2].xor(s[5]).xor(s[6].and(s[7]));
        let (y0, y1) = (x0.xor(z0), x1.xor(z1));
        y0.store(dst);
        y1.store(dst.add(32));
        if MODE == ENCRYPT {
            return update(s, x0, x1);
        }
        if len == RATE {
            return update(s, y0, y1);
        }
        // The keystream beyond the end must not be absorbed.
        std::ptr::write_bytes(dst.add(len), 0, RATE - len);
        update(s, P::load(dst), P::load(dst.add(32)));
    }
}

/// Runs one message through the cipher; returns its tag.
///
/// # Safety
/// `job.src` is readable and `job.dst` writable for `job.len` bytes; they are equal or do not
/// overlap; the processor has the instructions of `P`.
#[inline(always)]
pub(super) unsafe fn run<P: Pair, const MODE: bool>(job: &Job<'_>) -> [u8; 16] {
    let full = job.len / RATE * RATE;
    let rest = job.len - full;
    let mut tail = [0u8; RATE];
    // SAFETY: `full + rest == len`; the tail lies on the stack; `ad` is whole blocks.
    unsafe {
        if rest != 0 {
            std::ptr::copy_nonoverlapping(job.src.add(full), tail.as_mut_ptr(), rest);
        }
        let mut s = init::<P>(job.key, job.nonce);
        let mut at = 0;
        while at < job.ad_len {
            let p = job.ad.as_ptr().add(at);
            update(&mut s, P::load(p), P::load(p.add(32)));
            at += RATE;
        }
        let mut at = 0;
        while at < full {
            block::<P, MODE>(&mut s, job.src.add(at), job.dst.add(at), RATE);
            at += RATE;
        }
        if rest != 0 {
            let p = tail.as_mut_ptr();
            block::<P, MODE>(&mut s, p, p, rest);
            std::ptr::copy_nonoverlapping(p, job.dst.add(full), rest);
        }
        finish(&mut s, job.ad_len, job.len)
    }
}

/// The AES rounds of the crate `aes`.
#[derive(Clone, Copy)]
pub(super) struct Portable([[u8; 16]; 2]);

impl Portable {
    fn map(self, other: Portable, f: impl Fn(u8, u8) -> u8) -> Portable {
        let mut out = self;
        for lane in 0..2 {
            for i in 0..16 {
                out.0[lane][i] = f(self.0[lane][i], other.0[lane][i]);
            }
        }
        out
    }
}

impl Pair for Portable {
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Portable {
        // SAFETY: 32 readable bytes by the caller's contract.
        Portable(unsafe { p.cast::<[[u8; 16]; 2]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        // SAFETY: 32 writable bytes by the caller's contract.
        unsafe { p.cast::<[[u8; 16]; 2]>().write_unaligned(self.0) }
    }

    // A processor without instructions for AES takes long for a round; a call adds little. Inlined,
    // the rounds of the whole cipher take 70 KB in each program.
    #[inline(never)]
    unsafe fn xor(self, other: Portable) -> Portable {
        self.map(other, |a, b| a ^ b)
    }

    #[inline(never)]
    unsafe fn and(self, other: Portable) -> Portable {
        self.map(other, |a, b| a & b)
    }

    #[inline(never)]
    unsafe fn round(self, key: Portable) -> Portable {
        let mut out = self;
        for lane in 0..2 {
            let mut block = self.0[lane].into();
            aes::hazmat::cipher_round(&mut block, &key.0[lane].into());
            out.0[lane] = block.into();
        }
        out
    }
}
