//! Frame authentication and encryption, for every link that crosses a network and for the
//! simulator.
//!
//! A frame on such a link is `packet || trailer`. The trailer is a 64-bit packet number and an
//! 8-byte tag. The nonce of a frame is the sender's endpoint id and the packet number; no nonce is
//! ever used twice (see [`Secure`]).
//!
//! - [`Mode::Auth`]: the payload is sent unchanged. The tag is a Wegman-Carter code of the
//!   receiver's endpoint id, header and payload: POLYVAL of those xor AES-128 of the nonce.
//! - [`Mode::Encrypt`]: AEGIS-128X2 of the payload, with the receiver's endpoint id and the header
//!   as associated data.
//!
//! Keys are derived from the job key by HKDF-SHA-256, one for each purpose.
//! `docs/adr/0002-frame-authentication.md` has the reasons.
//!
//! Opening a frame allocates nothing and sends nothing, and changes no state before the tag has
//! been verified. Refused frames are counted by cause.

mod key;
mod peers;
mod sys;
mod window;

pub use key::JobKey;
pub use key::Purpose;
pub use peers::{Lane, RUNS_MAX};
pub use sys::{Backend, Mac, Message};
pub use window::Window;

pub use crate::mode::Mode;
use crate::{Address, LinkError};
use peers::Peers;
use std::fmt;
use sys::{Ad, Aegis};
use weft_core::wire::{self, field, Hello, PacketType};
use weft_core::{EndpointId, PeerId};

/// Bytes of the trailer: packet number (u64, little-endian) and tag.
pub const TRAILER: usize = 16;
const TAG: usize = 8;

/// Security settings of a link.
#[derive(Clone, Debug)]
pub struct Security {
    /// The protection of frames.
    pub mode: Mode,
    /// The job's secret.
    pub job_key: JobKey,
    /// This endpoint.
    pub me: EndpointId,
}

/// The reason why a frame was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reject {
    /// Too short for the header of its type and the trailer.
    Short,
    /// Not a packet of this protocol: unknown version or type.
    Malformed,
    /// No peer has this session number (any more).
    StaleSession,
    /// The packet number was accepted before, is too old for the window, or belongs to another
    /// lane.
    Replayed,
    /// The tag is wrong: the frame was altered, was sent to another endpoint, or has another key.
    AuthFailed,
    /// The frame came from another socket address than the peer's ([`Mode::None`] only).
    Spoofed,
}

impl Reject {
    /// All causes, in the order of their counters.
    pub const ALL: [Reject; 6] = [
        Reject::Short,
        Reject::Malformed,
        Reject::StaleSession,
        Reject::Replayed,
        Reject::AuthFailed,
        Reject::Spoofed,
    ];

    /// Returns the name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Reject::Short => "short",
            Reject::Malformed => "malformed",
            Reject::StaleSession => "stale_session",
            Reject::Replayed => "replayed",
            Reject::AuthFailed => "auth_failed",
            Reject::Spoofed => "spoofed",
        }
    }
}

/// The error of a link that has used all packet numbers under its key. A second use of a number
/// would reveal the secret that authenticates frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumbersUsedUp;

impl fmt::Display for NumbersUsedUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "packet numbers are used up, because one key had too many connections: restart the \
             program",
        )
    }
}

impl std::error::Error for NumbersUsedUp {}

/// Header length of the packet that `prefetch_keys` seals and opens.
const REHEARSED: usize = PacketType::Eager.header_len();

/// An accepted packet: the lengths of its parts in the frame, and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The peer; `None` for a first HELLO, whose sender is not a peer yet.
    pub peer: Option<PeerId>,
    /// Length of the header.
    pub header_len: usize,
    /// Length of header and payload.
    pub packet_len: usize,
}

/// Seals and opens the frames of one link.
///
/// Packet numbers: the top 8 bits name the lane. Each link of an endpoint has its own lane and
/// refuses numbers of others, so links need not share a counter. The other bits are given to peers
/// in runs, so that no number is used twice and each peer still receives consecutive numbers.
pub struct Secure {
    mode: Mode,
    me: EndpointId,
    backend: Backend,
    mac: Mac,
    aegis: Aegis,
    peers: Peers,
    rejected: [u64; Reject::ALL.len()],
}

impl Secure {
    /// Checks that a peer protects its frames as this endpoint does.
    ///
    /// # Errors
    /// The peer protects its frames otherwise; the text tells people both ways.
    pub(crate) fn agree(&self, peer: &Address) -> Result<(), LinkError> {
        match peer.security {
            Some(theirs) if theirs != self.mode => Err(LinkError::Unreachable(format!(
                "it has WEFT_SECURITY={theirs}, this endpoint {}: both need the same",
                self.mode
            ))),
            _ => Ok(()),
        }
    }

    /// Makes the state of one link.
    pub fn new(security: &Security, lane: Lane) -> Secure {
        Secure::with_backend(security, lane, Backend::detect())
    }

    /// Makes the state of one link, with fewer runs of packet numbers than the [`RUNS_MAX`] of
    /// [`new`](Self::new): each added peer takes one run.
    pub fn with_runs(security: &Security, lane: Lane, runs: u64) -> Secure {
        Secure { peers: Peers::new(lane, runs), ..Secure::new(security, lane) }
    }

    /// Makes the state of one link with a chosen cipher implementation, for tests and measurement.
    /// The processor must support it.
    pub fn with_backend(security: &Security, lane: Lane, backend: Backend) -> Secure {
        let key = |purpose| security.job_key.derive(purpose, &[]);
        Secure {
            mode: security.mode,
            me: security.me,
            backend,
            mac: Mac::new(key(Purpose::AuthHash), key(Purpose::AuthPad), backend),
            aegis: Aegis::new(key(Purpose::Encrypt), backend),
            peers: Peers::new(lane, RUNS_MAX),
            rejected: [0; Reject::ALL.len()],
        }
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns this endpoint.
    pub fn me(&self) -> EndpointId {
        self.me
    }

    /// Returns the cipher implementation.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the number of bytes that sealing adds to a packet.
    pub fn trailer_len(&self) -> usize {
        match self.mode {
            Mode::None => 0,
            _ => TRAILER,
        }
    }

    /// Adds a peer: the session number that it uses towards us, and its identity. An existing peer
    /// of this number is replaced; its replay window is kept if the identity is the same.
    ///
    /// # Errors
    /// No packet numbers are left for it; nothing has changed.
    pub fn add_peer(
        &mut self,
        peer: PeerId,
        session: u32,
        endpoint: EndpointId,
    ) -> Result<(), NumbersUsedUp> {
        self.peers.add(peer, session, endpoint)
    }

    /// Forgets all peers, but not which numbers they used, and gives up all packet numbers: nothing
    /// is sealed until [`grant`](Self::grant). An endpoint that moves is copied with its memory,
    /// and a copy must not repeat a number.
    pub fn withdraw(&mut self) {
        self.peers.withdraw();
    }

    /// Takes packet numbers from these runs alone, for peers that are added from now on.
    ///
    /// # Errors
    /// The runs are not above all that were taken before; nothing has changed.
    pub fn grant(&mut self, runs: std::ops::Range<u64>) -> Result<(), NumbersUsedUp> {
        self.peers.renew_all(runs).then_some(()).ok_or(NumbersUsedUp)
    }

    /// Forgets a peer; packets with its session number are stale from now on.
    pub fn remove_peer(&mut self, peer: PeerId) {
        self.peers.remove(peer);
    }

    /// Returns the trailer for a packet to `peer`. `None` if the peer is unknown, or if this
    /// process is a copy of the process that opened the link ([`Origin`](crate::copied::Origin)).
    /// Every call takes a new packet number. Only for [`Mode::Auth`].
    #[inline]
    pub fn seal(&mut self, peer: PeerId, header: &[u8], payload: &[u8]) -> Option<[u8; TRAILER]> {
        debug_assert_eq!(self.mode, Mode::Auth);
        let (dst, pn) = self.peers.next_number(peer)?;
        let tag = self.mac.tag([self.me.0, pn], &Message { number: dst.0, header, payload });
        Some(trailer(pn, tag))
    }

    /// Writes the frame for a packet to `peer` into `out`, in any mode; returns its length. `None`
    /// if the peer is unknown, if `out` is too small, or if this process is a copy, as in
    /// [`seal`](Self::seal).
    pub fn seal_into(
        &mut self,
        peer: PeerId,
        header: &[u8],
        payload: &[u8],
        out: &mut [u8],
    ) -> Option<usize> {
        let packet_len = header.len() + payload.len();
        let out = out.get_mut(..packet_len + self.trailer_len())?;
        out[..header.len()].copy_from_slice(header);
        let (body, end) = out[header.len()..].split_at_mut(payload.len());
        match self.mode {
            Mode::None => body.copy_from_slice(payload),
            Mode::Auth => {
                let (dst, pn) = self.peers.next_number(peer)?;
                let message = Message { number: dst.0, header, payload };
                let tag = self.mac.tag_copy([self.me.0, pn], &message, body);
                end.copy_from_slice(&trailer(pn, tag));
            }
            Mode::Encrypt => {
                let (dst, pn) = self.peers.next_number(peer)?;
                let ad = Ad::new(dst.0, header);
                let tag = self.aegis.encrypt(&nonce(self.me, pn), &ad, payload, body);
                end.copy_from_slice(&trailer(pn, cut(tag)));
            }
        }
        Some(packet_len + self.trailer_len())
    }

    /// Checks a received frame, decrypts it in place, and marks its packet number as used. A
    /// refused frame is counted; `frame` may then hold zeros in place of the payload.
    pub fn open(&mut self, frame: &mut [u8]) -> Result<Opened, Reject> {
        let result = self.try_open(frame);
        self.count(result)
    }

    /// Checks a received frame as [`open`](Self::open) does, and copies the payload into `place`,
    /// which has the payload's length, in the same pass. If the frame is refused, `place` may hold
    /// the refused payload. `header_len` is the header length of the packet's type. Only for
    /// [`Mode::Auth`].
    pub fn open_into(
        &mut self,
        frame: &mut [u8],
        header_len: usize,
        place: &mut [u8],
    ) -> Result<Opened, Reject> {
        debug_assert_eq!(self.mode, Mode::Auth);
        let (packet, end) = frame.split_last_chunk_mut().ok_or(Reject::Short)?;
        let (header, payload) = packet.split_at_mut_checked(header_len).ok_or(Reject::Short)?;
        let result = self.try_open_parts(header, payload, end, Some(place));
        self.count(result)
    }

    /// Checks a received frame as [`open`](Self::open) does; its header, payload and trailer lie
    /// apart. Only for [`Mode::Auth`].
    pub fn open_parts(
        &mut self,
        header: &[u8],
        payload: &mut [u8],
        trailer: &[u8; TRAILER],
    ) -> Result<Opened, Reject> {
        debug_assert_eq!(self.mode, Mode::Auth);
        let result = self.try_open_parts(header, payload, trailer, None);
        self.count(result)
    }

    /// Opens and seals a short packet that is neither received nor sent. This loads code and tables
    /// into the nearest cache before the answer of `peer` comes; the system call before has
    /// displaced them. While a program waits for the answer, this costs nothing.
    #[inline(never)]
    pub fn prefetch_keys(&mut self, peer: PeerId) {
        if self.mode != Mode::Auth {
            return;
        }
        let Some((session, pn)) = self.peers.expected(peer) else { return };
        let mut header = [0; REHEARSED];
        header[field::VERSION] = wire::VERSION;
        header[field::TYPE] = PacketType::Eager as u8;
        header[field::SESSION].copy_from_slice(&session.to_le_bytes());
        // Accepted with the probability of any forgery.
        let _ = self.try_open_parts(&header, &mut [0; 16], &trailer(pn, [0; 8]), None);
        let message = Message { number: 0, header: &header, payload: &[0; 16] };
        std::hint::black_box(self.mac.tag_copy([0, 0], &message, &mut [0; 16]));
    }

    /// Counts a refusal that the link itself decided.
    pub fn reject(&mut self, cause: Reject) {
        self.rejected[cause as usize] += 1;
    }

    /// Lists the number of refused frames by cause.
    pub fn counters(&self, each: &mut dyn FnMut(&'static str, u64)) {
        for cause in Reject::ALL {
            each(cause.name(), self.rejected[cause as usize]);
        }
    }

    #[inline]
    fn count(&mut self, result: Result<Opened, Reject>) -> Result<Opened, Reject> {
        if let Err(cause) = result {
            self.reject(cause);
        }
        result
    }

    #[inline]
    fn try_open(&mut self, frame: &mut [u8]) -> Result<Opened, Reject> {
        let packet_len = frame.len().checked_sub(self.trailer_len()).ok_or(Reject::Short)?;
        let (packet, end) = frame.split_at_mut(packet_len);
        let header_len = header_len(packet)?;
        let (header, payload) = packet.split_at_mut(header_len);
        let Ok(end) = <&[u8; TRAILER]>::try_from(&*end) else {
            let peer = self.peers.sender(header)?.1;
            return Ok(Opened { peer, header_len, packet_len });
        };
        if self.mode == Mode::Auth {
            return self.try_open_parts(header, payload, end, None);
        }
        let (source, peer, pn) = self.admit(header, end)?;
        let tag = self.aegis.decrypt(&nonce(source, pn), &Ad::new(self.me.0, header), payload);
        if !equal(cut(tag), end) {
            payload.fill(0);
            return Err(Reject::AuthFailed);
        }
        self.peers.accept(source, peer, pn);
        Ok(Opened { peer, header_len, packet_len })
    }

    #[inline]
    fn try_open_parts(
        &mut self,
        header: &[u8],
        payload: &mut [u8],
        end: &[u8; TRAILER],
        place: Option<&mut [u8]>,
    ) -> Result<Opened, Reject> {
        if header_len(header)? != header.len() {
            return Err(Reject::Malformed);
        }
        let (source, peer, pn) = self.admit(header, end)?;
        let nonce = [source.0, pn];
        let tag = self.mac.tag_received(nonce, self.me.0, (header, &mut *payload), place);
        if !equal(tag, end) {
            return Err(Reject::AuthFailed);
        }
        self.peers.accept(source, peer, pn);
        Ok(Opened { peer, header_len: header.len(), packet_len: header.len() + payload.len() })
    }

    /// Returns the claimed sender and the packet number, if the number is fresh. Changes nothing.
    #[inline]
    fn admit(
        &self,
        header: &[u8],
        end: &[u8; TRAILER],
    ) -> Result<(EndpointId, Option<PeerId>, u64), Reject> {
        let (source, peer) = self.peers.sender(header)?;
        let pn = u64::from_le_bytes(*end.first_chunk().expect("trailer is 16 bytes"));
        if !self.peers.is_fresh(source, peer, pn) {
            return Err(Reject::Replayed);
        }
        Ok((source, peer, pn))
    }
}

/// Returns the header length of a packet from its first bytes; all bytes of the header are present.
#[inline]
fn header_len(packet: &[u8]) -> Result<usize, Reject> {
    let Some(start) = packet.first_chunk::<{ wire::COMMON_LEN }>() else {
        return Err(Reject::Short);
    };
    if start[field::VERSION] != wire::VERSION {
        return Err(Reject::Malformed);
    }
    let kind = PacketType::try_from(start[field::TYPE]).map_err(|_| Reject::Malformed)?;
    let len = kind.header_len();
    (packet.len() >= len).then_some(len).ok_or(Reject::Short)
}

/// Returns the sender's endpoint id of a HELLO, else `None`.
#[inline]
fn hello_source(header: &[u8]) -> Option<EndpointId> {
    if header[field::TYPE] != PacketType::Hello as u8 {
        return None;
    }
    let id = header[Hello::SRC_EID.range()].try_into().ok()?;
    Some(EndpointId(u64::from_le_bytes(id)))
}

#[inline(always)]
fn nonce(source: EndpointId, pn: u64) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&source.0.to_le_bytes());
    nonce[8..].copy_from_slice(&pn.to_le_bytes());
    nonce
}

#[inline(always)]
fn trailer(pn: u64, tag: [u8; TAG]) -> [u8; TRAILER] {
    let mut out = [0; TRAILER];
    out[..8].copy_from_slice(&pn.to_le_bytes());
    out[8..].copy_from_slice(&tag);
    out
}

fn cut(tag: [u8; 16]) -> [u8; TAG] {
    *tag.first_chunk().expect("16 bytes hold 8")
}

/// Compares the tag with that in a trailer, in constant time.
#[inline(always)]
fn equal(tag: [u8; TAG], end: &[u8; TRAILER]) -> bool {
    let found = u64::from_le_bytes(*end.last_chunk().expect("16 bytes hold 8"));
    std::hint::black_box(u64::from_le_bytes(tag) ^ found) == 0
}

/// The cost of sealing and opening one frame on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Header and payload bytes.
    pub packet_len: usize,
    /// Nanoseconds to seal.
    pub seal_ns: f64,
    /// Nanoseconds to open.
    pub open_ns: f64,
}

/// Measures the cost of authenticating packets of `packet_len` bytes (at least 32) with the best
/// implementation of this machine. Takes a few milliseconds.
pub fn measure_cost(packet_len: usize) -> Cost {
    measure_cost_on(Backend::detect(), packet_len)
}

/// Measures the cost of authenticating packets of `packet_len` bytes with a chosen implementation,
/// which must work here. Returns the fastest of a hundred short runs, since slower runs were
/// disturbed.
pub fn measure_cost_on(backend: Backend, packet_len: usize) -> Cost {
    const RUN: usize = 256;
    let key = JobKey::from_bytes(&[7; 32]).expect("a key may have 32 bytes");
    let (a, b) = (EndpointId(1), EndpointId(2));
    let secure = |me| {
        let security = Security { mode: Mode::Auth, job_key: key.clone(), me };
        Secure::with_backend(&security, Lane::Udp, backend)
    };
    let (mut sealer, mut opener) = (secure(a), secure(b));
    sealer.add_peer(PeerId(0), 1, b).expect("a new key has numbers");
    opener.add_peer(PeerId(0), 1, a).expect("a new key has numbers");
    let header = wire::emit(
        &wire::Common { session: 1, ..Default::default() },
        &wire::Packet::Eager(wire::Eager { tag: 0 }),
    );
    let payload = vec![0x5a; packet_len.saturating_sub(header.as_slice().len())];
    let header = header.as_slice();
    let (mut seal_ns, mut open_ns) = (f64::MAX, f64::MAX);
    let mut trailers = [[0; TRAILER]; RUN];
    let mut frame = [header, &payload, &[0; TRAILER]].concat();
    let packet_len = frame.len() - TRAILER;
    for _ in 0..100 {
        let start = std::time::Instant::now();
        for trailer in &mut trailers {
            *trailer = sealer.seal(PeerId(0), header, &payload).expect("the peer is known");
        }
        let middle = std::time::Instant::now();
        for trailer in &trailers {
            frame[packet_len..].copy_from_slice(trailer);
            opener.open(&mut frame).expect("sealed with the same key");
        }
        let per = |d: std::time::Duration| d.as_nanos() as f64 / RUN as f64;
        seal_ns = seal_ns.min(per(middle - start));
        open_ns = open_ns.min(per(middle.elapsed()));
    }
    Cost { packet_len, seal_ns, open_ns }
}

#[cfg(test)]
mod tests;
