//! Floors on raw Ethernet: the sockets of the packet and XDP links without weft, between lab hosts.

pub use super::probe::Socket;
use super::rank::{Outcome, Rank, Task};
use super::volley::{pause, volley};
use anyhow::{Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use weft_link::ether::{EtherHead, EtherType, Interface, Interfaces, Mac};
use weft_link::{BarePacket, BareXdp};

/// Longest message that a frame at an MTU of 1500 carries.
pub const FRAME: usize = 1500 - EtherHead::SHIM;
/// Receive ring in bytes: that of the packet link.
const RING: usize = 1 << 20;

trait Wire: AsFd {
    fn send(&mut self, frame: &[u8]) -> io::Result<()>;
    fn take(&mut self) -> Option<usize>;
}

impl Wire for BarePacket {
    #[inline]
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        BarePacket::send(self, frame)
    }

    #[inline]
    fn take(&mut self) -> Option<usize> {
        BarePacket::take(self)
    }
}

impl Wire for BareXdp {
    #[inline]
    fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        BareXdp::send(self, frame)
    }

    #[inline]
    fn take(&mut self) -> Option<usize> {
        BareXdp::take(self)
    }
}

/// Returns the one Ethernet interface of the lab host.
pub fn interface() -> Result<Interface> {
    let name = weft_lab::INTERFACE;
    find(|i| i.name == name).with_context(|| format!("no interface {name}"))
}

fn find(is: impl Fn(&Interface) -> bool) -> Result<Interface> {
    let all = Interfaces::list().context("listing the network interfaces")?;
    all.0.into_iter().find(is).context("not found")
}

/// Returns the interface by which a rank reaches the other one.
pub fn interface_of(rank: &mut Rank) -> Result<Interface> {
    rank.locate()?;
    let own = rank.hosts()[rank.me];
    let found = find(|i| i.ips.iter().any(|(ip, _)| *ip == own));
    found.with_context(|| format!("no interface has the address {own}"))
}

/// A pattern of frames.
#[derive(Clone, Copy)]
enum Work {
    /// Round trips. True: blocking in poll(2), not spinning.
    Exchange(bool),
    /// One direction.
    Stream,
}

/// Measures the one-way time of single frames of `size` bytes. `block`: in poll(2), not spinning.
pub fn ping_pong(rank: &mut Rank, task: &Task, socket: Socket, block: bool) -> Result<Outcome> {
    open(rank, task, socket, Work::Exchange(block))
}

/// Measures one direction of frames of `size` bytes, one call each, counted at the receiver.
pub fn rate(rank: &mut Rank, task: &Task, socket: Socket) -> Result<Outcome> {
    open(rank, task, socket, Work::Stream)
}

fn open(rank: &mut Rank, task: &Task, socket: Socket, work: Work) -> Result<Outcome> {
    if task.size > FRAME {
        return Ok(Outcome::Absent("a message of more than one frame".into()));
    }
    let interface = interface_of(rank)?;
    let kind = weft::job::packet_from_env()?.kind;
    match socket {
        Socket::Packet => {
            let wire = BarePacket::open(&interface, kind, RING).context("a packet socket")?;
            run(rank, task, wire, (kind, interface.mac, 0), work)
        }
        Socket::Xdp => {
            let wire = BareXdp::open(&interface, &weft::job::xdp_from_env()?)?;
            let slot = wire.slot();
            run(rank, task, wire, (kind, interface.mac, slot), work)
        }
    }
}

/// Exchanges the addresses of frames with the other rank; returns the header of frames to it.
fn meet(rank: &mut Rank, (kind, src, slot): (EtherType, Mac, u16), len: usize) -> Result<Vec<u8>> {
    let mut note = src.0.to_vec();
    note.extend(slot.to_le_bytes());
    rank.tell(&note)?;
    let theirs: [u8; 8] = rank.receive_note()?.try_into().ok().context("a note of 8 bytes")?;
    let [a, b, c, d, e, f, low, high] = theirs;
    let (dst, slot) = (Mac([a, b, c, d, e, f]), u16::from_le_bytes([low, high]));
    let head = EtherHead { dst, src, kind, slot, len: len as u16 };
    let mut frame = head.encode().to_vec();
    frame.resize(EtherHead::LEN + len, 1);
    Ok(frame)
}

fn send(wire: &mut impl Wire, frame: &[u8], alone: bool) -> Result<()> {
    loop {
        match wire.send(frame) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => pause(alone),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => pause(alone),
            Err(e) => return Err(e).context("sending a frame"),
        }
    }
}

/// Receives one frame; false if none comes for a second.
fn recv(wire: &mut impl Wire, alone: bool, block: bool) -> Result<bool> {
    let (mut turns, mut since) = (0u32, None::<Instant>);
    while wire.take().is_none() {
        if block {
            let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
            match poll(&mut [PollFd::new(wire, PollFlags::IN)], Some(&limit)) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e).context("poll"),
            }
        }
        turns += 1;
        if turns % 4096 == 0 && since.get_or_insert_with(Instant::now).elapsed().as_secs() > 0 {
            return Ok(false);
        }
        pause(alone);
    }
    Ok(true)
}

fn run(
    rank: &mut Rank,
    task: &Task,
    mut wire: impl Wire,
    from: (EtherType, Mac, u16),
    work: Work,
) -> Result<Outcome> {
    let frame = meet(rank, from, task.size)?;
    let alone = rank.alone;
    let outcome = match work {
        Work::Exchange(block) => {
            let lost = "a bare frame got lost";
            let throw = |wire: &mut _| send(wire, &frame, alone);
            volley(rank, task, &mut wire, lost, throw, |wire| recv(wire, alone, block))?
        }
        Work::Stream => stream(rank, task, &mut wire, &frame)?,
    };
    // The other side may still wait for the last frame of this one.
    rank.sync()?;
    Ok(outcome)
}

/// Fewest frames of a stream; fewer give no time.
const LEAST: u64 = 64;
/// Frames received per reading of the clock, which costs as much as a frame.
const POLL_EVERY: u64 = 16;
/// Longest time until the first frame.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Silence that ends a stream.
const SILENCE: Duration = Duration::from_millis(100);

/// Sends; or receives frames until no more come, and returns the time between two frames.
fn stream(rank: &mut Rank, task: &Task, wire: &mut impl Wire, frame: &[u8]) -> Result<Outcome> {
    let alone = rank.alone;
    rank.sync()?;
    if rank.me == 0 {
        for _ in 0..task.iters.max(LEAST) {
            send(wire, frame, alone)?;
        }
        return Ok(Outcome::Elsewhere);
    }
    let (mut first, mut last, mut taken, mut turns) = (None, Instant::now(), 0u64, 0u32);
    loop {
        if wire.take().is_some() {
            taken += 1;
            turns = 0;
            if first.is_none() || taken.is_multiple_of(POLL_EVERY) {
                last = Instant::now();
                // Frames that came before the clock started do not count.
                if first.is_none() {
                    (first, taken) = (Some(last), 0);
                }
            }
            continue;
        }
        turns += 1;
        let limit = if first.is_some() { SILENCE } else { TIMEOUT };
        if turns.is_multiple_of(1024) && last.elapsed() > limit {
            break;
        }
        pause(alone);
    }
    let whole = taken - taken % POLL_EVERY;
    let took = first.map_or(0.0, |first| (last - first).as_secs_f64());
    Ok(match whole {
        0 => Outcome::Absent("too few frames arrived".into()),
        _ => Outcome::Value(took / whole as f64),
    })
}
