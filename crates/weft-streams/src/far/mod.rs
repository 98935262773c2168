//! A connection between two hosts: its ring is filled by packets of a network that loses, doubles
//! and reorders them.
//!
//! Bytes go by packets in *phases*. A phase begins when the sender knows that the receiver is
//! awake, and ends before the sender's next byte by TCP. The sender waits for the acknowledgement
//! of each send before the program goes on, for a bounded time; bytes that are not acknowledged
//! then are sent again by TCP. So no byte is in doubt while a program computes or sleeps.
//!
//! The receiver takes packets only in order, and only while its direction is awake: then it puts
//! their bytes into its ring, and from there on everything is as inside a host. It may have taken
//! bytes whose acknowledgement did not arrive. So after a phase it reads no byte by TCP before it
//! knows the length of the phase as its sender counts it, and drops as many bytes by TCP as it has
//! taken more. The sender states the length in each packet from then on; it begins no other phase
//! before the receiver has said that it knows. The agents hold that statement, too, as packets may
//! be lost and the sender's process may end.
//!
//! No clock, no descriptor: `docs/adr/0033-sockets-that-sleep-in-the-kernel.md`.

pub mod packet;
pub mod seal;
#[cfg(test)]
mod tests;

use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::words::{Words, RING};
use crate::Broken;
use packet::{Data, FarPacket};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Offset of an [`End`] in the segment of a connection, behind the words of both directions.
pub const AT: usize = 2 * crate::words::STRIDE;
/// Bytes of the statement of an [`End`], at its start.
pub const STATEMENT: usize = 32;
/// Most bytes of a phase: longer ones would not be countable.
const PHASE_MAX: u32 = 1 << 30;

/// A phase, and a number of bytes in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos(pub u64);

impl Pos {
    /// Makes one.
    pub fn new(phase: u32, bytes: u32) -> Pos {
        Pos(u64::from(phase) << 32 | u64::from(bytes))
    }

    /// The number of the phase; the first one is 1.
    pub fn phase(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The bytes.
    pub fn bytes(self) -> u32 {
        self.0 as u32
    }
}

#[derive(Debug, Default)]
#[repr(transparent)]
struct Mark(AtomicU64);

impl Mark {
    fn get(&self) -> Pos {
        Pos(self.0.load(Ordering::Acquire))
    }

    fn set(&self, pos: Pos) {
        self.0.store(pos.0, Ordering::Release);
    }
}

/// Reads the statement of an end in the first bytes of its memory at [`AT`].
pub fn statement_of(bytes: &[u8; STATEMENT]) -> (Pos, Pos) {
    let pos = |at: usize| Pos(bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes));
    (pos(0), pos(STATEMENT - 8))
}

/// The state of one end, in memory that the processes of this end share and the peer does not.
///
/// The holder of the sender's lock changes what is sent, the holder of the lock of packets the
/// rest.
#[derive(Debug, Default)]
#[repr(C)]
pub struct End {
    /// The last phase of this end's bytes that has ended, and its length. The agent reads it, and
    /// `acked`.
    stop: Mark,
    /// The present or last phase of this end's bytes, and the bytes given to packets.
    sent: Mark,
    /// Bytes by TCP before it.
    after: AtomicU64,
    /// The bytes of it that the peer has acknowledged.
    acked: Mark,
    /// The last ended phase of which the peer says that it knows.
    heard: AtomicU32,
    /// The peer's number of changes between awake and asleep.
    word: AtomicU32,
    /// The number at which the peer did not answer: it is not awake before the next.
    silent: AtomicU32,
    /// This end's number of changes.
    own_word: AtomicU32,
    /// The present or last phase of the peer's bytes, and the bytes taken of it.
    taken: Mark,
    /// The last ended phase of the peer's bytes that is known, and its length.
    stopped: Mark,
    /// Bytes by TCP to be dropped, as they were taken from packets.
    twice: AtomicU64,
    /// Bytes ever put into the ring.
    tail: AtomicU64,
    /// 1 once the peer has ended a phase since this end said that it is awake.
    is_stale: AtomicU32,
}

/// The bytes that come by TCP after those in the ring, which is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByTcp {
    /// They follow what was read.
    Next,
    /// It is not known yet: the peer states it.
    Unknown,
    /// So many of them were read already.
    Twice(u64),
}

/// The use of a packet that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It needs no answer.
    Nothing,
    /// Its data are not to be taken; an answer says why.
    Answer,
    /// Its data are to be put into the ring from this position on, then [`End::put`] is called.
    Take(u64),
}

impl End {
    /// True if the peer takes bytes from packets, as far as is known.
    pub fn is_peer_awake(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word % 2 == 1 && word != self.silent.load(Ordering::Relaxed)
    }

    /// True if the next bytes may go by packets. The holder of the sender's lock calls it.
    pub fn may_send(&self, sender: &Sender) -> bool {
        let (sent, stop) = (self.sent.get(), self.stop.get());
        let is_under_way = sent.phase() > stop.phase();
        let heard = self.heard.load(Ordering::Acquire);
        let may = match is_under_way {
            // The peer may have ended the phase by itself.
            true => sent.bytes() < PHASE_MAX && self.is_acked() && heard < sent.phase(),
            false => heard == stop.phase() && sent.phase() < u32::MAX,
        };
        may && self.is_peer_awake() && !sender.is_ended() && sender.tcp.calls() == 0
    }

    /// Gives bytes to a packet: after [`End::may_send`], in as many packets as are needed.
    pub fn give(&self, sender: &Sender, len: usize) -> FarPacket {
        let sent = self.sent.get();
        let at = match sent.phase() > self.stop.get().phase() {
            true => sent,
            false => {
                self.after.store(sender.tcp.bytes(), Ordering::Relaxed);
                Pos::new(sent.phase() + 1, 0)
            }
        };
        self.sent.set(Pos(at.0 + len as u64));
        let data = Data { at, after: self.after.load(Ordering::Relaxed), len };
        FarPacket { data, ..self.state() }
    }

    /// Returns the bytes that were given to packets and are not acknowledged. They are the last
    /// ones of the stream so far.
    pub fn unacked(&self) -> usize {
        let (sent, acked) = (self.sent.get(), self.acked.get());
        match sent.phase() == acked.phase() {
            true => sent.bytes().saturating_sub(acked.bytes()) as usize,
            false if sent.phase() > self.stop.get().phase() => sent.bytes() as usize,
            false => 0,
        }
    }

    /// True if the peer has taken all that was given to packets.
    pub fn is_acked(&self) -> bool {
        self.unacked() == 0
    }

    /// The peer did not answer in time: it is taken to be asleep until it says otherwise.
    pub fn is_silent(&self) {
        self.silent.store(self.word.load(Ordering::Acquire), Ordering::Relaxed);
    }

    /// Ends the phase, as bytes are about to go by TCP: first of all so many of the last ones
    /// again. `None`: there is no phase. The statement is due to the peer before those bytes. The
    /// holder of the sender's lock calls it.
    pub fn stop(&self) -> Option<usize> {
        let (sent, acked) = (self.sent.get(), self.acked.get());
        if sent.phase() == self.stop.get().phase() {
            return None;
        }
        let bytes = if acked.phase() == sent.phase() { acked.bytes() } else { 0 };
        self.stop.set(Pos::new(sent.phase(), bytes));
        // Bytes that are acknowledged from now on are sent again all the same.
        Some(sent.bytes().saturating_sub(bytes) as usize)
    }

    /// True if the peer may not know of the end of the last phase that has ended.
    pub fn is_unheard(&self) -> bool {
        self.heard.load(Ordering::Acquire) < self.stop.get().phase()
    }

    /// Returns the last phase that has ended with its length, and what is acknowledged.
    pub fn statement(&self) -> (Pos, Pos) {
        (self.stop.get(), self.acked.get())
    }

    /// Returns a packet without data.
    pub fn state(&self) -> FarPacket {
        FarPacket {
            word: self.own_word.load(Ordering::Relaxed),
            ack: self.taken.get(),
            stop: self.stop.get(),
            heard: self.stopped.get().phase(),
            data: Data::default(),
        }
    }

    /// This end is awake, or asleep. True if a packet is due that says so. The holder of the lock
    /// of packets calls it.
    pub fn tells(&self, is_awake: bool) -> bool {
        let word = self.own_word.load(Ordering::Relaxed);
        let was_awake = word % 2 == 1;
        let is_stale = is_awake && self.is_stale.swap(0, Ordering::Relaxed) != 0;
        let more = match (was_awake == is_awake, is_stale && was_awake) {
            (false, _) => 1,
            (true, true) => 2,
            (true, false) => return false,
        };
        self.own_word.store(word.wrapping_add(more), Ordering::Relaxed);
        true
    }

    /// True if this end has said that it is awake.
    pub fn has_told(&self) -> bool {
        self.own_word.load(Ordering::Relaxed) % 2 == 1
    }

    /// Takes note of a packet of the peer. The holder of the lock of packets calls it.
    ///
    /// # Errors
    /// The peer says what cannot be.
    pub fn hear(
        &self,
        packet: &FarPacket,
        words: &Words,
        receiver: &Receiver,
    ) -> Result<Heard, Broken> {
        if packet.ack > self.sent.get() || packet.heard > self.sent.get().phase() {
            return Err(Broken);
        }
        self.acked.0.fetch_max(packet.ack.0, Ordering::AcqRel);
        self.heard.fetch_max(packet.heard, Ordering::AcqRel);
        self.word.fetch_max(packet.word, Ordering::AcqRel);
        let is_news = self.hear_stop(packet.stop)?;
        if packet.data.len == 0 {
            // Something was lost, or is on its way.
            let is_behind = packet.heard < self.stop.get().phase();
            return Ok(if is_news || is_behind { Heard::Answer } else { Heard::Nothing });
        }
        Ok(match self.place_of(&packet.data, words, receiver)? {
            Some(at) => Heard::Take(at),
            None => Heard::Answer,
        })
    }

    /// Takes note of the end of a phase. True if it is news. The holder of the lock of packets
    /// calls it.
    ///
    /// # Errors
    /// The peer counts bytes that were not taken.
    pub fn hear_stop(&self, stop: Pos) -> Result<bool, Broken> {
        let (taken, known) = (self.taken.get(), self.stopped.get());
        if stop.phase() <= known.phase() {
            return Ok(false);
        }
        let is_this = stop.phase() == taken.phase();
        let is_later = stop.phase() > taken.phase() && known.phase() == taken.phase();
        if is_this && stop.bytes() <= taken.bytes() {
            let twice = u64::from(taken.bytes() - stop.bytes());
            self.twice.store(twice, Ordering::Release);
        } else if is_later && stop.bytes() == 0 {
            self.taken.set(stop);
        } else {
            return Err(Broken);
        }
        self.stopped.set(stop);
        self.is_stale.store(1, Ordering::Relaxed);
        Ok(true)
    }

    /// Takes note of what the peer's agent says that the peer knows: its phases that have ended,
    /// and what it knows to be acknowledged. If that is all that was taken, it will count so much,
    /// and no more of the phase is taken here. The holder of the lock of packets calls it.
    ///
    /// # Errors
    /// As of [`End::hear_stop`].
    pub fn hear_statement(&self, (stop, acked): (Pos, Pos)) -> Result<(), Broken> {
        self.hear_stop(stop)?;
        let taken = self.taken.get();
        if taken.phase() > self.stopped.get().phase() && acked == taken {
            self.hear_stop(taken)?;
        }
        Ok(())
    }

    /// Returns the position in the ring for the data of a packet. `None`: they are not to be taken,
    /// as they came before, others are missing, or this direction sleeps.
    fn place_of(
        &self,
        data: &Data,
        words: &Words,
        receiver: &Receiver,
    ) -> Result<Option<u64>, Broken> {
        let (taken, stopped) = (self.taken.get(), self.stopped.get());
        let (gate, tail) = (words.gate(), self.tail.load(Ordering::Relaxed));
        if gate.tail() != tail {
            return Err(Broken);
        }
        let unread = words.unread(tail)?;
        let is_next = match data.at.phase() == taken.phase() {
            true => taken.phase() > stopped.phase() && data.at == taken,
            false => {
                data.at.phase() > taken.phase()
                    && data.at.bytes() == 0
                    && taken.phase() == stopped.phase()
                    && self.twice.load(Ordering::Acquire) == 0
                    && unread == 0
                    && data.after >= receiver.tcp.bytes()
            }
        };
        let has_room = data.len <= RING - unread
            && u64::from(data.at.bytes()) + data.len as u64 <= u64::from(u32::MAX);
        Ok((is_next && gate.is_awake() && has_room).then_some(tail))
    }

    /// The data of a packet were written to the ring. False if the direction went to sleep
    /// meanwhile: then they are not taken. An answer is due. The holder of the lock of packets
    /// calls it.
    pub fn put(&self, data: &Data, words: &Words) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        let gate = words.gate();
        if !gate.is_awake() || gate.tail() != tail {
            return false;
        }
        if data.at.phase() != self.taken.get().phase() {
            words.set_after(data.after);
        }
        let end = tail + data.len as u64;
        if words.publish(gate, end).is_err() {
            return false;
        }
        self.tail.store(end, Ordering::Relaxed);
        self.taken.set(Pos(data.at.0 + data.len as u64));
        true
    }

    /// Says what the next bytes by TCP are, once the ring is empty.
    pub fn by_tcp(&self) -> ByTcp {
        let (taken, stopped) = (self.taken.get(), self.stopped.get());
        match self.twice.load(Ordering::Acquire) {
            _ if taken.phase() > stopped.phase() => ByTcp::Unknown,
            0 => ByTcp::Next,
            twice => ByTcp::Twice(twice),
        }
    }

    /// Takes the last bytes out of the ring that come by TCP again: somebody else is to read them
    /// there. [`End::by_tcp`] counts those that were read already, if there are more. The holder of
    /// the receiver's lock and of that of packets calls it.
    pub fn leave_to_tcp(&self, words: &Words, receiver: &Receiver) {
        let twice = self.twice.load(Ordering::Acquire).min(receiver.unread(words) as u64);
        let tail = self.tail.load(Ordering::Relaxed) - twice;
        // Marks of the receiver may change meanwhile.
        while words.publish(words.gate(), tail).is_err() {}
        self.tail.store(tail, Ordering::Relaxed);
        self.dropped(twice);
    }

    /// The phase whose end is to be known before bytes by TCP are read.
    pub fn phase(&self) -> u32 {
        self.taken.get().phase()
    }

    /// Bytes by TCP were dropped.
    pub fn dropped(&self, bytes: u64) {
        self.twice.fetch_sub(bytes, Ordering::AcqRel);
    }
}
