//! Connections from and to peers, which of two is used, and their end.

use super::streams::{Id, Stage, Stream, OTHER};
use super::sys::{Accepted, Socket};
use super::TcpLink;
use crate::secure::{Mode, Reject};
use std::io;
use std::time::{Duration, Instant};
use weft_core::wire::{field, Hello, PacketType};
use weft_core::{EndpointId, PeerId};

/// Connections accepted in one poll.
const ACCEPTS: usize = 16;
/// First and longest time between rounds over the addresses of a peer that refuses connections.
const RETRY: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// Time for which no connection is accepted where no descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// The way of frames to a peer.
pub enum Outlet {
    /// A stream that takes frames.
    Open(Id),
    /// A stream that will take frames.
    Opening(Id),
    /// None: frames are lost.
    Closed,
}

impl TcpLink {
    /// Returns the stream to a peer; begins to connect if there is none.
    #[inline]
    pub(super) fn outlet(&mut self, peer: PeerId) -> Outlet {
        let Some(known) = self.peers.get(peer) else { return Outlet::Closed };
        let id = known.outlet;
        if let Some((id, stream)) = id.and_then(|id| Some((id, self.streams.get(id)?))) {
            return match stream.stage {
                Stage::Connecting(_) => Outlet::Opening(id),
                _ => Outlet::Open(id),
            };
        }
        self.open(peer)
    }

    /// Begins to connect to a peer: to the address that comes next, and to the others if that fails
    /// at once.
    #[cold]
    fn open(&mut self, peer: PeerId) -> Outlet {
        let now = self.care.tick();
        let Some(known) = self.peers.get(peer) else { return Outlet::Closed };
        if known.retry.is_some_and(|at| now < at) {
            return Outlet::Closed;
        }
        for _ in 0..known.candidates.len() {
            self.make_room();
            let Some(addr) = self.peers.get(peer).map(super::Peer::addr) else { break };
            match Socket::connect(addr).and_then(|s| self.watch(s, peer, now + self.config.connect))
            {
                Ok(id) => return Outlet::Opening(id),
                Err(e) => self.not_connected(peer, &words(&e)),
            }
        }
        Outlet::Closed
    }

    fn watch(&mut self, socket: Socket, peer: PeerId, until: Instant) -> io::Result<Id> {
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let known = self.peers.get_mut(peer).ok_or_else(gone)?;
        socket.set_options(&self.options);
        let stage = Stage::Connecting(until);
        let mut stream = Stream::new(socket, known.addr(), stage, self.care.now);
        (stream.peer, stream.endpoint, stream.ours) = (Some(peer), Some(known.endpoint), true);
        stream.armed = true;
        let fd = stream.socket.raw();
        let id = self.streams.add(stream);
        known.outlet = Some(id);
        if let Err(e) = self.poll.add(fd, id.token(), true) {
            known.outlet = None;
            self.streams.remove(id);
            return Err(e);
        }
        self.count.connects += 1;
        self.due(until);
        Ok(id)
    }

    /// Records that a connection to a peer was not made. The next is tried with its next address;
    /// when all have failed, not at once.
    fn not_connected(&mut self, peer: PeerId, why: &str) {
        self.count.connects_failed += 1;
        let Some(known) = self.peers.get_mut(peer) else { return };
        log::debug!("tcp: no connection to {}: {why}", known.addr());
        known.cause = format!("{}: {why}", known.addr());
        known.at = (known.at + 1) % known.candidates.len();
        known.failures = known.failures.saturating_add(1);
        if known.failures.is_multiple_of(known.candidates.len() as u32) {
            let rounds = known.failures / known.candidates.len() as u32;
            let wait = RETRY * (1 << rounds.min(10));
            known.retry = Some(Instant::now() + wait.min(RETRY_MAX));
        }
    }

    /// Handles a report that a socket can be written to.
    pub(super) fn on_writable(&mut self, id: Id) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if let Stage::Connecting(_) = stream.stage {
            if let Some(e) = stream.socket.error() {
                return self.broken(id, &words(&e));
            }
            stream.stage = Stage::Open;
            if let Some(known) = stream.peer.and_then(|peer| self.peers.get_mut(peer)) {
                (known.failures, known.retry) = (0, None);
            }
            let check = Instant::now() + self.config.idle;
            self.due(check);
        }
        self.flush(id);
        let Some(stream) = self.streams.get_mut(id).filter(|s| s.armed && !s.has_out()) else {
            return;
        };
        stream.armed = false;
        let _ = self.poll.change(stream.socket.raw(), id.token(), false);
    }

    /// Accepts connections, a bounded number. The oldest stranger has to go where there are too
    /// many: a peer proves at once who it is.
    #[cold]
    pub(super) fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(at) else { return };
            let (socket, from) = match listener.accept() {
                Accepted::Socket(socket, from) => (socket, from),
                Accepted::Nothing => return,
                Accepted::NoDescriptor if self.refuse() => continue,
                Accepted::NoDescriptor => return self.pause_accepting(),
            };
            self.count.accepts += 1;
            if self.streams.strangers() >= self.config.strangers.max(1) {
                self.refuse();
            }
            self.make_room();
            socket.set_options(&self.options);
            let until = self.care.tick() + self.config.proof;
            let stream = Stream::new(socket, from, Stage::Stranger(until), self.care.now);
            let fd = stream.socket.raw();
            let id = self.streams.add(stream);
            if self.poll.add(fd, id.token(), false).is_err() {
                self.streams.remove(id);
                continue;
            }
            self.due(until);
        }
    }

    /// Closes the oldest stranger. False if there is none.
    fn refuse(&mut self) -> bool {
        let Some(id) = self.streams.oldest_stranger() else { return false };
        self.count.strangers_over += 1;
        self.close(id);
        true
    }

    /// Stops accepting for a while, as there is no descriptor: the kernel would report the waiting
    /// connection again and again. Closes a stream, so that there will be one.
    #[cold]
    fn pause_accepting(&mut self) {
        if let Some(id) = self.streams.oldest() {
            self.count.streams_over += 1;
            self.close(id);
        }
        self.listeners.iter().for_each(|listener| self.poll.remove(listener.raw()));
        let until = self.care.tick() + PAUSE;
        self.rx.paused = Some(until);
        self.due(until);
    }

    /// Accepts again after a pause. Returns the end of a pause that lasts.
    pub(super) fn resume_accepting(&mut self, now: Instant) -> Option<Instant> {
        let until = self.rx.paused?;
        if now < until {
            return Some(until);
        }
        self.rx.paused = None;
        for (listener, at) in self.listeners.iter().zip(0..) {
            let _ = self.poll.add(listener.raw(), OTHER | at, false);
        }
        None
    }

    /// Closes the stream that was used the longest ago, if there are as many as there may be.
    fn make_room(&mut self) {
        if self.streams.is_full() {
            if let Some(id) = self.streams.oldest() {
                self.count.streams_over += 1;
                self.close(id);
            }
        }
    }

    /// Checks that an authentic frame may come over this stream. The first names the other end.
    #[inline]
    pub(super) fn admit(&mut self, id: Id, peer: Option<PeerId>, header: &[u8]) -> bool {
        let now = self.care.now;
        let Some(stream) = self.streams.get_mut(id) else { return false };
        stream.used = now;
        stream.trust.confirm();
        if stream.peer.is_some() && stream.peer == peer {
            stream.trust.heard = true;
            return true;
        }
        self.introduce(id, peer, header)
    }

    #[cold]
    fn introduce(&mut self, id: Id, peer: Option<PeerId>, header: &[u8]) -> bool {
        let claimed = match peer {
            Some(peer) => self.peers.get(peer).map(|known| known.endpoint),
            None => hello_source(header),
        };
        let Some(stream) = self.streams.get_mut(id) else { return false };
        let Some(claimed) = claimed.filter(|c| stream.endpoint.is_none_or(|is| is == *c)) else {
            self.secure.reject(Reject::Spoofed);
            return false;
        };
        // Without authentication the address is the only evidence.
        let from = stream.with.ip();
        let listed = |peer| {
            let known: Option<&super::Peer> = self.peers.get(peer);
            known.is_some_and(|known| known.candidates.iter().any(|c| c.addr.ip() == from))
        };
        if self.secure.mode() == Mode::None && !stream.ours && peer.is_some_and(|p| !listed(p)) {
            self.secure.reject(Reject::Spoofed);
            return false;
        }
        (stream.trust.heard, stream.endpoint) = (true, Some(claimed));
        if self.streams.introduce(id) {
            let check = Instant::now() + self.config.idle;
            self.due(check);
        }
        peer.into_iter().for_each(|peer| self.bind(id, peer));
        true
    }

    /// Joins a stream from a peer to the peer's state. If both sides have connected, the connection
    /// of the lower endpoint id is used by both, and the other side ends its own; a connection that
    /// is not made yet is given up for one that is.
    pub(super) fn bind(&mut self, id: Id, peer: PeerId) {
        let me = self.secure.me();
        let (Some(stream), Some(known)) = (self.streams.get_mut(id), self.peers.get_mut(peer))
        else {
            return;
        };
        (stream.peer, stream.endpoint) = (Some(peer), Some(known.endpoint));
        if matches!(stream.stage, Stage::Ending(_)) {
            return;
        }
        let before = known.outlet.filter(|&other| other != id);
        let other = before.and_then(|id| Some((id, self.streams.get(id)?)));
        match other {
            Some((_, other)) if other.ours && other.stage == Stage::Open && me < known.endpoint => {
            }
            // A newer connection of the peer replaces an older one, which the peer has left.
            Some((other, _)) => {
                known.outlet = Some(id);
                self.replace(other, id);
            }
            None => known.outlet = Some(id),
        }
    }

    /// Ends a stream for another. Frames of a connection that is not made yet go over the other.
    fn replace(&mut self, old: Id, new: Id) {
        let Some(stream) = self.streams.get_mut(old) else { return };
        if !matches!(stream.stage, Stage::Connecting(_)) {
            return self.end(old);
        }
        let waiting = std::mem::take(&mut stream.out);
        self.close(old);
        if let Some(stream) = self.streams.get_mut(new) {
            stream.out.push(waiting.rest());
            self.flush(new);
            self.want_room(new);
        }
    }

    /// Ends the streams of a peer; with `mute`, frames that still arrive are thrown away.
    pub(super) fn close_idle(&mut self, peer: PeerId, mute: bool) {
        for id in self.streams.find(|s| s.peer == Some(peer)) {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.peer = None;
                stream.mute = mute;
                stream.direct = None;
            }
            match self.streams.get(id).map(|s| s.stage) {
                Some(Stage::Connecting(_)) => self.close(id),
                _ => self.end(id),
            }
        }
        if let Some(known) = self.peers.get_mut(peer) {
            known.outlet = None;
        }
    }

    /// Ends a stream: what was sent arrives, then the other side sees the end, and ends its own
    /// side.
    pub(super) fn end(&mut self, id: Id) {
        let at = self.end_at();
        let Some(stream) = self.streams.get_mut(id) else { return };
        if matches!(stream.stage, Stage::Ending(_)) {
            return;
        }
        stream.stage = Stage::Ending(at);
        let peer = stream.peer;
        if let Some(known) = peer.and_then(|peer| self.peers.get_mut(peer)) {
            if known.outlet == Some(id) {
                known.outlet = None;
            }
        }
        self.flush(id);
        self.want_room(id);
        if let Some(stream) = self.streams.get(id).filter(|s| !s.has_out()) {
            stream.socket.finish();
        }
    }

    /// Handles the end of a stream that neither side meant to end, or of one that is not made.
    #[cold]
    pub(super) fn broken(&mut self, id: Id, why: &str) {
        let Some(stream) = self.streams.get(id) else { return };
        let (peer, stage, with) = (stream.peer, stream.stage, stream.with);
        self.close(id);
        match (stage, peer) {
            (Stage::Connecting(_), Some(peer)) => self.not_connected(peer, why),
            (Stage::Open, Some(peer)) => {
                self.count.streams_broken += 1;
                log::debug!("tcp: the stream with {with} ended: {why}");
                if let Some(known) = self.peers.get_mut(peer) {
                    known.breaks += 1;
                    known.cause = format!("{with}: {why}");
                }
            }
            (Stage::Stranger(_), _) => self.count.strangers_refused += 1,
            _ => {}
        }
    }

    /// Closes a stream now.
    pub(super) fn close(&mut self, id: Id) {
        let Some(stream) = self.streams.remove(id) else { return };
        self.rx.forget(id);
        if let Some(known) = stream.peer.and_then(|peer| self.peers.get_mut(peer)) {
            if known.outlet == Some(id) {
                known.outlet = None;
            }
        }
    }

    /// Ends all streams as the link ends. Bytes that arrived and were not read are read first:
    /// the kernel would else reset the connection, and with it what was sent last.
    pub(super) fn end_all(&mut self) {
        for id in self.streams.find(|s| matches!(s.stage, Stage::Open | Stage::Ending(_))) {
            self.flush(id);
            let Some(stream) = self.streams.get(id) else { continue };
            stream.socket.finish();
            let mut waste = [0; 16 << 10];
            for _ in 0..64 {
                match stream.socket.recv(&mut waste, &mut []) {
                    Ok(n) if n > 0 => {}
                    _ => break,
                }
            }
        }
    }
}

/// Returns the text of a system's error, without its number.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

/// Returns the sender's endpoint id of a HELLO.
fn hello_source(header: &[u8]) -> Option<EndpointId> {
    if header.get(field::TYPE) != Some(&(PacketType::Hello as u8)) {
        return None;
    }
    let id = header.get(Hello::SRC_EID.range())?.try_into().ok()?;
    Some(EndpointId(u64::from_le_bytes(id)))
}
