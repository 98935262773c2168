//! Counters in memory that ranks of a host share: a peer that has mapped a counter's word adds to
//! it itself, while the owner computes, sleeps or has no processor.
//!
//! A counter begins as a word of its owner. The first addition of a peer goes by message, and with
//! it the question for the word's place. If the peer can map memory of the owner, the owner moves
//! the counter to a memory file of its own, shares that file, and answers with the address. From
//! then on all that add to the word, by message or not, do it by atomic operations of the
//! processor.

use super::send::post;
use super::wire::{name, Invalidate, Kind, Place};
use super::{sys, Counter, Packets, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering::SeqCst;
use weft::choices::Server;
use weft::port::{AtomicRequest, Port};
use weft::PeerId;
use weft_link::shm::Block;

/// Bytes of a counter's memory file.
const LEN: usize = 4096;
/// The place in it of the counter, and of the word that is not 0 once the counter has ended.
const COUNT: usize = 0;
const ENDED: usize = 64;
/// Most counters of an endpoint in memory files, each for one descriptor; further ones are reached
/// by messages.
const SHARED_MAX: usize = 64;
/// Most places of peers' counters that are remembered.
const KNOWN_MAX: usize = 1024;

/// A counter made here, in memory that peers map.
struct Word {
    memory: Block,
    /// Peers that have the memory.
    shared: BTreeSet<PeerId>,
}

/// The state of both sides.
#[derive(Default)]
pub(super) struct Words {
    /// Keys of counters made here; bounded by the engine's keys.
    here: BTreeSet<u64>,
    /// Counters made here that have been moved, by key.
    own: BTreeMap<u64, Word>,
    /// Addresses of peers' words; `None`: the peer has been asked, or has no such word.
    known: HashMap<(PeerId, u64), Option<u64>>,
}

impl Words {
    /// Notes a counter that is made here.
    pub fn begin(&mut self, key: u64) {
        self.here.insert(key);
    }

    /// Notes the end of a counter made here.
    pub fn end(&mut self, key: u64) {
        self.here.remove(&key);
    }

    /// True if the counter was made here.
    pub fn is_here(&self, key: u64) -> bool {
        self.here.contains(&key)
    }

    /// Forgets a failed peer.
    pub fn forget(&mut self, peer: PeerId) {
        self.known.retain(|&(at, _), _| at != peer);
        for word in self.own.values_mut() {
            word.shared.remove(&peer);
        }
    }

    /// Forgets the word of a counter that has ended.
    pub fn forget_word(&mut self, at: PeerId, key: u64) {
        self.known.remove(&(at, key));
    }

    /// The value of a counter made here, if it has been moved.
    pub fn value(&self, key: u64) -> Option<u64> {
        self.own.get(&key).map(|word| word.memory.word(COUNT).load(SeqCst))
    }

    /// Adds to a counter made here, if it has been moved.
    pub fn add(&self, key: u64, n: u64) -> Option<u64> {
        self.own.get(&key).map(|word| word.memory.word(COUNT).fetch_add(n, SeqCst))
    }
}

impl State {
    /// Does a peer's operation on a counter that has been moved. False if it has not.
    pub(super) fn do_on_word(&mut self, port: &Port, request: &AtomicRequest) -> bool {
        let Some(word) = self.words.own.get(&request.key) else { return false };
        let new = |old| Some(request.code.apply(old, request.operand, request.compare));
        let (Ok(old) | Err(old)) = word.memory.word(COUNT).fetch_update(SeqCst, SeqCst, new);
        port.atomic_done(request, Some(old));
        true
    }

    /// Handles WHERE: a peer asks for the place of a counter.
    pub(super) fn on_where(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (Invalidate { key }, _) = Invalidate::parse(bytes)?;
        let addr = self.place_for(port, from, key).unwrap_or(0);
        post(port, from, name(Kind::Place, 0, 0), &Place { key, addr }.encode()).ok()
    }

    /// Shares a counter's memory with a peer, and returns the address of the word.
    fn place_for(&mut self, port: &Port, peer: PeerId, key: u64) -> Option<u64> {
        let is_here = self.words.is_here(key) && port.endpoint().peer(peer).is_direct();
        if !is_here || !self.words.own.contains_key(&key) && !self.move_counter(port, key) {
            return None;
        }
        let Word { memory, shared } = self.words.own.get_mut(&key)?;
        if !shared.contains(&peer) {
            port.share(peer, key, memory).then(|| shared.insert(peer))?;
        }
        Some(memory.start().addr() as u64 + COUNT as u64)
    }

    /// Moves a counter to a memory file. False if it is not served by this process, or there are
    /// too many.
    fn move_counter(&mut self, port: &Port, key: u64) -> bool {
        if port.serves(key) || self.words.own.len() >= SHARED_MAX {
            return false;
        }
        let memory = match Block::new(LEN) {
            Ok(memory) => memory,
            Err(why) => {
                log::debug!("a counter is not for mapping: {why}");
                return false;
            }
        };
        let value = port
            .endpoint()
            .regions()
            .with(key, |word| word.try_into().ok().map(u64::from_le_bytes));
        let Some(value) = value.flatten() else { return false };
        memory.word(COUNT).store(value, SeqCst);
        self.words.own.insert(key, Word { memory, shared: BTreeSet::new() });
        port.serve(key);
        true
    }

    /// Handles PLACE: a peer tells the place of its counter; 0 if it does not share it.
    pub(super) fn on_place(&mut self, port: &Port, from: PeerId, bytes: &[u8]) -> Option<()> {
        let (Place { key, addr }, _) = Place::parse(bytes)?;
        let known = self.words.known.get_mut(&(from, key))?;
        // The memory itself came before this packet.
        port.take_shared(from);
        *known = (addr > 0).then_some(addr);
        addr.checked_add(LEN as u64).map(drop)
    }
}

impl Packets {
    /// Adds to a peer's counter in memory that is mapped here. `None`: by message.
    pub(super) fn add_to_word(&self, at: PeerId, key: u64, n: u64) -> Option<u64> {
        let known = self.with(|state| state.words.known.get(&(at, key)).copied());
        let Some(place) = known else {
            self.ask_where(at, key);
            return None;
        };
        let addr = place.filter(|_| self.endpoint().peer(at).failure().is_none())?;
        // An addition that is done is never followed by a message, which would add once more: so
        // the mark of an ended counter is read before.
        let ended = sys::add(&self.port, at, addr.wrapping_add((ENDED - COUNT) as u64), 0);
        let before = match ended {
            Some(0) => sys::add(&self.port, at, addr, n),
            _ => None,
        };
        if before.is_some() {
            self.with(|state| state.stats.memory_adds += 1);
        } else {
            // The owner refuses, or the memory is not mapped any more.
            self.port.forget_shared(at, key);
            self.with(|state| state.words.known.insert((at, key), None));
        }
        before
    }

    /// Asks a peer for the place of its counter, if this process can map the peer's memory.
    fn ask_where(&self, at: PeerId, key: u64) {
        let endpoint = self.endpoint();
        let by_memory =
            endpoint.peer(at).fetch_add() == Server::Host && endpoint.peer(at).is_direct();
        if !by_memory || self.counts(Counter { key }) {
            return;
        }
        let question = Invalidate { key }.encode();
        if self.try_post(at, name(Kind::Where, 0, 0), &question).is_ok() {
            self.with(|state| {
                if state.words.known.len() >= KNOWN_MAX {
                    state.words.known.clear();
                }
                state.words.known.insert((at, key), None);
            });
        }
    }

    /// Ends a counter that has been moved. False if it has not.
    pub(super) fn end_word(&self, key: u64) -> bool {
        let Some(word) = self.with(|state| state.words.own.remove(&key)) else { return false };
        // Peers that have mapped the memory keep it as long as they like, and find this.
        word.memory.word(ENDED).store(1, SeqCst);
        self.port.end_serve(key);
        for peer in word.shared {
            // A peer that does not hear of it has the mapping until it adds again.
            _ = post(&self.port, peer, name(Kind::Invalidate, 0, 0), &Invalidate { key }.encode());
        }
        true
    }
}
