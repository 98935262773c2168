//! Remote memory access.

packet! {
    /// Writes the payload to a registered region. `imm` is the operation's number; REPLY answers
    /// when all `total` bytes have been placed.
    Put, 48;
    {
        /// The right to use the region.
        key / KEY: u64 = 24, "{:#x}";
        /// Offset of this payload from the start of the region, bytes.
        offset / OFFSET: u64 = 32, "{}";
        /// Length of the whole operation, bytes.
        total / TOTAL: u64 = 40, "{}";
    }
}

packet! {
    /// Reads from a registered region. `imm` is the operation's number; DATA packets carry the
    /// bytes back, or a REPLY the refusal.
    Get, 48;
    {
        /// The right to use the region.
        key / KEY: u64 = 24, "{:#x}";
        /// Start, bytes from the start of the region.
        offset / OFFSET: u64 = 32, "{}";
        /// Length, bytes.
        len / LENGTH: u64 = 40, "{}";
    }
}
