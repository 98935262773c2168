//! A process as a rank of its job: settings, links and start-up.

use crate::calibration::Calibration;
use crate::card::Card;
use crate::choices::{self, Receipt};
use crate::clock::Clock;
use crate::counters::RankId;
use crate::endpoint::Endpoint;
use crate::group::{Directory, Group};
use crate::selflink::SelfLink;
use crate::settings;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Once;
use std::time::Duration;
use weft_agent::{AgentConfig, AgentLink, ServicesHandle};
use weft_core::{Config, EndpointId};
use weft_launch::ends::Ends;
use weft_launch::{self as launch, Bootstrap, Bootstrapped, LaunchError};
use weft_link::copied::Origin;
use weft_link::ether::EtherType;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::shm::broker::BrokerConfig;
use weft_link::wrap::{Capture, FaultSpec, Wrappers};
use weft_link::{ports, Ports, ShmConfig, ShmLink, TcpConfig, TcpLink, UdpConfig, UdpLink};
use weft_link::{Address, Link, LinkError, PacketConfig, PacketLink};
use weft_link::{XdpConfig, XdpLink};

/// The set of links that an endpoint opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// Shared memory inside the host.
    pub shm: bool,
    /// AF_XDP between hosts on one Ethernet.
    pub xdp: bool,
    /// UDP between hosts.
    pub udp: bool,
    /// TCP between hosts.
    pub tcp: bool,
    /// Packet sockets on plain Ethernet between hosts; need `CAP_NET_RAW`.
    pub packet: bool,
    /// Frames longer than the MTU on packet sockets, where they arrive whole; need `CAP_NET_RAW`.
    pub gso: bool,
    /// The agent of the host, `weftd`: an endpoint that it serves needs no other link to the
    /// network.
    pub agent: bool,
    /// True if the user chose no link: a job on several hosts also opens TCP sockets, and tries
    /// packet sockets, without which it goes on if the right is lacking.
    pub auto: bool,
}

impl Links {
    /// The links that need no privilege and change nothing on the host.
    pub const AUTO: Links = Links {
        shm: true,
        xdp: false,
        udp: true,
        tcp: false,
        packet: false,
        gso: false,
        agent: false,
        auto: true,
    };

    /// The names of all links in `WEFT_LINK`, in the order in which endpoints prefer them.
    pub const NAMES: [&'static str; 7] = ["shm", "xdp", "packet", "gso", "udp", "tcp", "agent"];

    /// Returns the field of the link of this name.
    fn named(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "shm" => &mut self.shm,
            "xdp" => &mut self.xdp,
            "packet" => &mut self.packet,
            "gso" => &mut self.gso,
            "udp" => &mut self.udp,
            "tcp" => &mut self.tcp,
            "agent" => &mut self.agent,
            _ => return None,
        })
    }

    /// True if the link of this name is among them.
    pub fn has(mut self, name: &str) -> bool {
        self.named(name).is_some_and(|link| *link)
    }

    /// Returns the links of a job of `size` ranks, of which `here` run on this host, if that is
    /// known.
    pub fn of_job(self, size: usize, here: Option<usize>) -> Links {
        let far = size > 1 && here.is_none_or(|here| here < size);
        let all = self.auto && far;
        Links { packet: self.packet || all, gso: self.gso || all, tcp: self.tcp || all, ..self }
    }

    /// Returns the links opened beside the agent. Only the agent sends to the network in the
    /// endpoint's name. If no agent serves, links that need no rights replace it.
    fn beside_agent(self, served: bool) -> Links {
        let others = self.udp || self.tcp || self.packet || self.gso || self.xdp;
        Links {
            xdp: self.xdp && !served,
            packet: self.packet && !served,
            gso: self.gso && !served,
            udp: !served && (self.udp || !others),
            tcp: self.tcp && !served,
            ..self
        }
    }

    /// Parses `auto`, `shm`, `udp`, `tcp`, `packet`, `gso`, `xdp`, `agent` or a list with commas.
    pub fn parse(text: &str) -> Option<Links> {
        let none = Links { shm: false, udp: false, auto: false, ..Links::AUTO };
        let mut links = none;
        for word in text.split(',') {
            match word.trim() {
                "auto" | "" => links = Links { shm: true, udp: true, auto: true, ..links },
                name => *links.named(name)? = true,
            }
        }
        Some(links)
    }
}

/// The reason why this process could not join its job.
#[non_exhaustive]
pub enum JobError {
    /// The launcher failed.
    Launch(LaunchError),
    /// A `WEFT_*` variable is wrong.
    Config(String),
    /// No link could be opened.
    NoLink(Vec<(&'static str, LinkError)>),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Launch(e) => e.fmt(f),
            JobError::Config(what) => f.write_str(what),
            JobError::NoLink(reasons) => {
                write!(f, "no link could be opened")?;
                for (link, why) in reasons {
                    write!(f, "; {link}: {why}")?;
                }
                write!(f, "; `weft doctor` tells what will work here")
            }
        }
    }
}

weft_core::readable!(JobError);

impl std::error::Error for JobError {}

impl From<LaunchError> for JobError {
    fn from(e: LaunchError) -> JobError {
        JobError::Launch(e)
    }
}

/// Target delay of congestion control between real hosts. Another program on a rank's core delays
/// acknowledgements by more than a switch's queue does, and must not look like such a queue
/// (figures: `docs/adr/0008-congestion.md`).
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
fn check_receipt(config: &Config) -> Result<(), JobError> {
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

/// True if more ranks than cores run on this host, as far as the launcher tells.
pub fn oversubscribed() -> bool {
    launch::ranks_here(&|name| std::env::var(name).ok()).is_some_and(|n| n > cores())
}

/// Returns the number of processors of this host, also those that this process may not use.
pub fn cores_of_host() -> usize {
    cores()
}

/// Returns the number of processors of this host, also those that this process may not use: a
/// launcher that gives each rank one core does not oversubscribe the host.
pub(crate) fn cores() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    let ranges: Option<usize> = online.trim().split(',').map(count).sum();
    ranges.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
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
fn protection() -> Result<Mode, JobError> {
    static SAID: Once = Once::new();
    settings::check_rest()?;
    let mode = security_from_env()?;
    if mode == Mode::None {
        SAID.call_once(|| {
            log::warn!("WEFT_SECURITY=none: frames on networks are not authenticated");
        });
    }
    Ok(mode)
}

/// Reads the wrappers of links: `WEFT_FAULTS` (as
/// `loss=1%,dup=0.1%,reorder=1%,delay=1ms,corrupt=0.01%,seed=7`), `WEFT_TRACE=1` (a line for each
/// packet at log level debug), `WEFT_PCAP` (a folder for captures).
fn wrappers_from_env(endpoint: EndpointId) -> Result<Wrappers, JobError> {
    let faults = faults_from_env()?;
    if faults.is_some() {
        let text = std::env::var("WEFT_FAULTS").unwrap_or_default();
        log::warn!("WEFT_FAULTS={text}: faults are injected");
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
fn check_faults(wrappers: &Wrappers, mode: Mode) -> Result<(), JobError> {
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

/// Returns the configuration of shared memory. Ranks in other containers of this host are reached
/// by way of its agent, if there is one.
fn shm_config(id: EndpointId, job_key: &JobKey) -> ShmConfig {
    let broker = Some(BrokerConfig::new(agent_from_env().names, job_key.clone()));
    ShmConfig { sleeps_often: oversubscribed(), broker, ..ShmConfig::new(id) }
}

/// Opens the link over shared memory.
fn shm(id: EndpointId, job_key: &JobKey, links: Links) -> Result<Box<dyn Link>, LinkError> {
    let link = ShmLink::new(shm_config(id, job_key))?;
    settings::check_agent(links, link.standing().err());
    Ok(Box::new(link))
}

/// Asks the agent to serve an endpoint. If there are not enough cores for both, the endpoint yields
/// the core while it waits for the agent.
fn attach(config: &mut Config, security: &Security) -> Result<AgentLink, LinkError> {
    let link = AgentLink::attach(&agent_from_env(), security, config)?;
    let here = launch::ranks_here(&|name| std::env::var(name).ok()).unwrap_or(1);
    if cores() < 2 * (here + 1) && std::env::var_os("WEFT_SPIN_US").is_none() {
        (config.spin_us, config.yield_us) = (0, config.yield_us.max(200));
    }
    Ok(link)
}

/// Opens an endpoint over the given links. Links that fail are left out with a warning while one
/// remains.
///
/// # Errors
/// No link is left; or the settings cannot be met: they ask for an agent that does not serve this
/// process, or for a watchdog, which needs a [`SharedEndpoint`](crate::SharedEndpoint).
pub fn open_endpoint(config: Config, links: Links, key: [u8; 32]) -> Result<Endpoint, JobError> {
    open_endpoint_beside(config, links, key, Vec::new())
}

/// As [`open_endpoint`], with links of the caller's own beside those, such as one that carries
/// nothing and ends waits of the endpoint.
pub fn open_endpoint_beside(
    config: Config,
    links: Links,
    key: [u8; 32],
    own: Vec<Box<dyn Link>>,
) -> Result<Endpoint, JobError> {
    check_receipt(&config)?;
    open_locked(config, links, key, own)
}

/// As `open_endpoint_beside`, for a caller that locks the endpoint.
pub(crate) fn open_locked(
    mut config: Config,
    mut links: Links,
    key: [u8; 32],
    own: Vec<Box<dyn Link>>,
) -> Result<Endpoint, JobError> {
    choices::check(&config, links.agent).map_err(|e| JobError::Config(e.to_string()))?;
    let id = EndpointId(weft_link::random_u64());
    let mode = protection()?;
    let job_key = JobKey::from_bytes(&key).ok_or_else(wrong_key)?;
    let wrappers = wrappers_from_env(id)?;
    check_faults(&wrappers, mode)?;
    let clock = Clock::system();
    let mut open: Vec<Box<dyn Link>> = vec![Box::new(SelfLink::new(id))];
    let mut failed = Vec::new();
    let mut take = |name, opened: Result<Box<dyn Link>, LinkError>| {
        let time = clock.clone();
        let wrapped = opened.and_then(|l| wrappers.around(l, &(Rc::new(move || time.now()) as _)));
        match wrapped {
            Ok(link) => open.push(link),
            Err(e) => failed.push((name, e)),
        }
    };
    match links.shm {
        true => take("shm", shm(id, &job_key, links)),
        false => settings::check_agent(links, None),
    }
    let security = Security { mode, job_key: job_key.clone(), me: id };
    let (mut services, mut refusal) = (None, None);
    if links.agent {
        let attached = attach(&mut config, &security);
        refusal = attached.as_ref().err().map(ToString::to_string);
        services = attached.as_ref().ok().map(AgentLink::services);
        take("agent", attached.map(|l| Box::new(l) as _));
        links = links.beside_agent(services.is_some());
    }
    // The choices may need an agent, and none serves.
    let chosen = choices::check(&config, services.is_some());
    chosen.map_err(|e| JobError::Config(unserved(&e, refusal)))?;
    if links.xdp {
        let xdp = XdpConfig { faults: wrappers.faults, ..xdp_from_env()? };
        take("xdp", XdpLink::new(xdp, security.clone()).map(|l| Box::new(l) as _));
    }
    for (name, asked) in [("packet", links.packet), ("gso", links.gso)] {
        if asked {
            let trains = name == "gso";
            let raw = PacketConfig { faults: wrappers.faults, trains, ..packet_from_env()? };
            take(name, PacketLink::new(raw, security.clone()).map(|l| Box::new(l) as _));
        }
    }
    if links.udp {
        take("udp", udp(!links.shm, &wrappers, security.clone())?);
    }
    if links.tcp {
        let tcp = TcpConfig { faults: wrappers.faults, ..tcp_from_env(&config)? };
        let opened = TcpLink::new(tcp, security);
        let opened = opened.and_then(|link| if links.shm { Ok(link) } else { reachable(link) });
        take("tcp", opened.map(|l| Box::new(l) as _));
    }
    keep_trusted(&config, &mut open, &mut failed, links.auto)?;
    if open.len() == 1 {
        return Err(JobError::NoLink(failed));
    }
    tell(&failed, links.auto, config.rank);
    let endpoint = Endpoint::with_links(config, id, clock, open.into_iter().chain(own).collect());
    endpoint.calibrate(Calibration::in_use());
    endpoint.in_job(&job_key);
    services.into_iter().for_each(|services| endpoint.served_by(services));
    Ok(endpoint)
}

fn wrong_key() -> JobError {
    JobError::Config("the job key has the wrong length".to_string())
}

/// Opens the UDP link; `alone` if nothing else connects ranks of one host.
fn udp(
    alone: bool,
    wrappers: &Wrappers,
    security: Security,
) -> Result<Result<Box<dyn Link>, LinkError>, JobError> {
    let host = weft_link::shm::host().unwrap_or(0);
    let (faults, ports) = (wrappers.faults, ports_from_env()?);
    let config = UdpConfig { host, faults, ports, ..UdpConfig::default() };
    let opened = UdpLink::new(config, security);
    let opened = opened.and_then(|link| if alone { reachable(link) } else { Ok(link) });
    Ok(opened.map(|link| Box::new(link) as _))
}

/// With reliability `none`, leaves out links that lose packets even on the best of networks.
///
/// # Errors
/// The user asked for such a link by name.
fn keep_trusted(
    config: &Config,
    open: &mut Vec<Box<dyn Link>>,
    failed: &mut Vec<(&'static str, LinkError)>,
    auto: bool,
) -> Result<(), JobError> {
    if !choices::trusts(config) {
        return Ok(());
    }
    let refused = |link: &dyn Link| choices::check_trust(&link.caps()).err();
    for why in open.iter().filter_map(|link| refused(&**link)) {
        if !auto {
            return Err(JobError::Config(why.to_string()));
        }
        failed.push((why.link, LinkError::Unreachable(why.to_string())));
    }
    open.retain(|link| refused(&**link).is_none());
    Ok(())
}

/// Logs the links that failed. With automatic choice a failure of packet sockets is no warning,
/// since most users have no right to them.
fn tell(failed: &[(&'static str, LinkError)], auto: bool, rank: Option<u32>) {
    for (name, why) in failed {
        let unasked = auto && ["packet", "gso"].contains(name);
        let level = if unasked { log::Level::Info } else { log::Level::Warn };
        // The agent's failure gets a full message of its own.
        if *name != "agent" {
            log::log!(level, "link {name} is not available: {why}");
        }
    }
    without_agent(failed, rank);
}

/// Says that this process runs without the agent it asked for. Without a logger the line goes to
/// standard error, since the process may be slower than expected and nothing else tells why.
fn without_agent(failed: &[(&'static str, LinkError)], rank: Option<u32>) {
    let Some((_, why)) = failed.iter().find(|(name, _)| *name == "agent") else { return };
    warn(&no_agent(&why.to_string(), rank));
}

/// Warns. Without a logger the line goes to standard error.
pub(crate) fn warn(text: &str) {
    match log::log_enabled!(log::Level::Warn) {
        true => log::warn!("{text}"),
        false if log::max_level() == log::LevelFilter::Off => eprintln!("weft: {text}"),
        false => {}
    }
}

/// Returns the text of a choice that needs an agent, with the reason why none serves.
fn unserved(choice: &choices::NoAgent, refusal: Option<String>) -> String {
    refusal.map_or(choice.to_string(), |why| format!("{choice}; {why}"))
}

/// Returns the line of `without_agent`.
fn no_agent(why: &str, rank: Option<u32>) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let who =
        rank.map_or_else(|| format!("process {}", std::process::id()), |r| format!("rank {r}"));
    format!(
        "{who} on host {} goes without the agent that was asked for, over its other links: {why}",
        host.trim()
    )
}

/// Returns a link over IP if other hosts can reach it.
///
/// # Errors
/// [`LinkError::Unreachable`] if no interface that is up has an address.
pub fn reachable<L: Link>(link: L) -> Result<L, LinkError> {
    let mut address = Address::default();
    link.advertise(&mut address);
    if address.udp.is_empty() && address.tcp.is_empty() {
        let why = "no network interface that is up has an address; `ip link set lo up` is enough \
                   for ranks on one host, and shm needs none";
        return Err(LinkError::Unreachable(why.into()));
    }
    Ok(link)
}

const CARD_KEY: &str = "weft-card";

/// Joins the job of this process, and publishes the address of its endpoint.
pub(crate) fn join() -> Result<(Box<dyn Bootstrap>, Endpoint, Card), JobError> {
    settings::check()?;
    let links = links_from_env()?;
    let mut config = config_from_env()?;
    let Bootstrapped { mut boot, key } = launch::join()?;
    config.rank = u32::try_from(boot.rank()).ok();
    let lookup = |name: &str| std::env::var(name).ok();
    let here = launch::ranks_here(&lookup);
    let links = links.of_job(boot.size(), here);
    let endpoint = open_locked(config.clone(), links, key, Vec::new())?;
    endpoint.told_of(Ends::of_launcher());
    if links.auto && links.packet && boot.rank() == 0 && endpoint.address().ether.is_empty() {
        // Most users have no right to them; `weft doctor` and `weft info` show the cost.
        log::info!("no packet sockets (they need CAP_NET_RAW): messages between hosts go over UDP");
    }
    let who = RankId { job: boot.job_id(), rank: boot.rank(), size: boot.size() };
    if let Err(e) = endpoint.publish_counters(&who) {
        log::warn!("`weft top` will not see this rank: {e}");
    }
    let kind = packet_from_env()?.kind;
    let card = Card::new(endpoint.address(), &config, security_from_env()?, kind);
    let setting = std::env::var("WEFT_LINK").ok().filter(|text| !text.is_empty());
    let card = card.with_links(setting.as_deref().unwrap_or("auto"), links);
    if boot.rank() == 0 {
        config.exceptions.iter().filter_map(|e| e.beyond(boot.size())).for_each(|text| warn(&text));
    }
    boot.put(CARD_KEY, &card.encode())?;
    boot.fence()?;
    if boot.rank() > 0 {
        let first = card_of(boot.as_mut(), 0).map_err(JobError::Config)?;
        card.agree(boot.rank(), &first, 0).map_err(JobError::Config)?;
    }
    Ok((boot, endpoint, card))
}

/// Returns the card of a rank, once the rank has joined.
fn card_of(boot: &mut dyn Bootstrap, rank: usize) -> Result<Card, String> {
    let raw = boot.get(rank, CARD_KEY).map_err(|e| e.to_string())?;
    Card::decode(&raw).map_err(|e| format!("the card of rank {rank}: {e}"))
}

/// Returns the address of a rank's endpoint and the name of its host, once the rank has joined, if
/// its settings agree with those of this rank.
pub(crate) fn entry_of(
    boot: &mut dyn Bootstrap,
    own: &Card,
    rank: usize,
) -> Result<(Address, Option<String>), String> {
    let card = card_of(boot, rank)?;
    own.agree(boot.rank(), &card, rank)?;
    Ok((card.address, Some(card.host).filter(|host| !host.is_empty())))
}

struct Ranks(Rc<RefCell<Box<dyn Bootstrap>>>, Card);

impl Directory for Ranks {
    fn size(&self) -> usize {
        self.0.borrow().size()
    }

    fn address(&self, rank: usize) -> Result<Address, String> {
        self.entry(rank).map(|(address, _)| address)
    }

    fn entry(&self, rank: usize) -> Result<(Address, Option<String>), String> {
        entry_of(self.0.borrow_mut().as_mut(), &self.1, rank)
    }
}

/// This process as a rank of its job. Dropping it sends the queued messages and leaves the job.
///
/// ```no_run
/// let job = weft::Job::init()?;
/// let world = job.world();
/// println!("rank {} of {}, started by {}", world.rank(), world.size(), job.launcher());
/// // Futures run to their end in `block_on`: here a ring, in which all ranks send at once.
/// let (left, right) = (world.rank() + world.size() - 1, world.rank() + 1);
/// job.block_on(async {
///     let sent = world.send(right % world.size(), 1, b"to the right".to_vec());
///     let got = world.recv(left % world.size(), 1, 64).await?;
///     sent.await?;
///     println!("{} bytes from the left", got.len());
///     Ok::<(), weft::GroupError>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Job {
    origin: Origin,
    boot: Rc<RefCell<Box<dyn Bootstrap>>>,
    world: Group,
}

impl Job {
    /// Joins the job of this process, started by `weft run`, or by an `mpiexec`, `srun` or
    /// `prterun` that speaks PMI-1 or PMIx; without a launcher, makes a job of one rank. Links and
    /// configuration come from `WEFT_*`.
    ///
    /// # Errors
    /// The launcher fails, a variable is wrong, no link opens, or a watchdog is chosen, which needs
    /// a [`SharedJob`](crate::SharedJob).
    pub fn init() -> Result<Job, JobError> {
        check_receipt(&config_from_env()?)?;
        Job::init_locked()
    }

    /// As [`init`](Self::init), for a caller that holds a lock around every use of the job and
    /// makes progress in a thread under that lock (the C interface). Allows a watchdog too.
    ///
    /// # Errors
    /// As `init`.
    pub fn init_locked() -> Result<Job, JobError> {
        let (boot, endpoint, card) = join()?;
        let rank = boot.rank();
        let boot = Rc::new(RefCell::new(boot));
        let world = Group::new(endpoint, Ranks(boot.clone(), card), rank);
        Ok(Job { origin: Origin::here(), boot, world })
    }

    /// Returns the group of all ranks.
    pub fn world(&self) -> &Group {
        &self.world
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        self.world.endpoint()
    }

    /// Returns the services of this host's agent besides messages (fetch-and-add and multicast in
    /// place of this rank), if an agent serves it.
    pub fn agent(&self) -> Option<ServicesHandle> {
        self.endpoint().agent()
    }

    /// Returns the name of the launcher of this process.
    pub fn launcher(&self) -> &'static str {
        self.boot.borrow().launcher()
    }

    /// Runs a future to its end.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.endpoint().block_on(future)
    }

    /// Ends the whole job with an exit code.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.boot.borrow_mut().abort(code, message)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // In a forked copy of the process: only the original leaves the job.
        if std::thread::panicking() || !self.origin.is_here() {
            return;
        }
        self.endpoint().close(Duration::from_secs(5));
        if let Err(e) = self.boot.borrow_mut().finalize() {
            log::warn!("leaving the job: {e}");
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__each_is_read_as_the_link_that_it_names() {
        for name in Links::NAMES {
            let links = Links::parse(name).unwrap();
            for other in Links::NAMES {
                assert_eq!(links.has(other), other == name, "{other} of {name}");
            }
        }
        assert!(!Links::AUTO.has("auto") && Links::parse("shm,other").is_none());
    }

    #[test]
    fn no_agent__names_rank_path_and_reason() {
        let text = no_agent("no agent listens at @x: start weftd", Some(7));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        for part in ["rank 7 on host ", host.trim(), "goes without the agent", "start weftd"] {
            assert!(text.contains(part), "{text}");
        }
    }

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
