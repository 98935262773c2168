//! A seat: this endpoint's index among the endpoints that share an interface.
//!
//! All packet sockets of a job on one interface form a fanout group, in which the slot of a frame
//! is the index of the socket. When a socket closes, the kernel moves the last socket of the group
//! to the free index (`__fanout_unlink` of af_packet.c). So that no index ever changes, every
//! member holds the descriptors of all sockets: a socket closes only with the last member, when no
//! index is in use any more. The socket of a dead member waits for a new member to take it over.
//!
//! Members find each other by abstract socket names, which the kernel frees when their owner ends.
//! A small thread of each member answers, since the program may be computing.
//! `docs/adr/0006-packet-fanout.md` has the reasons.

use super::sys::{Carries, Geometry, Ring, Socket};
use super::unix;
use crate::ether::EtherAddr;
use crate::LinkError;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weft_sys::passing::{recv_patiently, send_patiently};
use weft_sys::threads::{stack, without_signals};
use weft_sys::{Foreign, Peer};

/// Bits of the slot that hold the index.
const INDEX_BITS: u32 = 10;
/// Highest number of members of a group.
pub const SEATS_MAX: usize = 1 << INDEX_BITS;
/// Bits of the slot above the index and below [`EtherAddr::XDP`]; they tell jobs apart.
const TAG_BITS: u32 = 5;
/// Number of such bits in the slots of [`EtherAddr::STAND_IN`].
const STAND_IN_TAG_BITS: u32 = 3;
/// The part of the slot that a socket's filter compares.
const TAG_MASK: u16 = EtherAddr::XDP | (((1 << TAG_BITS) - 1) << INDEX_BITS);
/// Longest wait for the name of a member that has ended. The name is free at once, unless the
/// member had just forked: the child holds its descriptors until it executes another program.
const NAME_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait for the lock. Another process holds it for microseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupName {
    /// Identifies the job; not secret.
    pub job: u64,
    /// The frames that its sockets carry.
    pub carries: Carries,
    /// Number of the interface.
    pub interface: u32,
    /// Its members are endpoints of the XDP link.
    pub xdp: bool,
}

impl GroupName {
    fn of(&self, what: impl std::fmt::Display) -> String {
        let link = if self.xdp { "xdp-" } else { "" };
        let (job, kind) = (self.job, self.carries.ether_type());
        format!("weft-{link}{job:016x}-{kind:04x}-{}-{what}", self.interface)
    }

    /// Returns the part of the slot that all members share.
    fn tag(&self) -> u16 {
        let top = |bits: u32| ((self.job >> (64 - bits)) as u16) << INDEX_BITS;
        match self.xdp {
            true => EtherAddr::STAND_IN | top(STAND_IN_TAG_BITS),
            false => top(TAG_BITS),
        }
    }
}

/// A member's socket, which every member holds.
#[derive(Clone, Debug)]
struct Held {
    fd: Arc<OwnedFd>,
    sizes: Geometry,
}

/// The data from which the thread answers.
struct Shared {
    listener: OwnedFd,
    held: Mutex<Vec<Held>>,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member's seat in the group.
pub struct FanoutMember {
    /// The number that peers put into their frames.
    pub slot: u16,
    /// The socket.
    pub socket: Socket,
    /// Its ring.
    pub ring: Ring,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

const COUNT: u8 = b'c';
const LIST: u8 = b'l';
const PUSH: u8 = b'p';

fn failed(what: &str) -> impl FnOnce(io::Error) -> LinkError + '_ {
    move |source| LinkError::System {
        what: what.to_string(),
        source,
        fix: "give the program the capability CAP_NET_RAW (setcap cap_net_raw+ep FILE, or root), \
              or use the udp link",
    }
}

fn unreachable(why: String) -> LinkError {
    LinkError::Unreachable(why)
}

impl FanoutMember {
    /// Takes a free index, or adds one. Frames arrive from now on.
    ///
    /// # Errors
    /// [`LinkError::System`] without the right to raw sockets; [`LinkError::Unreachable`] if the
    /// present members do not answer, or all indices are taken.
    pub fn take(
        group: &GroupName,
        sizes: Geometry,
        buffer: usize,
    ) -> Result<FanoutMember, LinkError> {
        // Without the right to raw sockets, fail before any member is asked.
        let fresh = Socket::open().map_err(failed("open a packet socket"))?;
        drop(fresh);
        let _lock = lock(group)?;
        let living = living(group)?;
        let most = living.iter().max_by_key(|m| m.count);
        let mut held = match most {
            Some(member) if member.count > 0 => list(group, member)?,
            _ => Vec::new(),
        };
        let empty = (0..held.len()).filter(|i| !living.iter().any(|m| m.index == *i));
        for index in empty {
            if let Ok(listener) = unix::listen(&group.of(index)) {
                let Held { fd, sizes } = held[index].clone();
                let ring = Ring::map(&fd, sizes, true).map_err(failed("map a receive ring"))?;
                return Ok(FanoutMember::start(group, index, Socket::of(fd), ring, listener, held));
            }
        }
        let index = held.len();
        if index == SEATS_MAX {
            return Err(unreachable(format!("all {SEATS_MAX} slots of the interface are taken")));
        }
        let listener = name(&group.of(index), NAME_TIMEOUT)
            .map_err(|e| unreachable(format!("the name {} is in use: {e}", group.of(index))))?;
        let (socket, ring) = open(group, sizes, buffer, held.first())?;
        held.push(Held { fd: socket.fd.clone(), sizes });
        for member in &living {
            // A member that does not accept the socket is about to end.
            let _ = push(group, member, &held);
        }
        Ok(FanoutMember::start(group, index, socket, ring, listener, held))
    }

    fn start(
        group: &GroupName,
        index: usize,
        socket: Socket,
        ring: Ring,
        listener: OwnedFd,
        held: Vec<Held>,
    ) -> FanoutMember {
        let shared = Arc::new(Shared { listener, held: Mutex::new(held) });
        let answering = Arc::clone(&shared);
        let builder =
            std::thread::Builder::new().name("weft-packet".into()).stack_size(stack(128 << 10));
        // Without the thread (a limit on processes), later processes cannot join.
        let thread = without_signals(|| builder.spawn(move || answer(&answering)).ok());
        FanoutMember { slot: group.tag() | index as u16, socket, ring, shared, thread }
    }

    /// Returns the index, from 0 on.
    pub fn index(&self) -> usize {
        usize::from(self.slot) % SEATS_MAX
    }

    /// Returns the number of sockets in the group, including those of dead members.
    #[cfg(test)]
    pub fn members(&self) -> usize {
        self.shared.held().len()
    }
}

impl FanoutMember {
    /// Ends the thread: no further member can join through this one.
    pub fn stop_helper(&mut self) {
        unix::shut_down(&self.shared.listener);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for FanoutMember {
    fn drop(&mut self) {
        self.stop_helper();
    }
}

/// Opens a socket as the last member of a group; `first` is any member of it.
fn open(
    group: &GroupName,
    sizes: Geometry,
    buffer: usize,
    first: Option<&Held>,
) -> Result<(Socket, Ring), LinkError> {
    let socket = Socket::open().map_err(failed("open a packet socket"))?;
    socket.prepare(group.carries, sizes, buffer).map_err(failed("set up a receive ring"))?;
    let ring = Ring::map(&socket.fd, sizes, false).map_err(failed("map a receive ring"))?;
    let (high, mask) = ((group.tag() >> 8) as u8, (TAG_MASK >> 8) as u8);
    let filter = socket.filter(group.carries, high, mask);
    filter.map_err(failed("attach a filter to a packet socket"))?;
    socket.bind(group.carries, group.interface).map_err(failed("bind a packet socket"))?;
    let joined = match first {
        Some(member) => socket.join(&member.fd),
        None => socket.found(group.carries, INDEX_BITS),
    };
    joined.map_err(failed("join a group of packet sockets"))?;
    Ok((socket, ring))
}

/// Listens under a name; waits up to `timeout` if the name is in use.
fn name(text: &str, timeout: Duration) -> io::Result<OwnedFd> {
    let end = Instant::now() + timeout;
    loop {
        match unix::listen(text) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(Duration::from_micros(200));
            }
            done => return done,
        }
    }
}

/// Allows one process at a time to join the group; dropping the result frees the name again.
fn lock(group: &GroupName) -> Result<OwnedFd, LinkError> {
    let text = group.of("join");
    name(&text, LOCK_TIMEOUT).map_err(|e| {
        let why = "another process seems to hang while it opens its packet link";
        unreachable(format!("{why} (abstract socket {text}): {e}"))
    })
}

/// A living member.
struct Member {
    index: usize,
    pid: i32,
    /// Number of sockets that it holds.
    count: usize,
}

/// Lists the living members. No member joins during the call (the lock is held); some may end.
fn living(group: &GroupName) -> Result<Vec<Member>, LinkError> {
    let (mut found, mut end) = (Vec::new(), SEATS_MAX);
    let mut index = 0;
    while index < end {
        match unix::connect(&group.of(index)) {
            Ok(fd) => {
                let peer = Peer::of(&fd).map_err(failed("read the user of a Unix socket"))?;
                let pid = peer.pid;
                if peer.is_own().is_err() {
                    let name = group.of(index);
                    return Err(unreachable(format!(
                        "the abstract socket {name} belongs to another user (process {pid})"
                    )));
                }
                if let Some(count) = count(&fd, pid)? {
                    end = if found.is_empty() { count } else { end.max(count) };
                    found.push(Member { index, pid, count });
                }
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) => return Err(failed("connect to another process of this job")(e)),
        }
        index += 1;
    }
    Ok(found)
}

fn request(op: u8, index: usize, sizes: Geometry) -> [u8; 16] {
    let mut out = [0; 16];
    out[0] = op;
    out[4..8].copy_from_slice(&(index as u32).to_le_bytes());
    out[8..].copy_from_slice(&encode(sizes));
    out
}

fn encode(sizes: Geometry) -> [u8; 8] {
    let mut out = [0; 8];
    out[..4].copy_from_slice(&sizes.frame.to_le_bytes());
    out[4..].copy_from_slice(&sizes.frames.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Geometry> {
    let frame = u32::from_le_bytes(*bytes.first_chunk()?);
    let frames = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
    Some(Geometry { frame, frames }).filter(|s| s.is_sane())
}

/// Sockets in one message.
const FDS_MAX: usize = 64;

const NO_SIZES: Geometry = Geometry { frame: 0, frames: 0 };

fn silent(pid: i32, e: &io::Error) -> LinkError {
    unreachable(format!(
        "process {pid} of this job on this host does not answer ({e}): is it stopped?"
    ))
}

/// Asks a member for the number of sockets that it holds; `None` if the member has ended.
fn count(fd: &OwnedFd, pid: i32) -> Result<Option<usize>, LinkError> {
    let mut answer = [0; 4];
    let asked = send_patiently(fd, &request(COUNT, 0, NO_SIZES), &[]);
    match asked.and_then(|()| recv_patiently(fd, &mut answer)) {
        Ok((4, _)) => Ok(Some((u32::from_le_bytes(answer) as usize).min(SEATS_MAX))),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(silent(pid, &e)),
        Err(_) => Ok(None),
    }
}

/// Asks a member for all sockets that it holds.
fn list(group: &GroupName, member: &Member) -> Result<Vec<Held>, LinkError> {
    let broken = |e: io::Error| silent(member.pid, &e);
    let fd = unix::connect(&group.of(member.index)).map_err(broken)?;
    send_patiently(&fd, &request(LIST, 0, NO_SIZES), &[]).map_err(broken)?;
    let mut held = Vec::new();
    let mut buffer = [0; 8 * FDS_MAX];
    while held.len() < member.count {
        let (len, fds) = recv_patiently(&fd, &mut buffer).map_err(broken)?;
        if fds.is_empty() || len != 8 * fds.len() {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        for (fd, bytes) in fds.into_iter().zip(buffer.chunks(8)) {
            let sizes = decode(bytes).ok_or(io::ErrorKind::InvalidData);
            held.push(Held { fd: Arc::new(fd), sizes: sizes.map_err(|e| broken(e.into()))? });
        }
    }
    held.truncate(SEATS_MAX);
    Ok(held)
}

/// Sends a member the sockets that it does not hold yet. Does not wait until it accepts them:
/// descriptors in its queue stay open.
fn push(group: &GroupName, member: &Member, held: &[Held]) -> io::Result<()> {
    for (index, one) in held.iter().enumerate().skip(member.count) {
        let fd = unix::connect(&group.of(member.index))?;
        send_patiently(&fd, &request(PUSH, index, one.sizes), &[one.fd.as_fd()])?;
    }
    Ok(())
}

/// Answers one connection after another until the listener is shut down; runs in the thread.
fn answer(shared: &Shared) {
    loop {
        match unix::accept(&shared.listener) {
            Ok(fd) => {
                let Ok(peer) = Peer::of(&fd) else { continue };
                let fd = Foreign::connection(fd, peer.uid);
                // A process of this user that breaks the protocol or ends does no harm. Of others
                // nothing is received.
                if peer.is_own().is_ok() {
                    let _ = answer_one(shared, &fd);
                }
            }
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return,
            // No free descriptors, or the caller has ended: do not spin.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn answer_one(shared: &Shared, fd: &OwnedFd) -> io::Result<()> {
    let mut ask = [0; 16];
    let (len, fds) = recv_patiently(fd, &mut ask)?;
    if len != ask.len() {
        return Ok(());
    }
    match ask[0] {
        COUNT => {
            let count = shared.held().len() as u32;
            send_patiently(fd, &count.to_le_bytes(), &[])
        }
        LIST => {
            let all = shared.held().clone();
            for some in all.chunks(FDS_MAX) {
                let bytes: Vec<u8> = some.iter().flat_map(|h| encode(h.sizes)).collect();
                let fds: Vec<_> = some.iter().map(|h| h.fd.as_fd()).collect();
                send_patiently(fd, &bytes, &fds)?;
            }
            Ok(())
        }
        PUSH => {
            let mut held = shared.held();
            let index = u32::from_le_bytes([ask[4], ask[5], ask[6], ask[7]]) as usize;
            let one = fds.into_iter().next().zip(decode(&ask[8..]));
            if let (Some((fd, sizes)), true) = (one, index == held.len() && index < SEATS_MAX) {
                held.push(Held { fd: Arc::new(fd), sizes });
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
