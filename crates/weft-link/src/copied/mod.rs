//! Detects that an object is used in a copy of the process that opened it.
//!
//! A copy has the keys of the original and continues to count packets from the same number. So both
//! use the same packet numbers under one key, and an attacker who sees both can forge packets.
//! Therefore every object that counts packets remembers its [`Origin`] and uses no number in
//! another process. Two kinds of copies are detected: a process made by `fork`, because the kernel
//! wipes the page with the number of this generation (`MADV_WIPEONFORK`), so that one load is
//! enough; and a virtual machine that was cloned, if the kernel reports it (`machine`).

mod machine;
#[allow(unsafe_code)]
mod sys;

use crate::random_u64;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that opened an object.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// 0 in a process just forked.
    generation: &'static AtomicU64,
    seen: u64,
}

impl Origin {
    /// Returns the current process.
    pub fn here() -> Origin {
        let generation = sys::generation();
        let known = generation.load(Ordering::Acquire);
        if known != 0 {
            return Origin { generation, seen: known };
        }
        let new = random_u64().max(1);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let seen = match generation.compare_exchange(0, new, order.0, order.1) {
            Ok(_) => {
                // A copy has no thread of the original.
                machine::watch();
                new
            }
            Err(other) => other,
        };
        Origin { generation, seen }
    }

    /// True if the current process is the origin: a load and a comparison.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.generation.load(Ordering::Relaxed) == self.seen
    }
}

/// Marks this machine as a copy: objects opened before belong to the original.
fn cloned() {
    sys::generation().store(random_u64().max(1), Ordering::Release);
    crate::error!(
        "this machine is a clone, or a snapshot that was restored: endpoints opened before end, \
         since the original may use their packet numbers"
    );
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::secure::{JobKey, Lane, Mode, Secure, Security};
    use crate::testing::in_a_fork;
    use weft_core::{EndpointId, PeerId};

    fn secure() -> Secure {
        let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
        let security = Security { mode: Mode::Auth, job_key, me: EndpointId(1) };
        let mut secure = Secure::new(&security, Lane::Udp);
        secure.add_peer(PeerId(0), 1, EndpointId(2)).unwrap();
        secure
    }

    #[test]
    fn origin__is_not_in_a_forked_process() {
        let (origin, mut sealing) = (Origin::here(), secure());
        let mut seal = || sealing.seal(PeerId(0), &[0; 32], b"payload");
        let before = seal().unwrap();
        let [foreign, refused, new] = in_a_fork(|| {
            let refused = seal().is_none();
            // Objects opened in the child are its own.
            let foreign = !origin.is_here();
            [foreign, refused, Origin::here().is_here() && !origin.is_here()]
        });
        assert!(foreign && refused && new, "{foreign} {refused} {new}");
        assert!(origin.is_here());
        // The original continues after its last number.
        let after = seal().unwrap();
        let number = |trailer: [u8; 16]| u64::from_le_bytes(*trailer.first_chunk().unwrap());
        assert_eq!(number(after), number(before) + 1);
    }

    #[test]
    fn origin__is_not_in_a_cloned_machine() {
        // In a process of its own, because other tests of this process have endpoints.
        let [before, after, refused, new] = in_a_fork(|| {
            let (origin, mut sealing) = (Origin::here(), secure());
            let before = origin.is_here() && sealing.seal(PeerId(0), &[0; 32], b"").is_some();
            cloned();
            let refused = sealing.seal(PeerId(0), &[0; 32], b"").is_none();
            [before, origin.is_here(), refused, Origin::here().is_here()]
        });
        assert!(before && !after && refused && new);
    }
}
