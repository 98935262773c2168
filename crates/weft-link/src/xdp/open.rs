//! Opens an interface: attaches the program, opens a socket on each queue, claims a slot.

use super::attach::{self, Attachment, Trouble};
use super::connection::Connection;
use super::program::{self, QUEUES, SLOTS};
use super::share;
use super::sys::{bpf, net, Port, PortConfig, Socket};
use super::{XdpConfig, XdpMode};
use crate::ether::{EtherAddr, EtherHead, Interface};
use crate::packet::FallbackSocket;
use crate::random_u64;
use crate::LinkError;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// An interface in use.
pub(super) struct Rail {
    /// Its state when it was opened, except the MTU, which is kept up to date.
    pub interface: Interface,
    /// The slot of this endpoint on it.
    pub slot: u16,
    /// One for each queue, or a packet socket; the first one sends.
    pub connections: Vec<Connection>,
    /// The mode of the program; `None` for a packet socket.
    pub mode: Option<XdpMode>,
    /// The program had been attached by another process.
    pub joined: bool,
    /// The modes that were tried before, and why they failed.
    pub tried: Vec<String>,
    /// Longest Ethernet payload that fits the sockets' frames.
    pub payload_max: u32,
    /// The interface was found to be down, and that was reported.
    pub down: bool,
    /// Keeps the program attached.
    attachment: Option<Rc<Attachment>>,
}

/// Longest wait for a queue: the kernel frees the queue of a closed socket a little later.
const QUEUE_TIMEOUT: Duration = Duration::from_millis(500);
/// Slots to try before the interface counts as full.
const SLOT_TRIES: u32 = 64;

/// Opens an interface in the mode asked for, or in the best mode that works.
pub(super) fn open(config: &XdpConfig, interface: &Interface) -> Result<Rail, LinkError> {
    let namespace = Socket::open()
        .and_then(|s| s.namespace())
        .map_err(|source| system("open an AF_XDP socket", source))?;
    let driver = net::driver(&interface.name).unwrap_or_default();
    let forced = config.modes.as_slice();
    let modes = if forced.is_empty() { XdpMode::candidates(&driver) } else { forced };
    let mut tried = Vec::new();
    let mut last = LinkError::Unsupported;
    for &mode in modes {
        match open_as(config, interface, namespace, mode) {
            Ok(rail) => return Ok(Rail { tried, ..rail }),
            // The queue is busy in every mode.
            Err(error) if is_busy(&error) => return Err(error),
            Err(error) => {
                tried.push(format!("{mode}: {error}"));
                last = error;
            }
        }
    }
    // Of several errors, the last concerns the mode that works on most interfaces.
    Err(last)
}

/// Opens an interface as [`open`]. If the queue serves another process, opens a packet socket in
/// its place: the program passes its frames on.
pub(super) fn open_or_stand_in(
    config: &XdpConfig,
    interface: &Interface,
    job: u64,
) -> Result<Rail, LinkError> {
    match open(config, interface) {
        // A user who names a queue wants that queue.
        Err(error) if is_busy(&error) && config.queue.is_none() => {}
        other => return other,
    }
    let socket = FallbackSocket::take(job, config.ether_type, interface)?;
    Ok(Rail {
        interface: interface.clone(),
        slot: socket.slot(),
        connections: vec![Connection::FallbackSocket(socket)],
        mode: None,
        joined: false,
        tried: Vec::new(),
        payload_max: interface.mtu.min(u32::from(u16::MAX)),
        down: false,
        attachment: None,
    })
}

/// Divides an opened interface among `count` endpoints of this process.
pub(super) fn share(config: &XdpConfig, rail: Rail, count: usize) -> Result<Vec<Rail>, LinkError> {
    let failed = |source| system(format!("share the queues of {}", rail.interface.name), source);
    let first = config.queue.unwrap_or(0);
    let Some(attachment) = rail.attachment.clone() else { return Err(LinkError::Unsupported) };
    let mut slots = vec![rail.slot];
    while slots.len() < count {
        let ports = rail.connections.iter().filter_map(Connection::port);
        slots.push(claim(&attachment, ports, first).map_err(failed)?);
    }
    let (interface, mode, joined) = (rail.interface.clone(), rail.mode, rail.joined);
    let payload_max = rail.payload_max;
    let part = |&slot| Rail {
        interface: interface.clone(),
        slot,
        connections: Vec::new(),
        mode,
        joined,
        tried: Vec::new(),
        payload_max,
        down: false,
        attachment: Some(Rc::clone(&attachment)),
    };
    let mut parts: Vec<Rail> = slots.iter().map(part).collect();
    for connection in rail.connections {
        let Connection::Queue(port) = connection else { continue };
        let name = &interface.name;
        let shares = share::share(port, &slots)
            .map_err(|source| system(format!("share the queues of {name}"), source))?;
        for (part, share) in parts.iter_mut().zip(shares) {
            part.connections.push(Connection::QueueShare(share));
        }
    }
    Ok(parts)
}

/// Describes the offer of this machine, one line for each interface, without attaching anything.
pub(super) fn probe(config: &XdpConfig, usable: &[Interface]) -> Result<Vec<String>, LinkError> {
    Socket::open().map_err(|source| system("open an AF_XDP socket", source))?;
    let map = bpf::socket_map(program::ENTRIES, "weft_probe")
        .map_err(|source| system("make a map of sockets", source))?;
    bpf::load(&program::assemble(&map, config.ether_type), "weft_probe", false)
        .map_err(|source| system("load the XDP program", source))?;
    let line = |interface: &Interface| {
        let driver = net::driver(&interface.name).unwrap_or_default();
        let modes: Vec<_> = XdpMode::candidates(&driver).iter().map(XdpMode::to_string).collect();
        let queues = net::queues(&interface.name);
        let name = &interface.name;
        format!("{name}: driver {driver}, {queues} queue(s), will try {}", modes.join(", "))
    };
    Ok(usable.iter().map(line).collect())
}

/// True if another process has the queue.
fn is_busy(error: &LinkError) -> bool {
    let LinkError::System { source, .. } = error else { return false };
    source.raw_os_error() == Some(libc::EBUSY)
}

fn open_as(
    config: &XdpConfig,
    interface: &Interface,
    namespace: u64,
    mode: XdpMode,
) -> Result<Rail, LinkError> {
    let attachment =
        attach::attach(namespace, interface.index, mode.is_native(), config.ether_type)
            .map_err(|trouble| explain(trouble, interface, mode))?;
    let payload_max = interface.mtu.min((Port::FRAME_MAX - EtherHead::ETHERNET) as u32);
    let ports: Vec<Port> = queues(config, interface)?
        .map(|queue| {
            open_port(&PortConfig {
                ifindex: interface.index,
                queue,
                frame_len: payload_max as usize + EtherHead::ETHERNET,
                zero_copy: mode == XdpMode::ZeroCopy,
            })
            .map_err(|source| {
                let what = format!("open queue {queue} of {} ({mode})", interface.name);
                system(what, source)
            })
        })
        .collect::<Result<_, _>>()?;
    let first = queues(config, interface)?.start;
    let slot = claim(&attachment, ports.iter(), first)
        .map_err(|source| system(format!("claim a slot on {}", interface.name), source))?;
    Ok(Rail {
        interface: interface.clone(),
        slot,
        connections: ports.into_iter().map(Connection::Queue).collect(),
        mode: Some(mode),
        joined: attachment.joined,
        tried: Vec::new(),
        payload_max,
        down: false,
        attachment: Some(Rc::new(attachment)),
    })
}

/// Returns the queues to serve.
fn queues(config: &XdpConfig, interface: &Interface) -> Result<Range<u32>, LinkError> {
    let there = net::queues(&interface.name).min(QUEUES);
    match config.queue {
        None => Ok(0..there),
        Some(one) if one < there => Ok(one..one + 1),
        Some(one) => Err(LinkError::Unreachable(format!(
            "{} has no queue {one} that can be used, only 0 to {} (WEFT_XDP_QUEUE)",
            interface.name,
            there - 1
        ))),
    }
}

fn open_port(config: &PortConfig) -> io::Result<Port> {
    let end = Instant::now() + QUEUE_TIMEOUT;
    loop {
        match Port::open(config) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            other => return other,
        }
    }
}

/// Claims a slot that is free on every queue.
fn claim<'a>(
    attachment: &Attachment,
    ports: impl Iterator<Item = &'a Port> + Clone,
    first: u32,
) -> io::Result<u16> {
    let mut full = io::ErrorKind::AlreadyExists.into();
    for _ in 0..SLOT_TRIES {
        let slot = EtherAddr::XDP + (random_u64() % u64::from(SLOTS)) as u16;
        let taken = ports.clone().zip(first..).try_for_each(|(port, queue)| {
            bpf::insert(&attachment.map, program::key(slot, queue), port.fd())
        });
        match taken {
            Ok(()) => return Ok(slot),
            // Entries claimed on some queues are freed with our sockets.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => full = e,
            Err(e) => return Err(e),
        }
    }
    Err(full)
}

fn explain(trouble: Trouble, interface: &Interface, mode: XdpMode) -> LinkError {
    let name = &interface.name;
    match trouble {
        Trouble::System(what, source) => system(format!("{what} on {name} ({mode})"), source),
        Trouble::Foreign => LinkError::System {
            what: format!("attach the XDP program to {name} ({mode})"),
            source: io::ErrorKind::AlreadyExists.into(),
            fix: "another XDP program is attached (`ip link show`), or weft's for another \
                  EtherType: detach it, or use --link packet; to join weft's program needs \
                  CAP_SYS_ADMIN",
        },
        Trouble::OtherMode => LinkError::System {
            what: format!("attach the XDP program to {name} ({mode})"),
            source: io::ErrorKind::AlreadyExists.into(),
            fix: "another rank uses this interface in the other mode (native or generic): set the \
                  same WEFT_XDP_MODE for all ranks",
        },
    }
}

/// Makes an error with advice that fits the system's error.
pub(super) fn system(what: impl Into<String>, source: io::Error) -> LinkError {
    let fix = match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (root has them): or use --link udp"
        }
        Some(libc::EAFNOSUPPORT) => {
            "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use --link packet or udp"
        }
        Some(libc::ENOSYS) => "this kernel has no bpf(2): use --link packet or udp",
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "no more memory may be locked: raise the limit (`ulimit -l unlimited`)"
        }
        Some(libc::EBUSY) => {
            "another AF_XDP socket has the queue, and a queue serves one socket: do not \
             set WEFT_XDP_QUEUE, and weft uses a packet socket instead; or, if the card \
             steers frames to queues, name another queue for each rank"
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE) => {
            "the driver does not support this: let weft choose (no WEFT_XDP_MODE) or use \
             WEFT_XDP_MODE=generic"
        }
        _ => "use --link packet or udp",
    };
    LinkError::System { what: what.into(), source, fix }
}
