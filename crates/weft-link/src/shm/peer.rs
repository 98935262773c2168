//! One connection of the link.

use super::direct::Direct;
use super::process::Process;
use super::rendezvous::{Shared, BELL, REFUSED};
use super::ring::{Consumer, Lie, Producer, Sizes};
use super::sys::block::{Block, Window};
use super::sys::map::Half;
use super::sys::socket;
use super::DirectCopy;
use crate::{Frame, Sink};
use std::os::fd::OwnedFd;
use weft_core::{EndpointId, PeerId};

/// Blocks of one peer that are mapped; others are reached through the kernel.
const WINDOWS_MAX: usize = 256;

/// A connected socket and its name in the epoll set.
#[derive(Debug)]
pub(super) struct Socket {
    pub fd: OwnedFd,
    pub token: u64,
    /// The user at the other end.
    pub user: u32,
}

impl Socket {
    /// Says that the connection is not taken. If that fails, its end says so.
    pub(super) fn refuse(&self) {
        let _ = socket::send(&self.fd, &REFUSED, None);
    }
}

impl Drop for Socket {
    /// The other side must see the end now, also while a process started meanwhile still has a
    /// copy of the descriptor.
    fn drop(&mut self) {
        socket::shutdown(&self.fd);
    }
}

/// A peer, or a stranger: an endpoint that connected and that the driver has not named yet.
#[derive(Debug)]
pub(super) struct Peer {
    pub tx: Producer,
    pub tx_area: Half,
    pub rx: Consumer,
    pub rx_area: Half,
    /// The driver's number; `None` for a stranger.
    pub id: Option<PeerId>,
    /// Its process ended; what it sent is still delivered.
    pub hung_up: bool,
    /// It said that it does not take the connection.
    pub refused: bool,
    /// It broke the protocol of the rings: drop it.
    pub lie: Option<Lie>,
    pub endpoint: EndpointId,
    /// This side connected.
    pub dialed: bool,
    pub socket: Socket,
    /// The peer's own connection, when both connected at the same time.
    pub crossing: Option<Socket>,
    pub direct: Direct,
    /// Its memory that is mapped here.
    windows: Vec<Window>,
    pub process: Process,
    /// Longest packet to this peer.
    pub mtu: u32,
    /// What it sent is left in its ring for now.
    pub muted: bool,
}

impl Peer {
    /// Of a connection whose segment has these sizes; sends in `tx`, receives in `rx`.
    pub(super) fn new(
        endpoint: EndpointId,
        socket: Socket,
        sizes: Sizes,
        [tx, rx]: [Half; 2],
        direct: Direct,
    ) -> Peer {
        Peer {
            tx: Producer::new(sizes),
            tx_area: tx,
            rx: Consumer::new(sizes),
            rx_area: rx,
            id: None,
            hung_up: false,
            refused: false,
            lie: None,
            endpoint,
            dialed: false,
            socket,
            crossing: None,
            process: Process::met(direct.process()),
            direct,
            windows: Vec::new(),
            mtu: sizes.mtu,
            muted: false,
        }
    }

    /// Publishes one packet; whether the doorbell was rung. `None`: not published.
    #[inline]
    pub(super) fn push_one(&mut self, frame: &Frame<'_>) -> Option<bool> {
        match self.tx.push(&self.tx_area, frame.header, frame.payload) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(lie) => {
                self.lie = Some(lie);
                return None;
            }
        }
        let ring = self.tx.must_ring(&self.tx_area);
        if ring {
            self.ring();
        }
        Some(ring)
    }

    /// Publishes a prefix of `frames`; returns its length and whether the doorbell was rung.
    #[inline]
    pub(super) fn push(&mut self, frames: &[Frame<'_>]) -> (usize, bool) {
        let mut pushed = 0;
        for frame in frames {
            match self.tx.push(&self.tx_area, frame.header, frame.payload) {
                Ok(true) => pushed += 1,
                Ok(false) => break,
                Err(lie) => {
                    self.lie = Some(lie);
                    break;
                }
            }
        }
        let ring = pushed > 0 && self.tx.must_ring(&self.tx_area);
        if ring {
            self.ring();
        }
        (pushed, ring)
    }

    /// Delivers up to `budget` packets; returns how many.
    #[inline]
    pub(super) fn pop(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut popped = 0;
        while popped < budget && !self.muted {
            match self.rx.peek(&self.rx_area) {
                Ok(Some(len)) => {
                    let from = self.id;
                    self.rx.pop(&self.rx_area, len, |header, payload| {
                        sink.frame(from, header, payload);
                    });
                    popped += 1;
                }
                Ok(None) => break,
                Err(lie) => {
                    self.lie = Some(lie);
                    break;
                }
            }
        }
        if popped > 0 && self.rx.must_ring(&self.rx_area) {
            self.ring();
        }
        popped
    }

    /// Whether nothing waits in the receive ring that is to be taken.
    pub(super) fn idle(&self) -> bool {
        self.muted || matches!(self.rx.peek(&self.rx_area), Ok(None))
    }

    /// Whether it is to be removed: it lied, or its process ended and all it sent is delivered.
    pub(super) fn finished(&self) -> bool {
        self.lie.is_some() || (self.hung_up && !self.muted && self.idle())
    }

    /// Wakes the peer. A full socket buffer means that unread doorbells are there already; a
    /// closed one is noticed by epoll.
    #[cold]
    fn ring(&self) {
        let _ = socket::send(&self.socket.fd, &BELL, None);
    }

    /// Takes over the receive ring of a second connection, made by the peer.
    pub(super) fn cross(&mut self, socket: Socket, sizes: Sizes, rx: Half) {
        self.crossing = Some(socket);
        self.rx = Consumer::new(sizes);
        self.rx_area = rx;
    }

    /// Whether the peer's own connection may still be added.
    pub(super) fn may_cross(&self) -> bool {
        self.dialed && self.crossing.is_none() && self.rx.untouched() && self.idle()
    }

    /// The socket with this token.
    pub(super) fn socket(&self, token: u64) -> Option<&OwnedFd> {
        let crossing = self.crossing.as_ref();
        [Some(&self.socket), crossing]
            .into_iter()
            .flatten()
            .find(|s| s.token == token)
            .map(|s| &s.fd)
    }

    /// Whether the process at the other end closed a connection.
    pub(super) fn closed(&self) -> bool {
        let crossing = self.crossing.as_ref();
        socket::hung_up(&self.socket.fd) || crossing.is_some_and(|s| socket::hung_up(&s.fd))
    }

    /// Gives the peer memory of this process to map. False: not now.
    pub(super) fn share(&self, key: u64, block: &Block) -> bool {
        let (addr, len) = (block.start().addr() as u64, block.len() as u64);
        let message = Shared { key, addr, len }.encode();
        socket::send(&self.socket.fd, &message, Some(block.file())).is_ok()
    }

    /// Maps memory that the peer shares. What cannot be mapped is reached through the kernel.
    pub(super) fn map(&mut self, &Shared { key, addr, len }: &Shared, file: &OwnedFd) {
        self.unmap(key);
        match Window::open(file, key, addr, len) {
            Ok(window) if self.windows.len() < WINDOWS_MAX => self.windows.push(window),
            Ok(_) => {}
            Err(e) => log::debug!("memory of endpoint {} is not mapped: {e}", self.endpoint),
        }
    }

    /// Forgets memory that the peer shared.
    pub(super) fn unmap(&mut self, key: u64) {
        self.windows.retain(|window| window.key != key);
    }

    /// Writes to memory of the peer that is mapped here. False: it is not.
    pub(super) fn write_mapped(&self, addr: u64, from: &[u8]) -> bool {
        !self.hung_up && self.windows.iter().any(|window| window.write(addr, from))
    }

    /// Reads memory of the peer that is mapped here. False: it is not.
    pub(super) fn read_mapped(&self, addr: u64, into: &mut [u8]) -> bool {
        !self.hung_up && self.windows.iter().any(|window| window.read(addr, into))
    }

    /// Notes what the peer's hello says; the warning, if any.
    pub(super) fn heard(&mut self, barrier: bool, addr: u64, word: u64) -> Option<String> {
        self.tx.light = barrier;
        if self.direct.verify(addr, word) {
            return None;
        }
        let endpoint = self.endpoint;
        Some(format!("direct copies with endpoint {endpoint} are off: its memory cannot be read"))
    }

    /// The state of direct access before any hello.
    pub(super) fn direct_to(socket: &OwnedFd, choice: DirectCopy) -> Direct {
        let nobody = socket::Cred { pid: 0, uid: 0 };
        Direct::probe(socket::peer_cred(socket).unwrap_or(nobody), choice)
    }
}
