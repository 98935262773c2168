//! Receives: checks each frame in the kernel's buffer, and delivers it from there.

use super::{XdpLink, MONITOR_ROUNDS};
use crate::ether::{EtherFrame, EtherHead, Mac};
use crate::kind::Kind;
use crate::secure::{Mode, Opened, Reject};
use crate::{Bytes, Sink};

impl XdpLink {
    pub(super) fn recv_frames(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        self.poll_others();
        let mut done = 0;
        for rail in 0..self.rails.len() {
            for connection in 0..self.rails[rail].connections.len() {
                done += self.recv_from(rail, connection, budget - done, sink);
            }
        }
        done
    }

    #[inline]
    fn poll_others(&mut self) {
        if self.rails.iter().any(|rail| rail.connections[0].has_unsent()) {
            self.flush();
        }
        match self.monitor_in.checked_sub(1) {
            Some(left) => self.monitor_in = left,
            None => {
                self.monitor_in = MONITOR_ROUNDS;
                if self.monitor.as_ref().is_some_and(|m| m.changed()) {
                    self.refresh();
                }
            }
        }
    }

    /// Receives up to `budget` packets from one socket.
    #[inline]
    fn recv_from(
        &mut self,
        rail: usize,
        connection: usize,
        budget: usize,
        sink: &mut dyn Sink,
    ) -> usize {
        let mut done = 0;
        // Hostile frames deliver no packet but count too, so a flood of them ends the loop.
        for look in 0..budget {
            let this = &mut self.rails[rail];
            let slot = this.slot;
            if let Some(port) = this.connections[connection].port() {
                port.foresee();
            }
            let Some(bytes) = this.connections[connection].next() else {
                if look == 0 && self.busy_poll {
                    this.connections[connection].busy_poll();
                }
                break;
            };
            let Ok(view) = EtherFrame::new_checked(bytes, Some(self.kind)) else {
                self.secure.reject(Reject::Short);
                continue;
            };
            if view.slot() != slot {
                self.count.received_foreign += 1;
                continue;
            }
            let (from, len) = (view.head().src, view.frame().len());
            let frame = &mut bytes[EtherHead::LEN..EtherHead::LEN + len];
            let Ok(opened) = self.secure.open(frame) else { continue };
            let known = opened.peer.and_then(|p| self.peers.get(p));
            let usual = known.is_none_or(|p| p.is_usual(rail, from));
            if self.secure.mode() == Mode::None {
                let listed = known.is_none_or(|p| p.paths.iter().any(|path| path.to.mac == from));
                if !listed {
                    self.secure.reject(Reject::Spoofed);
                    continue;
                }
            }
            let (header, payload) = frame[..opened.packet_len].split_at(opened.header_len);
            let kind = Kind::of(header);
            sink.frame(None, header, Bytes::from_slice(payload));
            done += 1;
            if !usual || kind != Kind::Other {
                self.on_frame(&opened, rail, from, kind);
            }
        }
        self.count.received += done as u64;
        self.rails[rail].connections[connection].end_burst();
        done
    }

    #[cold]
    fn on_frame(&mut self, opened: &Opened, rail: usize, from: Mac, kind: Kind) {
        if let Some(peer) = opened.peer {
            self.came_from(peer, rail, from, kind);
        }
    }
}
