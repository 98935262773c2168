//! The first message to a peer, and the first from one.

use super::state::State;
use super::Worker;
use crate::who;
use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft::{Endpoint, PeerId};

/// Active messages that carry introductions of processes.
const INTRODUCTION: u32 = 0x6f_6604;

/// Bounds of the first send's wait for the peer's answer: in total, and for one sleep.
const MEET: Duration = Duration::from_millis(200);
const NAP: Duration = Duration::from_millis(1);

/// Peers that this process has introduced itself to.
#[derive(Clone, Default)]
pub struct Introductions {
    told: Rc<RefCell<HashSet<PeerId>>>,
}

fn own_introduction() -> String {
    let rank = who::RANKS.iter().find_map(|name| std::env::var(name).ok());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let process = std::process::id();
    who::introduction(env!("CARGO_PKG_VERSION"), rank.as_deref(), process, host.trim())
}

impl Introductions {
    pub fn new(endpoint: &Endpoint) -> Introductions {
        let introductions = Introductions::default();
        let ours = introductions.clone();
        endpoint.active().handle(INTRODUCTION, move |endpoint, message| {
            let Some(said) = who::read(&message.data) else { return };
            if said.version != env!("CARGO_PKG_VERSION") {
                log::warn!(
                    "{} uses weft {}, this rank {}: use one version",
                    said.name,
                    said.version,
                    env!("CARGO_PKG_VERSION")
                );
            }
            endpoint.peer(message.source).set_name(said.name);
            ours.tell(endpoint, message.source);
        });
        introductions
    }

    /// Sends the peer this process's introduction, once.
    fn tell(&self, endpoint: &Endpoint, peer: PeerId) {
        if self.told.borrow_mut().insert(peer) {
            let text = own_introduction();
            if let Err(why) = endpoint.active().send(peer, INTRODUCTION, 0, text.as_bytes()) {
                log::debug!("not introduced to {}: {why}", endpoint.peer(peer).describe());
            }
        }
    }
}

impl Worker {
    /// Waits a while for the answer to the first packet to a peer, because nothing reaches the peer
    /// before. A caller may do something else after its first send that waits for the peer: Open
    /// MPI joins spawned processes by a call of PMIx. The wait is bounded: the peer may be busy.
    #[inline]
    pub(super) fn meet(&self, state: &mut State, peer: PeerId) {
        if state.peers.met.get(peer.0 as usize) != Some(&true) {
            self.wait_for_answer(state, peer);
        }
    }

    #[cold]
    fn wait_for_answer(&self, state: &mut State, peer: PeerId) {
        let at = peer.0 as usize;
        if state.peers.met.len() <= at {
            state.peers.met.resize(at + 1, false);
        }
        state.peers.met[at] = true;
        let start = Instant::now();
        self.endpoint.progress();
        while !self.endpoint.peer(peer).is_ready() && start.elapsed() < MEET {
            if self.endpoint.peer(peer).failure().is_some() {
                return;
            }
            self.endpoint.wait(Some(NAP));
        }
        self.introductions.tell(&self.endpoint, peer);
    }
}
