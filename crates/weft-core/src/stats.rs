//! Counters, declared once.

/// Declares the type `Stats` of counters: the name and the meaning of each.
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* $($name:ident: $what:literal,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $what] pub $name: u64,)*
        }

        impl Stats {
            /// Names and meanings, in the order of [`Stats::values`].
            pub const NAMES: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), $what),)*];

            /// Returns the values in the order of [`Stats::NAMES`].
            pub fn values(&self) -> [u64; Stats::NAMES.len()] {
                [$(self.$name,)*]
            }
        }
    };
}

counters! {
    /// Counters of an engine since it was made.
    packets_sent: "Packets handed to links, retransmissions and acknowledgements included.",
    packets_received: "Packets accepted from links.",
    bytes_sent: "Payload bytes handed to links.",
    bytes_received: "Payload bytes accepted from links.",
    messages_sent: "Messages, active messages and remote-memory operations started.",
    messages_received: "Messages and active messages delivered.",
    acks_sent: "Packets that only acknowledge.",
    retransmitted: "Packets sent again.",
    packets_cut: "Packets sent again in pieces: they were longer than their path carries.",
    timeouts: "Retransmission timeouts.",
    duplicates: "Packets received before and dropped.",
    held: "Packets after a gap, kept until it was filled.",
    gaps: "Packets after a gap, dropped (go-back-N).",
    outside_window: "Packets outside the receive window, dropped.",
    stripes_lost: "Interfaces unused for a while because none of their share of a message arrived.",
    stale_session: "Packets of an unknown or old session, dropped.",
    stale_incarnation: "First packets meant for an earlier incarnation of this endpoint, dropped.",
    wrong_source: "Packets whose link-level source is not the peer they name, dropped.",
    malformed: "Packets with a bad header, dropped.",
    wrong_version: "Packets of another protocol version, dropped.",
    bad_ack: "Acknowledgements of packets never sent, ignored.",
    violations: "Packets that break the protocol (unknown operation, bad length), dropped.",
    unexpected: "Messages that arrived before a receive was posted.",
    credit_stalls: "Times the next message had to wait for credit.",
    demoted: "Messages announced instead of sent because credit did not come.",
    direct_bytes: "Bytes moved by direct copies between processes.",
    direct_declined: "Messages taken in packets, which measured faster than direct copies.",
    direct_failures: "Direct copies refused by the system and done through packets instead.",
    refused: "Remote-memory operations refused: key, bounds or rights.",
    peers_failed: "Peers that failed.",
    peers_refused: "Unknown peers refused because the peer table is full.",
}
