//! Transfer of an announced message: the receiver asks, the sender answers.

packet! {
    /// Asks for part of the announced message `imm` (the sender's number from RTS).
    Pull, 56;
    pad 44..48;
    {
        /// Start of the part, bytes from the start of the message.
        offset / OFFSET: u64 = 24, "{}";
        /// Length of the part, bytes.
        len / LENGTH: u64 = 32, "{}";
        /// The receiver's number, to be returned in DATA and DIRECT_DONE.
        recv / RECV: u32 = 40, "{}";
        /// With `DIRECT`: address in the receiver's memory where byte `offset` belongs. Otherwise
        /// 0.
        addr / ADDR: u64 = 48, "{:#x}";
    }
}

packet! {
    /// A part of the data that PULL or GET requested; `imm` is its number (`recv` or `op`).
    Data, 32;
    {
        /// Offset of the payload from the start of the message or of the GET, bytes.
        offset / OFFSET: u64 = 24, "{}";
    }
}

packet! {
    /// Part of a message was written to the receiver's memory; `imm` is `recv` from PULL.
    DirectDone, 40;
    {
        /// Start of the part, bytes from the start of the message.
        offset / OFFSET: u64 = 24, "{}";
        /// Length of the part, bytes.
        len / LENGTH: u64 = 32, "{}";
    }
}
