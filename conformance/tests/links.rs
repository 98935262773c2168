//! The link suite on every link of this repository, and on every wrapper.

use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_agent::{AgentConfig, AgentLink};
use weft_conformance::links::Ends;
use weft_conformance::{cable, link_suite};
use weft_core::EndpointId;
use weft_link::looplink::LoopLink;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::{Clock, FaultSpec, Faulty, Pcap, Traced};
use weft_link::{Link, LinkError, PacketConfig, PacketLink, ShmConfig, ShmLink};
use weft_link::{TcpConfig, TcpLink, UdpConfig, UdpLink};
use weft_link::{XdpConfig, XdpLink, XdpMode};

fn clock() -> Clock {
    let origin = Instant::now();
    Rc::new(move || weft_core::Instant(origin.elapsed().as_nanos() as u64))
}

/// Makes a pair of in-memory links, each inside a wrapper from `wrap`.
fn wrapped(wrap: fn(Box<dyn Link>) -> Box<dyn Link>) -> Result<Ends, String> {
    let (a, b) = LoopLink::pair(9000, 256).map_err(|e| e.to_string())?;
    let ends = [wrap(Box::new(a)), wrap(Box::new(b))];
    Ends::join(ends, [EndpointId(1), EndpointId(2)]).map_err(|e| e.to_string())
}

fn faulty(link: Box<dyn Link>, spec: &str) -> Box<dyn Link> {
    let spec: FaultSpec = spec.parse().expect("a fault specification");
    Box::new(Faulty::new(link, spec, clock()))
}

/// Makes a pair of UDP links over the loopback interface.
fn udp(mode: Mode, offload: bool) -> Result<Ends, String> {
    let job_key = JobKey::from_bytes(&[1; 32]).ok_or("a key of 32 bytes")?;
    Ends::of(|me| {
        let v4 = Some(Ipv4Addr::LOCALHOST);
        let config = UdpConfig { v4, v6: None, gso: offload, gro: offload, ..UdpConfig::default() };
        UdpLink::new(config, Security { mode, job_key: job_key.clone(), me })
    })
}

/// Makes a pair of TCP links over the loopback interface.
fn tcp(mode: Mode) -> Result<Ends, String> {
    let job_key = JobKey::from_bytes(&[1; 32]).ok_or("a key of 32 bytes")?;
    Ends::of(|me| {
        let config = TcpConfig { v4: Some(Ipv4Addr::LOCALHOST), v6: None, ..TcpConfig::default() };
        TcpLink::new(config, Security { mode, job_key: job_key.clone(), me })
    })
}

/// Makes a pair of packet links on the two ends of a cable.
fn packet(mode: Mode, mtu: u32) -> Result<Ends, String> {
    sockets(mode, mtu, false)
}

/// Makes the same for trains.
fn gso(mode: Mode, mtu: u32) -> Result<Ends, String> {
    sockets(mode, mtu, true)
}

fn sockets(mode: Mode, mtu: u32, trains: bool) -> Result<Ends, String> {
    cable::lay(mtu)?;
    let job_key = JobKey::from_bytes(&[1; 32]).ok_or("a key of 32 bytes")?;
    let free = FreeEnds::default();
    Ends::of(|me| {
        let interfaces = Some(vec![free.take().to_string()]);
        let config = PacketConfig { interfaces, trains, ..PacketConfig::default() };
        PacketLink::new(config, Security { mode, job_key: job_key.clone(), me })
    })
}

/// Makes a pair of XDP links on the two ends of a cable.
fn xdp(mode: Mode, place: XdpMode, mtu: u32) -> Result<Ends, String> {
    cable::lay(mtu)?;
    xdp_on_the_cable(mode, place)
}

/// The ends of the cable, one after the other.
#[derive(Default)]
struct FreeEnds(std::cell::Cell<usize>);

impl FreeEnds {
    fn take(&self) -> &'static str {
        let at = self.0.get();
        self.0.set(at + 1);
        cable::ENDS[at]
    }
}

fn xdp_on_the_cable(mode: Mode, place: XdpMode) -> Result<Ends, String> {
    let job_key = JobKey::from_bytes(&[1; 32]).ok_or("a key of 32 bytes")?;
    let free = FreeEnds::default();
    Ends::of(|me| {
        let interfaces = Some(vec![free.take().to_string()]);
        let config = XdpConfig { interfaces, modes: vec![place], ..XdpConfig::default() };
        XdpLink::new(config, Security { mode, job_key: job_key.clone(), me })
    })
}

thread_local! {
    /// Links that own the queues, so that others do without, until the test ends.
    static OWNERS: std::cell::RefCell<Vec<XdpLink>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Makes the same as [`xdp`], but the queues serve others: packet sockets replace them.
fn xdp_without_queues(mode: Mode, place: XdpMode) -> Result<Ends, String> {
    cable::lay(1500)?;
    let job_key = JobKey::from_bytes(&[2; 32]).ok_or("a key of 32 bytes")?;
    for end in cable::ENDS {
        let interfaces = Some(vec![end.to_string()]);
        let config = XdpConfig { interfaces, modes: vec![place], ..XdpConfig::default() };
        let security = Security { mode, job_key: job_key.clone(), me: EndpointId(7) };
        let owner = XdpLink::new(config, security).map_err(|e| e.to_string())?;
        OWNERS.with_borrow_mut(|all| all.push(owner));
    }
    xdp_on_the_cable(mode, place)
}

/// Makes a pair of links through two agents on threads, which reach each other over loopback, or
/// over a cable with an XDP program at each end.
fn agent(mode: Mode, links: &str) -> Result<Ends, String> {
    let over_cable = links == "xdp";
    if over_cable {
        cable::lay(1500)?;
    }
    let free = FreeEnds::default();
    let job_key = JobKey::from_bytes(&[1; 32]).ok_or("a key of 32 bytes")?;
    // Packets to an end that is gone are given up soon.
    let engine = weft_core::Config { peer_timeout_ms: 10_000, ..weft_core::Config::default() };
    let ends = Ends::of(|me| {
        let name = format!("@weft-conformance-{:016x}", weft_link::random_u64());
        let mut words = vec!["--name", &name, "--links", links, "--sessions", "3", "--once"];
        if over_cable {
            words.extend(["--interfaces", free.take()]);
        }
        let words = words.into_iter().map(String::from);
        let options = weftd::options::Options::parse(words).expect("options of an agent");
        let (ready, is_ready) = std::sync::mpsc::channel();
        // The thread ends with its rank.
        std::thread::spawn(move || {
            let agent = weftd::Agent::open(options);
            let opened = ready.send(agent.as_ref().map(|_| ()).map_err(|e| e.to_string()));
            let (Ok(mut agent), Ok(())) = (agent, opened) else { return };
            while !agent.is_done() {
                agent.step();
            }
        });
        let opened = is_ready.recv().unwrap_or_else(|e| Err(e.to_string()));
        opened.map_err(LinkError::Unreachable)?;
        let config = AgentConfig { names: vec![name], patience: Duration::from_secs(200) };
        AgentLink::attach(&config, &Security { mode, job_key: job_key.clone(), me }, &engine)
    })?;
    Ok(ends.greet())
}

link_suite!(agent_authenticated, || agent(Mode::Auth, "udp"));
link_suite!(agent_encrypted, || agent(Mode::Encrypt, "udp"));
link_suite!(agent_over_xdp, || agent(Mode::Auth, "xdp"));
link_suite!(agent_over_xdp_encrypted, || agent(Mode::Encrypt, "xdp"));
link_suite!(xdp_generic, || xdp(Mode::Auth, XdpMode::Generic, 1500));
link_suite!(xdp_native, || xdp(Mode::Auth, XdpMode::Native, 1500));
link_suite!(xdp_encrypted, || xdp(Mode::Encrypt, XdpMode::Generic, 1500));
link_suite!(xdp_open, || xdp(Mode::None, XdpMode::Generic, 1500));
link_suite!(xdp_jumbo, || xdp(Mode::Auth, XdpMode::Generic, 9000));
link_suite!(xdp_jumbo_native, || xdp(Mode::Auth, XdpMode::Native, 9000));
link_suite!(xdp_without_a_queue, || xdp_without_queues(Mode::Auth, XdpMode::Generic));
link_suite!(xdp_without_a_queue_open, || xdp_without_queues(Mode::None, XdpMode::Native));
link_suite!(packet_authenticated, || packet(Mode::Auth, 1500));
link_suite!(packet_encrypted, || packet(Mode::Encrypt, 1500));
link_suite!(packet_open, || packet(Mode::None, 1500));
link_suite!(packet_jumbo, || packet(Mode::Auth, 9000));
link_suite!(gso_authenticated, || gso(Mode::Auth, 1500));
link_suite!(gso_encrypted, || gso(Mode::Encrypt, 1500));
link_suite!(gso_open, || gso(Mode::None, 1500));
link_suite!(gso_jumbo, || gso(Mode::Auth, 9000));
link_suite!(tcp_authenticated, || tcp(Mode::Auth));
link_suite!(tcp_encrypted, || tcp(Mode::Encrypt));
link_suite!(tcp_open, || tcp(Mode::None));
link_suite!(udp_authenticated, || udp(Mode::Auth, true));
link_suite!(udp_encrypted, || udp(Mode::Encrypt, true));
link_suite!(udp_open, || udp(Mode::None, true));
link_suite!(udp_without_offload, || udp(Mode::Auth, false));
link_suite!(shm, || Ends::of(|id| ShmLink::new(ShmConfig::new(id))));
link_suite!(memory, || wrapped(|link| link));
link_suite!(without_faults, || wrapped(|link| faulty(link, "")));
link_suite!(with_delay, || wrapped(|link| faulty(link, "delay=200us")));
link_suite!(with_loss, || wrapped(|link| faulty(link, "loss=20%,seed=1")));
link_suite!(with_disorder, || wrapped(|link| faulty(
    link,
    "dup=5%,reorder=10%,jitter=50us,seed=2"
)));
link_suite!(traced, || wrapped(|link| Box::new(Traced::new(link))));
link_suite!(captured, || wrapped(|link| {
    let nowhere = std::path::Path::new("/dev/null");
    Box::new(Pcap::create(link, nowhere, clock()).expect("a sink"))
}));
