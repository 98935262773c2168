//! Two endpoints in one thread, joined by two queues: the simplest [`Link`], for tests.

use crate::{Address, Bytes, Frame, Link, LinkError, LinkEvent, PeerInfo, Sink, WaitFd};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use weft_core::{LinkCaps, PeerId};

/// The queue of packets to one end.
struct Inbox {
    packets: VecDeque<(Vec<u8>, Vec<u8>)>,
    depth: usize,
    /// The receiver sleeps or is about to sleep: the sender must ring.
    asleep: bool,
    /// The sender is gone.
    closed: bool,
    bell: UnixStream,
}

impl Inbox {
    fn ring(&mut self) {
        if std::mem::take(&mut self.asleep) {
            // At most one byte is in the socket, so the write neither blocks nor is cut short.
            let _ = (&self.bell).write(&[1]);
        }
    }
}

#[derive(Default)]
struct Counters {
    sent: u64,
    received: u64,
    dropped: u64,
    full: u64,
}

/// One end of an in-memory pair.
pub struct LoopLink {
    inbox: Rc<RefCell<Inbox>>,
    outbox: Rc<RefCell<Inbox>>,
    doorbell: UnixStream,
    peer: Option<PeerId>,
    told_gone: bool,
    mtu: u32,
    counters: Counters,
}

impl LoopLink {
    /// Makes two ends that carry packets of up to `mtu` bytes, up to `depth` of them each way.
    pub fn pair(mtu: u32, depth: usize) -> io::Result<(LoopLink, LoopLink)> {
        let (a_inbox, a_bell) = LoopLink::inbox(depth)?;
        let (b_inbox, b_bell) = LoopLink::inbox(depth)?;
        let end = |inbox: &Rc<_>, outbox: &Rc<_>, doorbell| LoopLink {
            inbox: Rc::clone(inbox),
            outbox: Rc::clone(outbox),
            doorbell,
            peer: None,
            told_gone: false,
            mtu,
            counters: Counters::default(),
        };
        Ok((end(&a_inbox, &b_inbox, a_bell), end(&b_inbox, &a_inbox, b_bell)))
    }

    fn inbox(depth: usize) -> io::Result<(Rc<RefCell<Inbox>>, UnixStream)> {
        let (bell, doorbell) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        doorbell.set_nonblocking(true)?;
        let packets = VecDeque::with_capacity(depth);
        let inbox = Inbox { packets, depth, asleep: false, closed: false, bell };
        Ok((Rc::new(RefCell::new(inbox)), doorbell))
    }
}

impl Link for LoopLink {
    fn caps(&self) -> LinkCaps {
        LinkCaps::memory("loop", self.mtu)
    }

    fn advertise(&self, _address: &mut Address) {}

    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        match self.peer {
            Some(other) if other != peer.peer => {
                Err(LinkError::Unreachable("a loop joins two endpoints only".into()))
            }
            _ => {
                self.peer = Some(peer.peer);
                Ok(self.caps())
            }
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        if self.peer == Some(peer) {
            self.peer = None;
        }
    }

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut out = self.outbox.borrow_mut();
        for (i, frame) in frames.iter().enumerate() {
            if self.peer != Some(frame.peer) || self.inbox.borrow().closed {
                self.counters.dropped += 1;
                continue;
            }
            if out.packets.len() == out.depth {
                self.counters.full += 1;
                return i;
            }
            out.packets.push_back((frame.header.to_vec(), frame.payload.to_vec()));
            out.ring();
            self.counters.sent += 1;
        }
        frames.len()
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        for n in 0..budget {
            let next = self.inbox.borrow_mut().packets.pop_front();
            let Some((header, payload)) = next else { return n };
            self.counters.received += 1;
            sink.frame(self.peer, &header, Bytes::from_slice(&payload));
        }
        budget
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        let gone = self.inbox.borrow().closed && !self.told_gone;
        let peer = self.peer.filter(|_| gone)?;
        self.told_gone = true;
        Some(LinkEvent::PeerGone(peer))
    }

    fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.doorbell.as_raw_fd() });
    }

    fn prepare_wait(&mut self) -> bool {
        let mut inbox = self.inbox.borrow_mut();
        let news = inbox.closed && !self.told_gone && self.peer.is_some();
        inbox.asleep = inbox.packets.is_empty() && !news;
        inbox.asleep
    }

    fn finish_wait(&mut self, _ready: bool) {
        self.inbox.borrow_mut().asleep = false;
        let _ = (&self.doorbell).read(&mut [0; 8]);
    }

    fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        each("loop_sent", self.counters.sent);
        each("loop_received", self.counters.received);
        each("loop_dropped", self.counters.dropped);
        each("loop_full", self.counters.full);
    }
}

impl Drop for LoopLink {
    fn drop(&mut self) {
        let mut out = self.outbox.borrow_mut();
        out.closed = true;
        out.ring();
    }
}
