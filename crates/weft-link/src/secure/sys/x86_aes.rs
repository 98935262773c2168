//! AES rounds with the instructions of x86-64.

use super::aegis::{run, Job, Pair};
use std::arch::x86_64::*;

/// Two blocks in one 256-bit register (VAES, AVX2).
#[derive(Clone, Copy)]
pub(super) struct Vaes(__m256i);

impl Pair for Vaes {
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Vaes {
        // SAFETY: 32 readable bytes and AVX2 by the caller's contract.
        Vaes(unsafe { _mm256_loadu_si256(p.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        // SAFETY: 32 writable bytes and AVX2 by the caller's contract.
        unsafe { _mm256_storeu_si256(p.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Vaes) -> Vaes {
        // SAFETY: AVX2 by the caller's contract.
        Vaes(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn and(self, other: Vaes) -> Vaes {
        // SAFETY: AVX2 by the caller's contract.
        Vaes(unsafe { _mm256_and_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn round(self, key: Vaes) -> Vaes {
        // SAFETY: VAES by the caller's contract.
        Vaes(unsafe { _mm256_aesenc_epi128(self.0, key.0) })
    }
}

/// Two blocks in two 128-bit registers (AES-NI).
#[derive(Clone, Copy)]
pub(super) struct Aesni(__m128i, __m128i);

impl Pair for Aesni {
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Aesni {
        // SAFETY: 32 readable bytes by the caller's contract.
        unsafe { Aesni(_mm_loadu_si128(p.cast()), _mm_loadu_si128(p.add(16).cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        // SAFETY: 32 writable bytes by the caller's contract.
        unsafe {
            _mm_storeu_si128(p.cast(), self.0);
            _mm_storeu_si128(p.add(16).cast(), self.1);
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Aesni) -> Aesni {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { Aesni(_mm_xor_si128(self.0, other.0), _mm_xor_si128(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn and(self, other: Aesni) -> Aesni {
        // SAFETY: SSE2 is part of x86-64.
        unsafe { Aesni(_mm_and_si128(self.0, other.0), _mm_and_si128(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn round(self, key: Aesni) -> Aesni {
        // SAFETY: AES-NI by the caller's contract.
        unsafe { Aesni(_mm_aesenc_si128(self.0, key.0), _mm_aesenc_si128(self.1, key.1)) }
    }
}

/// # Safety
/// The caller keeps the rules of [`run`]; the processor has AES, VAES and AVX2.
#[target_feature(enable = "aes,vaes,avx2")]
pub(super) unsafe fn run_vaes<const MODE: bool>(job: &Job<'_>) -> [u8; 16] {
    // SAFETY: by contract.
    unsafe { run::<Vaes, MODE>(job) }
}

/// # Safety
/// The caller keeps the rules of [`run`]; the processor has AES.
#[target_feature(enable = "aes")]
pub(super) unsafe fn run_aesni<const MODE: bool>(job: &Job<'_>) -> [u8; 16] {
    // SAFETY: by contract.
    unsafe { run::<Aesni, MODE>(job) }
}
