//! A member of a chain: takes the packets that the kernel kept for it.

use super::frame::check;
use super::node::{self, leave, Place, BUSY, RING, SLOT_DATA, SLOT_HEAD};
use super::{ChainError, KernelChains};
use crate::sip::SipKey;
use crate::sys::Bell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};
use weft_link::{Next, Turn};

/// Polls between two checks of the clock.
const POLLS: u32 = 64;
/// Time for which a member polls before it sleeps.
const POLL_FOR: Duration = Duration::from_micros(50);
/// Length of a sleep during a wait if other processes compute on this core.
const NAP: Duration = Duration::from_micros(50);

/// A member of a chain on an interface. The kernel keeps, forwards and acknowledges up to 64
/// packets for it while its process does other work; then the root waits until the process takes
/// some.
#[derive(Debug)]
pub struct ChainMember<'a> {
    chains: &'a KernelChains,
    group: u32,
    key: SipKey,
    bell: Bell,
    /// Number of packets taken.
    taken: u64,
    sleeps: u64,
}

impl<'a> ChainMember<'a> {
    pub(super) fn new(
        chains: &'a KernelChains,
        group: u16,
        key: SipKey,
        place: Place,
    ) -> Result<ChainMember<'a>, ChainError> {
        let group = chains.enter(group, &key, Some(place))?;
        let bell =
            chains.bells.hang(group, super::NAME).inspect_err(|_| leave(&chains.nodes, group))?;
        Ok(ChainMember { chains, group, key, bell, taken: 0, sleeps: 0 })
    }

    /// Copies the next packet, in order; returns its length, or `None` if there is no packet. Bytes
    /// beyond `into` are dropped.
    ///
    /// # Errors
    /// [`ChainError::Altered`]: the packet differs from the one that the root sent. No later
    /// packets are returned either.
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChainError> {
        let next = self.chains.nodes.word(self.group, node::NEXT).load(Acquire) & !(1 << BUSY);
        if next <= self.taken {
            return Ok(None);
        }
        let slot = self.group * RING as u32 + (self.taken % RING) as u32;
        let len = self.chains.slots.word(slot, 0).load(Relaxed) as usize;
        let said = self.chains.slots.word(slot, 1).load(Relaxed);
        let mut payload = [0; SLOT_DATA];
        let payload = &mut payload[..len.min(SLOT_DATA)];
        self.chains.slots.copy(slot, SLOT_HEAD / 8, payload);
        if check(&self.key, self.taken, payload) != said {
            return Err(ChainError::Altered(self.taken));
        }
        let fits = payload.len().min(into.len());
        into[..fits].copy_from_slice(&payload[..fits]);
        self.taken += 1;
        self.chains.nodes.word(self.group, node::TAKEN).store(self.taken, Release);
        Ok(Some(payload.len()))
    }

    /// Waits for the next packet and copies it: polls for 50 us, then sleeps until the program
    /// wakes it.
    ///
    /// # Errors
    /// No packet arrived within `timeout`; else as [`receive`](Self::receive).
    pub fn wait(&mut self, into: &mut [u8], timeout: Duration) -> Result<usize, ChainError> {
        let start = Instant::now();
        let mut pause = Pause::new(timeout.min(POLL_FOR));
        loop {
            if let Some(len) = self.receive(into)? {
                return Ok(len);
            }
            if pause.is_over() {
                let left = timeout.saturating_sub(start.elapsed());
                if left.is_zero() {
                    return Err(ChainError::Nothing(timeout));
                }
                self.sleep(left)?;
            }
        }
    }

    /// Sleeps until a packet arrives, unless there is one.
    fn sleep(&mut self, timeout: Duration) -> Result<(), ChainError> {
        let word = |at| self.chains.nodes.word(self.group, at);
        // Swapped, so that either the program sees the flag and wakes, or its packet is seen here.
        word(node::SLEEPS).swap(1, SeqCst);
        let next = word(node::NEXT).load(SeqCst) & !(1 << BUSY);
        if next <= self.taken {
            self.sleeps += 1;
            self.bell.sleep(timeout)?;
        }
        word(node::SLEEPS).store(0, Relaxed);
        Ok(())
    }

    /// Returns the number of sleeps in waits.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Returns the numbers of packets that arrived again, for which there was no room, that arrived
    /// before a missing packet, and that were forged.
    pub fn counts(&self) -> [u64; 4] {
        [node::REPEATED, node::NO_ROOM, node::AHEAD, node::FORGED]
            .map(|word| self.chains.nodes.word(self.group, word).load(Relaxed))
    }
}

impl Drop for ChainMember<'_> {
    fn drop(&mut self) {
        leave(&self.chains.nodes, self.group);
    }
}

/// Polls with a time limit.
pub(super) struct Pause {
    start: Instant,
    timeout: Duration,
    polls: u32,
    turn: Turn,
}

impl Pause {
    pub fn new(timeout: Duration) -> Pause {
        Pause { start: Instant::now(), timeout, polls: 0, turn: Turn::default() }
    }

    /// True if the time is over. Otherwise, the caller polls again.
    pub fn is_over(&mut self) -> bool {
        self.polls += 1;
        std::hint::spin_loop();
        if !self.polls.is_multiple_of(POLLS) {
            return false;
        }
        let clock = || weft_core::Instant(self.start.elapsed().as_nanos() as u64);
        if self.turn.hand_over(clock(), clock) == Next::Sleep {
            std::thread::sleep(NAP);
        }
        self.start.elapsed() >= self.timeout
    }
}
