//! Multicast that agents forward for their ranks.

/// Values of [`Grant::state`]: the state of the named member.
pub mod member {
    /// No member is named.
    pub const FINE: u32 = 0;
    /// The member delays the group.
    pub const SLOW: u32 = 1;
    /// The member has failed, and with it the members below it in the tree.
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
    /// The packets that a member of a multicast group accepts from its parent in the tree.
    Grant, 48;
    pad 44..48;
    {
        /// The group.
        group / GROUP: u64 = 24, "{:x}";
        /// Packets before this number may be sent.
        granted / GRANTED: u32 = 32, "{}";
        /// A member whose state the root should know, by its number in the group.
        member / MEMBER: u32 = 36, "{}";
        /// One of [`member`].
        state / STATE: u32 = 40, "{}";
    }
}
