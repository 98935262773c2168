//! Multicast among several members.

use super::super::crowd::{self, Part};
use super::super::rank::{Outcome, Rank, Task};
use super::super::sys::monotonic_ns;
use super::super::volley::compute_for;
use super::cell::COMPUTES;
use anyhow::{ensure, Context, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::choices::{Place, Tree};
use weft::{Address, Endpoint, PeerId};
use weft_packets::{MulticastGroup, Packets};

const DATA: u16 = 1;
const HEARD: u16 = 2;
const END: u16 = 3;
const GROUP: u16 = 1;
/// Longest single wait of a member before it checks for the end of the measurement.
const STEP: Duration = Duration::from_millis(20);
/// Longest wait for members, and for agents to start forwarding.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A multicast as packed in `Task::arg`: members, tree, and the figure wanted (rate or latency).
#[derive(Clone, Copy)]
pub struct Cast {
    /// Number of members.
    pub members: usize,
    /// The tree.
    pub tree: Tree,
    /// True: packets follow each other without waiting (rate); false: one packet at a time
    /// (latency).
    pub stream: bool,
    /// True if members other than the root compute between two polls.
    pub compute: bool,
}

impl Cast {
    /// Returns the value packed in a number.
    pub fn pack(self) -> u64 {
        self.members as u64
            | (self.tree as u64) << 16
            | u64::from(self.stream) << 24
            | u64::from(self.compute) << 25
    }

    fn unpack(arg: u64) -> Option<Cast> {
        let tree = *Tree::ALL.get((arg >> 16 & 0xff) as usize)?;
        let (stream, compute) = (arg >> 24 & 1 != 0, arg >> 25 & 1 != 0);
        Some(Cast { members: (arg & 0xffff) as usize, tree, stream, compute })
    }
}

struct Member {
    packets: Packets,
    group: MulticastGroup,
    peers: Vec<PeerId>,
}

/// Joins the group once all addresses are known.
fn join(endpoint: &Endpoint, addresses: &[Address], me: usize) -> Result<Member> {
    let peer = |(rank, address): (usize, &Address)| -> Result<PeerId> {
        Ok(if rank == me { PeerId(u32::MAX) } else { endpoint.connect(address)? })
    };
    let peers = addresses.iter().enumerate().map(peer).collect::<Result<Vec<_>>>()?;
    let packets = Packets::new(endpoint)?;
    let group = packets.group(GROUP, peers.clone(), me).context("a multicast group")?;
    Ok(Member { packets, group, peers })
}

/// Runs a member that is not the root: it reports to the root when each packet with a nonzero
/// argument arrived.
fn follow(endpoint: &Endpoint, addresses: &[Address], me: usize, compute: bool) -> Result<()> {
    let over = Rc::new(Cell::new(false));
    // The handlers are set before the group is made, because making the group delivers packets that
    // came early.
    let packets = Packets::new(endpoint)?;
    packets.handle(DATA, |packets, packet| {
        if packet.argument() > 0 {
            let at = monotonic_ns().to_le_bytes();
            let told = packets.try_send(packet.source(), HEARD, 0, &at);
            told.unwrap_or_else(|e| log::error!("telling the root: {e}"));
        }
    });
    let end = Rc::clone(&over);
    packets.handle(END, move |_, _| end.set(true));
    let member = join(endpoint, addresses, me)?;
    // The root begins when all members have reported.
    member.packets.send(member.peers[0], HEARD, 0, &[0; 8])?;
    let piece = Duration::from_nanos(COMPUTES);
    while !over.get() {
        if !compute {
            member.packets.wait(Some(STEP));
            continue;
        }
        compute_for(piece);
        member.packets.poll();
    }
    endpoint.close(Duration::from_secs(2));
    Ok(())
}

/// Sends packets that need no answer until agents forward them. False: agents do not forward.
fn hand_over(member: &Member, tree: Tree) -> Result<bool> {
    let start = Instant::now();
    while member.group.forwarded_by(tree) == Place::Host {
        if start.elapsed() > TIMEOUT {
            return Ok(false);
        }
        member.group.send_blocking(tree, DATA, 0, &[0])?;
        member.packets.wait(Some(Duration::from_millis(1)));
    }
    Ok(true)
}

/// Runs the root: measures the time from the first packet of a message until the last member has
/// its last packet.
fn lead(endpoint: &Endpoint, addresses: &[Address], task: &Task, cast: Cast) -> Result<Outcome> {
    let packets = Packets::new(endpoint)?;
    let heard: Rc<RefCell<(usize, u64)>> = Rc::default();
    let note = Rc::clone(&heard);
    packets.handle(HEARD, move |_, packet| {
        let mut raw = [0; 8];
        raw.copy_from_slice(&packet.data()[..8]);
        let mut note = note.borrow_mut();
        *note = (note.0 + 1, note.1.max(u64::from_le_bytes(raw)));
    });
    let member = join(endpoint, addresses, 0)?;
    let others = cast.members - 1;
    let gather = || -> Result<u64> {
        let start = monotonic_ns();
        while heard.borrow().0 < others {
            member.packets.wait(Some(STEP));
            let waited = Duration::from_nanos(monotonic_ns() - start);
            ensure!(waited < TIMEOUT, "a member does not answer");
        }
        Ok(heard.take().1)
    };
    gather()?;
    if packets.endpoint().choices().multicast == Place::Agent && !hand_over(&member, cast.tree)? {
        member.group.send_blocking(Tree::Flat, END, 0, &[])?;
        endpoint.close(Duration::from_secs(2));
        return Ok(Outcome::Absent("agents did not take over from the ranks".into()));
    }
    let room = member.group.packet_max().max(1);
    let data = vec![1u8; task.size.max(1)];
    let mut total = 0;
    let rounds = if cast.stream { 1 } else { task.iters };
    let messages = if cast.stream { task.iters } else { 1 };
    for _ in 0..rounds {
        let start = monotonic_ns();
        for message in 1..=messages {
            let mut parts = data.chunks(room).peekable();
            while let Some(part) = parts.next() {
                let answer = message == messages && parts.peek().is_none();
                member.group.send_blocking(cast.tree, DATA, u32::from(answer), part)?;
            }
        }
        total += gather()?.saturating_sub(start);
    }
    member.group.send_blocking(Tree::Flat, END, 0, &[])?;
    endpoint.close(Duration::from_secs(2));
    Ok(Outcome::Value(total as f64 * 1e-9 / task.iters.max(1) as f64))
}

/// Measures the seconds per message.
pub fn multicast(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let cast = Cast::unpack(task.arg).context("no such multicast")?;
    let task = *task;
    let part: Part = Arc::new(move |endpoint, addresses, me| match me {
        0 => lead(endpoint, addresses, &task, cast),
        _ => follow(endpoint, addresses, me, cast.compute).map(|()| Outcome::Elsewhere),
    });
    crowd::run(rank, cast.members, &part)
}
