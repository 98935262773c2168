//! Settings beside the engine's table: the variables for links, security, start-up and diagnosis.
//! Together with `Config::KEYS` they are all settings.

use crate::job::{self, JobError};
use crate::Config;

/// A variable of the environment.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its valid values.
    pub takes: &'static str,
    /// Its default.
    pub usual: &'static str,
    /// Its purpose.
    pub why: &'static str,
    /// True if its value is a secret, which is never shown.
    pub secret: bool,
}

const fn variable(
    name: &'static str,
    takes: &'static str,
    usual: &'static str,
    why: &'static str,
) -> Variable {
    Variable { name, takes, usual, why, secret: false }
}

/// All of them.
pub const VARIABLES: &[Variable] = &[
    variable(
        "WEFT_LINK",
        "auto, or a list of shm, udp, tcp, packet, gso, xdp, agent",
        "auto",
        "Links that a rank opens; auto adds packet, gso and tcp where ranks run on several hosts.",
    ),
    variable(
        "WEFT_SECURITY",
        "auth, encrypt, none",
        "auth",
        "How frames on networks are protected; encryption costs more, none lets anybody forge.",
    ),
    variable(
        "WEFT_UDP_PORTS",
        "port, range as 50000-50999, or any",
        "any",
        "Ports of the UDP sockets of ranks and agents: what a firewall between hosts lets pass.",
    ),
    variable(
        "WEFT_TCP_PORTS",
        "port, range as 50000-50999, or any",
        "any",
        "Ports at which ranks take TCP connections: what a firewall between hosts lets pass.",
    ),
    variable(
        "WEFT_INTERFACES",
        "names, by commas",
        "all",
        "Ethernet interfaces of packet, gso and xdp.",
    ),
    variable(
        "WEFT_ETHERTYPE",
        "hexadecimal number",
        "0x88b5",
        "EtherType of frames; another where something else on the network has this one.",
    ),
    variable(
        "WEFT_XDP_MODE",
        "auto, or a list of zerocopy, native, generic",
        "auto",
        "Modes of the XDP link, tried in order; one word forces it.",
    ),
    variable("WEFT_XDP_QUEUE", "number", "all", "The one queue of each interface that xdp uses."),
    variable(
        "WEFT_XDP_BUSY_POLL_US",
        "us",
        "0",
        "Time in a call in which a waiting rank drives the card; 0 is off.",
    ),
    variable(
        "WEFT_AGENT",
        "path, or @ and a name",
        "the usual places",
        "Where the agent of the host listens.",
    ),
    variable(
        "WEFT_TUNE",
        "file, or off",
        "the user's",
        "Figures that `weft tune` measured, by which links and protocols are chosen.",
    ),
    variable(
        "WEFT_BOOTSTRAP",
        "auto, pmi1, pmix, single",
        "auto",
        "How a rank finds its job; single makes it a job of one.",
    ),
    variable(
        "WEFT_LAUNCH_TIMEOUT",
        "s",
        "60",
        "Time that start-up may take, so that a missing rank is an error.",
    ),
    variable(
        "WEFT_LAUNCH_AGENT",
        "command",
        "ssh",
        "Starts a command on another host, for `weft run --hosts`, `weft mpi` and `weft tune`.",
    ),
    variable(
        "WEFT_PMIX_LIBRARY",
        "file",
        "by launcher",
        "The PMIx library, where it is not found by itself.",
    ),
    variable(
        "WEFT_PROVIDER",
        "file",
        "beside weft",
        "The libfabric provider that `weft mpi` has MPIs load.",
    ),
    Variable {
        secret: true,
        ..variable(
            "WEFT_KEY",
            "64 hexadecimal digits",
            "the user's file",
            "Key of programs that another launcher starts, the same for all of a job.",
        )
    },
    variable("WEFT_LAB", "name", "lab", "The lab that `weft lab` means."),
    variable(
        "WEFT_LOG",
        "error, warn, info, debug, trace",
        "warn",
        "What is said on standard error.",
    ),
    variable(
        "WEFT_FAULTS",
        "loss=1%,dup=1%,reorder=1%,delay=1ms,corrupt=1%,seed=7",
        "none",
        "Faults that links inject, for tests of programs.",
    ),
    variable("WEFT_TRACE", "1", "off", "A line for each packet, with WEFT_LOG=debug."),
    variable(
        "WEFT_PCAP",
        "folder",
        "off",
        "Captures of each link's packets, for Wireshark; the folder is made.",
    ),
    variable("WEFT_SEEDS", "A..B", "by command", "Seeds of simulated clusters in tests."),
];

/// Returns the configuration without any setting, for ranks started like this process.
pub fn usual() -> Config {
    job::usual_config()
}

/// Checks that the values of all set variables are valid.
///
/// # Errors
/// The first invalid variable, with its valid values.
pub fn check() -> Result<(), JobError> {
    job::config_from_env()?;
    job::links_from_env()?;
    job::security_from_env()?;
    job::xdp_from_env()?;
    job::ports_from_env()?;
    job::faults_from_env().map(drop)
}

/// Returns set variables that look like settings but are not.
pub fn unknown() -> Vec<String> {
    unknown_of(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

/// Prefixes of variables that launchers and tests of weft set for their own processes.
const INTERNAL: [&str; 5] =
    ["WEFT_TEST_", "WEFT_RUN_", "WEFT_LOCAL_", "WEFT_SKIP_LOG", "WEFT_TERMINAL"];

fn unknown_of(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_known = |name: &str| {
        let key = name.strip_prefix("WEFT_").unwrap_or(name).to_lowercase();
        INTERNAL.iter().any(|prefix| name.starts_with(prefix))
            || VARIABLES.iter().any(|v| v.name == name)
            || Config::KEYS.iter().any(|k| k.name == key)
    };
    let mut all: Vec<String> =
        names.filter(|name| name.starts_with("WEFT_") && !is_known(name)).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn unknown__is_what_no_table_has() {
        let names = ["WEFT_LINK", "WEFT_WINDOW", "WEFT_LINKS", "PATH", "WEFT_TEST_MPI", "WEFT_"];
        let unknown = unknown_of(names.into_iter().map(str::to_string));
        assert_eq!(unknown, ["WEFT_", "WEFT_LINKS"]);
    }

    #[test]
    fn variables__are_not_in_the_engines_table_too() {
        for variable in VARIABLES {
            let key = variable.name.strip_prefix("WEFT_").map(str::to_lowercase);
            assert!(
                key.is_some_and(|key| Config::KEYS.iter().all(|k| k.name != key)),
                "{variable:?}"
            );
        }
    }
}
