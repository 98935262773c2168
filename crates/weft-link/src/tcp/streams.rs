//! The streams of a link: their state, and the table of them.

use super::recv::Direct;
use super::sys::Socket;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;
use weft_core::{EndpointId, PeerId};

/// Names a stream. Names of closed streams are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id {
    at: u32,
    generation: u32,
}

/// Tokens with this bit do not name streams.
pub const OTHER: u64 = 1 << 63;

impl Id {
    /// Returns the number under which the kernel reports events of the stream.
    pub fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.at)
    }

    /// Returns the stream of a token.
    pub fn of(token: u64) -> Id {
        Id { at: token as u32, generation: (token >> 32) as u32 }
    }
}

/// The stages of a stream's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The kernel is connecting, until this time.
    Connecting(Instant),
    /// The other side connected, and has to send an authentic frame until this time.
    Stranger(Instant),
    /// In use.
    Open,
    /// Nothing is sent over it any more; it is closed when the other side ends it, or at this time.
    Ending(Instant),
}

/// Bytes that wait for room in the kernel: sealed frames, of which the first may be a part.
#[derive(Default)]
pub struct Waiting {
    bytes: Vec<u8>,
    /// The kernel has taken the bytes before.
    at: usize,
}

impl Waiting {
    /// True if bytes wait.
    #[inline]
    pub fn is_some(&self) -> bool {
        self.at < self.bytes.len()
    }

    /// Returns the bytes that wait.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Adds bytes behind the others.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Notes that the kernel has taken so many bytes. True if none wait any more: then memory of
    /// more than `keep` bytes is given back.
    pub fn taken(&mut self, n: usize, keep: usize) -> bool {
        self.at += n;
        let is_done = !self.is_some();
        if is_done {
            self.bytes.clear();
            self.bytes.shrink_to(keep);
            self.at = 0;
        }
        is_done
    }
}

/// The evidence that the other end is the one that it claims to be, and is there.
#[derive(Default)]
pub struct Trust {
    /// An authentic frame has come.
    pub heard: bool,
    /// Frames in a row that were not authentic.
    pub bad: u8,
    /// Time of the first doubt about the stream since something authentic came over it.
    pub doubted: Option<Instant>,
}

impl Trust {
    /// Notes an authentic frame of the end that is known.
    #[inline]
    pub fn confirm(&mut self) {
        (self.bad, self.doubted) = (0, None);
    }
}

/// One stream.
pub struct Stream {
    pub socket: Socket,
    pub stage: Stage,
    /// The peer at the other end, once an authentic frame named it; of our own streams always.
    pub peer: Option<PeerId>,
    /// The endpoint at the other end, if it is known.
    pub endpoint: Option<EndpointId>,
    /// This side made the connection.
    pub ours: bool,
    /// The address of the other end.
    pub with: SocketAddr,
    pub out: Waiting,
    /// The kernel reports when the socket can be written to.
    pub armed: bool,
    /// The start of a frame that has not arrived as a whole, with its prefix.
    pub partial: Vec<u8>,
    /// The frame whose payload arrives in the memory of a prediction.
    pub direct: Option<Direct>,
    /// Bytes to throw away: the rest of a frame whose memory is gone.
    pub skip: usize,
    pub trust: Trust,
    /// Arriving bytes are thrown away: the peer was forgotten.
    pub mute: bool,
    /// Time of the last traffic, in milliseconds of the link.
    pub used: u64,
}

impl Stream {
    /// Makes the state of a stream.
    pub fn new(socket: Socket, with: SocketAddr, stage: Stage, used: u64) -> Stream {
        Stream {
            socket,
            stage,
            peer: None,
            endpoint: None,
            ours: false,
            with,
            out: Waiting::default(),
            armed: false,
            partial: Vec::new(),
            direct: None,
            skip: 0,
            trust: Trust::default(),
            mute: false,
            used,
        }
    }

    /// True if bytes wait for room in the kernel.
    pub fn has_out(&self) -> bool {
        self.out.is_some()
    }

    /// True if a part of a frame has arrived, or has to be sent.
    fn is_amid(&self) -> bool {
        self.has_out() || self.direct.is_some() || !self.partial.is_empty()
    }

    /// Returns the time by which the stage has to end.
    pub fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Connecting(at) | Stage::Stranger(at) | Stage::Ending(at) => Some(at),
            Stage::Open => None,
        }
    }
}

struct Slot {
    generation: u32,
    stream: Option<Box<Stream>>,
}

/// The streams of a link.
pub struct Streams {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Most streams.
    max: usize,
    /// Streams whose other end has proven nothing yet, oldest first.
    strangers: VecDeque<Id>,
}

impl Streams {
    /// Makes the table, for at most `max` streams.
    pub fn new(max: usize) -> Streams {
        Streams { slots: Vec::new(), free: Vec::new(), max, strangers: VecDeque::new() }
    }

    /// True if there are as many as there may be.
    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Returns the number of strangers.
    pub fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// Returns the oldest stranger.
    pub fn oldest_stranger(&self) -> Option<Id> {
        self.strangers.front().copied()
    }

    /// Opens the stream of a stranger, which has proven its identity. False if it is none.
    pub fn introduce(&mut self, id: Id) -> bool {
        let Some(stream) = self.get_mut(id) else { return false };
        let is_stranger = matches!(stream.stage, Stage::Stranger(_));
        if is_stranger {
            stream.stage = Stage::Open;
            self.strangers.retain(|&stranger| stranger != id);
        }
        is_stranger
    }

    /// Returns the number of streams.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub fn get(&self, id: Id) -> Option<&Stream> {
        let slot = self.slots.get(id.at as usize)?;
        slot.stream.as_deref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub fn get_mut(&mut self, id: Id) -> Option<&mut Stream> {
        let slot = self.slots.get_mut(id.at as usize)?;
        slot.stream.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    /// Adds a stream.
    pub fn add(&mut self, stream: Stream) -> Id {
        let is_stranger = matches!(stream.stage, Stage::Stranger(_));
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.slots.push(Slot { generation: 0, stream: None });
                self.slots.len() as u32 - 1
            }
        };
        let slot = &mut self.slots[at as usize];
        slot.stream = Some(Box::new(stream));
        let id = Id { at, generation: slot.generation };
        if is_stranger {
            self.strangers.push_back(id);
        }
        id
    }

    /// Removes a stream, which closes its socket when it is dropped.
    pub fn remove(&mut self, id: Id) -> Option<Box<Stream>> {
        self.get(id)?;
        self.strangers.retain(|&stranger| stranger != id);
        let slot = &mut self.slots[id.at as usize];
        // The highest bit of a token marks what is no stream.
        slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
        self.free.push(id.at);
        slot.stream.take()
    }

    /// Lists all streams.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &Stream)> + '_ {
        self.slots.iter().enumerate().filter_map(|(at, slot)| {
            let id = Id { at: at as u32, generation: slot.generation };
            Some((id, slot.stream.as_deref()?))
        })
    }

    /// Returns the streams for which `which` is true.
    pub fn find(&self, which: impl Fn(&Stream) -> bool) -> Vec<Id> {
        self.iter().filter(|(_, s)| which(s)).map(|(id, _)| id).collect()
    }

    /// Returns the stream to close when there have to be fewer: one that ends anyway or that is
    /// nobody's yet, else the one that was used the longest ago, and one amid a frame only if all
    /// are.
    pub fn oldest(&self) -> Option<Id> {
        let key = |s: &Stream| (s.stage == Stage::Open, s.is_amid(), s.used);
        let open = self.iter().filter(|(_, s)| !matches!(s.stage, Stage::Connecting(_)));
        open.min_by_key(|(_, s)| key(s)).map(|(id, _)| id)
    }
}
