//! Typed tables of settings, and the engine's own. Each key can be set as `WEFT_<NAME>`. A layer
//! above that has settings makes a table of its own by [`settings!`](crate::settings!).

use crate::choices::{Place, Receipt, Server, Transfer, Tree};
use crate::exception::Exception;
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
    /// The reason for the default.
    pub why: &'static str,
}

/// Smallest packet that every path carries, bytes: a HELLO with the longest address.
pub const MTU_MIN: u32 = 276;

/// A value that could not be understood, or is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key.
    pub name: String,
    /// The text given.
    pub value: String,
    /// The least value, if the text was understood and is less.
    pub least: Option<u32>,
    /// The least and the most value, if the text is a number outside of them.
    pub range: Option<(u64, u64)>,
    /// Advice, if the text was not understood.
    pub advice: &'static str,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { name, value, least, range, advice } = self;
        match (least, range) {
            (Some(least), _) => {
                write!(f, "{name}={value:?} is too small: 0 (not bounded) or {least} up")
            }
            (None, Some((least, most))) => {
                write!(f, "{name}={value:?} is out of range: {least} to {most}")
            }
            (None, None) => write!(f, "{name}={value:?} is not understood; {advice}"),
        }
    }
}

impl core::error::Error for ConfigError {}

impl ConfigError {
    fn outside(name: &str, value: &str, range: (u64, u64)) -> ConfigError {
        ConfigError { range: Some(range), ..ConfigError::unknown(name, value) }
    }

    /// The error of a key that is missing, or of a value that was not understood.
    pub fn unknown(name: &str, value: &str) -> ConfigError {
        let (name, value) = (name.to_string(), value.to_string());
        let advice = "`weft info --config` lists keys and units";
        ConfigError { name, value, least: None, range: None, advice }
    }
}

/// Returns the error of a value that a setting of type `V` does not take.
#[doc(hidden)]
pub fn refused<V: Value>(name: &str, value: &str) -> ConfigError {
    match V::MOST.map(|most| (0, most)).filter(|&range| is_outside(value, range)) {
        Some(range) => ConfigError::outside(name, value, range),
        None => ConfigError::unknown(name, value),
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
        $($name:ident: $ty:ty = $default:expr, $unit:literal, $why:literal;)*
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
                $($crate::config::Key { name: stringify!($name), unit: $unit, why: $why },)*
            ];

            /// Sets the field of this name.
            pub(crate) fn set_field(
                &mut self,
                name: &str,
                value: &str,
            ) -> Result<(), $crate::config::ConfigError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = <$ty as $crate::config::Value>::read(value)
                            .ok_or_else(|| $crate::config::refused::<$ty>(name, value))?;
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
        let short = u32::read(value).is_some_and(|mtu| (1..MTU_MIN).contains(&mtu));
        if name == "mtu" && short {
            return Err(ConfigError { least: Some(MTU_MIN), ..ConfigError::unknown(name, value) });
        }
        let range = match name {
            "stripes" => Some((1, 3)),
            "peers_max" => Some((1, u32::MAX.into())),
            _ => None,
        };
        if let Some(range) = range.filter(|&range| is_outside(value, range)) {
            return Err(ConfigError::outside(name, value, range));
        }
        self.set_field(name, value)
    }
}

/// A value that can be read from text; sizes take K, M and G (powers of two).
pub trait Value: Sized {
    /// The most value, of numbers.
    const MOST: Option<u64> = None;

    /// Reads the value; `None` if the text is no such value.
    fn read(text: &str) -> Option<Self>;
}

/// True if a text is a number outside of a range, one below zero or beyond 64 bits among them.
fn is_outside(text: &str, (least, most): (u64, u64)) -> bool {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text).trim_end_matches(['k', 'K', 'm', 'M']);
    let digits = digits.trim_end_matches(['g', 'G']);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number && u64::read(text).is_none_or(|value| value < least || value > most)
}

impl Value for u64 {
    const MOST: Option<u64> = Some(u64::MAX);
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
    const MOST: Option<u64> = Some(u32::MAX as u64);
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
    reliability: Reliability = Reliability::Selective, "none|gbn|selective|host|agent",
        "Retransmission on links that lose packets; selective (host) resends only lost packets.";
    transfer: Transfer = Transfer::Auto, "auto|copy|gather|rcpy",
        "Transfer of payload to the link; auto chooses by length, which suits all links.";
    mtu: u32 = 0, "bytes",
        "Longest packet to a peer, header included; 0 is the link's longest: fewest packets.";
    multicast: Place = Place::Host, "host|agent",
        "Forwarder of multicast packets; the rank, as not every host has an agent.";
    tree: Tree = Tree::Binomial, "flat|chain|binary|binomial",
        "Tree of multicasts, broadcasts, reductions that name none; binomial has least latency.";
    fetch_add: Server = Server::Host, "host|agent|kernel",
        "Server of fetch-and-add; the rank, as not every host has an agent.";
    receipt: Receipt = Receipt::Adaptive, "adaptive|polling|blocking|watchdog",
        "How a rank notices arrivals; adaptive polls while that pays, then sleeps.";
    watchdog_us: u32 = 200, "us",
        "Time without a poll after which the watchdog makes progress for a rank that computes.";
    window: u32 = 512, "packets",
        "Most unacknowledged packets to a peer; covers bandwidth times delay of a 40 Gb/s LAN.";
    congestion: CongestionControl = CongestionControl::Delay, "delay|none",
        "Limit below the windows; delay keeps queues short where many share a bottleneck.";
    congestion_target_us: u32 = 100, "us",
        "Target of the delay in queues; 1000 in jobs, whose ranks share their cores with others.";
    inject_max: u32 = 16 << 10, "bytes",
        "Up to this size the buffer is reusable when send returns: a copy is cheaper than a wait.";
    eager_max: u32 = 0, "bytes",
        "Longest message sent at once; 0 takes it from the link's cost model.";
    eager_credit: u32 = 1 << 20, "bytes",
        "Unexpected bytes a peer may leave here before its messages are announced instead of sent.";
    credit_patience_us: u32 = 500, "us",
        "Time a message waits for credit before it is announced; a busy receiver needs less.";
    rendezvous_max: u32 = 4096, "messages",
        "Announced messages a peer may have here; more if there is room, the others wait there.";
    unexpected_max: u64 = 512 << 20, "bytes",
        "Memory for unexpected messages; one peer takes half at most, further messages wait.";
    pull_block: u32 = 128 << 10, "bytes",
        "Part of a large message requested at a time; two GSO trains.";
    stripes: u32 = 3, "interfaces",
        "Most interfaces that share a large message, at most 3; 1 uses one.";
    pull_depth: u32 = 6, "blocks",
        "Blocks requested ahead of those that arrived: keeps the sender busy for a round trip.";
    direct_min: u32 = 16 << 10, "bytes",
        "Shortest message that is copied directly from a reachable peer's memory.";
    direct_block: u32 = 512 << 10, "bytes",
        "Longest part of a direct copy; between parts other messages are served.";
    direct_share: bool = true, "on|off",
        "A waiting sender copies part of a large message itself, so that both cores work.";
    ack_delay_us: u32 = 100, "us",
        "Time an acknowledgement may wait for a packet that carries it.";
    ack_every: u32 = 128, "packets",
        "Packets after which an acknowledgement is due at once; one and a half GSO trains.";
    rto_min_us: u32 = 500, "us",
        "Shortest retransmission timeout; a needless one resends two packets (all with gbn).";
    rto_max_us: u32 = 1_000_000, "us",
        "Longest retransmission timeout, after several timeouts.";
    connect_timeout_ms: u32 = 60_000, "ms",
        "Time a peer may take to answer the first packet; over shm, time it may be stopped.";
    peer_timeout_ms: u32 = 300_000, "ms",
        "Silence after which an awaited peer has failed; over shm, time it is stopped.";
    warn_after_ms: u32 = 5_000, "ms",
        "Length of a wait after which a line names the peers and operations waited for; 0: never.";
    keepalive_ms: u32 = 500, "ms",
        "Interval of probes to a silent, awaited peer.";
    watchdog_ms: u32 = 20, "ms",
        "Time without a call after which a thread makes progress for an MPI program; 0: never.";
    peers_max: u32 = 65_536, "peers",
        "Most peers of an endpoint, including those that contact it.";
    yield_us: u32 = 0, "us",
        "Time a wait yields its core before it sleeps; 200 when ranks outnumber cores.";
    spin_us: u32 = 50, "us",
        "Time a wait polls before it sleeps; 0 when ranks outnumber cores.";
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn set__a_number_out_of_range_is_told_the_range() {
        let mut config = Config::default();
        for (name, value, range) in [
            ("window", "4294967296", (0, 4_294_967_295)),
            ("window", "4G", (0, 4_294_967_295)),
            ("spin_us", "-3", (0, 4_294_967_295)),
            ("unexpected_max", "99999999999999999999", (0, u64::MAX)),
            ("stripes", "4", (1, 3)),
            ("stripes", "0", (1, 3)),
            ("peers_max", "0", (1, 4_294_967_295)),
        ] {
            let error = config.set(name, value).unwrap_err();
            assert_eq!(error.range, Some(range), "{name}={value}");
            assert!(error.to_string().contains(&format!("{} to {}", range.0, range.1)), "{error}");
        }
        for nonsense in ["much", "", "-", "k", "1.5"] {
            assert_eq!(
                config.set("window", nonsense).map_err(|e| e.range),
                Err(None),
                "{nonsense}"
            );
        }
        config.set("window", "4294967295").unwrap();
    }

    #[test]
    fn set__an_mtu_below_what_every_path_carries_is_refused() {
        let mut config = Config::default();
        for value in ["1", "3", "275"] {
            let error = config.set("mtu", value).unwrap_err();
            assert_eq!(error.least, Some(MTU_MIN), "{value}");
            assert!(error.to_string().contains("too small: 0 (not bounded) or 276"), "{error}");
        }
        assert_eq!(config.mtu, 0);
        for (value, mtu) in [("276", 276), ("1K", 1024), ("0", 0)] {
            config.set("mtu", value).unwrap();
            assert_eq!(config.mtu, mtu);
        }
        assert_eq!(config.set("mtu", "much").map_err(|error| error.least), Err(None));
        config.set("window", "3").unwrap();
    }
}
