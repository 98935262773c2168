//! Settings beside the engine's table: the variables for links, security, start-up and diagnosis.
//! Together with `Config::KEYS` and the tables of the layers above they are all settings.

use crate::job::{self, JobError};
use crate::Config;
use std::sync::Once;
use weft_core::config::Table;

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
        "WEFT_MX_PEERS",
        "path",
        "none",
        "Hosts and their addresses for programs of MX, in the form of hosts(5).",
    ),
    variable(
        "WEFT_MXOE",
        "interface, alone or with :open or :native, and `,frame=N` and other tuning",
        "none",
        "Interface of trusted hosts with which programs of MX talk in frames of MX over Ethernet.",
    ),
    variable(
        "WEFT_INTERFACES",
        "names, by commas",
        "all",
        "Ethernet interfaces of packet, gso and xdp.",
    ),
    variable(
        "WEFT_ETHERTYPE",
        "hexadecimal, 0x0600 to 0xffff",
        "0x88b5",
        "EtherType of frames; another where something else on the network has this one.",
    ),
    variable(
        "WEFT_XDP_MODE",
        "auto, or a list of zerocopy, native, generic",
        "auto",
        "Modes of the XDP link, tried in order; one word forces it.",
    ),
    variable(
        "WEFT_XDP_QUEUE",
        "0 to 4294967295",
        "all",
        "The one queue of each interface that xdp uses.",
    ),
    variable(
        "WEFT_XDP_BUSY_POLL_US",
        "us: 1 to 4294967295, or 0 (off)",
        "0",
        "Time in a call in which a waiting rank drives the card.",
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
        "s: more than 0, less than 1e9",
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
    variable(
        "WEFT_CRIU",
        "file",
        "criu in PATH",
        "CRIU, which copies and restores the ranks that `weft migrate` moves.",
    ),
    variable(
        "WEFT_SOCKETS",
        "0, 1",
        "1",
        "Connections of programs that `weft sockets run` starts share memory.",
    ),
    variable(
        "WEFT_SOCKETS_AFTER",
        "calls: 1 to 4294967295",
        "8",
        "Calls on a connection before its other end is looked for: short ones gain nothing.",
    ),
    variable(
        "WEFT_SOCKETS_SPIN_US",
        "us: 0 to 10000",
        "20",
        "Longest look for bytes before a call of a socket program sleeps.",
    ),
    variable(
        "WEFT_SOCKETS_CONNECTIONS",
        "connections: 0 to 4294967295",
        "1024",
        "Most connections of a socket program that share memory, 64 KiB each.",
    ),
    variable(
        "WEFT_SOCKETS_POLICY",
        "rules, separated by commas",
        "all",
        "Connections that may share memory, by addresses and ports of either end.",
    ),
    variable(
        "WEFT_SOCKETS_LIBRARY",
        "file",
        "beside weft",
        "The library that `weft sockets run` has programs load.",
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
    variable("WEFT_TRACE", "0, 1", "0", "A line for each packet, with WEFT_LOG=debug."),
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
    check_rest()
}

/// Checks the variables that are read when an endpoint opens. Warns, once in a process, of those
/// that name nothing.
pub(crate) fn check_rest() -> Result<(), JobError> {
    static SAID: Once = Once::new();
    job::security_from_env()?;
    job::xdp_from_env()?;
    job::ports_from_env()?;
    job::faults_from_env()?;
    job::trace_from_env()?;
    let text = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
    check_log(&text("WEFT_LOG").unwrap_or_default()).map_err(JobError::Config)?;
    check_folder(&text("WEFT_PCAP").unwrap_or_default()).map_err(JobError::Config)?;
    SAID.call_once(|| {
        let named = text("WEFT_INTERFACES").unwrap_or_default();
        let named: Vec<&str> = named.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
        absent(&named, &interfaces()).into_iter().for_each(|warning| weft_link::warn!("{warning}"));
        let unknown = unknown();
        if !unknown.is_empty() {
            let names = unknown.join(", ");
            weft_link::warn!("nothing reads {names} (`weft info --config` lists all settings)");
        }
    });
    Ok(())
}

/// Sets times that follow from others and were not set by hand (`given`).
///
/// # Errors
/// Two times contradict each other.
pub(crate) fn agree_on_times(
    config: &mut Config,
    given: &dyn Fn(&str) -> bool,
) -> Result<(), JobError> {
    if !given("keepalive_ms") {
        config.keepalive_ms = config.keepalive_ms.min(config.peer_timeout_ms / 4);
    }
    if !given("rto_max_us") {
        // Packets go again several times before their silent peer has failed.
        let often = config.peer_timeout_ms.saturating_mul(1000) / 8;
        config.rto_max_us = config.rto_max_us.min(often.max(config.rto_min_us));
    }
    let two = [
        ("KEEPALIVE_MS", config.keepalive_ms, "PEER_TIMEOUT_MS", config.peer_timeout_ms - 1),
        ("RTO_MIN_US", config.rto_min_us, "RTO_MAX_US", config.rto_max_us),
    ];
    match two.into_iter().find(|(_, one, _, most)| one > most) {
        Some((name, one, other, most)) => Err(JobError::Config(format!(
            "WEFT_{name}={one} has to be at most {most}, by WEFT_{other}: a silent peer is asked, \
             and packets are sent again, before the longer time is over"
        ))),
        None => Ok(()),
    }
}

/// Warns if `WEFT_AGENT` has no effect with these links, or names no agent. `standing` is the
/// reason why shared memory found none.
pub(crate) fn check_agent(links: job::Links, standing: Option<&str>) {
    let set = std::env::var("WEFT_AGENT").ok().filter(|name| !name.is_empty());
    let Some(name) = set.filter(|_| !links.agent) else { return };
    match standing {
        _ if !links.shm => job::warn(&format!(
            "WEFT_AGENT={name} has no effect: WEFT_LINK names neither agent, by which an agent \
             serves this rank, nor shm, which reaches other containers by it"
        )),
        Some(why) => job::warn(&format!("WEFT_AGENT={name} has no effect: {why}")),
        None => {}
    }
}

/// Checks that each word of a log filter is a level, or names modules and a level. A word that is
/// no level would else be taken for a module, and everything is silent.
fn check_log(filter: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    // After a slash comes a pattern for the text of lines.
    let words = filter.split('/').next().unwrap_or_default().split(',').map(str::trim);
    let good = |word: &str| match word.split_once('=') {
        Some((_, level)) => is_level(level.trim()),
        None => word.is_empty() || is_level(word) || word.starts_with("weft"),
    };
    match words.into_iter().find(|word| !good(word)) {
        Some(word) => Err(format!(
            "WEFT_LOG={filter:?} has {word:?}, which is no level; use {}",
            LEVELS.join(", ")
        )),
        None => Ok(()),
    }
}

/// Checks that a path for captures is a folder, or can become one.
fn check_folder(path: &str) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(found) if !path.is_empty() && !found.is_dir() => Err(format!(
            "WEFT_PCAP={path}: that is no folder; name a folder, which is made if it is not there"
        )),
        _ => Ok(()),
    }
}

/// Returns the names of this host's network interfaces.
fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// Returns a warning if `named` has interfaces, and this host has none of them: a list may have
/// those of several hosts.
fn absent(named: &[&str], here: &[String]) -> Option<String> {
    let found = named.iter().any(|name| here.iter().any(|own| own == name));
    (!named.is_empty() && !here.is_empty() && !found).then(|| {
        format!(
            "WEFT_INTERFACES={}: this host has no such interface; it has {}",
            named.join(","),
            here.join(", ")
        )
    })
}

/// Reads a table of settings from the `WEFT_*` variables.
///
/// # Errors
/// The first variable that is not understood.
pub fn read<T: Table>(table: &mut T) -> Result<(), JobError> {
    for key in T::KEYS {
        let name = format!("WEFT_{}", key.name.to_uppercase());
        if let Ok(value) = std::env::var(&name) {
            table.set(key.name, &value).map_err(|e| {
                let part = match e.value == value {
                    true => String::new(),
                    false => format!(", {:?} in it", e.value),
                };
                JobError::Config(match e.range {
                    Some(range) => {
                        format!("{name}={value:?} {}{part}: {range}; unit: {}", e.fault(), key.unit)
                    }
                    None => format!(
                        "{name}={value:?} {}{part} (unit: {}); {}",
                        e.fault(),
                        key.unit,
                        e.advice
                    ),
                })
            })?;
        }
    }
    Ok(())
}

/// Variables of the tables of crates above, which read them themselves. A table that is not listed
/// here fails a test of the command, which sees all tables.
pub const ABOVE: &[&str] =
    &["WEFT_MULTICAST_CREDIT", "WEFT_PACKETS_KEPT", "WEFT_RCPY_TLB", "WEFT_MEET_PORT"];

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
            || ABOVE.contains(&name)
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
        let names = [
            "WEFT_LINK",
            "WEFT_RCPY_TLB",
            "WEFT_WINDOW",
            "WEFT_LINKS",
            "PATH",
            "WEFT_TEST_MPI",
            "WEFT_",
        ];
        let unknown = unknown_of(names.into_iter().map(str::to_string));
        assert_eq!(unknown, ["WEFT_", "WEFT_LINKS"]);
    }

    #[test]
    fn check_log__a_word_that_is_no_level_is_named_with_the_levels() {
        for good in
            ["", "warn", "DEBUG", "off", "weft_link=trace,info", "weft=debug/HELLO", "a=off"]
        {
            assert_eq!(check_log(good), Ok(()), "{good}");
        }
        for bad in ["verbose", "1", "info,loud", "weft=verbose"] {
            let why = check_log(bad).unwrap_err();
            assert!(why.contains("use off, error, warn, info, debug, trace"), "{why}");
        }
    }

    #[test]
    fn check_folder__a_file_or_a_device_is_none() {
        assert!(check_folder("/dev/full").unwrap_err().contains("WEFT_PCAP=/dev/full"));
        assert_eq!((check_folder(""), check_folder("/proc"), check_folder("/no/such")), {
            (Ok(()), Ok(()), Ok(()))
        });
    }

    #[test]
    fn agree_on_times__a_silent_peer_is_asked_before_it_has_failed() {
        let with = |keepalive_ms, peer_timeout_ms, rto_min_us| {
            let mut config = Config { keepalive_ms, peer_timeout_ms, rto_min_us, ..usual() };
            let agreed = agree_on_times(&mut config, &|name| name == "keepalive_ms");
            agreed.map_err(|e| e.to_string())
        };
        assert_eq!(with(500, 300_000, 500), Ok(()));
        let why = with(500, 300, 500).unwrap_err();
        assert!(
            why.contains("WEFT_KEEPALIVE_MS=500") && why.contains("299, by WEFT_PEER"),
            "{why}"
        );
        let why = with(500, 300_000, 2_000_000).unwrap_err();
        assert!(why.contains("WEFT_RTO_MIN_US=2000000 has to be at most 1000000"), "{why}");
        let mut config = Config { peer_timeout_ms: 300, ..usual() };
        agree_on_times(&mut config, &|_| false).unwrap();
        assert_eq!((config.keepalive_ms, config.rto_max_us), (75, 37_500));
    }

    #[test]
    fn absent__names_what_the_host_has() {
        let here = ["eth0".to_string(), "lo".to_string()];
        assert_eq!(absent(&[], &here), None);
        assert_eq!(absent(&["eth0", "ens3"], &here), None, "of another host");
        let why = absent(&["nope"], &here).unwrap();
        assert!(why.contains("WEFT_INTERFACES=nope") && why.contains("eth0, lo"), "{why}");
        assert_eq!(absent(&["nope"], &[]), None, "nothing is known");
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
