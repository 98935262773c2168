//! POLYVAL with carry-less multiplication on x86-64, four blocks at a time; AES-128 of one block.

use super::mac::{GROUP, GROUPS};
use std::arch::x86_64::*;

/// Distance of prefetching in payloads of at least twice this length, and in shorter payloads, for
/// which the processor's own prefetcher is enough.
const AHEAD: usize = 16 << 10;
const AHEAD_SHORT: usize = 8 << 10;

/// 64 bytes of message in registers, and the sums of their products.
trait Lanes: Copy {
    /// Sums of low, middle and high partial products.
    type Sums: Copy;
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn zero() -> Self::Sums;
    /// Loads `n` bytes (at most 64) from `p`, followed by zeros.
    ///
    /// # Safety
    /// `n` bytes are readable; the processor has the implementation's instructions.
    unsafe fn load(p: *const u8, n: usize) -> Self;
    /// Loads `first`, then `n` bytes (at most 48) from `p`, followed by zeros.
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
    /// Adds the products with four powers to `sums`.
    ///
    /// # Safety
    /// The processor has the implementation's instructions.
    unsafe fn multiply(self, powers: &Powers, sums: &mut Self::Sums);
    /// Returns the low, middle and high sums over the four blocks.
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

/// A message whose payload may be written during the hash.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    /// The first 16 bytes of the encoding.
    pub first: [u64; 2],
    /// First part.
    pub header: &'a [u8],
    /// Second part: its start and length.
    pub payload: (*const u8, usize),
}

/// Loads `n` bytes (at most 64) from `p`. With `COPY`, stores them to `copy`; with `OWN`, also
/// writes the first of them back.
///
/// # Safety
/// `n` bytes are readable, with `COPY` writable at `copy`, with `OWN` writable at `p`; the
/// processor has the implementation's instructions.
#[inline(always)]
unsafe fn take<L: Lanes, const COPY: bool, const OWN: bool>(
    p: *const u8,
    n: usize,
    copy: *mut u8,
) -> L {
    // SAFETY: by contract.
    unsafe {
        let group = L::load(p, n);
        if COPY {
            group.store(copy, n);
        }
        if OWN {
            p.cast_mut().write_volatile(p.read_volatile());
        }
        group
    }
}

/// The state of a hash.
struct Sum<L: Lanes> {
    sums: L::Sums,
    /// Index of the next power; [`GROUPS`] when all powers are used.
    power: usize,
    /// Number of groups that follow.
    left: usize,
}

/// Adds a part of a message; `COPY` and `OWN` as in [`take`].
///
/// # Safety
/// The caller keeps the rules of [`take`] for all `len` bytes.
#[inline(always)]
unsafe fn add<L: Lanes, const COPY: bool, const OWN: bool>(
    powers: &[Powers; GROUPS],
    sum: &mut Sum<L>,
    (part, len): (*const u8, usize),
    copy: *mut u8,
) {
    let (mut at, ahead) = (0, if len < 2 * AHEAD { AHEAD_SHORT } else { AHEAD });
    // SAFETY: each access stays within the part and its copy; the rest by contract.
    unsafe {
        while at < len {
            // Only the first group after a reduction depends on its result; the other groups do not
            // wait.
            let mut waiting = None;
            if sum.power == GROUPS {
                let carry = reduce(L::fold(sum.sums));
                sum.power = GROUPS - sum.left.min(GROUPS);
                sum.sums = L::zero();
                let n = (len - at).min(GROUP);
                let group: L = take::<L, COPY, OWN>(part.add(at), n, copy.wrapping_add(at));
                waiting = Some((group, carry, sum.power));
                at += n;
                sum.power += 1;
                sum.left -= 1;
            }
            // All complete groups of a run without a test between them; the last group may be
            // shorter.
            let run = (GROUPS - sum.power).min((len - at) / GROUP);
            for _ in 0..run {
                // Prefetch: the bytes read next mostly follow in memory, on both sides.
                _mm_prefetch::<_MM_HINT_T0>(part.wrapping_add(at + ahead).cast());
                if COPY {
                    _mm_prefetch::<_MM_HINT_ET0>(copy.wrapping_add(at + ahead).cast());
                }
                let group: L = take::<L, COPY, OWN>(part.add(at), GROUP, copy.wrapping_add(at));
                group.multiply(&powers[sum.power], &mut sum.sums);
                at += GROUP;
                sum.power += 1;
            }
            sum.left -= run;
            if sum.power < GROUPS && at < len {
                let n = (len - at).min(GROUP);
                let group: L = take::<L, COPY, OWN>(part.add(at), n, copy.wrapping_add(at));
                group.multiply(&powers[sum.power], &mut sum.sums);
                at += n;
                sum.power += 1;
                sum.left -= 1;
            }
            if let Some((group, carry, power)) = waiting {
                group.add_first(carry).multiply(&powers[power], &mut sum.sums);
            }
        }
    }
}

/// Computes the hash of a message; `COPY` and `OWN` apply to its payload, as in [`take`].
///
/// # Safety
/// The caller keeps the rules of [`take`] for the whole payload.
#[inline(always)]
unsafe fn hash<L: Lanes, const COPY: bool, const OWN: bool>(
    powers: &[Powers; GROUPS],
    text: &Text<'_>,
    copy: *mut u8,
) -> u64 {
    let (at_once, rest) = text.header.split_at(text.header.len().min(GROUP - 16));
    let groups = 1 + rest.len().div_ceil(GROUP) + text.payload.1.div_ceil(GROUP);
    let [a, b] = text.first;
    // SAFETY: each load stays within header or payload; instructions by the caller's contract.
    unsafe {
        let first = _mm_set_epi64x(b as i64, a as i64);
        let power = GROUPS - groups.min(GROUPS);
        let mut sum = Sum { sums: L::zero(), power: power + 1, left: groups - 1 };
        let group = L::load_after(first, at_once.as_ptr(), at_once.len());
        group.multiply(&powers[power], &mut sum.sums);
        let rest = (rest.as_ptr(), rest.len());
        add::<L, false, false>(powers, &mut sum, rest, std::ptr::null_mut());
        add::<L, COPY, OWN>(powers, &mut sum, text.payload, copy);
        _mm_cvtsi128_si64(reduce(L::fold(sum.sums))) as u64
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
    unsafe fn multiply(self, powers: &Powers, sums: &mut [__m512i; 3]) {
        // SAFETY: 64 readable bytes; AVX-512 and VPCLMULQDQ by the caller's contract.
        unsafe {
            let h = _mm512_loadu_si512(powers.whole.as_ptr().cast());
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

/// The registers of [`Wide`], with three products for each block instead of four (Karatsuba), for
/// processors that start such a multiplication every second cycle and have other units for the
/// rest.
#[derive(Clone, Copy)]
struct Karatsuba(Wide);

impl Lanes for Karatsuba {
    type Sums = [__m512i; 3];

    #[inline(always)]
    unsafe fn zero() -> [__m512i; 3] {
        // SAFETY: by contract.
        unsafe { Wide::zero() }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8, n: usize) -> Karatsuba {
        // SAFETY: by contract.
        Karatsuba(unsafe { Wide::load(p, n) })
    }

    #[inline(always)]
    unsafe fn load_after(first: __m128i, p: *const u8, n: usize) -> Karatsuba {
        // SAFETY: by contract.
        Karatsuba(unsafe { Wide::load_after(first, p, n) })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, n: usize) {
        // SAFETY: by contract.
        unsafe { self.0.store(p, n) }
    }

    #[inline(always)]
    unsafe fn add_first(self, block: __m128i) -> Karatsuba {
        // SAFETY: by contract.
        Karatsuba(unsafe { self.0.add_first(block) })
    }

    #[inline(always)]
    unsafe fn multiply(self, powers: &Powers, sums: &mut [__m512i; 3]) {
        let Karatsuba(Wide(x)) = self;
        // SAFETY: 64 readable bytes each; AVX-512 and VPCLMULQDQ by the caller's contract.
        unsafe {
            let h = _mm512_loadu_si512(powers.whole.as_ptr().cast());
            let hs = _mm512_loadu_si512(powers.halves.as_ptr().cast());
            let xs = _mm512_xor_si512(x, _mm512_shuffle_epi32::<0b01_00_11_10>(x));
            sums[0] = _mm512_xor_si512(sums[0], _mm512_clmulepi64_epi128::<0x00>(x, h));
            sums[1] = _mm512_xor_si512(sums[1], _mm512_clmulepi64_epi128::<0x00>(xs, hs));
            sums[2] = _mm512_xor_si512(sums[2], _mm512_clmulepi64_epi128::<0x11>(x, h));
        }
    }

    #[inline(always)]
    unsafe fn fold(sums: [__m512i; 3]) -> [__m128i; 3] {
        // SAFETY: AVX-512 by the caller's contract.
        unsafe {
            let [low, both, high] = Wide::fold(sums);
            [low, _mm_xor_si128(both, _mm_xor_si128(low, high)), high]
        }
    }
}

/// Computes the exclusive or of the four blocks. This file uses no closures: they would not inherit
/// the caller's target features.
#[inline(always)]
unsafe fn fold_wide(s: __m512i) -> __m128i {
    // SAFETY: AVX-512 by the caller's contract.
    unsafe {
        let s = _mm256_xor_si256(_mm512_castsi512_si256(s), _mm512_extracti64x4_epi64::<1>(s));
        _mm_xor_si128(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s))
    }
}

/// 256-bit registers (AVX2, VPCLMULQDQ).
#[derive(Clone, Copy)]
struct Half([__m256i; 2]);

impl Lanes for Half {
    type Sums = [__m256i; 3];

    #[inline(always)]
    unsafe fn zero() -> [__m256i; 3] {
        // SAFETY: AVX2 by the caller's contract.
        unsafe { [_mm256_setzero_si256(); 3] }
    }

    #[inline(always)]
    unsafe fn load(p: *const u8, n: usize) -> Half {
        // SAFETY: `n` readable bytes and AVX2 by the caller's contract.
        unsafe {
            if n == GROUP {
                return Half([_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())]);
            }
            Half::of(load_blocks(p, n))
        }
    }

    #[inline(always)]
    unsafe fn load_after(first: __m128i, p: *const u8, n: usize) -> Half {
        // SAFETY: `n` readable bytes and AVX2 by the caller's contract.
        unsafe {
            let [a, b, c, _] = load_blocks(p, n);
            Half::of([first, a, b, c])
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, n: usize) {
        let Half([a, b]) = self;
        // SAFETY: `n` writable bytes and AVX2 by the caller's contract.
        unsafe {
            if n == GROUP {
                _mm256_storeu_si256(p.cast(), a);
                return _mm256_storeu_si256(p.add(32).cast(), b);
            }
            let a = [_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a)];
            let b = [_mm256_castsi256_si128(b), _mm256_extracti128_si256::<1>(b)];
            store_blocks([a[0], a[1], b[0], b[1]], p, n);
        }
    }

    #[inline(always)]
    unsafe fn add_first(self, block: __m128i) -> Half {
        let Half([a, b]) = self;
        // SAFETY: AVX2 by the caller's contract.
        Half([unsafe { _mm256_xor_si256(a, _mm256_zextsi128_si256(block)) }, b])
    }

    /// Computes three products for each block instead of four (Karatsuba): processors whose widest
    /// registers are these start a multiplication only every second cycle.
    #[inline(always)]
    unsafe fn multiply(self, powers: &Powers, sums: &mut [__m256i; 3]) {
        for (i, x) in self.0.into_iter().enumerate() {
            // SAFETY: 32 readable bytes; AVX2 and VPCLMULQDQ by the caller's contract.
            unsafe {
                let h = _mm256_loadu_si256(powers.whole.as_ptr().add(32 * i).cast());
                let hs = _mm256_loadu_si256(powers.halves.as_ptr().add(32 * i).cast());
                let xs = _mm256_xor_si256(x, _mm256_shuffle_epi32::<0b01_00_11_10>(x));
                let both = _mm256_clmulepi64_epi128::<0x00>(xs, hs);
                sums[0] = _mm256_xor_si256(sums[0], _mm256_clmulepi64_epi128::<0x00>(x, h));
                sums[1] = _mm256_xor_si256(sums[1], both);
                sums[2] = _mm256_xor_si256(sums[2], _mm256_clmulepi64_epi128::<0x11>(x, h));
            }
        }
    }

    #[inline(always)]
    unsafe fn fold(sums: [__m256i; 3]) -> [__m128i; 3] {
        // SAFETY: AVX2 by the caller's contract.
        unsafe {
            let [low, both, high] = [fold_half(sums[0]), fold_half(sums[1]), fold_half(sums[2])];
            [low, _mm_xor_si128(both, _mm_xor_si128(low, high)), high]
        }
    }
}

impl Half {
    /// Joins four blocks.
    #[inline(always)]
    unsafe fn of([a, b, c, d]: [__m128i; 4]) -> Half {
        // SAFETY: AVX2 by the caller's contract.
        unsafe { Half([_mm256_set_m128i(b, a), _mm256_set_m128i(d, c)]) }
    }
}

/// Computes the exclusive or of the two blocks.
#[inline(always)]
unsafe fn fold_half(s: __m256i) -> __m128i {
    // SAFETY: AVX2 by the caller's contract.
    unsafe { _mm_xor_si128(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s)) }
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
        // SAFETY: by contract.
        Narrow(unsafe { load_blocks(p, n) })
    }

    #[inline(always)]
    unsafe fn load_after(first: __m128i, p: *const u8, n: usize) -> Narrow {
        // SAFETY: by contract.
        let [a, b, c, _] = unsafe { load_blocks(p, n) };
        Narrow([first, a, b, c])
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, n: usize) {
        // SAFETY: by contract.
        unsafe { store_blocks(self.0, p, n) }
    }

    #[inline(always)]
    unsafe fn add_first(self, block: __m128i) -> Narrow {
        let Narrow([a, b, c, d]) = self;
        // SAFETY: SSE2 is part of x86-64.
        Narrow([unsafe { _mm_xor_si128(a, block) }, b, c, d])
    }

    #[inline(always)]
    unsafe fn multiply(self, powers: &Powers, sums: &mut [__m128i; 3]) {
        for (i, x) in self.0.into_iter().enumerate() {
            // SAFETY: 16 readable bytes; PCLMULQDQ by the caller's contract.
            unsafe {
                let h = _mm_loadu_si128(powers.whole.as_ptr().add(16 * i).cast());
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

/// Loads `n` bytes (at most 64) from `p`, followed by zeros, without a copy in memory.
///
/// # Safety
/// `n` bytes are readable.
#[inline(always)]
unsafe fn load_blocks(p: *const u8, n: usize) -> [__m128i; 4] {
    // SAFETY: each load stays within the `n` bytes; SSE2 is part of x86-64.
    unsafe {
        let mut blocks = [_mm_setzero_si128(); 4];
        for (i, block) in blocks.iter_mut().enumerate() {
            let at = 16 * i;
            if n >= at + 16 {
                *block = _mm_loadu_si128(p.add(at).cast());
            } else if n > at {
                *block = load_part(p.add(at), n - at);
            }
        }
        blocks
    }
}

/// Loads `n` bytes, 1 to 15, from `p`, followed by zeros: two words that overlap, shifted and
/// joined.
///
/// # Safety
/// `n` bytes are readable.
#[inline(always)]
unsafe fn load_part(p: *const u8, n: usize) -> __m128i {
    let bits = 8 * n as u32;
    // SAFETY: each read stays within the `n` bytes.
    let (low, high) = unsafe {
        match n {
            8.. => {
                let last = p.add(n - 8).cast::<u64>().read_unaligned();
                (p.cast::<u64>().read_unaligned(), last.unbounded_shr(128 - bits))
            }
            4.. => {
                let [first, last] = [p, p.add(n - 4)].map(|p| p.cast::<u32>().read_unaligned());
                (u64::from(first) | u64::from(last) << (bits - 32), 0)
            }
            _ => {
                let middle = n / 2;
                let [a, b, c] = [p, p.add(middle), p.add(n - 1)].map(|p| u64::from(p.read()));
                (a | b << (8 * middle) | c << (bits - 8), 0)
            }
        }
    };
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_set_epi64x(high as i64, low as i64) }
}

/// Writes the first `n` bytes (at most 64) to `p`.
///
/// # Safety
/// `n` bytes are writable.
#[inline(always)]
unsafe fn store_blocks(blocks: [__m128i; 4], p: *mut u8, n: usize) {
    for (i, block) in blocks.into_iter().enumerate() {
        let at = 16 * i;
        // SAFETY: each write stays within the `n` bytes; SSE2 is part of x86-64.
        unsafe {
            if n >= at + 16 {
                _mm_storeu_si128(p.add(at).cast(), block);
            } else if n > at {
                store_part(block, p.add(at), n - at);
            }
        }
    }
}

/// Writes the first `n` bytes, 1 to 15, to `p`: two words that overlap.
///
/// # Safety
/// `n` bytes are writable.
#[inline(always)]
unsafe fn store_part(block: __m128i, p: *mut u8, n: usize) {
    // SAFETY: each write stays within the `n` bytes; SSE2 is part of x86-64.
    unsafe {
        let low = _mm_cvtsi128_si64(block) as u64;
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(block, block)) as u64;
        let bits = 8 * n as u32;
        match n {
            8.. => {
                let last = low.unbounded_shr(bits - 64) | high.unbounded_shl(128 - bits);
                p.cast::<u64>().write_unaligned(low);
                p.add(n - 8).cast::<u64>().write_unaligned(last);
            }
            4.. => {
                p.cast::<u32>().write_unaligned(low as u32);
                p.add(n - 4).cast::<u32>().write_unaligned((low >> (bits - 32)) as u32);
            }
            _ => {
                let middle = n / 2;
                p.write(low as u8);
                p.add(middle).write((low >> (8 * middle)) as u8);
                p.add(n - 1).write((low >> (bits - 8)) as u8);
            }
        }
    }
}

/// True if the processor is made by AMD.
pub(super) fn is_amd() -> bool {
    let id = __cpuid(0);
    [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}

/// Computes the round keys of AES-128 (FIPS 197, section 5.2).
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

/// Returns the low half of the encrypted block.
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

/// Four powers of the hash key, highest first.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Powers {
    whole: [u8; GROUP],
    /// For each power the sum of its two halves, in both halves.
    halves: [u8; GROUP],
}

impl Powers {
    pub fn new(whole: [u8; GROUP]) -> Powers {
        let mut halves = whole;
        for (at, byte) in halves.iter_mut().enumerate() {
            *byte ^= whole[at ^ 8];
        }
        Powers { whole, halves }
    }
}

/// Keys in the layout of the instructions.
#[derive(Clone)]
pub(super) struct Keys {
    /// Powers of the hash key, highest first; the last block is the key itself.
    pub powers: [Powers; GROUPS],
    /// Round keys of the cipher.
    pub rounds: [[u8; 16]; 11],
}

/// Returns the tag of a message, computed in 512-bit registers.
///
/// # Safety
/// The caller keeps the rules of [`hash`]; the processor has AVX-512 F and BW, VPCLMULQDQ,
/// PCLMULQDQ and AES-NI.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,aes")]
pub(super) unsafe fn tag_wide<const COPY: bool, const OWN: bool>(
    keys: &Keys,
    nonce: [u64; 2],
    text: &Text<'_>,
    copy: *mut u8,
) -> u64 {
    // SAFETY: by contract.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Wide, COPY, OWN>(&keys.powers, text, copy) }
}

/// Returns the tag of a message, computed in 512-bit registers with fewer products than
/// [`tag_wide`] needs.
///
/// # Safety
/// The caller keeps the rules of [`tag_wide`].
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,pclmulqdq,aes")]
pub(super) unsafe fn tag_karatsuba<const COPY: bool, const OWN: bool>(
    keys: &Keys,
    nonce: [u64; 2],
    text: &Text<'_>,
    copy: *mut u8,
) -> u64 {
    // SAFETY: by contract.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Karatsuba, COPY, OWN>(&keys.powers, text, copy) }
}

/// Returns the tag of a message, computed in 256-bit registers.
///
/// # Safety
/// The caller keeps the rules of [`hash`]; the processor has AVX2, VPCLMULQDQ, PCLMULQDQ and
/// AES-NI.
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,aes")]
pub(super) unsafe fn tag_half<const COPY: bool, const OWN: bool>(
    keys: &Keys,
    nonce: [u64; 2],
    text: &Text<'_>,
    copy: *mut u8,
) -> u64 {
    // SAFETY: by contract.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Half, COPY, OWN>(&keys.powers, text, copy) }
}

/// Returns the tag of a message, computed in 128-bit registers.
///
/// # Safety
/// The caller keeps the rules of [`hash`]; the processor has PCLMULQDQ and AES-NI.
#[target_feature(enable = "pclmulqdq,aes")]
pub(super) unsafe fn tag_narrow<const COPY: bool, const OWN: bool>(
    keys: &Keys,
    nonce: [u64; 2],
    text: &Text<'_>,
    copy: *mut u8,
) -> u64 {
    // SAFETY: by contract.
    unsafe { encrypt(&keys.rounds, nonce) ^ hash::<Narrow, COPY, OWN>(&keys.powers, text, copy) }
}
