//! ACK: an acknowledgement in a packet of its own.

packet! {
    /// Acknowledges. `ack` and `credit` of the common header have their usual meaning; this adds
    /// the selective part. With [`flags::NACK`](super::flags::NACK) it asks the sender to go back
    /// to `ack`.
    Ack, 56;
    {
        /// Bit `i`, counted from the lowest bit of word 0: packet `ack + 1 + i` was received.
        sack / SACK: [u64; 4] = 24, "{:x?}";
    }
}
