//! The connection setup of two endpoints: an abstract Unix socket, one message in each direction.
//!
//! The side that connects makes the segment and passes it with its [`Hello`]; it can write into the
//! rings at once. The other side checks everything, maps the segment and answers. If both connect
//! at the same time there are two segments, and each side continues to send in the segment that it
//! made, so both agree on the ring of each direction without a message. The socket stays open: it
//! carries doorbells (one byte) and memory that a peer shares ([`Shared`]). When it closes, the
//! peer has ended.

use super::broker::AgentConnection;
use super::ring::Sizes;
use super::sys::map;
use super::sys::misc;
use super::sys::socket::{self, Name};
use crate::secure::{JobKey, Purpose};
use crate::{random_u64, user, LinkError};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use weft_core::EndpointId;
use weft_sys::foreign::ANYBODY;
use weft_sys::{agent, Peer};

const MAGIC: u32 = u32::from_le_bytes(*b"weft");
const VERSION: u8 = 2;

/// The type of a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// From the side that connected; the segment comes with it.
    Offer = 1,
    /// From the side that accepted.
    Answer = 2,
}

/// The first message of each side on the socket. Little-endian: magic u32, version u8, kind u8,
/// flags u8 (bit 0: barrier), pad u8, from u64, to u64, slots u32, units u32, mtu u32, pad u32,
/// probe address u64, probe word u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub kind: Kind,
    pub from: EndpointId,
    pub to: EndpointId,
    /// Sizes of the segment.
    pub sizes: Sizes,
    /// This side issues a barrier on all cores before it sleeps, and is registered for the barriers
    /// of others.
    pub barrier: bool,
    /// Address of `probe_word` in the sender's memory.
    pub probe_addr: u64,
    pub probe_word: u64,
}

/// Length of an encoded [`Hello`].
pub(super) const HELLO: usize = 56;
/// The doorbell message.
pub(super) const BELL: [u8; 1] = [1];
/// The first byte of the message to a connection that is refused; the reason as text follows. The
/// connection is then closed.
const REFUSED: u8 = 2;
/// Longest reason of a refusal, in bytes.
const REASON_MAX: usize = 200;
/// Length of the longest message.
pub(super) const LONGEST: usize = 1 + REASON_MAX;

/// Returns the message of a refusal, with as much of the reason as it holds.
pub(super) fn refusal(why: &str) -> Vec<u8> {
    let end = (0..=why.len().min(REASON_MAX)).rev().find(|&end| why.is_char_boundary(end));
    let reason = &why[..end.unwrap_or(0)];
    std::iter::once(REFUSED).chain(reason.bytes()).collect()
}

/// Returns the reason if a message is a refusal. Its text may come from any process.
pub(super) fn reason_of(message: &[u8]) -> Option<String> {
    let (&REFUSED, reason) = message.split_first()? else { return None };
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    Some(String::from_utf8_lossy(reason).chars().map(shown).collect())
}

impl Hello {
    pub(super) fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..8].copy_from_slice(&[VERSION, self.kind as u8, u8::from(self.barrier), 0]);
        out[8..16].copy_from_slice(&self.from.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.to.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.sizes.slots.to_le_bytes());
        out[28..32].copy_from_slice(&self.sizes.units.to_le_bytes());
        out[32..36].copy_from_slice(&self.sizes.mtu.to_le_bytes());
        out[40..48].copy_from_slice(&self.probe_addr.to_le_bytes());
        out[48..56].copy_from_slice(&self.probe_word.to_le_bytes());
        out
    }

    /// Decodes a message; the error names the wrong field.
    pub(super) fn decode(bytes: &[u8]) -> Result<Hello, &'static str> {
        let bytes: &[u8; HELLO] = bytes.try_into().map_err(|_| "length")?;
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(0) != MAGIC {
            return Err("magic");
        }
        if bytes[4] != VERSION {
            return Err("version");
        }
        let kind = match bytes[5] {
            1 => Kind::Offer,
            2 => Kind::Answer,
            _ => return Err("kind"),
        };
        if bytes[6] > 1 || bytes[7] != 0 || u32_at(36) != 0 {
            return Err("flags");
        }
        let sizes = Sizes { slots: u32_at(24), units: u32_at(28), mtu: u32_at(32) };
        sizes.check()?;
        Ok(Hello {
            kind,
            from: EndpointId(u64_at(8)),
            to: EndpointId(u64_at(16)),
            sizes,
            barrier: bytes[6] == 1,
            probe_addr: u64_at(40),
            probe_word: u64_at(48),
        })
    }
}

/// The proof behind a [`Hello`] over a socket that an agent passed on: the sender knows the job's
/// key.
/// Little-endian: nonce u64, code 16 bytes. The offer draws the nonce, the answer repeats it. The
/// code is derived from the job's key for hello and nonce, which name both sides and the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    pub nonce: u64,
    code: [u8; 16],
}

/// Length of an encoded [`Proof`].
pub(super) const PROOF: usize = 24;

impl Proof {
    /// Proves a hello.
    pub(super) fn of(key: &JobKey, hello: &Hello, nonce: u64) -> Proof {
        let context = [&hello.encode()[..], &nonce.to_le_bytes()].concat();
        Proof { nonce, code: key.derive(Purpose::Joined, &context) }
    }

    /// True if the sender of the hello knows the key. Takes the same time wherever codes differ.
    pub(super) fn holds(&self, key: &JobKey, hello: &Hello) -> bool {
        let right = Proof::of(key, hello, self.nonce).code;
        right.iter().zip(self.code).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    pub(super) fn encode(&self) -> [u8; PROOF] {
        let mut out = [0; PROOF];
        out[..8].copy_from_slice(&self.nonce.to_le_bytes());
        out[8..].copy_from_slice(&self.code);
        out
    }

    pub(super) fn decode(bytes: &[u8; PROOF]) -> Proof {
        let nonce = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
        Proof { nonce, code: std::array::from_fn(|i| bytes[8 + i]) }
    }
}

/// Decodes a hello, and the proof behind it if there is one.
pub(super) fn decode_proven(bytes: &[u8]) -> Result<(Hello, Option<Proof>), &'static str> {
    match bytes.split_last_chunk::<PROOF>() {
        Some((hello, proof)) if hello.len() == HELLO => {
            Ok((Hello::decode(hello)?, Some(Proof::decode(proof))))
        }
        _ => Ok((Hello::decode(bytes)?, None)),
    }
}

/// Memory of the sender, passed as a file. Little-endian: magic u32, version u8, kind u8 (3), pad
/// u16, key u64, address u64, bytes u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// The sender's name of the memory. If the same key comes again, it names other memory.
    pub key: u64,
    /// Address in the sender.
    pub addr: u64,
    pub len: u64,
}

/// Length of an encoded [`Shared`].
pub(super) const SHARED: usize = 32;
const SHARED_KIND: u8 = 3;

impl Shared {
    pub(super) fn encode(&self) -> [u8; SHARED] {
        let mut out = [0; SHARED];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&[VERSION, SHARED_KIND]);
        for (field, value) in out[8..].chunks_mut(8).zip([self.key, self.addr, self.len]) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Decodes a message; the error names the wrong field.
    pub(super) fn decode(bytes: &[u8]) -> Result<Shared, &'static str> {
        let bytes: &[u8; SHARED] = bytes.try_into().map_err(|_| "length")?;
        let (head, fields) = bytes.split_at(8);
        let mut right = [0; 8];
        right[..4].copy_from_slice(&MAGIC.to_le_bytes());
        right[4..6].copy_from_slice(&[VERSION, SHARED_KIND]);
        if head != right {
            return Err("shared memory");
        }
        let mut fields =
            fields.chunks_exact(8).map(|c| u64::from_le_bytes(std::array::from_fn(|i| c[i])));
        let mut next = || fields.next().unwrap_or(0);
        Ok(Shared { key: next(), addr: next(), len: next() })
    }
}

/// Decodes bytes as a peer's messages, for fuzzing. No input may cause a panic of the decoders; an
/// accepted message must have one encoding, and sizes that a segment can have.
///
/// # Panics
/// One of these conditions does not hold.
pub fn check(bytes: &[u8]) {
    if let Ok(shared) = Shared::decode(bytes) {
        assert_eq!(shared.encode(), bytes, "two encodings: {shared:?}");
    }
    if let Ok((hello, proof)) = decode_proven(bytes) {
        let proof = proof.map(|proof| proof.encode());
        let again = [&hello.encode()[..], proof.as_ref().map_or(&[], |p| &p[..])].concat();
        assert_eq!(again, bytes, "a hello with two encodings: {hello:?}");
        assert!(hello.sizes.segment_len() <= 2 * ((1 << 30) + (1 << 23)));
        assert!(hello.sizes.mtu as usize * 4 <= hello.sizes.data_len());
    }
}

/// Returns the bytes of a hello, for tests that damage it.
pub fn example() -> Vec<u8> {
    let sizes = Sizes { slots: 256, units: 1 << 14, mtu: 32 << 10 };
    let (from, to) = (EndpointId(1), EndpointId(2));
    let hello = Hello {
        kind: Kind::Offer,
        from,
        to,
        sizes,
        barrier: true,
        probe_addr: 0x7fff_0123_4567,
        probe_word: 3,
    };
    hello.encode().to_vec()
}

/// Returns a hash that is equal for processes under one kernel and in one network namespace, within
/// which abstract sockets connect. Never zero.
///
/// # Errors
/// `/proc` is not mounted.
pub fn host() -> Result<u64, LinkError> {
    use std::os::unix::fs::MetadataExt;
    let fail = |what: &str| {
        let what = what.to_string();
        |source: io::Error| match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => system(&what, source),
            _ => LinkError::System { what, source, fix: "mount /proc, or run without shm" },
        }
    };
    let boot =
        std::fs::read("/proc/sys/kernel/random/boot_id").map_err(fail("reading the boot id"))?;
    let net = std::fs::metadata("/proc/self/ns/net")
        .map_err(fail("asking for the network namespace"))?
        .ino();
    let bytes = boot.iter().copied().chain(net.to_le_bytes());
    // FNV-1a, 64 bits.
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Ok(hash.max(1))
}

/// True if nobody in this network namespace listens under the name that is made from a key.
pub fn is_free(key: u64) -> bool {
    socket::listen(Name::Key(key)).is_ok()
}

/// Turns the system's error into an error with advice.
pub(super) fn system(what: &str, source: io::Error) -> LinkError {
    let fix = match source.raw_os_error() {
        Some(libc::EMFILE) => "raise the limit on open files (ulimit -n)",
        Some(libc::ENFILE) => "raise fs.file-max",
        Some(libc::ENOMEM) => "raise the memory limit (ulimit -v, cgroup), or lower the ring sizes",
        Some(libc::EAGAIN) => "too many connections at once: raise net.core.somaxconn",
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            "the container's seccomp profile forbids it: relax it, or run without shm"
        }
        _ => "run without shm",
    };
    LinkError::System { what: what.to_string(), source, fix }
}

/// Opens the listener under a key or, if that is 0 or taken, under a fresh random one.
pub(super) fn listen(key: u64) -> Result<(OwnedFd, u64), LinkError> {
    if let (1.., Ok(listener)) = (key, socket::listen(Name::Key(key))) {
        return Ok((listener, key));
    }
    let key = random_u64().max(1);
    let listener = socket::listen(Name::Key(key));
    Ok((listener.map_err(|e| system("listening on a Unix socket", e))?, key))
}

/// Opens the listener of an agent.
pub(super) fn listen_at(name: &str) -> Result<OwnedFd, LinkError> {
    socket::listen(Name::Text(name)).map_err(|source| {
        let taken = source.raw_os_error() == Some(libc::EADDRINUSE);
        let holder = taken.then(|| socket::connect(Name::Text(name))).and_then(Result::ok);
        let holder = holder.and_then(|socket| Peer::of(&socket).ok());
        let (what, fix) = match holder {
            Some(Peer { pid, uid }) if uid != misc::effective_user() => (
                format!("listening on {name}, which process {pid} of user {uid} has"),
                "any user can take an abstract name first: take a path (weftd --name, WEFT_AGENT)",
            ),
            _ => (
                format!("listening on {name}"),
                "another agent may serve there (`weftd --status`), or the folder is missing",
            ),
        };
        LinkError::System { what, source, fix }
    })
}

/// A new connection.
pub(super) struct Dialed {
    pub socket: OwnedFd,
    pub cred: Peer,
    pub halves: [map::Half; 2],
}

/// Connects to the listener of `key`, checks its user, and passes it a new segment with `offer`.
pub(super) fn dial(key: u64, ours: u32, offer: &Hello) -> Result<Dialed, LinkError> {
    let socket = call(key)?;
    let cred = Peer::of(&socket).map_err(|e| system("asking who listens", e))?;
    // Only processes of the same user share memory.
    user::same(ours, cred.uid).map_err(LinkError::Unreachable)?;
    // The listener may have ended before it accepted the connection: then nobody listens any more.
    offer_segment(socket, cred, offer, None).map_err(|why| call(key).err().unwrap_or(why))
}

/// Connects to the listener of `key`.
fn call(key: u64) -> Result<OwnedFd, LinkError> {
    socket::connect(Name::Key(key)).map_err(|e| match e.raw_os_error() {
        Some(libc::ECONNREFUSED) => LinkError::Ended,
        _ => system("connecting a Unix socket", e),
    })
}

/// Passes a new segment with `offer`, by way of an agent, to a peer in any namespaces of this host.
/// Returns the nonce that the answer has to repeat. The kernel tells nothing about the process at
/// the other end.
pub(super) fn join(
    connection: &AgentConnection,
    key: &JobKey,
    offer: &Hello,
) -> Result<(Dialed, u64), LinkError> {
    let [near, far] = socket::pair().map_err(|e| system("making a pair of sockets", e))?;
    let nonce = random_u64();
    let proof = Proof::of(key, offer, nonce);
    let dialed = offer_segment(near, Peer { pid: 0, uid: ANYBODY }, offer, Some(proof))?;
    connection.join(offer.to, &far)?;
    Ok((dialed, nonce))
}

/// Connects to the agent that listens at `name`, checks its user, and passes it a new segment with
/// `offer`.
pub(super) fn dial_agent(name: &str, offer: &Hello) -> Result<Dialed, LinkError> {
    let socket = socket::connect(Name::Text(name)).map_err(|e| match e.raw_os_error() {
        Some(libc::ECONNREFUSED | libc::ENOENT) => {
            LinkError::Unreachable(format!("no agent listens at {name}: start weftd"))
        }
        _ => system(&format!("connecting to the agent at {name}"), e),
    })?;
    let cred = Peer::of(&socket).map_err(|e| system("asking who listens", e))?;
    let foreign =
        |why| LinkError::Unreachable(format!("the agent at {name} is not trusted: {why}"));
    // Only a process of the same user or of root may hold the key of a job.
    agent::check(cred).map_err(foreign)?;
    offer_segment(socket, cred, offer, None)
}

fn offer_segment(
    socket: OwnedFd,
    cred: Peer,
    offer: &Hello,
    proof: Option<Proof>,
) -> Result<Dialed, LinkError> {
    let segment = map::create(offer.sizes.segment_len())
        .map_err(|e| system("making a shared memory segment", e))?;
    let halves =
        map::map(&segment, offer.sizes).map_err(|e| system("mapping a shared segment", e))?;
    let proof = proof.map(|proof| proof.encode());
    let offered = [&offer.encode()[..], proof.as_ref().map_or(&[], |p| &p[..])].concat();
    let sent = socket::send(&socket, &offered, Some(segment.as_fd()));
    sent.map_err(|e| match e.raw_os_error() {
        // The listener accepted the connection and had no descriptor for it, or it ended.
        Some(libc::EPIPE | libc::ECONNRESET) => {
            let peer = offer.to;
            LinkError::Unreachable(format!(
                "endpoint {peer} closed the connection: no free descriptor, or it ended"
            ))
        }
        _ => system("passing a shared segment", e),
    })?;
    Ok(Dialed { socket, cred, halves })
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            kind: Kind::Offer,
            from: EndpointId(1),
            to: EndpointId(u64::MAX - 1),
            sizes: Sizes { slots: 256, units: 1 << 14, mtu: 32 * 1024 },
            barrier: true,
            probe_addr: 0x7fff_0123_4567_89ab,
            probe_word: 3,
        }
    }

    #[test]
    fn decode__round_trips() {
        for kind in [Kind::Offer, Kind::Answer] {
            let hello = Hello { kind, ..hello() };
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn encode__lays_fields_out_as_the_protocol_says() {
        let bytes = hello().encode();
        let fields: [(usize, &[u8]); 10] = [
            (0, b"weft"),
            (4, &[2, 1, 1, 0]),
            (8, &1u64.to_le_bytes()),
            (16, &(u64::MAX - 1).to_le_bytes()),
            (24, &256u32.to_le_bytes()),
            (28, &(1u32 << 14).to_le_bytes()),
            (32, &(32u32 << 10).to_le_bytes()),
            (36, &[0; 4]),
            (40, &0x7fff_0123_4567_89ab_u64.to_le_bytes()),
            (48, &3u64.to_le_bytes()),
        ];
        for (at, field) in fields {
            assert_eq!(&bytes[at..at + field.len()], field, "offset {at}");
        }
    }

    #[test]
    fn decode__refuses_what_is_not_canonical() {
        let bytes = hello().encode();
        assert!(Hello::decode(&bytes[1..]).is_err());
        for at in 0..HELLO {
            for value in 0..=255 {
                let mut changed = bytes;
                changed[at] = value;
                if let Ok(hello) = Hello::decode(&changed) {
                    assert_eq!(hello.encode(), changed);
                    assert!(at >= 5 || changed == bytes, "magic and version are fixed");
                }
            }
        }
    }

    #[test]
    fn host__is_stable() {
        assert_eq!(host().unwrap(), host().unwrap());
    }

    #[test]
    fn dial__no_process_listens() {
        let user = misc::effective_user();
        let refused = dial(random_u64(), user, &hello());
        assert!(matches!(refused, Err(LinkError::Ended)));
    }

    #[test]
    fn offer_segment__to_one_that_hung_up_is_no_fault_of_the_system() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        // Closing is not enough: the child process of another test may have a copy for a while.
        theirs.shutdown(std::net::Shutdown::Both).unwrap();
        let refused = offer_segment(ours.into(), Peer { pid: 1, uid: 1 }, &hello(), None);
        assert!(matches!(refused, Err(LinkError::Unreachable(_))));
    }

    #[test]
    fn listen__under_the_key_that_is_asked_for_unless_it_is_taken() {
        let wanted = random_u64().max(1);
        let (_first, key) = listen(wanted).unwrap();
        assert_eq!(key, wanted);
        let (_second, other) = listen(wanted).unwrap();
        assert!(other != wanted && other != 0);
    }

    #[test]
    fn dial__of_another_user_is_refused() {
        let (_listener, key) = listen(0).unwrap();
        let refused = dial(key, misc::effective_user() + 1, &hello());
        assert!(matches!(refused, Err(LinkError::Unreachable(_))));
    }
}
