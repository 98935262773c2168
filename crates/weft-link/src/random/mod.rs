//! Random numbers from the operating system.

#[allow(unsafe_code)]
mod sys;

use std::fs::File;
use std::io::Read;
pub(crate) use sys::from_kernel;

/// Returns 64 random bits, good enough for identities and keys.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    random_bytes(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Fills `out` with random bytes, good enough for keys.
pub fn random_bytes(out: &mut [u8]) {
    // A sandbox may forbid the call. Without a source of randomness there are no identities and no
    // keys: nothing safe can be done.
    if from_kernel(out).is_err() {
        File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(out))
            .expect("getrandom(2) or /dev/urandom gives random bytes");
    }
}
