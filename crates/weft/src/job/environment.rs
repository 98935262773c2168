//! The settings of a job from the variables of its environment.

use super::{oversubscribed, JobError, Links};
use crate::choices::{self, Receipt};
use crate::settings;
use std::sync::Once;
use std::time::Duration;
use weft_agent::AgentConfig;
use weft_core::{Config, EndpointId};
use weft_link::ether::EtherType;
use weft_link::secure::Mode;
use weft_link::wrap::{Capture, FaultSpec, Wrappers};
use weft_link::{ports, PacketConfig, Ports, TcpConfig, XdpConfig};

/// Target delay of congestion control between real hosts. Another program on a rank's core delays
/// acknowledgements by more than a switch's queue does, and must not look like such a queue
/// (figures: `docs/results/records.md`, record 8).
const HOST_DELAY_US: u32 = 1000;

/// Reads the links from `WEFT_LINK`.
pub fn links_from_env() -> Result<Links, JobError> {
    match std::env::var("WEFT_LINK") {
        Ok(text) => Links::parse(&text).ok_or_else(|| {
            JobError::Config(format!(
                "WEFT_LINK={text:?} is not understood; use auto, shm, udp, tcp, packet, gso, \
                 xdp, agent or a list"
            ))
        }),
        Err(_) => Ok(Links::AUTO),
    }
}

/// Returns the configuration if no variable is set.
pub(crate) fn usual_config() -> Config {
    let mut config = Config { congestion_target_us: HOST_DELAY_US, ..Config::default() };
    if oversubscribed() {
        // Spinning would take the core from a rank that has work.
        config.spin_us = 0;
        config.yield_us = 200;
    }
    config
}

/// Reads the configuration from the `WEFT_*` variables.
pub fn config_from_env() -> Result<Config, JobError> {
    let mut config = usual_config();
    settings::read(&mut config)?;
    let given = |name: &str| std::env::var_os(format!("WEFT_{}", name.to_uppercase())).is_some();
    choices::derive(&mut config, &given);
    settings::agree_on_times(&mut config, &given)?;
    Ok(config)
}

/// Refuses the watchdog: an endpoint without a lock makes progress only in its own thread.
pub(super) fn check_receipt(config: &Config) -> Result<(), JobError> {
    match config.receipt {
        Receipt::Watchdog => Err(JobError::Config(
            "WEFT_RECEIPT=watchdog: the endpoint belongs to one thread and takes no lock, \
             so no other thread can poll for it; use weft::SharedJob or weft::SharedEndpoint (in \
             C, weft_init does), or have an agent serve peers while this rank computes \
             (WEFT_LINK=agent, WEFT_MULTICAST=agent, WEFT_FETCH_ADD=agent), or adaptive"
                .to_string(),
        )),
        _ => Ok(()),
    }
}

/// Reads the protection of frames on networks: `WEFT_SECURITY` = auth (default), encrypt or none.
pub fn security_from_env() -> Result<Mode, JobError> {
    match std::env::var("WEFT_SECURITY").as_deref() {
        Err(_) | Ok("auth") => Ok(Mode::Auth),
        Ok("encrypt") => Ok(Mode::Encrypt),
        Ok("none") => Ok(Mode::None),
        Ok(other) => Err(JobError::Config(format!(
            "WEFT_SECURITY={other:?} is not understood; use auth, encrypt or none"
        ))),
    }
}

/// Reads the protection for an endpoint that opens, and checks the other variables. With `none` a
/// warning, once in a process, says that anybody on the network can forge its frames.
pub(super) fn protection() -> Result<Mode, JobError> {
    static SAID: Once = Once::new();
    settings::check_rest()?;
    let mode = security_from_env()?;
    if mode == Mode::None {
        SAID.call_once(|| {
            weft_link::warn!("WEFT_SECURITY=none: frames on networks are not authenticated");
        });
    }
    Ok(mode)
}

/// Reads the wrappers of links: `WEFT_FAULTS` (as
/// `loss=1%,dup=0.1%,reorder=1%,delay=1ms,corrupt=0.01%,seed=7`), `WEFT_TRACE=1` (a line for each
/// packet at log level debug), `WEFT_PCAP` (a folder for captures).
pub(super) fn wrappers_from_env(endpoint: EndpointId) -> Result<Wrappers, JobError> {
    let faults = faults_from_env()?;
    if faults.is_some() {
        let text = std::env::var("WEFT_FAULTS").unwrap_or_default();
        weft_link::warn!("WEFT_FAULTS={text}: faults are injected");
    }
    let trace = trace_from_env()?;
    let capture = std::env::var_os("WEFT_PCAP").filter(|v| !v.is_empty()).map(|folder| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().to_owned();
        Capture { folder: folder.into(), host, endpoint }
    });
    Ok(Wrappers { faults, trace, capture })
}

/// Reads `WEFT_TRACE`: 1 logs each packet.
pub(crate) fn trace_from_env() -> Result<bool, JobError> {
    match std::env::var("WEFT_TRACE").as_deref() {
        Err(_) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        Ok(other) => {
            Err(JobError::Config(format!("WEFT_TRACE={other:?} is not understood; use 1 or 0")))
        }
    }
}

/// Reads the faults from `WEFT_FAULTS`.
pub(crate) fn faults_from_env() -> Result<Option<FaultSpec>, JobError> {
    match std::env::var("WEFT_FAULTS") {
        Ok(text) if !text.is_empty() => {
            text.parse().map(Some).map_err(|e| JobError::Config(format!("WEFT_FAULTS: {e}")))
        }
        _ => Ok(None),
    }
}

/// Refuses corruption without tags, since nothing would detect it.
pub(super) fn check_faults(wrappers: &Wrappers, mode: Mode) -> Result<(), JobError> {
    match wrappers.faults {
        Some(spec) if spec.corrupt > 0 && mode == Mode::None => Err(JobError::Config(
            "WEFT_FAULTS with corrupt and WEFT_SECURITY=none: damaged packets would be delivered \
             as good; leave one of the two out"
                .to_string(),
        )),
        _ => Ok(()),
    }
}

/// Reads the settings of the Ethernet links: `WEFT_ETHERTYPE` (hexadecimal, default 0x88b5) and
/// `WEFT_INTERFACES` (names, separated by commas; default all).
pub fn packet_from_env() -> Result<PacketConfig, JobError> {
    let mut config = PacketConfig::default();
    if let Ok(text) = std::env::var("WEFT_ETHERTYPE") {
        config.kind = EtherType::parse(&text).ok_or_else(|| {
            JobError::Config(format!(
                "WEFT_ETHERTYPE={text:?} is not understood; use a hexadecimal number from 0x0600 \
                 that no other protocol has, as 0x88b5 or 0x88b6"
            ))
        })?;
    }
    if let Ok(text) = std::env::var("WEFT_INTERFACES") {
        let names = text.split(',').map(|n| n.trim().to_string()).filter(|n| !n.is_empty());
        config.interfaces = Some(names.collect()).filter(|n: &Vec<String>| !n.is_empty());
    }
    Ok(config)
}

/// Reads the settings of the XDP link: interfaces and EtherType as for the packet link,
/// `WEFT_XDP_MODE` (zerocopy, native, generic, or a list to try in order; auto), `WEFT_XDP_QUEUE`,
/// `WEFT_XDP_BUSY_POLL_US`.
pub fn xdp_from_env() -> Result<XdpConfig, JobError> {
    let text = |name| std::env::var(name).ok().filter(|t| !t.is_empty());
    let number = |name| {
        let parse = |t: String| {
            let range = format!("a number from 0 to {}", u32::MAX);
            let wrong = || JobError::Config(format!("{name}={t:?} is not understood; use {range}"));
            t.trim().parse::<u32>().map_err(|_| wrong())
        };
        text(name).map(parse).transpose()
    };
    let modes = text("WEFT_XDP_MODE").filter(|t| t != "auto").unwrap_or_default();
    let words = modes.split(',').map(str::trim).filter(|word| !word.is_empty());
    let modes = words.map(str::parse).collect::<Result<_, _>>();
    let ether = packet_from_env()?;
    Ok(XdpConfig {
        interfaces: ether.interfaces,
        ether_type: ether.kind,
        modes: modes.map_err(|e| JobError::Config(format!("WEFT_XDP_MODE: {e}")))?,
        queue: number("WEFT_XDP_QUEUE")?,
        busy_poll_us: number("WEFT_XDP_BUSY_POLL_US")?.unwrap_or(0),
        faults: None,
    })
}

/// Reads the ports of UDP sockets: `WEFT_UDP_PORTS`, as 50000-50999.
///
/// # Errors
/// The value is no range of ports.
pub fn ports_from_env() -> Result<Ports, JobError> {
    ports_of(ports::VARIABLE)
}

fn ports_of(variable: &str) -> Result<Ports, JobError> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty());
    let Some(text) = text else { return Ok(Ports::ANY) };
    let wrong = |e| JobError::Config(format!("{variable}={text:?} is not understood: {e}"));
    text.parse().map_err(wrong)
}

/// The time after which the kernel gives up a stream on which nothing is acknowledged, at most: the
/// peer may be reached otherwise.
const STREAM_SILENCE: Duration = Duration::from_secs(10);

/// Probes of a quiet stream by the kernel are this many times rarer than the engine's of an awaited
/// peer.
const STREAM_PROBES: u32 = 10;

/// Reads the settings of the TCP link: `WEFT_TCP_PORTS`, as 50000-50999, and the times of the
/// configuration.
///
/// # Errors
/// The value is no range of ports.
pub fn tcp_from_env(config: &Config) -> Result<TcpConfig, JobError> {
    let ms = |ms: u32| Duration::from_millis(u64::from(ms));
    Ok(TcpConfig {
        ports: ports_of(ports::TCP)?,
        silence: ms(config.peer_timeout_ms).min(STREAM_SILENCE),
        keepalive: ms(config.keepalive_ms.saturating_mul(STREAM_PROBES)),
        host: weft_link::shm::host().unwrap_or(0),
        ..TcpConfig::default()
    })
}

/// Reads the agent's socket: `WEFT_AGENT` (a path, or `@` and an abstract name), else the usual
/// paths.
pub fn agent_from_env() -> AgentConfig {
    match std::env::var("WEFT_AGENT") {
        Ok(name) if !name.is_empty() => AgentConfig { names: vec![name], ..AgentConfig::default() },
        _ => AgentConfig::default(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check_faults__no_corruption_without_tags() {
        let of = |text: &str| Wrappers { faults: text.parse().ok(), ..Wrappers::default() };
        let corrupt = of("corrupt=1%");
        assert!(check_faults(&corrupt, Mode::Auth).is_ok());
        let why = check_faults(&corrupt, Mode::None).unwrap_err().to_string();
        assert!(why.contains("WEFT_SECURITY=none") && why.contains("delivered as good"), "{why}");
        assert!(check_faults(&of("loss=1%"), Mode::None).is_ok());
    }
}
