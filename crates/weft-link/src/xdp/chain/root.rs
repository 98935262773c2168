//! The root of a chain: sends, and learns what all have.

use super::frame::{data, Answer, ACK, FULL, HEAD, MISSING};
use super::member::Pause;
use super::node::{self, leave, SLOT_DATA};
use super::window::Window;
use super::{ChainError, KernelChains, FRAME};
use crate::ether::{EtherHead, EtherType, Interface, Mac};
use crate::packet::BarePacket;
use crate::xdp::sip::SipKey;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of the ring for answers, where the program does not take them.
const BUFFER: usize = 256 << 10;
/// How long a member that is asked directly has for an answer, and how often it is asked.
const ASK: Duration = Duration::from_millis(20);
const ASKS: u32 = 3;

/// Who takes a root's answers.
#[derive(Clone, Copy, Debug)]
pub enum Answers<'a> {
    /// The program on the root's interface: it leaves their sum in memory, and no frame reaches the
    /// process.
    Filtered(&'a KernelChains),
    /// The process itself, from its socket. Needs no program on the root's interface.
    Received,
}

/// A chain's root. It sends to the first member alone, from any interface on the same wire. One
/// packet is acknowledged by one answer, of the last member, when the kernels of all members keep
/// it.
pub struct ChainRoot<'a> {
    socket: BarePacket,
    window: Window,
    group: u16,
    key: SipKey,
    interface: Interface,
    kind: EtherType,
    /// The members' interfaces, in the order of the chain.
    members: Vec<Mac>,
    filter: Option<&'a KernelChains>,
    /// Of the program's words, what has been seen: packets missed.
    seen: u64,
    start: Instant,
}

impl<'a> ChainRoot<'a> {
    /// The root of the chain of these members, in their order. All have to be members before
    /// anything is sent. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The kernel's; a group that is in use on this interface; no members.
    pub fn open(
        interface: &Interface,
        kind: EtherType,
        (group, key): (u16, SipKey),
        members: &[Mac],
        answers: Answers<'a>,
    ) -> Result<ChainRoot<'a>, ChainError> {
        if members.is_empty() || members.len() > usize::from(u16::MAX) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let socket = BarePacket::open(interface, kind, BUFFER)?;
        let filter = match answers {
            Answers::Filtered(chains) => Some(chains),
            Answers::Received => None,
        };
        if let Some(chains) = filter {
            chains.enter(group, &key, None)?;
        }
        Ok(ChainRoot {
            socket,
            window: Window::new(Duration::ZERO),
            group,
            key,
            interface: interface.clone(),
            kind,
            members: members.to_vec(),
            filter,
            seen: 0,
            start: Instant::now(),
        })
    }

    /// Longest packet, bytes.
    pub fn longest(&self) -> usize {
        let mtu = self.interface.mtu as usize + EtherHead::ETHERNET - HEAD;
        mtu.min(SLOT_DATA)
    }

    /// Sends a packet to all members, in order behind all others; waits while 64 are under way or
    /// a member has no room. The bytes are copied: the call returns before they have arrived.
    ///
    /// # Errors
    /// [`ChainError::TooLong`] and [`ChainError::Empty`]; [`ChainError::Stuck`] when nothing moves
    /// for `patience`, with who may be why: nothing was sent then, and it can be tried again.
    pub fn send(&mut self, payload: &[u8], patience: Duration) -> Result<(), ChainError> {
        if payload.len() > self.longest() {
            return Err(ChainError::TooLong(payload.len(), self.longest()));
        }
        if payload.is_empty() {
            return Err(ChainError::Empty);
        }
        let mut pause = Pause::new(Duration::MAX);
        let number = loop {
            if let Some(number) = self.window.next() {
                break number;
            }
            self.progress()?;
            self.is_stuck(patience)?;
            pause.is_over();
        };
        let frame = data(self.route(0), (self.group, 1), &self.key, number, payload);
        self.window.push(frame, self.start.elapsed());
        self.progress()
    }

    /// Waits until the kernels of all members keep all packets.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn flush(&mut self, patience: Duration) -> Result<(), ChainError> {
        let mut pause = Pause::new(Duration::MAX);
        while !self.window.is_empty() {
            self.progress()?;
            self.is_stuck(patience)?;
            pause.is_over();
        }
        Ok(())
    }

    /// Looks at the answers, and sends what can be sent or has to be sent again. A root that
    /// computes calls this now and then while anything is under way.
    ///
    /// # Errors
    /// The kernel's.
    pub fn progress(&mut self) -> Result<(), ChainError> {
        let now = self.start.elapsed();
        match self.filter {
            Some(chains) => self.read_words(chains, now),
            None => self.read_frames(now, &mut |_| {}),
        }
        while let Some(frame) = self.window.poll(now) {
            match self.socket.send(frame) {
                // Lost on the way, as it were.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => break,
                sent => sent?,
            }
        }
        Ok(())
    }

    /// The member that had no room for a packet and has taken none since, counted from 1: it slows
    /// down the chain.
    pub fn slow(&self) -> Option<u16> {
        self.window.slow()
    }

    /// Answers so far, where a program takes them.
    pub fn answers(&self) -> Option<u64> {
        self.filter.map(|c| c.nodes.word(u32::from(self.group), node::ANSWERS).load(Relaxed))
    }

    fn read_words(&mut self, chains: &KernelChains, now: Duration) {
        let word = |at: usize| chains.nodes.word(u32::from(self.group), at).load(Relaxed);
        let (number, limit) = (word(node::NEXT), word(node::TAKEN));
        self.window.answer(Answer { kind: ACK, hop: 0, number, limit }, now);
        let missed = word(node::MISSED);
        if missed != self.seen {
            self.seen = missed;
            let (number, hop) = (missed >> 16, missed as u16);
            self.window.answer(Answer { kind: MISSING, hop, number, limit }, now);
        }
        let slow = word(node::SLOW);
        if slow >> 16 >= number && slow != 0 {
            let (number, hop) = (slow >> 16, slow as u16);
            self.window.answer(Answer { kind: FULL, hop, number, limit }, now);
        }
    }

    fn read_frames(&mut self, now: Duration, each: &mut dyn FnMut(Answer)) {
        let mut frame = [0; FRAME];
        let me = (self.kind, self.interface.mac);
        while let Some(len) = self.socket.take_into(&mut frame) {
            let bytes = &frame[..len.min(FRAME)];
            if let Some(answer) = Answer::read(bytes, me, self.group, &self.key) {
                self.window.answer(answer, now);
                each(answer);
            }
        }
    }

    fn route(&self, member: usize) -> (EtherType, Mac, Mac) {
        (self.kind, self.members[member], self.interface.mac)
    }

    fn is_stuck(&mut self, patience: Duration) -> Result<(), ChainError> {
        if self.window.silent(self.start.elapsed()) < patience {
            return Ok(());
        }
        let silent = self.who_is_silent()?;
        Err(ChainError::Stuck { patience, slow: self.window.slow(), silent })
    }

    /// The members that do not answer when they are asked directly.
    fn who_is_silent(&mut self) -> Result<Vec<u16>, ChainError> {
        let mut silent = Vec::new();
        for member in 0..self.members.len() {
            let place = member as u16 + 1;
            let mut asks = 0;
            while asks < ASKS && !self.asks(member)? {
                asks += 1;
            }
            if asks == ASKS {
                silent.push(place);
            }
        }
        Ok(silent)
    }

    /// Whether a member answers: a packet far ahead is always missing another one.
    fn asks(&mut self, member: usize) -> Result<bool, ChainError> {
        let place = member as u16 + 1;
        let asked = data(self.route(member), (self.group, place), &self.key, u64::MAX >> 16, &[0]);
        if let Some(chains) = self.filter {
            chains.nodes.word(u32::from(self.group), node::MISSED).store(0, Relaxed);
        }
        self.socket.send(&asked)?;
        let (start, mut heard) = (Instant::now(), false);
        while !heard && start.elapsed() < ASK {
            match self.filter {
                Some(chains) => {
                    let said = chains.nodes.word(u32::from(self.group), node::MISSED).load(Relaxed);
                    heard = said as u16 == place;
                }
                None => {
                    let now = self.start.elapsed();
                    self.read_frames(now, &mut |answer| {
                        heard |= answer.kind == MISSING && answer.hop == place;
                    });
                }
            }
            std::hint::spin_loop();
        }
        Ok(heard)
    }
}

impl Drop for ChainRoot<'_> {
    fn drop(&mut self) {
        if let Some(chains) = self.filter {
            leave(&chains.nodes, u32::from(self.group));
        }
    }
}
