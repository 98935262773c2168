//! Links that the agent owns: XDP programs with their queues and raw sockets, opened before rights
//! were dropped, and UDP.

use crate::options::Options;
use std::rc::Rc;
use weft_core::{EndpointId, LinkCaps};
use weft_kernel::counters::KernelCounters;
use weft_link::ether::Interfaces;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::wrap::{FaultSpec, Wrappers};
use weft_link::{Frame, Link, LinkError, PacketConfig, PacketLink, PeerInfo};
use weft_link::{Ports, UdpConfig, UdpLink, XdpConfig, XdpLink};

/// A link that carries a rank's frames.
pub enum Carrier {
    /// A share of the queues of an XDP program; returned to the pool.
    Xdp(Box<XdpLink>),
    /// Raw Ethernet; returned to the pool.
    Packet(Box<PacketLink>),
    /// UDP, with injected faults if the options ask for them.
    Udp(Box<dyn Link>),
}

impl Carrier {
    /// Returns the link.
    pub fn link(&mut self) -> &mut dyn Link {
        match self {
            Carrier::Xdp(link) => &mut **link,
            Carrier::Packet(link) => &mut **link,
            Carrier::Udp(link) => &mut **link,
        }
    }

    /// Returns its capabilities.
    pub fn caps(&self) -> LinkCaps {
        match self {
            Carrier::Xdp(link) => link.caps(),
            Carrier::Packet(link) => link.caps(),
            Carrier::Udp(link) => link.caps(),
        }
    }

    /// Returns the number of packets that injected faults have lost.
    pub fn lost(&self) -> u64 {
        let mut lost = 0;
        if let Carrier::Udp(link) = self {
            link.counters(&mut |name, value| lost += u64::from(name == "fault_lost") * value);
        }
        lost
    }

    /// Sends a prefix of frames.
    #[inline]
    pub fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        self.link().send(frames)
    }

    /// Makes a peer reachable; returns the capabilities of the path.
    pub fn connect(&mut self, info: &PeerInfo) -> Result<LinkCaps, LinkError> {
        self.link().connect(info)
    }
}

/// Raw sockets that no rank uses now.
pub struct Pool {
    xdps: Vec<XdpLink>,
    packets: Vec<PacketLink>,
    udp: bool,
    /// Faults injected over UDP; each link has a seed of its own.
    faults: Option<FaultSpec>,
    /// Number of connections for which each link has packet numbers.
    connections: u64,
    host: u64,
    /// Ports of UDP sockets.
    ports: Ports,
    kernel: Option<Rc<KernelCounters>>,
}

/// Opens counters in the kernel; `None` if the system does not allow them.
fn open_kernel(options: &Options) -> Option<Rc<KernelCounters>> {
    let interfaces = Interfaces::list().map_err(|e| e.to_string());
    let usable = interfaces.and_then(|all| all.usable(options.interfaces.as_deref()));
    let served = usable
        .and_then(|all| KernelCounters::serve(&all, options.ports).map_err(|e| e.to_string()));
    match served {
        Ok(counters) => Some(Rc::new(counters)),
        Err(why) => {
            log::warn!("no counters in the kernel: {why}; they are served by this process");
            None
        }
    }
}

/// Returns a random key: packets that arrive at a socket of the pool fail its check.
fn nobody() -> Result<Security, LinkError> {
    let (mode, me) = (Mode::Auth, EndpointId(weft_link::random_u64()));
    Ok(Security { mode, me, job_key: JobKey::random()? })
}

impl Pool {
    /// Opens the links that the options ask for. With UDP, raw sockets that the system refuses are
    /// left out with a warning.
    ///
    /// # Errors
    /// No link can be opened.
    pub fn open(options: &Options) -> Result<Pool, LinkError> {
        let host = weft_link::shm::host().unwrap_or(0);
        let mut pool = Pool {
            xdps: Vec::new(),
            packets: Vec::new(),
            udp: options.udp,
            faults: options.faults,
            connections: options.connections,
            host,
            ports: options.ports,
            kernel: options.kernel.then(|| open_kernel(options)).flatten(),
        };
        // All are of one fanout group, like the ranks of a job.
        let security = nobody()?;
        if options.xdp {
            let config = XdpConfig {
                interfaces: options.interfaces.clone(),
                ether_type: options.kind,
                ..XdpConfig::default()
            };
            match XdpLink::several(&config, options.sessions, &security) {
                Ok(links) => pool.xdps = links,
                Err(e) if options.udp || options.packet => {
                    log::warn!("no XDP program: {e}; ranks are served over other links");
                }
                Err(e) => return Err(e),
            }
        }
        for _ in 0..if options.packet { options.sessions } else { 0 } {
            let config = PacketConfig {
                kind: options.kind,
                interfaces: options.interfaces.clone(),
                ..PacketConfig::default()
            };
            match PacketLink::new(config, security.clone()) {
                Ok(link) => pool.packets.push(link),
                Err(e) if options.udp => {
                    log::warn!("no raw sockets: {e}; ranks are served over UDP");
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        pool.packets.iter_mut().for_each(PacketLink::stop_helper);
        Ok(pool)
    }

    /// Returns the counters in the kernel.
    pub fn kernel(&self) -> Option<&Rc<KernelCounters>> {
        self.kernel.as_ref()
    }

    /// Returns the number of free raw sockets.
    pub fn raw(&self) -> usize {
        self.packets.len().max(self.xdps.len())
    }

    /// Returns the links of a rank, the fastest first.
    ///
    /// # Errors
    /// There are none.
    pub fn take(&mut self, security: &Security) -> Result<Vec<Carrier>, LinkError> {
        let mut carriers = Vec::new();
        if let Some(mut link) = self.xdps.pop() {
            link.set_security(security);
            carriers.push(Carrier::Xdp(Box::new(link)));
        }
        if let Some(mut link) = self.packets.pop() {
            link.set_security(security);
            carriers.push(Carrier::Packet(Box::new(link)));
        }
        if self.udp {
            match self.open_udp(security) {
                Ok(link) => carriers.push(Carrier::Udp(link)),
                Err(e) if carriers.is_empty() => return Err(e),
                Err(e) => log::warn!("no UDP sockets: {e}"),
            }
        }
        match carriers.is_empty() {
            true => Err(LinkError::Unreachable("the agent has no socket left for it".into())),
            false => Ok(carriers),
        }
    }

    fn open_udp(&mut self, security: &Security) -> Result<Box<dyn Link>, LinkError> {
        let faults = self.faults;
        let config = UdpConfig {
            host: self.host,
            packet_max: 16 << 10,
            buffer: 4 << 20,
            faults,
            connections: self.connections,
            ports: self.ports,
            ..UdpConfig::default()
        };
        let link = Box::new(UdpLink::new(config, security.clone())?);
        if let Some(spec) = &mut self.faults {
            spec.seed = spec.seed.wrapping_add(1);
        }
        Wrappers { faults, ..Wrappers::default() }.around(link, &(Rc::new(crate::sys::now) as _))
    }

    /// Returns the links of a rank to the pool.
    pub fn give_back(&mut self, carriers: Vec<Carrier>) {
        for carrier in carriers {
            let security = match nobody() {
                Ok(security) => security,
                Err(e) => {
                    log::error!("a raw socket is given up: {e}");
                    continue;
                }
            };
            match carrier {
                Carrier::Xdp(mut link) => {
                    link.set_security(&security);
                    self.xdps.push(*link);
                }
                Carrier::Packet(mut link) => {
                    link.set_security(&security);
                    self.packets.push(*link);
                }
                Carrier::Udp(_) => {}
            }
        }
    }
}
