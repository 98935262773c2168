//! Counters, declared once.

weft_core::counters! {
    /// Counters of a node since it was made.
    messages_sent: "Messages handed to the driver.",
    bytes_sent: "Bytes of these messages.",
    messages_received: "Messages accepted.",
    probes_sent: "Probes sent.",
    relayed: "Messages passed on to neighbours on the ring.",
    malformed: "Messages with a bad header, list or value, dropped.",
    wrong_version: "Messages of another protocol version, dropped.",
    stale: "Messages from an earlier life of a host, dropped.",
    strangers: "Messages from hosts beyond the bound on members, dropped.",
    suspected: "Times a watched host was silent long enough to ask others.",
    vouched: "Times another watcher had heard such a host.",
    declared_lost: "Hosts that this node declared lost.",
    refuted: "Times this host was declared lost and said that it is not.",
    syncs: "Comparisons with another host because the digests differed.",
    gaps: "Changes of names that came after a gap.",
    snapshots: "Tables of another host's names taken in whole.",
    bindings_refused: "Bindings of other hosts beyond the bound, dropped.",
    claims_refused: "Claims refused here.",
    conflicts_lost: "Claims of this host that lost to an older one when parts met.",
    events_dropped: "Events that the driver did not take in time.",
    messages_dropped: "Messages that the driver did not take in time.",
    naps: "Times the driver came late and its absence was not counted as silence of others.",
}
