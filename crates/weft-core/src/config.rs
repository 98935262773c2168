//! Typed tables of settings, and the engine's own. Each key can be set as `WEFT_<NAME>`. A layer
//! above that has settings makes a table of its own by [`settings!`](crate::settings!).

use crate::choices::{Place, Receipt, Server, Transfer, Tree};
use crate::exception::Exception;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The protocol that makes packets between two peers reliable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reliability {
    /// The link is trusted to deliver everything once and in order: packets are numbered, not kept.
    None,
    /// Out-of-order packets are dropped; a gap or a timeout resends everything unacknowledged.
    GoBackN,
    /// Out-of-order packets are held; only missing ones are resent.
    #[default]
    Selective,
    /// The host's agent retransmits: its link to the rank is reliable. Without an agent: as
    /// [`Reliability::Selective`].
    Agent,
}

/// The name is none of `none`, `host`, `gbn`, `selective`, `agent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReliability;

impl fmt::Display for UnknownReliability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown reliability: use none, gbn, selective (or host, the same) or agent")
    }
}

impl core::error::Error for UnknownReliability {}

impl FromStr for Reliability {
    type Err = UnknownReliability;

    fn from_str(name: &str) -> Result<Reliability, UnknownReliability> {
        match name {
            "none" => Ok(Reliability::None),
            "gbn" => Ok(Reliability::GoBackN),
            "selective" | "host" => Ok(Reliability::Selective),
            "agent" => Ok(Reliability::Agent),
            _ => Err(UnknownReliability),
        }
    }
}

impl fmt::Display for Reliability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reliability::None => "none",
            Reliability::GoBackN => "gbn",
            Reliability::Selective => "selective",
            Reliability::Agent => "agent",
        })
    }
}

/// The limit on packets in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CongestionControl {
    /// Always the whole window.
    None,
    /// A window that keeps the delay in queues near a target.
    #[default]
    Delay,
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            CongestionControl::None => "none",
            CongestionControl::Delay => "delay",
        })
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name in lower case; the environment variable is `WEFT_` and the name in upper case.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// The values that it takes, of a number.
    pub range: Option<Range>,
    /// The reason for the default.
    pub why: &'static str,
}

/// The values of a setting that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least value.
    pub least: u64,
    /// The most value.
    pub most: u64,
    /// The meaning of 0, where 0 is valid and means more than the number.
    pub zero: Option<&'static str>,
}

impl Range {
    /// True if the setting takes this value.
    pub fn takes(&self, value: u64) -> bool {
        (self.least..=self.most).contains(&value) || value == 0 && self.zero.is_some()
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.zero {
            Some(zero) => format!("{} to {}, or 0 ({zero})", self.least, self.most),
            None => format!("{} to {}", self.least, self.most),
        };
        f.pad(&text)
    }
}

/// Most value of a number of 32 bits.
const U32: u64 = u32::MAX as u64;
/// An hour in microseconds.
const HOUR_US: u64 = 3_600_000_000;

/// Returns a range without a meaning of 0 of its own.
pub const fn within(least: u64, most: u64) -> Option<Range> {
    Some(Range { least, most, zero: None })
}

/// Returns a range beside which 0 is valid, with this meaning. A time of 0 for something to be done
/// is none; 0 as a time after which something is said or done is never. The times after which a
/// peer has failed have no such value, since each wait has an end.
pub const fn or_zero(least: u64, most: u64, zero: &'static str) -> Option<Range> {
    Some(Range { least, most, zero: Some(zero) })
}

/// Smallest packet that every path carries, bytes: a HELLO with the longest address.
pub const MTU_MIN: u32 = 276;

/// Largest window of unacknowledged packets to a peer.
pub const WINDOW_MAX: u32 = 1024;

/// A value that could not be understood, or is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key.
    pub name: String,
    /// The text given.
    pub value: String,
    /// The valid values, if the text is another number or none.
    pub range: Option<Range>,
    /// Advice, if the text was not understood.
    pub advice: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { name, value, range, advice } = self;
        match range {
            Some(range) => write!(f, "{name}={value:?} {}: {range}", self.fault()),
            None => write!(f, "{name}={value:?} {}; {advice}", self.fault()),
        }
    }
}

impl core::error::Error for ConfigError {}

impl ConfigError {
    /// Returns the fault of the text, for messages.
    pub fn fault(&self) -> &'static str {
        match self.range {
            Some(range) if is_outside(&self.value, range) => "is out of range",
            Some(_) => "is no whole number",
            None => "is not understood",
        }
    }

    /// The error of a key that is missing, or of a value that was not understood.
    pub fn unknown(name: &str, value: &str) -> ConfigError {
        let (name, value) = (name.to_string(), value.to_string());
        let advice = "`weft info --config` lists keys, units and ranges";
        ConfigError { name, value, range: None, advice }
    }
}

/// Reads a value within a range.
///
/// # Errors
/// The text is no such value, or a number outside of the range.
#[doc(hidden)]
pub fn read_in<V: Value>(name: &str, value: &str, range: Option<Range>) -> Result<V, ConfigError> {
    let wrong = || ConfigError { range, ..ConfigError::unknown(name, value) };
    match range {
        Some(range) if is_outside(value, range) => Err(wrong()),
        _ => V::read(value).ok_or_else(wrong),
    }
}

/// A table of settings.
pub trait Table {
    /// All keys, in the order of the fields.
    const KEYS: &'static [Key];

    /// Sets one key from text.
    ///
    /// # Errors
    /// There is no such key, or it does not accept this value; nothing is changed.
    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError>;

    /// Returns the value of a key as text that `set` accepts.
    fn get(&self, name: &str) -> Option<String>;
}

/// Makes a table of settings: a struct with a field for each, its `Default`, its keys, and the
/// methods `set_field` and `get_field` that set and get a field by name, for the crate that makes
/// it. The fields in braces are no settings.
#[macro_export]
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $table:ident { $($(#[$doc:meta])* pub $more:ident: $kind:ty,)* }
        $($name:ident: $ty:ty = $default:expr, $unit:literal, $range:expr, $why:literal;)*
    ) => {
        $(#[$about])*
        pub struct $table {
            $(#[doc = concat!($why, " Unit: ", $unit, ".")] pub $name: $ty,)*
            $($(#[$doc])* pub $more: $kind,)*
        }

        impl Default for $table {
            fn default() -> $table {
                $table { $($name: $default,)* $($more: Default::default(),)* }
            }
        }

        impl $table {
            /// All keys, in the order of the fields.
            pub const KEYS: &'static [$crate::config::Key] = &[
                $($crate::config::Key {
                    name: stringify!($name),
                    unit: $unit,
                    range: $range,
                    why: $why,
                },)*
            ];

            /// Sets the field of this name.
            pub(crate) fn set_field(
                &mut self,
                name: &str,
                value: &str,
            ) -> Result<(), $crate::config::ConfigError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = $crate::config::read_in::<$ty>(name, value, $range)?;
                        Ok(())
                    })*
                    _ => Err($crate::config::ConfigError::unknown(name, value)),
                }
            }

            /// Returns the field of this name, as text.
            pub(crate) fn get_field(&self, name: &str) -> Option<String> {
                match name {
                    $(stringify!($name) => Some(self.$name.to_string()),)*
                    _ => None,
                }
            }
        }
    };
}

impl Table for Config {
    const KEYS: &'static [Key] = Config::KEYS;

    fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        Config::set(self, name, value)
    }

    fn get(&self, name: &str) -> Option<String> {
        Config::get(self, name)
    }
}

impl Config {
    /// Sets the value for all peers.
    pub(crate) fn set_for_all(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        self.set_field(name, value)
    }
}

/// A value that can be read from text; sizes take K, M and G (powers of two).
pub trait Value: Sized {
    /// Reads the value; `None` if the text is no such value.
    fn read(text: &str) -> Option<Self>;
}

/// True if a text is a number outside of a range, one below zero or beyond 64 bits among them.
fn is_outside(text: &str, range: Range) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text).trim_end_matches(['k', 'K', 'm', 'M']);
    let digits = digits.trim_end_matches(['g', 'G']);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number && u64::read(text).is_none_or(|value| !range.takes(value))
}

impl Value for u64 {
    fn read(text: &str) -> Option<u64> {
        let t = text.trim();
        let (digits, shift) = match t.as_bytes().last()?.to_ascii_lowercase() {
            b'k' => (&t[..t.len() - 1], 10),
            b'm' => (&t[..t.len() - 1], 20),
            b'g' => (&t[..t.len() - 1], 30),
            _ => (t, 0),
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)
    }
}

impl Value for u32 {
    fn read(text: &str) -> Option<u32> {
        u64::read(text)?.try_into().ok()
    }
}

impl Value for bool {
    fn read(text: &str) -> Option<bool> {
        match text.trim() {
            "1" | "on" | "yes" | "true" => Some(true),
            "0" | "off" | "no" | "false" => Some(false),
            _ => None,
        }
    }
}

macro_rules! parsed {
    ($($kind:ty),*) => {
        $(impl Value for $kind {
            fn read(text: &str) -> Option<$kind> {
                text.trim().parse().ok()
            }
        })*
    };
}

parsed!(Reliability, Transfer, Place, Server, Tree, Receipt);

impl Value for CongestionControl {
    fn read(text: &str) -> Option<CongestionControl> {
        match text.trim() {
            "none" => Some(CongestionControl::None),
            "delay" => Some(CongestionControl::Delay),
            _ => None,
        }
    }
}

settings! {
    /// Effective configuration of an endpoint: a field for each setting.
    ///
    /// ```
    /// use weft_core::Config;
    ///
    /// let mut config = Config { spin_us: 0, ..Config::default() };
    /// // By name, as a variable `WEFT_WARN_AFTER_MS=1000` does.
    /// config.set("warn_after_ms", "1000")?;
    /// assert_eq!(config.warn_after_ms, 1000);
    /// # Ok::<(), weft_core::config::ConfigError>(())
    /// ```
    #[derive(Clone, Debug)]
    pub struct Config {
        /// Values for some peers; of those that concern one peer the last counts.
        pub exceptions: Vec<Exception>,
        /// The number of this process in its job, if it has one; peers know it by that number.
        pub rank: Option<u32>,
    }
    reliability: Reliability = Reliability::Selective, "none|gbn|selective|host|agent", None,
        "Retransmission on links that lose packets; selective (host) resends only lost packets.";
    transfer: Transfer = Transfer::Auto, "auto|copy|gather|rcpy", None,
        "Transfer of payload to the link; auto chooses by length, which suits all links.";
    mtu: u32 = 0, "bytes", or_zero(MTU_MIN as u64, U32, "the link's longest"),
        "Longest packet to a peer, header included; 0 is the link's longest: fewest packets.";
    multicast: Place = Place::Host, "host|agent", None,
        "Forwarder of multicast packets; the rank, as not every host has an agent.";
    tree: Tree = Tree::Binomial, "flat|chain|binary|binomial", None,
        "Tree of multicasts, broadcasts, reductions that name none; binomial has least latency.";
    fetch_add: Server = Server::Host, "host|agent|kernel", None,
        "Server of fetch-and-add; the rank, as not every host has an agent.";
    receipt: Receipt = Receipt::Adaptive, "adaptive|polling|blocking|watchdog", None,
        "How a rank notices arrivals; adaptive polls while that pays, then sleeps.";
    watchdog_us: u32 = 200, "us", within(1, HOUR_US),
        "Time without a poll after which the watchdog makes progress for a rank that computes.";
    window: u32 = 512, "packets", within(1, WINDOW_MAX as u64),
        "Most unacknowledged packets to a peer; covers bandwidth times delay of a 40 Gb/s LAN.";
    congestion: CongestionControl = CongestionControl::Delay, "delay|none", None,
        "Limit below the windows; delay keeps queues short where many share a bottleneck.";
    congestion_target_us: u32 = 100, "us", within(1, 60_000_000),
        "Target of the delay in queues; 1000 in jobs, whose ranks share their cores with others.";
    inject_max: u32 = 16 << 10, "bytes", within(0, U32),
        "Up to this size the buffer is reusable when send returns: a copy is cheaper than a wait.";
    eager_max: u32 = 0, "bytes", or_zero(1, U32, "the cost model"),
        "Longest message sent at once; 0 takes it from the link's cost model.";
    eager_credit: u32 = 1 << 20, "bytes", within(64 << 10, U32),
        "Unexpected bytes a peer may leave here before its messages are announced instead of sent.";
    credit_patience_us: u32 = 500, "us", or_zero(1, HOUR_US, "none"),
        "Time a message waits for credit before it is announced; a busy receiver needs less.";
    rendezvous_max: u32 = 4096, "messages", within(1, U32),
        "Announced messages a peer may have here; more if there is room, the others wait there.";
    unexpected_max: u64 = 512 << 20, "bytes", within(64 << 10, 1 << 40),
        "Memory for unexpected messages; one peer takes half at most, further messages wait.";
    pull_block: u32 = 128 << 10, "bytes", within(1 << 10, U32),
        "Part of a large message requested at a time; two GSO trains.";
    stripes: u32 = 3, "interfaces", within(1, 3),
        "Most interfaces that share a large message, at most 3; 1 uses one.";
    pull_depth: u32 = 6, "blocks", within(1, 1 << 16),
        "Blocks requested ahead of those that arrived: keeps the sender busy for a round trip.";
    direct_min: u32 = 16 << 10, "bytes", within(0, U32),
        "Shortest message that is copied directly from a reachable peer's memory.";
    direct_block: u32 = 512 << 10, "bytes", within(4 << 10, U32),
        "Longest part of a direct copy; between parts other messages are served.";
    direct_share: bool = true, "on|off", None,
        "A waiting sender copies part of a large message itself, so that both cores work.";
    ack_delay_us: u32 = 100, "us", or_zero(1, 1_000_000, "none"),
        "Time an acknowledgement may wait for a packet that carries it.";
    ack_every: u32 = 128, "packets", within(1, 1 << 16),
        "Packets after which an acknowledgement is due at once; one and a half GSO trains.";
    rto_min_us: u32 = 500, "us", within(100, 10_000_000),
        "Shortest retransmission timeout; a needless one resends two packets (all with gbn).";
    rto_max_us: u32 = 1_000_000, "us", within(1_000, 60_000_000),
        "Longest retransmission timeout, after several timeouts.";
    connect_timeout_ms: u32 = 60_000, "ms", within(100, U32),
        "Time a peer may take to answer the first packet; over shm, time it may be stopped.";
    peer_timeout_ms: u32 = 300_000, "ms", within(100, U32),
        "Silence after which an awaited peer has failed; over shm, time it is stopped.";
    warn_after_ms: u32 = 5_000, "ms", or_zero(1, U32, "never"),
        "Length of a wait after which a line names the peers and operations waited for; 0: never.";
    keepalive_ms: u32 = 500, "ms", within(10, 60_000),
        "Interval of probes to a silent, awaited peer.";
    watchdog_ms: u32 = 20, "ms", or_zero(1, 60_000, "never"),
        "Time without a call after which a thread makes progress for an MPI program; 0: never.";
    peers_max: u32 = 65_536, "peers", within(1, 1 << 20),
        "Most peers of an endpoint, including those that contact it.";
    yield_us: u32 = 0, "us", or_zero(1, U32, "none"),
        "Time a wait yields its core before it sleeps; 200 when ranks outnumber cores.";
    spin_us: u32 = 50, "us", or_zero(1, U32, "none"),
        "Time a wait polls before it sleeps; 0 when ranks outnumber cores.";
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn set__a_number_out_of_range_is_an_error_with_the_range() {
        let mut config = Config::default();
        for (name, value, range) in [
            ("window", "4294967296", "1 to 1024"),
            ("window", "4G", "1 to 1024"),
            ("window", "0", "1 to 1024"),
            ("spin_us", "-3", "1 to 4294967295, or 0 (none)"),
            ("unexpected_max", "99999999999999999999", "65536 to 1099511627776"),
            ("stripes", "4", "1 to 3"),
            ("stripes", "0", "1 to 3"),
            ("peers_max", "0", "1 to 1048576"),
            ("peer_timeout_ms", "0", "100 to 4294967295"),
            ("connect_timeout_ms", "0", "100 to 4294967295"),
            ("mtu", "275", "276 to 4294967295, or 0 (the link's longest)"),
        ] {
            let error = config.set(name, value).unwrap_err();
            assert_eq!(error.range.map(|r| r.to_string()).as_deref(), Some(range), "{name}");
            assert!(error.to_string().ends_with(&format!("out of range: {range}")), "{error}");
        }
        for nonsense in ["much", "", "-", "k", "1.5"] {
            let error = config.set("window", nonsense).unwrap_err();
            assert!(error.to_string().ends_with("is no whole number: 1 to 1024"), "{error}");
        }
        config.set("window", "1024").unwrap();
    }

    #[test]
    fn keys__each_number_has_a_range_with_its_default_and_an_unknown_edge_is_refused() {
        let default = Config::default();
        for key in Config::KEYS {
            let value = default.get_field(key.name).unwrap();
            let Ok(value) = value.parse::<u64>() else {
                assert_eq!(key.range, None, "{}", key.name);
                continue;
            };
            let range = key.range.unwrap_or_else(|| panic!("{} has no range", key.name));
            assert!(range.takes(value), "{}={value} is its default", key.name);
            for edge in [0, 1, range.least, range.most, range.most.saturating_add(1)] {
                let set = Config::default().set(key.name, &edge.to_string());
                assert_eq!(set.is_ok(), range.takes(edge), "{}={edge}", key.name);
            }
            let of_time = ["us", "ms"].contains(&key.unit);
            assert!(!of_time || range.least > 0, "{}: 0 is said, or refused", key.name);
        }
    }

    #[test]
    fn set__an_mtu_below_what_every_path_carries_is_refused() {
        let mut config = Config::default();
        for value in ["1", "3", "275"] {
            let error = config.set("mtu", value).unwrap_err();
            assert!(error.to_string().contains("276 to 4294967295, or 0"), "{error}");
        }
        assert_eq!(config.mtu, 0);
        for (value, mtu) in [("276", 276), ("1K", 1024), ("0", 0)] {
            config.set("mtu", value).unwrap();
            assert_eq!(config.mtu, mtu);
        }
        let error = config.set("mtu", "much").unwrap_err();
        assert_eq!(error.fault(), "is no whole number");
        config.set("window", "3").unwrap();
    }
}
