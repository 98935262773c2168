//! Credit for eager messages: the receiver grants buffer space ahead, the sender spends it.
//!
//! Both ends count since the start, in units of [`UNIT`] bytes modulo 2^32, so a lost or reordered
//! grant is made good by the next one.

/// Bytes of one unit of credit.
pub const UNIT: u32 = 64;

/// Largest credit ever open, in units (32 GiB): far below half of the number space, so that old and
/// new grants stay distinguishable.
const MAX_OPEN: u32 = 1 << 29;

/// Cost of a message of `bytes` bytes, in units: its payload and one unit for its descriptor.
pub fn cost(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT as usize)).map_or(u32::MAX, |units| units.saturating_add(1))
}

/// The sender's side. Starts without credit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditIn {
    granted: u32,
    used: u32,
}

impl CreditIn {
    /// Units that may be spent now.
    pub fn available(&self) -> u32 {
        self.granted.wrapping_sub(self.used)
    }

    /// Spends the cost of a message of `bytes` bytes, or nothing if that is not available.
    #[inline]
    pub fn try_take(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        let enough = cost <= self.available();
        if enough {
            self.used = self.used.wrapping_add(cost);
        }
        enough
    }

    /// Takes back what `try_take` spent on a message that was not sent after all.
    pub fn refund(&mut self, bytes: usize) {
        self.used = self.used.wrapping_sub(cost(bytes));
    }

    /// Takes in a cumulative grant. Older ones, and ones that would open more than 32 GiB, are
    /// ignored. Returns whether the credit grew.
    #[inline]
    pub fn on_grant(&mut self, granted: u32) -> bool {
        let open = granted.wrapping_sub(self.used);
        let grew = open > self.available() && open <= MAX_OPEN;
        if grew {
            self.granted = granted;
        }
        grew
    }
}

/// The receiver's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditOut {
    window: u32,
    consumed: u32,
    arrived: u32,
    announced: u32,
}

impl CreditOut {
    /// Keeps `window_bytes` bytes of messages outstanding (at least one unit); the sender is taken
    /// to learn the first grant with the connection.
    pub fn new(window_bytes: usize) -> CreditOut {
        let window = u32::try_from(window_bytes / UNIT as usize).unwrap_or(MAX_OPEN);
        let window = window.clamp(1, MAX_OPEN);
        CreditOut { window, consumed: 0, arrived: 0, announced: window }
    }

    /// Charges an arriving message. False, and nothing charged, if the sender has overdrawn its
    /// grant: the message may be refused.
    #[inline]
    pub fn arrived(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        let within = cost <= self.grant().wrapping_sub(self.arrived);
        if within {
            self.arrived = self.arrived.wrapping_add(cost);
        }
        within
    }

    /// The buffer of a message of `bytes` bytes is free again.
    #[inline]
    pub fn consumed(&mut self, bytes: usize) {
        self.consumed = self.consumed.wrapping_add(cost(bytes));
    }

    /// The cumulative grant to put into packets.
    #[inline]
    pub fn grant(&self) -> u32 {
        self.consumed.wrapping_add(self.window)
    }

    /// Whether the grant has grown by a quarter of the window since the sender last heard of it, so
    /// that a packet of its own is justified.
    #[inline]
    pub fn worth_announcing(&self) -> bool {
        self.grant().wrapping_sub(self.announced) >= (self.window / 4).max(1)
    }

    /// A packet carried [`CreditOut::grant`].
    #[inline]
    pub fn announced(&mut self) {
        self.announced = self.grant();
    }
}

#[cfg(test)]
impl CreditIn {
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// As if `units` had been granted, spent and freed.
    pub(super) fn skip(&mut self, units: u32) {
        self.granted = self.granted.wrapping_add(units);
        self.used = self.used.wrapping_add(units);
    }
}

#[cfg(test)]
impl CreditOut {
    /// As if messages of `units` had arrived, been freed and been announced.
    pub(super) fn skip(&mut self, units: u32) {
        self.consumed = self.consumed.wrapping_add(units);
        self.arrived = self.arrived.wrapping_add(units);
        self.announced = self.announced.wrapping_add(units);
    }
}
