//! The root of a chain: sends packets, and learns which packets all members have.

use super::frame::{HEAD, MISSING};
use super::member::Pause;
use super::node::SLOT_DATA;
use super::sender::Sender;
use super::{ChainError, KernelChains, FRAME};
use crate::sip::SipKey;
use std::io;
use std::time::{Duration, Instant};
use weft_link::ether::{EtherHead, EtherType, Interface, Mac};
use weft_link::BarePacket;

/// Bytes of the ring for answers if the program does not take them.
const BUFFER: usize = 256 << 10;
/// Time for an answer of a member that is asked directly, and number of questions.
const ASK: Duration = Duration::from_millis(20);
const ASKS: u32 = 3;

/// The receiver of a root's answers.
#[derive(Clone, Copy, Debug)]
pub enum Answers<'a> {
    /// The program on the root's interface: it keeps their sum in memory, and no answer reaches the
    /// process.
    Filtered(&'a KernelChains),
    /// The process itself, from its socket. Needs no program on the root's interface.
    Received,
}

/// A chain's root. It sends only to the first member, from any interface on the same wire. The last
/// member acknowledges a packet, by one answer, when the kernels of all members keep it.
pub struct ChainRoot<'a> {
    socket: BarePacket,
    sender: Sender<'a>,
    filtered: bool,
    longest: usize,
    /// The members' interfaces, in the order of the chain.
    members: Vec<Mac>,
    start: Instant,
}

impl<'a> ChainRoot<'a> {
    /// Opens the root of the chain of these members, in their order. All must be members before the
    /// first packet is sent. Needs `CAP_NET_RAW`.
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
            sender: Sender::new((group, key), (kind, interface.mac), filter),
            filtered: filter.is_some(),
            longest: SLOT_DATA.min(interface.mtu as usize + EtherHead::ETHERNET - HEAD),
            members: members.to_vec(),
            start: Instant::now(),
        })
    }

    /// Returns the length of the longest packet, in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Sends a packet to all members, in order after all others; waits while 64 packets are in
    /// flight or a member has no room. The bytes are copied: the call returns before they have
    /// arrived.
    ///
    /// # Errors
    /// [`ChainError::TooLong`] and [`ChainError::Empty`]; [`ChainError::Stuck`] after `timeout`
    /// without progress, with the members that may be the cause: the packet was not sent, and the
    /// call can be repeated.
    pub fn send(&mut self, payload: &[u8], timeout: Duration) -> Result<(), ChainError> {
        if payload.len() > self.longest {
            return Err(ChainError::TooLong(payload.len(), self.longest));
        }
        if payload.is_empty() {
            return Err(ChainError::Empty);
        }
        let mut pause = Pause::new(Duration::MAX);
        while !self.sender.push(self.members[0], payload, self.start.elapsed()) {
            self.go_on(timeout)?;
            pause.is_over();
        }
        self.progress()
    }

    /// Waits until the kernels of all members keep all packets.
    ///
    /// # Errors
    /// Returns the errors of [`send`](Self::send).
    pub fn flush(&mut self, timeout: Duration) -> Result<(), ChainError> {
        let mut pause = Pause::new(Duration::MAX);
        while !self.sender.window.is_empty() {
            self.go_on(timeout)?;
            pause.is_over();
        }
        Ok(())
    }

    /// Handles answers, and sends or retransmits packets. While packets are in flight, a root that
    /// computes calls this at intervals.
    ///
    /// # Errors
    /// The kernel's.
    pub fn progress(&mut self) -> Result<(), ChainError> {
        let now = self.start.elapsed();
        if self.filtered {
            self.sender.on_time(now);
        } else {
            self.on_answer(None);
        }
        while let Some(frame) = self.sender.window.poll(now) {
            match self.socket.send(frame) {
                // A frame that the socket refuses counts as lost on the network.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => break,
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Returns the member that had no room for a packet and has taken none since, counted from 1:
    /// it slows down the chain.
    pub fn slow(&self) -> Option<u16> {
        self.sender.window.slow()
    }

    /// Returns the number of answers so far, if a program takes them.
    pub fn answers(&self) -> Option<u64> {
        self.sender.answers()
    }

    fn go_on(&mut self, timeout: Duration) -> Result<(), ChainError> {
        self.progress()?;
        if self.sender.window.silent(self.start.elapsed()) < timeout {
            return Ok(());
        }
        let mut silent = Vec::new();
        for (member, position) in self.members.clone().into_iter().zip(1..) {
            let mut asks = 0;
            while asks < ASKS && !self.ask(member, position)? {
                asks += 1;
            }
            if asks == ASKS {
                silent.push(position);
            }
        }
        Err(ChainError::Stuck { timeout, slow: self.slow(), silent })
    }

    /// Handles the answers in the ring. True if one is of the member `from` and reports a missing
    /// packet.
    fn on_answer(&mut self, from: Option<u16>) -> bool {
        let (mut frame, mut answered) = ([0; FRAME], false);
        let now = self.start.elapsed();
        while let Some(len) = self.socket.take_into(&mut frame) {
            let answer = self.sender.on_answer(&frame[..len.min(FRAME)], now);
            answered |= answer.is_some_and(|a| a.kind == MISSING && Some(a.hop) == from);
        }
        answered
    }

    /// True if a member answers when it is asked directly.
    fn ask(&mut self, member: Mac, position: u16) -> Result<bool, ChainError> {
        let question = self.sender.question(member, position);
        self.socket.send(&question)?;
        let mut pause = Pause::new(ASK);
        while !pause.is_over() {
            let answered = match self.filtered {
                true => self.sender.has_answered(position),
                false => self.on_answer(Some(position)),
            };
            if answered {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
