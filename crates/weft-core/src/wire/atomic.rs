//! Atomic operations on registered memory, and the answer to one-sided operations.

/// Values of [`Atomic::code`].
pub mod code {
    /// Adds `operand`, wrapping.
    pub const FETCH_ADD: u8 = 1;
    /// Stores `operand` if the word equals `compare`.
    pub const COMPARE_SWAP: u8 = 2;
    /// Stores `operand`.
    pub const SWAP: u8 = 3;
    /// Bitwise and with `operand`.
    pub const FETCH_AND: u8 = 4;
    /// Bitwise or with `operand`.
    pub const FETCH_OR: u8 = 5;
    /// Bitwise exclusive or with `operand`.
    pub const FETCH_XOR: u8 = 6;
    /// Changes nothing: asks the owner's agent about the word in its kernel; `operand` is the
    /// [`question`](super::question).
    pub const CLIENT: u8 = 7;
}

/// Questions of a client of counters in the kernel to their agent.
pub mod question {
    /// For a place: its number, the UDP port and the number of addresses, 16 bits each from the
    /// lowest bit on. The client's previous place ends.
    pub const PLACE: u64 = 0;
    /// For the place: a number from which its key is derived.
    pub const NONCE: u64 = 1;
    /// Ends the place: the number of the last request that was served.
    pub const END: u64 = 2;
    /// The answer to that request.
    pub const ANSWER: u64 = 3;
    /// For the place: the IPv4 address of this number, counted from here.
    pub const ADDRESS: u64 = 8;
}

packet! {
    /// An atomic operation on a 64-bit word of a registered region. `imm` is the operation's
    /// number; REPLY returns the word's value before.
    Atomic, 64;
    pad 57..64;
    valid valid;
    {
        /// The right to use the region.
        key / KEY: u64 = 24, "{:#x}";
        /// Offset of the word from the start of the region, bytes.
        offset / OFFSET: u64 = 32, "{}";
        /// Operand.
        operand / OPERAND: u64 = 40, "{:#x}";
        /// Expected value, for compare-swap. Otherwise 0.
        compare / COMPARE: u64 = 48, "{:#x}";
        /// One of [`code`]; others are refused.
        code / CODE: u8 = 56, "{}";
    }
}

fn valid(atomic: &Atomic) -> bool {
    (code::FETCH_ADD..=code::CLIENT).contains(&atomic.code)
}

packet! {
    /// Result of PUT, GET or ATOMIC; `imm` is the operation's number.
    Reply, 40;
    pad 36..40;
    {
        /// ATOMIC: the word's value before. Otherwise 0.
        value / VALUE: u64 = 24, "{:#x}";
        /// One of [`status`](super::status).
        status / STATUS: u32 = 32, "{}";
    }
}
