//! The key of a job and the keys derived from it: HKDF-SHA-256 (RFC 5869).

use crate::random::from_kernel;
use crate::LinkError;
use hkdf::Hkdf;
use sha2::Sha256;
use std::fmt;

/// The secret that the endpoints of a job share. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

/// The use of a derived key. No key has two uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The hash key of the authentication code.
    AuthHash,
    /// The cipher key of the authentication code.
    AuthPad,
    /// The key of the encrypting mode.
    Encrypt,
    /// The public number of the job.
    PublicId,
    /// A client's key for counters in the kernel.
    Counters,
    /// The proof of a rank that an agent joins to another one over shared memory.
    Joined,
    /// The proofs of agents of a cluster to each other.
    ClusterProof,
    /// The keys of a session of two agents.
    ClusterSession,
    /// The numbers that an agent answers with, without keeping them.
    ClusterCookie,
    /// The names under which processes of a host find each other without an agent.
    Meeting,
}

impl Purpose {
    /// Returns the start of `info`. No label is the start of another one, so different purposes
    /// have different `info`, whatever follows the label.
    const fn label(self) -> &'static [u8] {
        match self {
            Purpose::AuthHash => b"weft 1 auth hash",
            Purpose::AuthPad => b"weft 1 auth pad",
            Purpose::Encrypt => b"weft 1 encrypt",
            Purpose::PublicId => b"weft 1 public id",
            Purpose::Counters => b"weft 1 counters",
            Purpose::Joined => b"weft 1 joined",
            Purpose::ClusterProof => b"weft 1 cluster proof",
            Purpose::ClusterSession => b"weft 1 cluster session",
            Purpose::ClusterCookie => b"weft 1 cluster cookie",
            Purpose::Meeting => b"weft 1 meeting",
        }
    }
}

impl JobKey {
    /// Makes a key from 16 to 32 bytes; `None` for any other length. Shorter keys are padded with
    /// zeros.
    pub fn from_bytes(bytes: &[u8]) -> Option<JobKey> {
        let mut key = [0; 32];
        (16..=32).contains(&bytes.len()).then(|| key[..bytes.len()].copy_from_slice(bytes))?;
        Some(JobKey(key))
    }

    /// Makes a new key from the kernel's random source.
    ///
    /// # Errors
    /// [`LinkError::System`] if there is none.
    pub fn random() -> Result<JobKey, LinkError> {
        let mut key = [0; 32];
        from_kernel(&mut key).map_err(|source| LinkError::System {
            what: "draw a job key (getrandom)".into(),
            source,
            fix: "give the job key in the environment",
        })?;
        Ok(JobKey(key))
    }

    /// Returns the bytes, which the launcher passes on.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns a public number that identifies the job; it tells nothing about the key.
    pub fn public_id(&self) -> u64 {
        u64::from_le_bytes(self.derive(Purpose::PublicId, &[]))
    }

    /// Derives a key of `N` bytes (at most 255 hashes of 32) for one purpose, and for one `context`
    /// if the purpose has several keys.
    pub fn derive<const N: usize>(&self, purpose: Purpose, context: &[u8]) -> [u8; N] {
        let mut key = [0; N];
        Hkdf::<Sha256>::new(None, &self.0)
            .expand_multi_info(&[purpose.label(), context], &mut key)
            .expect("the length is that of a key");
        key
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    #[test]
    fn job_key__lengths_and_secrecy() {
        assert!(JobKey::from_bytes(&[0; 15]).is_none() && JobKey::from_bytes(&[0; 33]).is_none());
        assert_eq!(format!("{:?}", JobKey::from_bytes(&[9; 32]).unwrap()), "JobKey(..)");
        assert_ne!(JobKey::random().unwrap(), JobKey::random().unwrap());
    }

    /// The answers were computed with Python's `hmac` and `hashlib`, for a short key and for one of
    /// full length.
    #[test]
    fn derive__known_answers() {
        let keys: [JobKey; 2] = [
            JobKey::from_bytes(&[1; 16]).unwrap(),
            JobKey::from_bytes(&std::array::from_fn::<u8, 32, _>(|i| i as u8)).unwrap(),
        ];
        let context = [0xaaaa, 0xbbbb, 7].map(u64::to_le_bytes);
        let answers: [(Purpose, &[u8], [u128; 2]); 4] = [
            (
                Purpose::AuthHash,
                &[],
                [0xf895cdbfe4eff8ffa73b72664c1a33f8, 0xcb385f23dfca2315072638637d207af8],
            ),
            (
                Purpose::AuthPad,
                &[],
                [0x97dc33f501dfa20fc6f978f3163a5939, 0xdd8bf9be9556c30b653112393f7ddeaa],
            ),
            (
                Purpose::Encrypt,
                &[],
                [0x3b9489097f3557cf35eb31692dd64ee6, 0x1e8bbd0a5f1076cf39d27d48872c6d3a],
            ),
            (
                Purpose::Counters,
                context.as_flattened(),
                [0x608e462c4942347b36f3076d7b11088f, 0x0e42ede725a9969ab91e72e93aa735ea],
            ),
        ];
        for (purpose, context, answers) in answers {
            let found = keys.each_ref().map(|key| key.derive(purpose, context));
            assert_eq!(found.map(u128::from_be_bytes), answers, "{purpose:?}");
        }
        let ids = keys.map(|key| key.public_id().to_le_bytes()).map(u64::from_be_bytes);
        assert_eq!(ids, [0xfa0b212cdb8bf166, 0x2a571efcd31ac940]);
    }
}
