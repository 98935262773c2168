//! A process as a rank of its job: links and start-up.

mod environment;

use crate::calibration::Calibration;
use crate::card::Card;
use crate::choices;
use crate::clock::Clock;
use crate::cores;
use crate::counters::RankId;
use crate::endpoint::Endpoint;
use crate::group::{Directory, Group};
use crate::selflink::SelfLink;
use crate::settings;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use weft_agent::{AgentLink, ServicesHandle};
use weft_core::{Config, EndpointId};
use weft_launch::ends::Ends;
use weft_launch::{self as launch, Bootstrap, Bootstrapped, LaunchError};
use weft_link::copied::Origin;
use weft_link::secure::{JobKey, Security, RUNS_MAX};
use weft_link::shm::broker::BrokerConfig;
use weft_link::wrap::Wrappers;
use weft_link::{Address, Link, LinkError, PacketConfig, PacketLink};
use weft_link::{ShmConfig, ShmLink, TcpConfig, TcpLink, UdpConfig, UdpLink};
use weft_link::{XdpConfig, XdpLink};

pub use environment::{
    agent_from_env, config_from_env, links_from_env, packet_from_env, ports_from_env,
    security_from_env, tcp_from_env, xdp_from_env,
};
use environment::{check_faults, check_receipt, protection, wrappers_from_env};
pub(crate) use environment::{faults_from_env, trace_from_env, usual_config};

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

/// True if more ranks than cores run on this host, as far as the launcher tells.
pub fn oversubscribed() -> bool {
    launch::ranks_here(&|name| std::env::var(name).ok()).is_some_and(|n| n > cores::of_host())
}

/// Returns the number of processors of this host, also those that this process may not use.
pub fn cores_of_host() -> usize {
    cores::of_host()
}

/// Returns the configuration of shared memory. Ranks in other containers of this host are reached
/// by way of its agent, if there is one.
fn shm_config(id: EndpointId, job_key: &JobKey) -> ShmConfig {
    let broker = Some(BrokerConfig::new(agent_from_env().names, job_key.clone()));
    let sleeps_often = oversubscribed();
    ShmConfig { sleeps_often, key: id.0, broker, ..ShmConfig::new(id) }
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
    if cores::of_host() < 2 * (here + 1) && std::env::var_os("WEFT_SPIN_US").is_none() {
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

/// Opens an endpoint over the given links, as [`open_endpoint`] does, and over links of the
/// caller's own, such as a link that carries nothing and ends waits of the endpoint.
pub fn open_endpoint_beside(
    config: Config,
    links: Links,
    key: [u8; 32],
    own: Vec<Box<dyn Link>>,
) -> Result<Endpoint, JobError> {
    check_receipt(&config)?;
    open_locked(config, links, key, own)
}

/// Opens an endpoint for a caller that locks it, and so may choose a watchdog; see
/// [`open_endpoint_beside`] for the links.
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
    endpoint.agent().set_job_key(&job_key);
    services.into_iter().for_each(|services| endpoint.agent().serve(services));
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
    let first = launch::moving::first_runs(&|name| std::env::var(name).ok());
    let connections = first.unwrap_or(RUNS_MAX);
    let config = UdpConfig { host, faults, ports, connections, ..UdpConfig::default() };
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
    weft_link::warn!("{text}");
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
    let here = launch::ranks_here(&|name: &str| std::env::var(name).ok());
    join_by(launch::join, here)
}

/// Joins the job that `connect` connects to, of which `here` ranks run on this host, if that is
/// known.
fn join_by(
    connect: impl FnOnce() -> Result<Bootstrapped, LaunchError>,
    here: Option<usize>,
) -> Result<(Box<dyn Bootstrap>, Endpoint, Card), JobError> {
    settings::check()?;
    let links = links_from_env()?;
    let mut config = config_from_env()?;
    let Bootstrapped { mut boot, key } = connect()?;
    config.rank = u32::try_from(boot.rank()).ok();
    let links = links.of_job(boot.size(), here);
    let endpoint = open_locked(config.clone(), links, key, Vec::new())?;
    endpoint.told_of(Ends::of_launcher());
    if links.auto && links.packet && boot.rank() == 0 && endpoint.address().ether.is_empty() {
        // Most users have no right to them; `weft doctor` and `weft info` show the cost.
        log::info!("no packet sockets (they need CAP_NET_RAW): messages between hosts go over UDP");
    }
    let who = RankId { job: boot.job_id(), rank: boot.rank(), size: boot.size() };
    if let Err(e) = endpoint.counters().publish(&who) {
        weft_link::warn!("`weft top` will not see this rank: {e}");
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
    boot.keep(CARD_KEY)?;
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
    /// Longest time in which queued messages are sent at the end.
    flush: Duration,
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

    /// Joins the job of this process, for a caller that holds a lock around every use of the job
    /// and makes progress in a thread under that lock (the C interface). Allows a watchdog too.
    ///
    /// # Errors
    /// Returns the errors of `init`.
    pub fn init_locked() -> Result<Job, JobError> {
        Ok(Job::of(join()?))
    }

    /// Joins a job by a key-value space of the caller's own, in which its ranks find each other,
    /// for a caller that holds a lock as [`init_locked`](Self::init_locked) describes. `here` is
    /// the number of its ranks on this host, if that is known. A process may be a rank of several
    /// such jobs at a time.
    ///
    /// # Errors
    /// The key-value space fails, a variable is wrong, or no link opens.
    pub fn init_by(boot: Box<dyn Bootstrap>, here: Option<usize>) -> Result<Job, JobError> {
        Ok(Job::of(join_by(|| launch::join_by(boot), here)?))
    }

    fn of((boot, endpoint, card): (Box<dyn Bootstrap>, Endpoint, Card)) -> Job {
        let rank = boot.rank();
        let boot = Rc::new(RefCell::new(boot));
        let world = Group::new(endpoint, Ranks(boot.clone(), card), rank);
        Job { origin: Origin::here(), boot, world, flush: Duration::from_secs(5) }
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
        self.endpoint().agent().services()
    }

    /// Returns the name of the launcher of this process.
    pub fn launcher(&self) -> &'static str {
        self.boot.borrow().launcher()
    }

    /// Runs a future to its end.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.endpoint().block_on(future)
    }

    /// Leaves the job, as dropping it does, but sends queued messages for at most `flush`.
    pub fn leave(mut self, flush: Duration) {
        self.flush = flush;
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
        self.endpoint().close(self.flush);
        if let Err(e) = self.boot.borrow_mut().finalize() {
            weft_link::warn!("leaving the job: {e}");
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
}
