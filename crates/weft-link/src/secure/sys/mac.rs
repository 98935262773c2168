//! The message authentication code: POLYVAL (RFC 8452) of the message, xor AES-128 of the nonce
//! (Wegman and Carter's construction, as in GMAC), cut to 8 bytes.
//!
//! ```text
//! tag = low 8 bytes of POLYVAL(H, encoded) xor AES-128(K, nonce)
//! encoded = number u64 | header length u32 | payload length u32 | header
//!         | zeros to a multiple of 64 | payload | zeros to a multiple of 64
//! ```
//! The first block holds both lengths and is never zero, so two messages never have the same
//! encoding.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use polyval::{universal_hash::UniversalHash, Polyval};

#[cfg(target_arch = "x86_64")]
use super::x86_clmul::{self as x86, Text};
use super::Backend;

/// Bytes hashed at a time.
pub(super) const GROUP: usize = 64;
/// Groups hashed between two reductions.
pub(super) const GROUPS: usize = 32;

/// The destination for a call that makes no copy.
#[cfg(target_arch = "x86_64")]
const NOWHERE: *mut u8 = std::ptr::null_mut();

/// The code under two keys, expanded for one implementation. Links have it inside
/// [`Secure`](super::super::Secure); by itself it is for tests.
#[derive(Clone)]
pub struct Mac {
    backend: Backend,
    cipher: aes::Aes128,
    hash: Polyval,
    /// `None` if the backend does not use it.
    #[cfg(target_arch = "x86_64")]
    keys: Option<Box<x86::Keys>>,
}

/// A message to authenticate.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// A number known to both sides: the receiver's endpoint id.
    pub number: u64,
    /// First part.
    pub header: &'a [u8],
    /// Second part.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Returns number and lengths: the first 16 bytes of the encoding.
    #[inline(always)]
    fn first(&self) -> [u64; 2] {
        [self.number, self.header.len() as u64 | (self.payload.len() as u64) << 32]
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn text(&self) -> Text<'_> {
        let payload = (self.payload.as_ptr(), self.payload.len());
        Text { first: self.first(), header: self.header, payload }
    }
}

impl Mac {
    /// Makes the code from the hash key and the cipher key, on an implementation that must be one
    /// of [`Backend::available`].
    pub fn new(hash_key: [u8; 16], cipher_key: [u8; 16], backend: Backend) -> Mac {
        assert!(Backend::available().contains(&backend));
        Mac {
            backend,
            cipher: aes::Aes128::new(&cipher_key.into()),
            hash: Polyval::new(&hash_key.into()),
            #[cfg(target_arch = "x86_64")]
            keys: (backend != Backend::Portable).then(|| keys(hash_key, cipher_key)),
        }
    }

    /// Returns the tag of a message under a nonce, which must never be used for another message.
    #[inline]
    pub fn tag(&self, nonce: [u64; 2], message: &Message<'_>) -> [u8; 8] {
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = &self.keys {
            let text = message.text();
            // SAFETY: nothing is written.
            return unsafe { self.tag_x86::<false, false>(keys, nonce, &text, NOWHERE) };
        }
        self.tag_portable(nonce, message)
    }

    /// Returns the tag of a message, as [`tag`](Self::tag) does, and copies the payload into
    /// `copy`, which has the same length, in the same pass.
    #[inline]
    pub fn tag_copy(&self, nonce: [u64; 2], message: &Message<'_>, copy: &mut [u8]) -> [u8; 8] {
        assert_eq!(message.payload.len(), copy.len());
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = &self.keys {
            let text = message.text();
            // SAFETY: `copy` is as long as the payload and does not overlap it.
            return unsafe { self.tag_x86::<true, false>(keys, nonce, &text, copy.as_mut_ptr()) };
        }
        copy.copy_from_slice(message.payload);
        self.tag_portable(nonce, message)
    }

    /// Returns the tag of a message received in memory that another core writes again and again. In
    /// each cache line of the payload, writes one byte with its own value, so that this core alone
    /// owns the line when it is next filled (`docs/adr/0021-readers-own-lines.md`). With `copy`,
    /// copies as [`tag_copy`](Self::tag_copy).
    #[inline]
    pub fn tag_received(
        &self,
        nonce: [u64; 2],
        number: u64,
        (header, payload): (&[u8], &mut [u8]),
        copy: Option<&mut [u8]>,
    ) -> [u8; 8] {
        assert!(copy.as_ref().is_none_or(|copy| copy.len() == payload.len()));
        #[cfg(target_arch = "x86_64")]
        if let Some(keys) = &self.keys {
            let first = Message { number, header, payload }.first();
            let text = Text { first, header, payload: (payload.as_mut_ptr(), payload.len()) };
            // SAFETY: this process may write the payload; `copy` is as long and does not overlap
            // it.
            return unsafe {
                match copy {
                    Some(copy) => self.tag_x86::<true, true>(keys, nonce, &text, copy.as_mut_ptr()),
                    None => self.tag_x86::<false, true>(keys, nonce, &text, NOWHERE),
                }
            };
        }
        for line in payload.chunks_mut(GROUP) {
            line[0] = std::hint::black_box(line[0]);
        }
        if let Some(copy) = copy {
            copy.copy_from_slice(payload);
        }
        self.tag_portable(nonce, &Message { number, header, payload })
    }

    /// # Safety
    /// With `COPY` the payload's length is writable at `copy` and does not overlap it, with `OWN`
    /// the payload is writable.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn tag_x86<const COPY: bool, const OWN: bool>(
        &self,
        keys: &x86::Keys,
        nonce: [u64; 2],
        text: &Text<'_>,
        copy: *mut u8,
    ) -> [u8; 8] {
        // SAFETY: the constructor checked that the processor has the backend's instructions; the
        // rest by contract.
        let tag = unsafe {
            match self.backend {
                Backend::Karatsuba => x86::tag_karatsuba::<COPY, OWN>(keys, nonce, text, copy),
                Backend::Wide => x86::tag_wide::<COPY, OWN>(keys, nonce, text, copy),
                Backend::Half => x86::tag_half::<COPY, OWN>(keys, nonce, text, copy),
                _ => x86::tag_narrow::<COPY, OWN>(keys, nonce, text, copy),
            }
        };
        tag.to_le_bytes()
    }

    fn tag_portable(&self, nonce: [u64; 2], message: &Message<'_>) -> [u8; 8] {
        (self.hash_portable(message) ^ self.pad_portable(nonce)).to_le_bytes()
    }

    fn pad_portable(&self, nonce: [u64; 2]) -> u64 {
        let mut block = aes::Block::default();
        block[..8].copy_from_slice(&nonce[0].to_le_bytes());
        block[8..].copy_from_slice(&nonce[1].to_le_bytes());
        self.cipher.encrypt_block(&mut block);
        low(&block)
    }

    fn hash_portable(&self, message: &Message<'_>) -> u64 {
        let mut hash = self.hash.clone();
        let mut group = [0; GROUP];
        let first = message.first();
        group[..8].copy_from_slice(&first[0].to_le_bytes());
        group[8..16].copy_from_slice(&first[1].to_le_bytes());
        let n = message.header.len().min(GROUP - 16);
        group[16..16 + n].copy_from_slice(&message.header[..n]);
        hash.update_padded(&group);
        for part in [&message.header[n..], message.payload] {
            let whole = part.len() / GROUP * GROUP;
            hash.update_padded(&part[..whole]);
            if whole < part.len() {
                let mut group = [0; GROUP];
                group[..part.len() - whole].copy_from_slice(&part[whole..]);
                hash.update_padded(&group);
            }
        }
        low(&hash.finalize())
    }
}

fn low(block: &[u8]) -> u64 {
    u64::from_le_bytes(*block.first_chunk().expect("a block is 16 bytes"))
}

#[cfg(target_arch = "x86_64")]
fn keys(hash_key: [u8; 16], cipher_key: [u8; 16]) -> Box<x86::Keys> {
    // SAFETY: every backend but the portable one has AES-NI.
    let rounds = unsafe { x86::expand(cipher_key) };
    let mut powers = [[0; GROUP]; GROUPS];
    let mut power = hash_key;
    for i in (0..GROUPS * 4).rev() {
        powers[i / 4][i % 4 * 16..][..16].copy_from_slice(&power);
        // POLYVAL(H, one block X) is X times H, so each power is the hash of the power before.
        let mut hash = Polyval::new(&hash_key.into());
        hash.update_padded(&power);
        power.copy_from_slice(&hash.finalize());
    }
    Box::new(x86::Keys { powers: powers.map(x86::Powers::new), rounds })
}
