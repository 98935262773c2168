//! The cost model: which protocol a message of a given size takes on a path, and why.

use crate::caps::LinkCaps;
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

/// Copies of a processor run at about this rate from cache, in bytes per microsecond.
const COPY_BYTES_PER_US: u64 = 10_000;

/// What a rendezvous costs besides its round trip: four packets through both engines, and a second
/// round of packets for the payload.
const HANDSHAKE_NS: u64 = 2_900;
/// The same where the payload is copied by one system call: two packets. Measured on an Intel Xeon
/// (fourth generation), one way: 12 KiB eager 2.2 us, direct 1.7; 32 KiB 5.1 and 2.6.
const HANDSHAKE_DIRECT_NS: u64 = 1_300;

/// What the copy of an eager message that came unexpected costs, in nanoseconds.
pub fn copy_ns(len: u64) -> u64 {
    len.saturating_mul(1000) / COPY_BYTES_PER_US
}

/// What announcing a message and fetching it costs on a path, beyond moving its bytes, in
/// nanoseconds.
pub fn rendezvous_ns(caps: &LinkCaps) -> u64 {
    let handshake = if caps.direct { HANDSHAKE_DIRECT_NS } else { HANDSHAKE_NS };
    2 * u64::from(caps.latency_ns) + handshake
}

/// Longest eager message on a path.
///
/// An eager message that is unexpected costs one copy more; a rendezvous costs its round trip and
/// handling. Where messages sent at once always take another link than data that was asked for,
/// their slower rate counts too. The two are equal where what eager costs more takes as long as the
/// rendezvous; that size, rounded down to a power of two and kept between 4 KiB and a quarter of
/// the credit window, is the threshold. A measured one, kept between the same, takes its place.
pub fn eager_max(cfg: &Config, caps: &LinkCaps) -> u32 {
    if cfg.eager_max != 0 {
        return cfg.eager_max;
    }
    let most = u64::from(cfg.eager_credit / 4).max(4096);
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

/// The protocol of a message of `len` bytes on a path, as the engine will choose it.
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
