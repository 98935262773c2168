//! Faults of a network for tests, by `WEFT_FAULTS`: frames that are lost, doubled, or overtaken.

use weft_link::wrap::FaultSpec;

/// The fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The frame arrives.
    Sent,
    /// The frame does not arrive.
    Lost,
    /// The frame arrives twice.
    Doubled,
    /// The next one overtakes it.
    Overtaken,
}

/// Decides the fates of frames, by a seed.
pub struct Faults {
    spec: FaultSpec,
    state: u64,
}

impl Faults {
    /// Reads `WEFT_FAULTS`. `None` without faults.
    ///
    /// # Errors
    /// The setting is not understood.
    pub fn of_environment() -> Result<Option<Faults>, String> {
        match std::env::var("WEFT_FAULTS") {
            Ok(text) if !text.is_empty() => {
                let spec: FaultSpec = text.parse().map_err(|why| format!("WEFT_FAULTS: {why}"))?;
                Ok(Some(Faults { state: spec.seed, spec }))
            }
            _ => Ok(None),
        }
    }

    /// True in so many of a million cases.
    fn is(&mut self, of_million: u32) -> bool {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % 1_000_000 < of_million.into()
    }

    /// Decides the fate of a frame.
    pub fn fate(&mut self) -> Fate {
        let spec = self.spec;
        if self.is(spec.loss) {
            return Fate::Lost;
        }
        if self.is(spec.dup) {
            return Fate::Doubled;
        }
        if self.is(spec.reorder) {
            return Fate::Overtaken;
        }
        Fate::Sent
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn fate__they_are_as_frequent_as_was_asked() {
        let spec = FaultSpec { loss: 100_000, dup: 50_000, reorder: 50_000, ..Default::default() };
        let mut faults = Faults { spec, state: 7 };
        let fates: Vec<Fate> = (0..100_000).map(|_| faults.fate()).collect();
        for (fate, least) in [(Fate::Lost, 9000), (Fate::Doubled, 4000), (Fate::Overtaken, 4000)] {
            let count = fates.iter().filter(|of| **of == fate).count();
            assert!(count > least && count < 2 * least, "{fate:?}: {count}");
        }
    }
}
