//! Messages sent at once, whole or in fragments.

packet! {
    /// A whole message. `imm` is remote completion data when `DATA64` is set; the payload is the
    /// message.
    Eager, 32;
    {
        /// Match bits; of an active message, handler number (low half) and argument (high half).
        tag / TAG: u64 = 24, "{:#x}";
    }
}

packet! {
    /// The first fragment of a message. `imm` is the low half of remote completion data when
    /// `DATA64` is set.
    EagerFirst, 48;
    {
        /// Match bits; of an active message, handler number (low half) and argument (high half).
        tag / TAG: u64 = 24, "{:#x}";
        /// Length of the message, bytes.
        total / TOTAL: u64 = 32, "{}";
        /// The sender's number for the message.
        msg / MSG: u32 = 40, "{}";
        /// High half of the remote completion data.
        data / DATA: u32 = 44, "{}";
    }
}

packet! {
    /// A further fragment of the message that `imm` names.
    EagerMore, 32;
    {
        /// Offset of the payload in the message, bytes.
        offset / OFFSET: u64 = 24, "{}";
    }
}
