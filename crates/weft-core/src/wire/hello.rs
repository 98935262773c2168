//! HELLO: opens a session and agrees on a version.

use super::{flags, Packet, VERSION};

/// Lowest version of the protocol this build speaks.
pub const VERSION_MIN: u8 = VERSION;
/// Highest version of the protocol this build speaks.
pub const VERSION_MAX: u8 = VERSION;

/// Bit of a HELLO's `imm`: the sender trusts the network to lose nothing. If both sides do, packets
/// are numbered from 0 on and none is kept or acknowledged; a number out of order ends the session.
pub const TRUSTS: u32 = 1;

packet! {
    /// Opens a session, or with [`flags::REPLY`] answers. The payload is the
    /// sender's encoded address. Its layout never changes between versions, and its version byte is
    /// always 1.
    Hello, 56;
    pad 50..52;
    valid valid;
    {
        /// The sender's endpoint id.
        src_eid / SRC_EID: u64 = 24, "{:016x}";
        /// The endpoint id the sender wants to reach; a process with another id does not answer.
        dst_eid / DST_EID: u64 = 32, "{:016x}";
        /// The session number the receiver must put into its packets to the sender.
        session_offer / SESSION_OFFER: u32 = 40, "{:#x}";
        /// Largest packet the sender can receive, bytes.
        mtu / MTU: u32 = 44, "{}";
        /// Lowest protocol version the sender speaks.
        version_min / VERSION_MIN: u8 = 48, "{}";
        /// Highest protocol version the sender speaks.
        version_max / VERSION_MAX: u8 = 49, "{}";
        /// Eager credit the sender grants at the start, units of 64 bytes.
        credit / CREDIT: u32 = 52, "{}";
    }
}

fn valid(hello: &Hello) -> bool {
    hello.version_min >= 1 && hello.version_min <= hello.version_max
}

impl Hello {
    /// Returns true if a header is that of a HELLO that answers another: proof that its path works
    /// in both directions. False for any malformed header.
    pub fn is_answer(header: &[u8]) -> bool {
        matches!(super::parse(header),
            Ok((common, Packet::Hello(_), _)) if common.flags & flags::REPLY != 0)
    }

    /// Returns the highest version both sides speak; `None` if there is none, and the session is
    /// refused.
    pub fn common_version(&self) -> Option<u8> {
        let highest = self.version_max.min(VERSION_MAX);
        (highest >= self.version_min.max(VERSION_MIN)).then_some(highest)
    }
}
