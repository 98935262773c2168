//! Sends: seals packets, joins them to trains, passes them to the kernel.
//!
//! Packets are copied and sealed into one contiguous buffer rather than gathered from two or three
//! pieces each: the kernel copies small pieces slower than this code, and the cipher then reads
//! from the cache (`docs/adr/0005-udp-trains.md`).

use super::sys::{self, SockAddr, Socket};
use super::{pmtu, UdpLink};
use crate::kind::Kind;
use crate::train::{Sealed, Sealer};
use crate::{DataRun, Frame, LinkEvent};
use std::io;
use weft_core::wire::{field, PacketType, Probe};
use weft_core::PeerId;

/// Highest number of datagrams in a train: `UDP_MAX_SEGMENTS` of the kernel.
pub(super) const SEGMENTS_MAX: usize = 64;

/// Returns the number of datagrams of this size in a full train.
pub(super) fn train_len(datagram: usize) -> u32 {
    (pmtu::DATAGRAM_MAX / datagram.max(1)).clamp(1, SEGMENTS_MAX) as u32
}

/// After a path shrank, the kernel is asked again each time this many datagrams or trains are sent.
const RECHECK_AFTER: u32 = 1024;

/// The result of sending a datagram or a train.
enum Sent {
    /// Sent, or lost; retransmission repairs a loss.
    Done,
    /// The kernel's buffer is full.
    Full,
}

/// The kernel's reason to refuse a send call.
enum Refusal {
    Full,
    TooBig,
    NoOffload,
    Other,
}

fn classify(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOBUFS) => Refusal::Full,
        Some(libc::EMSGSIZE) => Refusal::TooBig,
        Some(libc::EIO | libc::EINVAL | libc::ENOPROTOOPT | libc::EOPNOTSUPP) => Refusal::NoOffload,
        _ => Refusal::Other,
    }
}

impl UdpLink {
    pub(super) fn send_frames(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut done = 0;
        while done < frames.len() {
            let frame = &frames[done];
            let is_hello = frame.header.get(field::TYPE) == Some(&(PacketType::Hello as u8));
            if is_hello && self.send_hello(frame) {
                done += 1;
                continue;
            }
            let segment = frame.header.len() + frame.payload.len() + self.secure.trailer_len();
            let most = self.most(frame.peer, segment);
            let Some(train) = most.and_then(|n| self.sealer(n).frames(&frames[done..])) else {
                self.count.send_dropped += 1;
                done += 1;
                continue;
            };
            let packets = train.packets;
            if let Sent::Full = self.send_train(frame.peer, &train) {
                self.count.send_full += 1;
                break;
            }
            self.count.sent += packets as u64;
            done += packets;
        }
        done
    }

    /// Sends a run of DATA packets, one train at a time; returns the number of packets sent.
    pub(super) fn send_data(&mut self, run: &DataRun<'_>) -> usize {
        let DataRun { peer, packets, .. } = *run;
        let segment = run.header.len() + run.each() + self.secure.trailer_len();
        let mut done = 0;
        while done < packets {
            let most = self.most(peer, segment);
            let Some(train) = most.and_then(|n| self.sealer(n).run(run, done)) else {
                self.count.send_dropped += (packets - done) as u64;
                return packets;
            };
            let sealed = train.packets;
            if let Sent::Full = self.send_train(peer, &train) {
                self.count.send_full += 1;
                break;
            }
            self.count.sent += sealed as u64;
            done += sealed;
        }
        done
    }

    /// Returns the highest number of packets of `segment` bytes to a peer in one call.
    fn most(&self, peer: PeerId, segment: usize) -> Option<usize> {
        let fits = self.gso && segment <= self.peer(peer)?.datagram_len;
        Some(if fits { (self.tx.len() / segment).clamp(1, SEGMENTS_MAX) } else { 1 })
    }

    fn sealer(&mut self, most: usize) -> Sealer<'_> {
        let UdpLink { secure, corruptor, tx, .. } = self;
        Sealer { secure, corruptor, out: tx, most }
    }

    #[inline]
    fn send_train(&mut self, peer: PeerId, train: &Sealed) -> Sent {
        let Some(known) = self.peers.get_mut(peer) else { return Sent::Done };
        let (socket, to) = (known.socket, known.to);
        if known.small > 0 {
            self.recheck_mtu(peer);
        }
        self.note_send(peer);
        if train.packets == 1 {
            self.asked = Some(peer);
        }
        if let Some(sent) = self.send_connected(peer, train, &to) {
            return sent;
        }
        if train.packets == 1 {
            return self.send_one(peer, socket, &to, 0..train.len);
        }
        let segment = train.segment as u16;
        match self.sockets[socket].send_train(&self.tx[..train.len], segment, Some(&to)) {
            Ok(()) => {
                self.count.sent_trains += 1;
                Sent::Done
            }
            Err(e) => self.send_apart(peer, train, socket, &to, &e),
        }
    }

    /// Sends over the connected socket, if it leads to `to`. `None`: the other socket has to send.
    #[inline]
    fn send_connected(&mut self, peer: PeerId, train: &Sealed, to: &SockAddr) -> Option<Sent> {
        let (socket, bytes) = (self.connected.to(peer, to)?, &self.tx[..train.len]);
        let result = match train.packets {
            1 => socket.send_one(bytes, None),
            _ => socket.send_train(bytes, train.segment as u16, None),
        };
        match result.as_ref().map_err(classify) {
            Ok(()) => {
                self.count.sent_connected += train.packets as u64;
                self.count.sent_trains += u64::from(train.packets > 1);
                Some(Sent::Done)
            }
            Err(Refusal::Full) => Some(Sent::Full),
            // The other socket will report the reason; this may be the error of an earlier packet.
            Err(_) => {
                self.connected.park();
                None
            }
        }
    }

    /// Sends the packets of a refused train one by one, and learns the reason.
    #[cold]
    fn send_apart(
        &mut self,
        peer: PeerId,
        train: &Sealed,
        socket: usize,
        to: &SockAddr,
        error: &io::Error,
    ) -> Sent {
        let refusal = classify(error);
        match refusal {
            Refusal::Full => return Sent::Full,
            Refusal::Other => {
                self.count.send_errors += 1;
                return Sent::Done;
            }
            Refusal::TooBig | Refusal::NoOffload => {}
        }
        let trouble = |link: &UdpLink| link.count.send_fragmented + link.count.send_errors;
        let before = trouble(self);
        let mut at = 0;
        while at < train.len {
            let end = (at + train.segment).min(train.len);
            // A full buffer in the middle is a loss: the first part is sent and must not be sent
            // twice.
            if let Sent::Full = self.send_one(peer, socket, to, at..end) {
                self.count.send_errors += 1;
            }
            at = end;
        }
        // The kernel refuses a train of packets that are too large for the path with the same error
        // as it uses for missing offload.
        if matches!(refusal, Refusal::NoOffload) && trouble(self) == before {
            self.gso = false;
            self.warn(format!(
                "UDP segmentation offload does not work ({error}): packets are sent one by one"
            ));
        }
        Sent::Done
    }

    #[inline]
    fn send_one(
        &mut self,
        peer: PeerId,
        socket: usize,
        to: &SockAddr,
        at: std::ops::Range<usize>,
    ) -> Sent {
        let Err(error) = self.sockets[socket].send_to(&self.tx[at.clone()], to) else {
            return Sent::Done;
        };
        match classify(&error) {
            Refusal::Full => return Sent::Full,
            // A probe tests if this size passes without fragmentation.
            Refusal::TooBig if Probe::is_question(&self.tx[at.clone()]) => {}
            Refusal::TooBig => {
                self.shrink(peer, at.len());
                if self.send_fragmented(socket, &self.tx[at], to) {
                    self.count.send_fragmented += 1;
                    return Sent::Done;
                }
            }
            _ => {}
        }
        // The network or the firewall refused it: same effect as a loss on the network.
        self.count.send_errors += 1;
        Sent::Done
    }

    /// Sends a packet made before the path shrank, which keeps its size when it is retransmitted:
    /// IP may fragment it.
    fn send_fragmented(&self, socket: usize, bytes: &[u8], to: &SockAddr) -> bool {
        let socket: &Socket = &self.sockets[socket];
        let sent = socket.set_discovery(false).is_ok() && socket.send_to(bytes, to).is_ok();
        let restored = socket.set_discovery(true);
        sent && restored.is_ok()
    }

    /// Asks the kernel for the present size of a path that refused a datagram of `len` bytes.
    fn shrink(&mut self, peer: PeerId, len: usize) {
        let Some(addr) = self.peer_addr(peer) else { return };
        let now = sys::route_to(addr).map(|r| pmtu::datagram_len(addr.ip(), r.mtu) as usize);
        let Ok(now) = now else { return };
        let Some(known) = self.peers.get_mut(peer) else { return };
        if now < known.datagram_len && now < len {
            (known.datagram_len, known.small) = (now, 1);
            let mtu = self.packet_len(now);
            self.events.push(LinkEvent::Mtu(peer, mtu));
        }
    }

    /// Asks the kernel at intervals if a path that shrank is still as small.
    #[cold]
    fn recheck_mtu(&mut self, peer: PeerId) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        known.small += 1;
        if known.small <= RECHECK_AFTER {
            return;
        }
        known.small = 1;
        let addr = known.addr;
        let Ok(route) = sys::route_to(addr) else { return };
        let now = pmtu::datagram_len(addr.ip(), route.mtu) as usize;
        let Some(known) = self.peers.get_mut(peer).filter(|k| now > k.datagram_len) else { return };
        (known.datagram_len, known.small) = (now, 0);
        let mtu = self.packet_len(now);
        self.events.push(LinkEvent::Mtu(peer, mtu));
    }

    /// Sends a HELLO. An answer is sent to the address of the question, so that it proves the path.
    /// A question is sent to each of the peer's addresses while no address is known to work; the
    /// first answer decides. False if the frame is to be sent to the address in use.
    #[cold]
    fn send_hello(&mut self, frame: &Frame<'_>) -> bool {
        let Some(known) = self.peer(frame.peer) else { return false };
        let caller = known.proof.question_path().filter(|_| Kind::of(frame.header) == Kind::Answer);
        if Kind::of(frame.header) == Kind::Question {
            self.keep_question(frame.peer, frame.header, frame.payload);
        }
        let Some(known) = self.peer(frame.peer) else { return false };
        let to = match caller {
            Some(at) => at..at + 1,
            None if known.proof.is_confirmed() => return false,
            None => 0..known.candidates.len(),
        };
        for at in to {
            let candidate = self.peer(frame.peer).and_then(|p| p.candidates.get(at));
            let Some(addr) = candidate.map(|c| c.addr) else { continue };
            let (header, payload) = (frame.header, frame.payload);
            let sealed = self.secure.seal_into(frame.peer, header, payload, &mut self.tx);
            let (Some(len), Some(socket)) = (sealed, self.socket_for(addr.is_ipv6())) else {
                self.count.send_errors += 1;
                continue;
            };
            match self.sockets[socket].send_to(&self.tx[..len], &SockAddr::new(addr)) {
                Ok(()) => self.count.sent += 1,
                Err(_) => self.count.send_errors += 1,
            }
        }
        true
    }
}
