//! Announcing a message and finishing it.

/// Values of [`Fin::status`] and [`Reply::status`](super::Reply::status). Others mean failure.
pub mod status {
    /// Done.
    pub const OK: u32 = 0;
    /// Refused: unknown key, out of bounds or no right.
    pub const REFUSED: u32 = 1;
    /// The message was longer than the buffer that matched it.
    pub const TRUNCATED: u32 = 2;
    /// Cancelled at the remote side.
    pub const CANCELLED: u32 = 3;
    /// No handler of that number.
    pub const NO_HANDLER: u32 = 4;
    /// The registered memory is not there any more, or may not be written to.
    pub const UNMAPPED: u32 = 5;
}

packet! {
    /// Request to send: announces a message. `imm` is the low half of remote completion data when
    /// `DATA64` is set.
    Rts, 56;
    {
        /// Match bits.
        tag / TAG: u64 = 24, "{:#x}";
        /// Length of the message, bytes.
        total / TOTAL: u64 = 32, "{}";
        /// The sender's number for the message.
        msg / MSG: u32 = 40, "{}";
        /// High half of the remote completion data.
        data / DATA: u32 = 44, "{}";
        /// Address of the message in the sender's memory for a remote copy; 0 when it offers none.
        addr / ADDR: u64 = 48, "{:#x}";
    }
}

packet! {
    /// The receiver has all that it wants of message `imm` (the sender's number); the sender
    /// completes it.
    Fin, 32;
    pad 28..32;
    {
        /// One of [`status`].
        status / STATUS: u32 = 24, "{}";
    }
}
