//! Multicast that agents forward for their ranks.

/// Values of [`Grant::state`]: how the member named is.
pub mod member {
    /// None is named.
    pub const FINE: u32 = 0;
    /// It holds the group up.
    pub const SLOW: u32 = 1;
    /// It is lost, and those below it in the tree with it.
    pub const LOST: u32 = 2;
}

packet! {
    /// A packet of a multicast group, forwarded by agents along the group's tree.
    Mcast, 40;
    pad 36..40;
    {
        /// The group.
        group / GROUP: u64 = 24, "{:x}";
        /// Number of the packet in the group, from 0.
        number / NUMBER: u32 = 32, "{}";
    }
}

packet! {
    /// What a member of a multicast group takes from the one above it in the tree.
    Grant, 48;
    pad 44..48;
    {
        /// The group.
        group / GROUP: u64 = 24, "{:x}";
        /// Packets before this number may be sent.
        granted / GRANTED: u32 = 32, "{}";
        /// A member that the root should know of, by its number in the group.
        member / MEMBER: u32 = 36, "{}";
        /// One of [`member`].
        state / STATE: u32 = 40, "{}";
    }
}
