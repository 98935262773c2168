//! The ciphers behind authentication ([`Mac`]) and encryption ([`Aegis`]).
//!
//! Each has one body over several implementations of its rounds: 256- and 512-bit registers,
//! 128-bit registers, and the `aes` and `polyval` crates (portable, with the ARMv8 instructions if
//! the processor has them). The processor decides at run time; the resulting bytes are the same.
#![allow(unsafe_code)]

mod aegis;
mod mac;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_aes;
#[cfg(target_arch = "x86_64")]
mod x86_clmul;

pub use mac::{Mac, Message};

use aegis::{Job, DECRYPT, ENCRYPT};

/// Length of the longest associated data: destination (8 bytes) and header, rounded up to blocks.
const AD_MAX: usize = 128;

/// An implementation of the ciphers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// AES and carry-less multiplication in the registers of `Wide`, with three carry-less products
    /// a block instead of four.
    #[cfg(target_arch = "x86_64")]
    Karatsuba,
    /// AES in 256-bit and carry-less multiplication in 512-bit registers (VAES, VPCLMULQDQ,
    /// AVX-512).
    #[cfg(target_arch = "x86_64")]
    Wide,
    /// Both in 256-bit registers (VAES, VPCLMULQDQ, AVX2).
    #[cfg(target_arch = "x86_64")]
    Half,
    /// 128-bit AES and carry-less multiplication (AES-NI, PCLMULQDQ).
    #[cfg(target_arch = "x86_64")]
    Narrow,
    /// The `aes` and `polyval` crates.
    Portable,
}

impl Backend {
    /// Returns the best implementation for this processor.
    pub fn detect() -> Backend {
        Backend::available()[0]
    }

    /// Lists all implementations that work on this processor, best first.
    pub fn available() -> Vec<Backend> {
        let mut out = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let narrow = has!("aes") && has!("pclmulqdq");
            let half = narrow && has!("avx2") && has!("vaes") && has!("vpclmulqdq");
            if half && has!("avx512f") && has!("avx512bw") {
                out.extend([Backend::Wide, Backend::Karatsuba]);
                // 43 GB/s instead of 33 on AMD's Zen 5. Intel's processors have one unit for
                // products and for the moves that fewer products need: 40 instead of 45.
                if x86_clmul::is_amd() {
                    out.swap(0, 1);
                }
            }
            if half {
                out.push(Backend::Half);
            }
            if narrow {
                out.push(Backend::Narrow);
            }
        }
        out.push(Backend::Portable);
        out
    }

    /// Returns its name for people.
    pub fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Backend::Karatsuba | Backend::Wide => "VAES, VPCLMULQDQ, AVX-512",
            #[cfg(target_arch = "x86_64")]
            Backend::Half => "VAES, VPCLMULQDQ, AVX2",
            #[cfg(target_arch = "x86_64")]
            Backend::Narrow => "AES-NI, PCLMULQDQ",
            Backend::Portable => "portable",
        }
    }
}

/// AEGIS-128X2 (draft-irtf-cfrg-aegis-aead) under one key.
#[derive(Clone)]
pub struct Aegis {
    key: [u8; 16],
    backend: Backend,
}

/// Associated data: a 64-bit number and a header, in the cipher's layout.
pub struct Ad {
    bytes: [u8; AD_MAX],
    len: usize,
}

impl Ad {
    /// Joins `number` (little-endian) and `header` (at most 120 bytes).
    #[inline(always)]
    pub fn new(number: u64, header: &[u8]) -> Ad {
        let mut ad = Ad { bytes: [0; AD_MAX], len: 8 + header.len() };
        ad.bytes[..8].copy_from_slice(&number.to_le_bytes());
        ad.bytes[8..8 + header.len()].copy_from_slice(header);
        ad
    }
}

impl Aegis {
    /// Keeps a key for a chosen implementation, which must be one of [`Backend::available`].
    pub fn new(key: [u8; 16], backend: Backend) -> Aegis {
        assert!(Backend::available().contains(&backend));
        Aegis { key, backend }
    }

    /// Encrypts `src` into `dst`, which has the same length; returns the tag.
    pub fn encrypt(&self, nonce: &[u8; 16], ad: &Ad, src: &[u8], dst: &mut [u8]) -> [u8; 16] {
        assert_eq!(src.len(), dst.len());
        let mut job = Job {
            key: &self.key,
            nonce,
            ad: &ad.bytes,
            ad_len: ad.len,
            src: src.as_ptr(),
            dst: dst.as_mut_ptr(),
            len: src.len(),
        };
        // SAFETY: `src` is readable and `dst` writable for `len` bytes.
        unsafe { self.run::<ENCRYPT>(&mut job) }
    }

    /// Decrypts `data` in place; returns the tag to compare. If it differs, the caller must wipe
    /// `data`.
    pub fn decrypt(&self, nonce: &[u8; 16], ad: &Ad, data: &mut [u8]) -> [u8; 16] {
        let dst = data.as_mut_ptr();
        let mut job = Job {
            key: &self.key,
            nonce,
            ad: &ad.bytes,
            ad_len: ad.len,
            src: dst,
            dst,
            len: data.len(),
        };
        // SAFETY: `data` is readable and writable for `len` bytes; blocks are read before they are
        // written.
        unsafe { self.run::<DECRYPT>(&mut job) }
    }

    /// # Safety
    /// `job.src` is readable and `job.dst` writable for `job.len` bytes; they are equal or do not
    /// overlap.
    #[inline(always)]
    unsafe fn run<const MODE: bool>(&self, job: &mut Job<'_>) -> [u8; 16] {
        match self.backend {
            // SAFETY: the constructor checked that the processor has the instructions; memory by
            // contract.
            #[cfg(target_arch = "x86_64")]
            Backend::Karatsuba | Backend::Wide | Backend::Half => unsafe {
                x86_aes::run_vaes::<MODE>(job)
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Backend::Narrow => unsafe { x86_aes::run_aesni::<MODE>(job) },
            // SAFETY: memory by contract.
            Backend::Portable => unsafe { aegis::run::<aegis::Portable, MODE>(job) },
        }
    }
}
