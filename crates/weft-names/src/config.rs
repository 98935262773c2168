//! The one table of settings.

use core::time::Duration;

macro_rules! settings {
    ($( $(#[$doc:meta])* $name:ident: $kind:ty = $value:expr, $unit:literal, $why:literal; )*) => {
        /// Settings of a node.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config { $( $(#[$doc])* pub $name: $kind, )* }

        impl Default for Config {
            fn default() -> Config {
                Config { $( $name: $value, )* }
            }
        }

        impl Config {
            /// Name, unit and reason of the default of each setting.
            pub const KEYS: &'static [(&'static str, &'static str, &'static str)] =
                &[$( (stringify!($name), $unit, $why), )*];
        }
    };
}

settings! {
    /// Silence after which a host is lost.
    tolerance: Duration = Duration::from_millis(1500), "time",
        "TIPC's default; 50 ms is for networks that lose nothing";
    /// Version of the agent, told to all.
    agent: u32 = 1, "number", "shown beside each host";
    /// Most hosts that are known, lost ones included.
    members_max: usize = 4096, "hosts", "four times the size that is simulated";
    /// Time after which a host that has ended is forgotten.
    forget: Duration = Duration::from_secs(3600), "time",
        "a host that was repaired meanwhile is still told as the same one";
    /// Most hosts that are watched all by all.
    mesh_max: usize = 32, "hosts", "TIPC's threshold of its overlapping ring";
    /// Longest message between agents.
    message_max: usize = 1400, "bytes", "a datagram that every Ethernet carries with keys and tags";
    /// Most claims of one user on this host.
    claims_per_user: usize = 1024, "claims", "one user cannot fill the table of all hosts";
    /// Most claims of this host, and of another host that are kept.
    claims_per_host: usize = 65_535, "claims", "TIPC's bound on publications";
    /// Most subscriptions of one user on this host.
    subscriptions_per_user: usize = 1024, "subscriptions", "one user cannot slow down all others";
    /// Events that wait for a subscriber; one that has more must catch up.
    queue_max: usize = 256, "events", "about 32 KiB a subscription";
    /// Withdrawals of each host that are remembered with their cause.
    log_max: usize = 64, "withdrawals", "a host that missed more compares the whole table";
    /// Messages and events that wait for the driver.
    out_max: usize = 65_536, "messages", "the driver takes all after each call; more is a fault";
    /// Time after which a claim of a unique name that nobody decides fails.
    claim_wait: Duration = Duration::from_secs(10), "time", "some tolerances, then the cause";
}

impl Config {
    /// Returns the time between two probes of a host that answers; TIPC's share of the tolerance.
    pub fn probe_every(&self) -> Duration {
        self.tolerance / 4
    }

    /// Returns the time between two probes of a host that is silent.
    pub fn probe_fast(&self) -> Duration {
        self.tolerance / 20
    }

    /// Returns the silence after which probes become faster, and within which a host counts as
    /// heard when others ask.
    pub fn hushed(&self) -> Duration {
        self.tolerance * 7 / 20
    }

    /// Returns the silence after which other watchers are asked.
    pub fn silent(&self) -> Duration {
        self.tolerance * 7 / 10
    }

    /// Returns the time that other watchers have for an answer.
    pub fn grace(&self) -> Duration {
        self.tolerance / 5
    }

    /// Returns the time in which all hosts of a part know a change: an arbiter of unique names
    /// that is new waits so long.
    pub fn settle(&self) -> Duration {
        self.tolerance
    }
}
