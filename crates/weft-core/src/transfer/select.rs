//! The cost model: it chooses the protocol of a message of a given size on a path.

use crate::caps::LinkCaps;
use crate::choices::Transfer;
use crate::config::Config;
use core::fmt;

/// Longest active message, bytes: it is collected before its handler runs.
pub const ACTIVE_MAX: u64 = 64 << 10;

/// Protocol of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One packet; the buffer is reusable when the call returns.
    Inject,
    /// Sent at once in one or more packets.
    Eager,
    /// Announced, then pulled in blocks by the receiver.
    Pull,
    /// Announced, then copied between the two processes in one step.
    Direct,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Inject => "inject",
            Protocol::Eager => "eager",
            Protocol::Pull => "rendezvous, pulled",
            Protocol::Direct => "rendezvous, direct copy",
        })
    }
}

/// With transfer `rcpy`: longest message that is not announced, bytes.
const RCPY_MIN: u32 = 4096;

/// The lengths that decide the protocol of messages to and from a peer, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest message whose buffer can be used again when the send returns.
    pub inject_max: u32,
    /// Longest message sent at once; 0: the cost model decides.
    pub eager_max: u32,
    /// Shortest message that is copied directly, where the memory is accessible.
    pub direct_min: u32,
}

impl Limits {
    /// Returns those of a configuration.
    pub fn of(cfg: &Config) -> Limits {
        Limits { inject_max: cfg.inject_max, eager_max: cfg.eager_max, direct_min: cfg.direct_min }
    }

    /// Adapts them to a transfer.
    pub fn with(self, transfer: Transfer) -> Limits {
        match transfer {
            Transfer::Auto => self,
            Transfer::Copy => Limits { inject_max: u32::MAX, direct_min: u32::MAX, ..self },
            Transfer::Gather => Limits { inject_max: 0, direct_min: u32::MAX, ..self },
            // A receive that was announced names the destination of its data.
            Transfer::Rcpy => Limits { eager_max: RCPY_MIN, direct_min: RCPY_MIN, ..self },
        }
    }

    /// Returns those for a peer that has the choice `transfer`. Values set by hand stay: they are
    /// neither the default nor derived from the transfer of the configuration.
    pub fn for_peer(cfg: &Config, transfer: Transfer) -> Limits {
        let set = Limits::of(cfg);
        if transfer == cfg.transfer {
            return set;
        }
        let usual = Limits::of(&Config::default());
        let (followed, wanted) = (usual.with(cfg.transfer), usual.with(transfer));
        let pick = |limit: fn(&Limits) -> u32| {
            let by_hand = limit(&set) != limit(&usual) && limit(&set) != limit(&followed);
            limit(if by_hand { &set } else { &wanted })
        };
        Limits {
            inject_max: pick(|l| l.inject_max),
            eager_max: pick(|l| l.eager_max),
            direct_min: pick(|l| l.direct_min),
        }
    }
}

/// Approximate rate of a processor's copies from cache, in bytes per microsecond.
const COPY_BYTES_PER_US: u64 = 10_000;

/// Cost of a rendezvous besides its round trip: four packets through both engines, and a second
/// round of packets for the payload.
const HANDSHAKE_NS: u64 = 2_900;
/// Cost of a rendezvous whose payload is copied by one system call, besides its round trip: two
/// packets. Measured on an Intel Xeon (fourth generation), one way: 12 KiB eager 2.2 us, direct
/// 1.7; 32 KiB 5.1 and 2.6.
const HANDSHAKE_DIRECT_NS: u64 = 1_300;

/// Returns the cost of copying an eager message that was unexpected, in nanoseconds.
pub fn copy_ns(len: u64) -> u64 {
    len.saturating_mul(1000) / COPY_BYTES_PER_US
}

/// Returns the cost of announcing and fetching a message on a path, without that of its bytes, in
/// nanoseconds.
pub fn rendezvous_ns(caps: &LinkCaps) -> u64 {
    let handshake = if caps.direct { HANDSHAKE_DIRECT_NS } else { HANDSHAKE_NS };
    2 * u64::from(caps.latency_ns) + handshake
}

/// Returns the longest eager message on a path.
///
/// An unexpected eager message costs one copy more; a rendezvous costs its round trip and handling.
/// Where messages sent at once always take another link than requested data, their slower rate
/// counts too. The threshold is the size at which the extra cost of eager equals that of the
/// rendezvous, rounded down to a power of two and kept between 4 KiB and a quarter of the credit
/// window. A measured threshold, kept between the same, replaces it.
pub fn eager_max(cfg: &Config, caps: &LinkCaps) -> u32 {
    eager_max_of(cfg.eager_max, cfg.eager_credit, caps)
}

/// Returns `fixed` instead, unless that is 0, within a credit window of `credit` bytes.
pub fn eager_max_of(fixed: u32, credit: u32, caps: &LinkCaps) -> u32 {
    if fixed != 0 {
        return fixed;
    }
    let most = u64::from(credit / 4).max(4096);
    if caps.eager_max != 0 {
        return u64::from(caps.eager_max).clamp(4096, most) as u32;
    }
    let ps = |bytes_per_us: u64| 1_000_000 / bytes_per_us.max(1);
    let data = u64::from(caps.bytes_per_us);
    let small = match caps.bulk_min {
        u32::MAX => u64::from(caps.small_bytes_per_us),
        _ => data,
    };
    let eager_ps = ps(COPY_BYTES_PER_US) + ps(small).saturating_sub(ps(data));
    let equal = rendezvous_ns(caps) * 1000 / eager_ps;
    let power = 1u64 << (63 - equal.max(1).leading_zeros());
    power.clamp(4096, most) as u32
}

/// Returns the protocol that the engine will choose for a message of `len` bytes on a path.
pub fn protocol(cfg: &Config, caps: &LinkCaps, len: u64) -> Protocol {
    if len <= u64::from(eager_max(cfg, caps)) {
        if len <= u64::from(cfg.inject_max) {
            Protocol::Inject
        } else {
            Protocol::Eager
        }
    } else if caps.direct && len >= u64::from(cfg.direct_min) {
        Protocol::Direct
    } else {
        Protocol::Pull
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn eager_max__grows_with_latency() {
        let cfg = Config::default();
        let shm = eager_max(&cfg, &LinkCaps::memory("shm", 32 << 10));
        let udp = eager_max(&cfg, &LinkCaps::network("udp", 1456));
        assert!(shm < udp, "{shm} {udp}");
        assert!(udp <= cfg.eager_credit / 4);
    }

    #[test]
    fn eager_max__as_measured_within_the_credit() {
        let cfg = Config::default();
        let mut caps = LinkCaps::network("udp", 1456);
        for (measured, used) in [(8 << 10, 8 << 10), (1, 4096), (u32::MAX, cfg.eager_credit / 4)] {
            caps.eager_max = measured;
            assert_eq!(eager_max(&cfg, &caps), used);
        }
        let fixed = Config { eager_max: 777, ..Config::default() };
        assert_eq!(eager_max(&fixed, &caps), 777, "what the user says comes first");
    }

    #[test]
    fn limits__of_a_peer_are_those_of_its_transfer_but_for_what_was_set_by_hand() {
        let usual = Limits::of(&Config::default());
        for &job in Transfer::ALL {
            let Limits { inject_max, eager_max, direct_min } = usual.with(job);
            let cfg =
                Config { transfer: job, inject_max, eager_max, direct_min, ..Config::default() };
            for &peer in Transfer::ALL {
                assert_eq!(Limits::for_peer(&cfg, peer), usual.with(peer), "{job} {peer}");
            }
            let by_hand = Config { inject_max: 77, ..cfg };
            for &peer in Transfer::ALL {
                let want = Limits { inject_max: 77, ..usual.with(peer) };
                assert_eq!(Limits::for_peer(&by_hand, peer), want, "{job} {peer}");
            }
        }
    }

    #[test]
    fn protocol__by_size() {
        let cfg = Config::default();
        let mut caps = LinkCaps::memory("shm", 32 << 10);
        assert_eq!(protocol(&cfg, &caps, 8), Protocol::Inject);
        assert_eq!(protocol(&cfg, &caps, 1 << 20), Protocol::Pull);
        assert_eq!(protocol(&cfg, &caps, 32 << 10), Protocol::Eager);
        caps.direct = true;
        assert_eq!(protocol(&cfg, &caps, 16 << 10), Protocol::Inject);
        for direct in [(16 << 10) + 1, 1 << 20] {
            assert_eq!(protocol(&cfg, &caps, direct), Protocol::Direct);
        }
    }
}
