//! The layout of the shared segment: two directions one after the other, each with the control
//! lines of its two sides, its slots and its data area. A page is allocated only when it is first
//! used.

use super::ring::{ConsumerLine, HintLine, ProducerLine, Sizes, Slot, UNIT};

/// Offsets within one direction.
pub(super) const CONSUMER: usize = 0;
pub(super) const PRODUCER: usize = 128;
pub(super) const HINT: usize = 256;
pub(super) const SLOTS: usize = 512;
const PAGE: usize = 4096;

// Processes of different builds share this layout.
#[cfg(not(all(loom, test)))]
const _: () = {
    assert!(size_of::<Slot>() == 64 && size_of::<ConsumerLine>() == 128);
    assert!(size_of::<ProducerLine>() == 128 && size_of::<HintLine>() == 128);
};
#[cfg(all(loom, test))]
const _: Option<(Slot, ConsumerLine, ProducerLine, HintLine)> = None;

impl Sizes {
    /// Checks sizes, both configured ones and those received from a peer.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !self.slots.is_power_of_two() || !(8..=1 << 16).contains(&self.slots) {
            return Err("slots must be a power of two from 8 to 65536");
        }
        if !self.units.is_power_of_two() || !(64..=1 << 24).contains(&self.units) {
            return Err("data area must be a power of two from 4 KiB to 1 GiB");
        }
        if !(512..=self.units * UNIT as u32 / 4).contains(&self.mtu) {
            return Err("MTU must be from 512 bytes to a quarter of the data area");
        }
        Ok(())
    }

    /// Returns the bytes of the data area of one direction.
    pub(super) fn data_len(&self) -> usize {
        self.units as usize * UNIT
    }

    /// Returns the offset of the data area within a direction.
    pub(super) fn data_offset(&self) -> usize {
        (SLOTS + self.slots as usize * 64).next_multiple_of(PAGE)
    }

    /// Returns the bytes of one direction.
    pub(super) fn direction_len(&self) -> usize {
        self.data_offset() + self.data_len()
    }

    /// Returns the bytes of the segment.
    pub(super) fn segment_len(&self) -> usize {
        2 * self.direction_len()
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check__accepts_the_default_and_refuses_the_rest() {
        let good = Sizes { slots: 256, units: 1 << 14, mtu: 32 * 1024 + 128 };
        assert!(good.check().is_ok());
        assert!(Sizes { slots: 0, ..good }.check().is_err());
        assert!(Sizes { slots: 255, ..good }.check().is_err());
        assert!(Sizes { slots: 1 << 31, ..good }.check().is_err());
        assert!(Sizes { units: 0, ..good }.check().is_err());
        assert!(Sizes { units: 1 << 31, ..good }.check().is_err());
        assert!(Sizes { mtu: 0, ..good }.check().is_err());
        assert!(Sizes { mtu: 1 << 20, ..good }.check().is_err());
    }

    #[test]
    fn layout__parts_do_not_overlap() {
        let sizes = Sizes { slots: 8, units: 64, mtu: 1024 };
        assert!(SLOTS >= HINT + size_of::<HintLine>());
        assert!(sizes.data_offset() >= SLOTS + 8 * size_of::<Slot>());
        assert_eq!(sizes.direction_len() % PAGE, 0);
    }
}
