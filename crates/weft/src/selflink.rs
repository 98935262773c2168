//! The link of an endpoint to itself.

use std::collections::VecDeque;
use weft_core::{EndpointId, LinkCaps, PeerId};
use weft_link::{Address, Bytes, Frame, Link, LinkError, Movable, PeerInfo, Sink, WaitFd};

/// Most packets kept at a time.
const ROOM: usize = 256;

/// Carries packets from an endpoint to itself.
pub struct SelfLink {
    me: EndpointId,
    queue: VecDeque<(PeerId, Vec<u8>, Vec<u8>)>,
    spare: Vec<(Vec<u8>, Vec<u8>)>,
}

impl SelfLink {
    /// Makes the link of an endpoint to itself.
    pub fn new(me: EndpointId) -> SelfLink {
        SelfLink { me, queue: VecDeque::new(), spare: Vec::new() }
    }
}

/// The link has no descriptors and no packet numbers.
impl Movable for SelfLink {
    fn close(&mut self) {}

    fn open(&mut self, _runs: std::ops::Range<u64>) -> Result<(), LinkError> {
        Ok(())
    }
}

impl Link for SelfLink {
    fn caps(&self) -> LinkCaps {
        LinkCaps::memory("self", 64 << 10)
    }

    fn advertise(&self, _address: &mut Address) {}

    fn connect(&mut self, peer: &PeerInfo) -> Result<LinkCaps, LinkError> {
        if peer.endpoint != self.me {
            return Err(LinkError::Unreachable("another endpoint".to_string()));
        }
        Ok(self.caps())
    }

    fn disconnect(&mut self, _peer: PeerId) {
        self.queue.clear();
    }

    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        let mut sent = 0;
        for f in frames {
            if self.queue.len() == ROOM {
                break;
            }
            let (mut header, mut payload) = self.spare.pop().unwrap_or_default();
            header.extend_from_slice(f.header);
            payload.extend_from_slice(f.payload);
            self.queue.push_back((f.peer, header, payload));
            sent += 1;
        }
        sent
    }

    fn recv(&mut self, budget: usize, sink: &mut dyn Sink) -> usize {
        let mut got = 0;
        while got < budget {
            let Some((peer, mut header, mut payload)) = self.queue.pop_front() else { break };
            sink.frame(Some(peer), &header, Bytes::from_slice(&payload));
            header.clear();
            payload.clear();
            self.spare.push((header, payload));
            got += 1;
        }
        got
    }

    fn wait_fds(&self, _out: &mut Vec<WaitFd>) {}

    fn prepare_wait(&mut self) -> bool {
        self.queue.is_empty()
    }

    fn movable(&mut self) -> Option<&mut dyn Movable> {
        Some(self)
    }
}
