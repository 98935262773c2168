//! Credit for eager messages: the receiver grants buffer space ahead, the sender spends it.
//!
//! Both ends count since the start, in units of [`UNIT`] bytes modulo 2^32, so the next grant makes
//! up for a lost or reordered one.
//!
//! A message with a tag that lacks credit is announced instead; an active message can only wait for
//! credit. So a part of it, the [`RESERVE`], is for active messages alone.

/// Bytes of one unit of credit.
pub const UNIT: u32 = 64;

/// Largest credit ever open, in units (32 GiB): far below half of the number space, so that old and
/// new grants stay distinguishable.
const MAX_OPEN: u32 = 1 << 29;

/// Units reserved for active messages: one of any length.
pub const RESERVE: u32 = 1025;

/// More than any credit.
const COST_MAX: u32 = i32::MAX as u32;

/// Returns the cost of a message of `bytes` bytes, in units: its payload and one unit for its
/// descriptor.
pub fn cost(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT as usize))
        .map_or(COST_MAX, |units| units.min(COST_MAX - 1) + 1)
}

/// The sender's side. Starts without credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditIn {
    /// For messages with tags: the peer's grant minus the reserve.
    granted: u32,
    used: u32,
}

impl Default for CreditIn {
    fn default() -> CreditIn {
        CreditIn { granted: 0u32.wrapping_sub(RESERVE), used: 0 }
    }
}

impl CreditIn {
    /// Returns the units that active messages may spend now.
    pub fn available(&self) -> u32 {
        self.granted.wrapping_add(RESERVE).wrapping_sub(self.used)
    }

    /// Spends the cost of a message of `bytes` bytes with a tag, or nothing if so much is not
    /// available beside the reserve.
    #[inline]
    pub fn try_take(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        // Active messages may have spent some of the reserve: then the rest is negative.
        let enough = cost as i32 <= self.granted.wrapping_sub(self.used) as i32;
        if enough {
            self.used = self.used.wrapping_add(cost);
        }
        enough
    }

    /// Spends the cost of an active message of `bytes` bytes, or nothing if so much is not
    /// available. Active messages may spend the reserve.
    #[inline]
    pub fn try_take_active(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        let left = self.granted.wrapping_sub(self.used) as i32;
        let enough = cost as i32 - RESERVE as i32 <= left;
        if enough {
            self.used = self.used.wrapping_add(cost);
        }
        enough
    }

    /// Returns the units that `try_take` spent on a message that was not sent after all.
    pub fn refund(&mut self, bytes: usize) {
        self.used = self.used.wrapping_sub(cost(bytes));
    }

    /// Handles a cumulative grant. Older ones, and ones that would open more than 32 GiB, are
    /// ignored. Returns true if the credit grew.
    #[inline]
    pub fn on_grant(&mut self, granted: u32) -> bool {
        let tagged = granted.wrapping_sub(RESERVE);
        let later = tagged.wrapping_sub(self.granted) as i32 > 0;
        let grew = later && granted.wrapping_sub(self.used) <= MAX_OPEN;
        if grew {
            self.granted = tagged;
        }
        grew
    }

    /// Handles a cumulative grant that is passed on to the one who spends it: all of it counts as
    /// spent. Returns the same as [`CreditIn::on_grant`].
    #[inline]
    pub fn pass_on(&mut self, granted: u32) -> bool {
        let grew = self.on_grant(granted);
        if grew {
            self.used = granted;
        }
        grew
    }
}

/// The receiver's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditOut {
    window: u32,
    /// Growth of the grant that justifies a packet.
    news: u32,
    consumed: u32,
    arrived: u32,
    announced: u32,
    /// Units by which the window is enlarged until they are paid back.
    extended: u32,
}

impl CreditOut {
    /// Makes credit for `window_bytes` bytes of outstanding messages (at least one unit), and the
    /// reserve; the sender is expected to learn the first grant with the connection.
    pub fn new(window_bytes: usize) -> CreditOut {
        let window = u32::try_from(window_bytes / UNIT as usize).unwrap_or(MAX_OPEN);
        let window = window.clamp(1, MAX_OPEN - RESERVE);
        let news = (window / 4).max(1);
        let window = window + RESERVE;
        CreditOut { window, news, consumed: 0, arrived: 0, announced: window, extended: 0 }
    }

    /// Makes credit that somebody else grants: see [`CreditOut::pass_on`].
    pub fn passed_on() -> CreditOut {
        CreditOut { window: 0, news: 1, consumed: 0, arrived: 0, announced: 0, extended: 0 }
    }

    /// Takes over the cumulative grant of the receiver. One that would open more than 32 GiB is
    /// ignored.
    #[inline]
    pub fn pass_on(&mut self, granted: u32) {
        if granted.wrapping_sub(self.consumed) <= MAX_OPEN {
            self.consumed = granted;
        }
    }

    /// Returns the units of the first grant.
    pub fn first(window_bytes: usize) -> u32 {
        CreditOut::new(window_bytes).window
    }

    /// Charges an arriving message. False, without a charge, if the sender has overdrawn its grant:
    /// the message may be refused.
    #[inline]
    pub fn arrived(&mut self, bytes: usize) -> bool {
        let cost = cost(bytes);
        let within = cost <= self.grant().wrapping_sub(self.arrived);
        if within {
            self.arrived = self.arrived.wrapping_add(cost);
        }
        within
    }

    /// Notes that the buffer of a message of `bytes` bytes is free again.
    #[inline]
    pub fn consumed(&mut self, bytes: usize) {
        self.consumed = self.consumed.wrapping_add(cost(bytes));
    }

    /// Returns the cumulative grant for packets.
    #[inline]
    pub fn grant(&self) -> u32 {
        self.consumed.wrapping_add(self.window)
    }

    /// Returns true if the grant has grown by a quarter of the window since it was last announced,
    /// which justifies a packet.
    #[inline]
    pub fn worth_announcing(&self) -> bool {
        self.grant().wrapping_sub(self.announced) >= self.news
    }

    /// Notes that a packet carried [`CreditOut::grant`].
    #[inline]
    pub fn announced(&mut self) {
        self.announced = self.grant();
    }

    /// Returns the units of credit to extend if the remaining grant is so small that the sender may
    /// soon have to wait.
    pub fn lacks(&self) -> Option<u32> {
        let lacking = Some(self.lacking()).filter(|&lacking| lacking > 0)?;
        let units = lacking.next_multiple_of(2 * self.news);
        (self.window < MAX_OPEN - units).then_some(units)
    }

    /// Returns the units by which the remaining grant is too small. Half of the first window is
    /// used when there are any, so that all extended units can be paid back.
    fn lacking(&self) -> u32 {
        let left = self.grant().wrapping_sub(self.arrived);
        (2 * self.news + RESERVE).saturating_sub(left)
    }

    /// Enlarges the window by `units`, until they are paid back.
    pub fn extend(&mut self, units: u32) {
        self.window += units;
        self.extended += units;
    }

    /// Returns true if some units are extended.
    #[inline]
    pub fn is_extended(&self) -> bool {
        self.extended > 0
    }

    /// Notes that the buffer of a message of `bytes` bytes is free again; pays back extended units
    /// with the part of it that the grant does not lack, and returns the units paid back. `None`,
    /// and nothing has changed, if there is no such part.
    pub fn repay(&mut self, bytes: usize) -> Option<u32> {
        let cost = cost(bytes);
        let units = cost.saturating_sub(self.lacking()).min(self.extended);
        if units == 0 {
            return None;
        }
        self.consumed = self.consumed.wrapping_add(cost);
        self.window -= units;
        self.extended -= units;
        Some(units)
    }
}

#[cfg(test)]
impl CreditIn {
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    /// Counts `units` as granted, spent and freed.
    pub(super) fn skip(&mut self, units: u32) {
        self.granted = self.granted.wrapping_add(units);
        self.used = self.used.wrapping_add(units);
    }
}

#[cfg(test)]
impl CreditOut {
    /// Counts messages of `units` as arrived, freed and announced.
    pub(super) fn skip(&mut self, units: u32) {
        self.consumed = self.consumed.wrapping_add(units);
        self.arrived = self.arrived.wrapping_add(units);
        self.announced = self.announced.wrapping_add(units);
    }
}
