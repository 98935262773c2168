//! Messages that are not received for a while.

use super::Plan;
use crate::fault::Fault;
use weft_link::rng::Rng;

/// A host starts many messages that are not received yet, then one that its receiver waits for; the
/// others are received only after that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    /// Sending host.
    pub src: u32,
    /// Receiving host.
    pub dst: u32,
    /// Number of messages that are not received yet.
    pub count: u32,
    /// Length of each in bytes.
    pub len: usize,
}

/// Most bytes of a flood.
const MAX_BYTES: u64 = 1 << 20;

impl Plan {
    /// Draws floods, and a memory limit smaller than the floods.
    pub(super) fn draw_floods(&mut self, rng: &mut Rng) {
        let restarts = self.config.faults.iter().any(|f| matches!(f, Fault::Restart { .. }));
        if restarts || !rng.chance(250_000) {
            return;
        }
        let announced = *rng.pick(&[1u32, 8, 64]);
        let settings = [("rendezvous_max", announced.to_string()), ("eager_credit", "64K".into())];
        self.config.settings.extend(settings);
        let (hosts, mortal) = (self.config.hosts, self.mortal());
        for _ in 0..rng.between(1, 3) {
            let src = rng.below(u64::from(hosts)) as u32;
            let dst = (src + 1 + rng.below(u64::from(hosts) - 1) as u32) % hosts;
            let len = *rng.pick(&[4u64, 200, 1_500, 5_000, 40_000]);
            let count = rng.between(50, 1_500).min(MAX_BYTES / len) as u32;
            let twice = self.floods.iter().any(|f| (f.src, f.dst) == (src, dst));
            if !twice && !mortal.contains(&src) && !mortal.contains(&dst) {
                self.floods.push(Flood { src, dst, count, len: len as usize });
            }
        }
    }
}
