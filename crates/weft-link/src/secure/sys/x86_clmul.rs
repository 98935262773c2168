//! POLYVAL with carry-less multiplication on x86-64, four blocks at a time; AES-128 of one block.

use super::mac::{Message, GROUP, GROUPS};
use std::arch::x86_64::*;

/// How far ahead memory is asked for while a payload is copied.
const AHEAD: usize = 4096;

/// 64 bytes of message in registers, and the sums of products they go into.
trait Lanes: Copy {
    /// Sums of low, middle and high partial products.
    type Sums: Copy;
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn zero() -> Self::Sums;
    /// `n` bytes (at most 64) from `p`, then zeros.
    ///
    /// # Safety
    /// `n` bytes are readable; the processor has the implementation's instructions.
    unsafe fn load(p: *const u8, n: usize) -> Self;
    /// `first`, then `n` bytes (at most 48) from `p`, then zeros.
    ///
    /// # Safety
    /// `n` bytes are readable; the processor has the implementation's instructions.
    unsafe fn load_after(first: __m128i, p: *const u8, n: usize) -> Self;
    /// Writes the first `n` bytes (at most 64) to `p`.
    ///
    /// # Safety
    /// `n` bytes are writable; the processor has the implementation's instructions.
    unsafe fn store(self, p: *mut u8, n: usize);
    /// Adds a block to the first of the four.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn add_first(self, block: __m128i) -> Self;
    /// Adds the products with four powers.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn multiply(self, powers: &[u8; GROUP], sums: &mut Self::Sums);
    /// Low, middle and high sums over the four blocks.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn fold(sums: Self::Sums) -> [__m128i; 3];
}

/// Reduces a 256-bit product, times x^-128 (Montgomery): POLYVAL's multiplication, RFC 8452 section
/// 3.
#[inline(always)]
unsafe fn reduce([low, middle, high]: [__m128i; 3]) -> __m128i {
    // SAFETY: instructions by the caller's contract.
    unsafe {
        let g = _mm_set_epi64x(0, 0xc200_0000_0000_0000_u64 as i64);
        let low = _mm_xor_si128(low, _mm_slli_si128::<8>(middle));
        let high = _mm_xor_si128(high, _mm_srli_si128::<8>(middle));
        let t = _mm_clmulepi64_si128::<0x00>(g, low);
        let d = _mm_xor_si128(low, _mm_shuffle_epi32::<0b01_00_11_10>(t));
        let v = _mm_clmulepi64_si128::<0x10>(g, d);
        _mm_xor_si128(high, _mm_xor_si128(d, v))
    }
}

/// The hash of a message; with `COPY`, its payload goes to `copy` on the way.
#[inline(always)]
unsafe fn hash<L: Lanes, const COPY: bool>(
    powers: &[[u8; GROUP]; GROUPS],
    message: &Message<'_>,
    copy: *mut u8,
) -> u64 {
    let (header, payload) = (message.header, message.payload);
    let at_once = header.len().min(GROUP - 16);
    let groups = 1 + (header.len() - at_once).div_ceil(GROUP) + payload.len().div_ceil(GROUP);
    let [a, b] = message.first();
    // SAFETY: each load stays within header or payload; instructions by the caller's contract.
    unsafe {
        let first = _mm_set_epi64x(b as i64, a as i64);
        let mut power = GROUPS - groups.min(GROUPS);
        let mut left = groups;
        let mut sums = L::zero();
        L::load_after(first, header.as_ptr(), at_once).multiply(&powers[power], &mut sums);
        power += 1;
        left -= 1;
        for (part, copy_it) in [(&header[at_once..], false), (payload, COPY)] {
            let mut at = 0;
            while at < part.len() {
                // Whole runs without a test in between; the last group of a part may be cut short.
                let run = (GROUPS - power).min((part.len() - at) / GROUP);
                for _ in 0..run {
                    let group = L::load(part.as_ptr().add(at), GROUP);
                    if copy_it {
                        // Whatever is copied next mostly follows in memory, on both sides.
                        _mm_prefetch::<_MM_HINT_T0>(part.as_ptr().wrapping_add(at + AHEAD).cast());
                        _mm_prefetch::<_MM_HINT_ET0>(copy.wrapping_add(at + AHEAD).cast());
                        group.store(copy.add(at), GROUP);
                    }
                    group.multiply(&powers[power], &mut sums);
                    at += GROUP;
                    power += 1;
                }
                left -= run;
                if power < GROUPS && at < part.len() {
                    let n = (part.len() - at).min(GROUP);
                    let group = L::load(part.as_ptr().add(at), n);
                    if copy_it {
                        group.store(copy.add(at), n);
                    }
                    group.multiply(&powers[power], &mut sums);
                    at += n;
                    power += 1;
                    left -= 1;
                }
                if power == GROUPS && at < part.len() {
                    let carry = reduce(L::fold(sums));
                    power = GROUPS - left.min(GROUPS);
                    sums = L::zero();
                    let n = (part.len() - at).min(GROUP);
                    let group = L::load(part.as_ptr().add(at), n);
                    if copy_it {
                        group.store(copy.add(at), n);
                    }
                    group.add_first(carry).multiply(&powers[power], &mut sums);
                    at += n;
                    power += 1;
                    left -= 1;
                }
            }
        }
        _mm_cvtsi128_si64(reduce(L::fold(sums))) as u64
    }
}

/// 512-bit registers (AVX-512, VPCLMULQDQ).
#[derive(Clone, Copy)]
struct Wide(__m512i);

impl Lanes for Wide {
    type Sums = [__m512i; 3];

    #[inline(always)]
    unsafe fn zero() -> [__m512i; 3] {
        // SAFETY: AVX-512 by the caller's contract.
        unsafe { [_mm512_setzero_si512(); 3] }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8, n: usize) -> Wide {
        // SAFETY: masked-out bytes are not accessed; AVX-512 by the caller's contract.
        unsafe {
            if n == GROUP {
                return Wide(_mm512_loadu_si512(p.cast()));
            }
            Wide(_mm512_maskz_loadu_epi8((1u64 << n) - 1, p.cast()))
        }
    }

    #[inline(always)]
    unsafe fn load_after(first: __m128i, p: *const u8, n: usize) -> Wide {
        // SAFETY: masked-out bytes, and so those before `p`, are not accessed; AVX-512 by contract.
        unsafe {
            let mask = ((1u64 << n) - 1) << 16;
            let rest = _mm512_maskz_loadu_epi8(mask, p.wrapping_sub(16).cast());
            Wide(_mm512_inserti32x4::<0>(rest, first))
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, n: usize) {
        // SAFETY: masked-out bytes are not accessed; AVX-512 by the caller's contract.
        unsafe {
            if n == GROUP {
                return _mm512_storeu_si512(p.cast(), self.0);
            }
            _mm512_mask_storeu_epi8(p.cast(), (1u64 << n) - 1, self.0);
        }
    }

    #[inline(always)]
    unsafe fn add_first(self, block: __m128i) -> Wide {
        // SAFETY: AVX-512 by the caller's contract.
        unsafe { Wide(_mm512_xor_si512(self.0, _mm512_zextsi128_si512(block))) }
    }

    #[inline(always)]
    unsafe fn multiply(self, powers: &[u8; GROUP], sums: &mut [__m512i; 3]) {
        // SAFETY: 64 readable bytes; AVX-512 and VPCLMULQDQ by the caller's contract.
        unsafe {
            let h = _mm512_loadu_si512(powers.as_ptr().cast());
            let m0 = _mm512_clmulepi64_epi128::<0x01>(self.0, h);
            let m1 = _mm512_clmulepi64_epi128::<0x10>(self.0, h);
            sums[0] = _mm512_xor_si512(sums[0], _mm512_clmulepi64_epi128::<0x00>(self.0, h));
            sums[1] = _mm512_ternarylogic_epi64::<0x96>(sums[1], m0, m1);
            sums[2] = _mm512_xor_si512(sums[2], _mm512_clmulepi64_epi128::<0x11>(self.0, h));
        }
    }

    #[inline(always)]
    unsafe fn fold(sums: [__m512i; 3]) -> [__m128i; 3] {
        // SAFETY: AVX-512 by the caller's contract.
        unsafe { [fold_wide(sums[0]), fold_wide(sums[1]), fold_wide(sums[2])] }
    }
}

/// Exclusive or of the four blocks. No closures here and elsewhere in this file: they would not
/// inherit the caller's instructions.
#[inline(always)]
unsafe fn fold_wide(s: __m512i) -> __m128i {
    // SAFETY: AVX-512 by the caller's contract.
    unsafe {
        let s = _mm256_xor_si256(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64::<1>(s));
        _mm_xor_si128(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s))
    }
}

/// 128-bit registers (PCLMULQDQ).
#[derive(Clone, Copy)]
struct Narrow([__m128i; 4]);

impl Lanes for Narrow {
    type Sums = [__m128i; 3];

    #[inline(always)]
    unsafe fn zero() -> [__m128i; 3] {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { [_mm_setzero_si128(); 3] }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8, n: usize) -> Narrow {
        let mut group = [0u8; GROUP];
        // SAFETY: `n` readable bytes by contract, at most the group's.
        unsafe {
            let mut from = p;
            if n < GROUP {
                std::ptr::copy_nonoverlapping(p, group.as_mut_ptr(), n);
                from = group.as_ptr();
            }
            let from = from.cast::<__m128i>();
            Narrow([
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.add(1)),
                _mm_loadu_si128(from.add(2)),
                _mm_loadu_si128(from.add(3)),
            ])
        }
    }

    #[inline(always)]
    unsafe fn load_after(first: __m128i, p: *const u8, n: usize) -> Narrow {
        // SAFETY: by contract.
        let Narrow([a, b, c, _]) = unsafe { Narrow::load(p, n) };
        Narrow([first, a, b, c])
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, n: usize) {
        let mut group = [0u8; GROUP];
        // SAFETY: `n` writable bytes by contract, at most the group's.
        unsafe {
            for (i, x) in self.0.into_iter().enumerate() {
                _mm_storeu_si128(group.as_mut_ptr().add(16 * i).cast(), x);
            }
            std::ptr::copy_nonoverlapping(group.as_ptr(), p, n);
        }
    }

    #[inline(always)]
    unsafe fn add_first(self, block: __m128i) -> Narrow {
        let Narrow([a, b, c, d]) = self;
        // SAFETY: SSE2 is part of x86-64.
        Narrow([unsafe { _mm_xor_si128(a, block) }, b, c, d])
    }

    #[inline(always)]
    unsafe fn multiply(self, powers: &[u8; GROUP], sums: &mut [__m128i; 3]) {
        for (i, x) in self.0.into_iter().enumerate() {
            // SAFETY: 16 readable bytes; PCLMULQDQ by the caller's contract.
            unsafe {
                let h = _mm_loadu_si128(powers.as_ptr().add(16 * i).cast());
                let m0 = _mm_clmulepi64_si128::<0x01>(x, h);
                let m1 = _mm_clmulepi64_si128::<0x10>(x, h);
                sums[0] = _mm_xor_si128(sums[0], _mm_clmulepi64_si128::<0x00>(x, h));
                sums[1] = _mm_xor_si128(sums[1], _mm_xor_si128(m0, m1));
                sums[2] = _mm_xor_si128(sums[2], _mm_clmulepi64_si128::<0x11>(x, h));
            }
        }
    }

    #[inline(always)]
    unsafe fn fold(sums: [__m128i; 3]) -> [__m128i; 3] {
        sums
    }
}

/// Round keys of AES-128 (FIPS 197, section 5.2).
///
/// # Safety
/// The processor has AES-NI.
#[target_feature(enable = "aes")]
pub(super) unsafe fn expand(key: [u8; 16]) -> [[u8; 16]; 11] {
    #[inline(always)]
    unsafe fn next<const RCON: i32>(keys: &mut [[u8; 16]; 11], i: usize) {
        // SAFETY: 16 readable and 16 writable bytes; AES-NI by the caller's contract.
        unsafe {
            let k = _mm_loadu_si128(keys[i - 1].as_ptr().cast());
            let t = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<RCON>(k));
            let k = _mm_xor_si128(k, _mm_slli_si128::<4>(k));
            let k = _mm_xor_si128(k, _mm_slli_si128::<8>(k));
            _mm_storeu_si128(keys[i].as_mut_ptr().cast(), _mm_xor_si128(k, t));
        }
    }
    let mut keys = [key; 11];
    // SAFETY: AES-NI by contract.
    unsafe {
        next::<0x01>(&mut keys, 1);
        next::<0x02>(&mut keys, 2);
        next::<0x04>(&mut keys, 3);
        next::<0x08>(&mut keys, 4);
        next::<0x10>(&mut keys, 5);
        next::<0x20>(&mut keys, 6);
        next::<0x40>(&mut keys, 7);
        next::<0x80>(&mut keys, 8);
        next::<0x1b>(&mut keys, 9);
        next::<0x36>(&mut keys, 10);
    }
    keys
}

/// The low half of the encrypted block.
#[inline(always)]
unsafe fn encrypt(keys: &[[u8; 16]; 11], block: [u64; 2]) -> u64 {
    // SAFETY: each round key is 16 readable bytes; AES-NI by the caller's contract.
    unsafe {
        let keys = keys.as_ptr().cast::<__m128i>();
        let mut x = _mm_set_epi64x(block[1] as i64, block[0] as i64);
        x = _mm_xor_si128(x, _mm_loadu_si128(keys));
        for i in 1..10 {
            x = _mm_aesenc_si128(x, _mm_loadu_si128(keys.add(i)));
        }
        _mm_cvtsi128_si64(_mm_aesenclast_si128(x, _mm_loadu_si128(keys.add(10)))) as u64
    }
}

/// Keys as the instructions want them.
#[derive(Clone)]
pub(super) struct Keys {
    /// Powers of the hash key, highest first: the last block is the key itself.
    pub powers: [[u8; GROUP]; GROUPS],
    /// Round keys of the cipher.
    pub rounds: [[u8; 16]; 11],
}

/// # Safety
/// The processor has AVX-512 F and BW, VPCLMULQDQ, PCLMULQDQ and AES-NI.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,aes")]
pub(super) unsafe fn tag_wide(keys: &Keys, nonce: [u64; 2], message: &Message<'_>) -> u64 {
    let none = std::ptr::null_mut();
    // SAFETY: by contract; nothing is copied.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Wide, false>(&keys.powers, message, none) }
}

/// # Safety
/// The processor has PCLMULQDQ and AES-NI.
#[target_feature(enable = "pclmulqdq,aes")]
pub(super) unsafe fn tag_narrow(keys: &Keys, nonce: [u64; 2], message: &Message<'_>) -> u64 {
    let none = std::ptr::null_mut();
    // SAFETY: by contract; nothing is copied.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Narrow, false>(&keys.powers, message, none) }
}

/// As [`tag_wide`], and copies the payload to `copy`.
///
/// # Safety
/// As [`tag_wide`]; the payload's length is writable at `copy`.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,aes")]
pub(super) unsafe fn tag_copy_wide(
    keys: &Keys,
    nonce: [u64; 2],
    message: &Message<'_>,
    copy: *mut u8,
) -> u64 {
    // SAFETY: by contract.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Wide, true>(&keys.powers, message, copy) }
}

/// As [`tag_narrow`], and copies the payload to `copy`.
///
/// # Safety
/// As [`tag_narrow`]; the payload's length is writable at `copy`.
#[target_feature(enable = "pclmulqdq,aes")]
pub(super) unsafe fn tag_copy_narrow(
    keys: &Keys,
    nonce: [u64; 2],
    message: &Message<'_>,
    copy: *mut u8,
) -> u64 {
    // SAFETY: by contract.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Narrow, true>(&keys.powers, message, copy) }
}
