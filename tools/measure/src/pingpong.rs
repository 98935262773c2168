//! One-way time of a message: half a round trip.

use super::rank::{Channel, Outcome, Probe, Rank, Task, TAG};
use super::table::{Better, Table};
use super::volley::volley;
use super::{others, wire, Bench, LinkName, Subject};
use anyhow::Result;
use weft::Endpoint;

/// Largest message compared with the cache-line floor, in bytes; beyond it, copying takes most of
/// the time.
const SMALL: usize = 4 << 10;

/// Both ranks use blocking sends and receives on borrowed memory.
pub fn rank(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let (endpoint, peer) = rank.weft()?;
    let data = vec![1u8; task.size];
    let mut buffer = data.clone();
    let send = |endpoint: &mut Endpoint| Ok(endpoint.send_blocking(peer, TAG, &data)?);
    let recv = |endpoint: &mut Endpoint| {
        Ok(endpoint.recv_blocking(Some(peer), TAG, 0, &mut buffer).map(|_| true)?)
    };
    volley(rank, task, &mut endpoint.clone(), "lost", send, recv)
}

/// Returns the floor of a message of this size.
pub fn floor_of(link: LinkName, size: usize) -> (&'static str, Probe) {
    match (link, size) {
        (LinkName::Agent, _) => ("weft packet", Probe::WeftPingPong),
        (LinkName::Shm, 0..=SMALL) => ("cache line", Probe::CacheLine),
        (LinkName::Shm, _) => ("vm_readv", Probe::RemoteCopy),
        (_, 0..=wire::FRAME) => match socket_of(link) {
            Some(socket) => (socket.name(), Probe::Wire(socket, false)),
            None => ("bare UDP", Probe::Udp),
        },
        _ => ("bare UDP", Probe::Udp),
    }
}

/// Returns the sockets on raw Ethernet that carry a link's small messages.
pub fn socket_of(link: LinkName) -> Option<wire::Socket> {
    match link {
        LinkName::Packet | LinkName::Gso | LinkName::Auto => Some(wire::Socket::Packet),
        LinkName::Xdp => Some(wire::Socket::Xdp),
        LinkName::Shm | LinkName::Udp | LinkName::Tcp => None,
        LinkName::Unprivileged | LinkName::Agent => None,
    }
}

/// Returns the table.
pub fn table(bench: &mut Bench<'_>) -> Result<Table> {
    let shm = bench.link == LinkName::Shm;
    let (defaults, floors, channels): (&[usize], &[&'static str], &[Channel]) = if shm {
        (
            &[8, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20],
            &["cache line", "vm_readv"],
            &[Channel::Pipe, Channel::Unix],
        )
    } else {
        let floors: &[&'static str] = match bench.link {
            LinkName::Agent => &["weft packet"],
            LinkName::Xdp => &["AF_XDP", "bare UDP"],
            LinkName::Packet | LinkName::Gso | LinkName::Auto => &["AF_PACKET", "bare UDP"],
            _ => &["bare UDP"],
        };
        (&[16, 64, 1 << 10, 8 << 10, 64 << 10, 1 << 20], floors, &[Channel::Tcp])
    };
    let mut table = bench.table("pingpong", "one-way time", "us", Better::Lower);
    let sizes = bench.sizes(defaults);
    bench.plan(sizes.len() * (2 + channels.len()));
    for size in sizes {
        let (floor, probe) = floor_of(bench.link, size);
        let mut subjects: Vec<Subject> = vec![Probe::WeftPingPong.into(), bench.bare(probe)];
        if let Some(pair) = bench.direct {
            subjects[1] = Subject { pair, ..Probe::WeftPingPong.into() };
        }
        subjects.extend(channels.iter().map(|&c| bench.bare(Probe::PingPong(c))));
        let got = bench.measure(size, &subjects, |s| s * 1e6)?;
        let floors = floors.iter().map(|&name| (name, got[1].filter(|_| name == floor)));
        let peers = channels.iter().zip(&got[2..]).map(|(c, &s)| (c.name(), s));
        table.push("", size, got[0], others(floors), others(peers));
    }
    table.notes.push(if shm {
        "floor: a cache line from core to core up to 4K, above it process_vm_readv of the message; \
         pipe and Unix socket block"
            .into()
    } else {
        "floor: bare UDP, both sides spinning (above 1472 B with GSO and GRO), or, up to a frame, \
         single frames on bare sockets of the link's kind; TCP with TCP_NODELAY, spinning"
            .into()
    });
    Ok(table)
}
