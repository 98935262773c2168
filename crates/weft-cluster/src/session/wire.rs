//! The datagrams between agents: `PROTOCOL.md`, section Sessions of agents.

use weft_link::secure::{JobKey, Purpose};

/// Version of the datagrams: byte 0 of each.
pub const VERSION: u8 = 1;
/// Length of INIT, ANSWER and CONFIRM.
pub const SHAKE_LEN: usize = 80;
/// Length of REFUSED.
pub const REFUSED_LEN: usize = 40;
/// Length of the head of DATA.
pub const DATA_HEAD: usize = 24;
/// Length of the tag of DATA.
pub const DATA_TAG: usize = 8;

/// Types of datagrams: byte 1.
pub mod kind {
    /// Asks for a session.
    pub const INIT: u8 = 1;
    /// Answers INIT.
    pub const ANSWER: u8 = 2;
    /// Takes up the session.
    pub const CONFIRM: u8 = 3;
    /// Says why a datagram was dropped; proves nothing.
    pub const REFUSED: u8 = 4;
    /// A message under the keys of a session.
    pub const DATA: u8 = 5;
}

/// The reason why an agent drops another's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// The agent is of another version of this protocol.
    Version = 1,
    /// The agent belongs to a cluster of another name.
    Cluster = 2,
    /// The agent has another key.
    Key = 3,
    /// The agent has a key that was retired.
    OldKey = 4,
    /// The session is unknown: the agent may have started again.
    Session = 5,
}

impl Refusal {
    /// All, in order of their numbers.
    pub const ALL: [Refusal; 5] =
        [Refusal::Version, Refusal::Cluster, Refusal::Key, Refusal::OldKey, Refusal::Session];

    /// Returns the refusal of a number.
    pub fn of(number: u8) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|r| *r as u8 == number)
    }

    /// Returns the name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Version => "other_version",
            Refusal::Cluster => "other_cluster",
            Refusal::Key => "wrong_key",
            Refusal::OldKey => "old_key",
            Refusal::Session => "unknown_session",
        }
    }

    /// Returns the reason for people, with a remedy.
    pub const fn text(self) -> &'static str {
        match self {
            Refusal::Version => "agents of two versions do not talk: install one version",
            Refusal::Cluster => "the names of the clusters differ (weftd --cluster)",
            Refusal::Key => "the keys differ: copy the key file of one host to all others",
            Refusal::OldKey => {
                "its key was rotated out: copy the present key file to the host with the old one"
            }
            Refusal::Session => "the session has ended; another one is made",
        }
    }
}

/// INIT, ANSWER or CONFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shake {
    /// Its type.
    pub kind: u8,
    /// Hash of the cluster's name.
    pub cluster: u64,
    /// Public number of the key.
    pub key: u64,
    /// The number that the asking side drew.
    pub ours: [u8; 16],
    /// The number of the answering side; zero in INIT.
    pub theirs: [u8; 16],
    /// The time at which the answering side made its number, by its own count; zero in INIT.
    pub epoch: u64,
}

impl Shake {
    /// Encodes it, with its proof.
    pub fn encode(&self, key: &JobKey) -> Vec<u8> {
        let mut out = Vec::with_capacity(SHAKE_LEN);
        out.extend([VERSION, self.kind, 0, 0, 0, 0, 0, 0]);
        out.extend(self.cluster.to_le_bytes());
        out.extend(self.key.to_le_bytes());
        out.extend(self.ours);
        out.extend(self.theirs);
        out.extend(self.epoch.to_le_bytes());
        let proof = key.derive::<16>(Purpose::ClusterProof, &out);
        out.extend(proof);
        out
    }

    /// Decodes it; the proof is not looked at.
    pub fn decode(bytes: &[u8]) -> Option<Shake> {
        let bytes: &[u8; SHAKE_LEN] = bytes.try_into().ok()?;
        let is_plain = bytes[0] == VERSION && bytes[2..8] == [0; 6];
        let kind = bytes[1];
        if !is_plain || !(kind::INIT..=kind::CONFIRM).contains(&kind) {
            return None;
        }
        let number = |at| bytes[at..].first_chunk().copied().map(u64::from_le_bytes);
        let nonce = |at| bytes[at..].first_chunk().copied();
        let (ours, theirs) = (nonce(24)?, nonce(40)?);
        let shake =
            Shake { kind, cluster: number(8)?, key: number(16)?, ours, theirs, epoch: number(56)? };
        let is_bare = shake.theirs == [0; 16] && shake.epoch == 0;
        (kind != kind::INIT || is_bare).then_some(shake)
    }

    /// Returns true if the sender has this key. Each byte of the proof is compared, so that the
    /// time tells nothing.
    pub fn is_proven(bytes: &[u8], key: &JobKey) -> bool {
        let Some((text, proof)) = bytes.split_last_chunk::<16>() else { return false };
        let right = key.derive::<16>(Purpose::ClusterProof, text);
        right.iter().zip(proof).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
    }
}

/// REFUSED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The version of its sender.
    pub version: u8,
    /// The reason.
    pub why: Refusal,
    /// Bytes 8 to 40 of the datagram that was dropped.
    pub of: [u8; 32],
}

impl Refused {
    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.version, kind::REFUSED, self.why as u8, 0, 0, 0, 0, 0];
        out.extend(self.of);
        out
    }

    /// Decodes it. It has this form in all versions.
    pub fn decode(bytes: &[u8]) -> Option<Refused> {
        let bytes: &[u8; REFUSED_LEN] = bytes.try_into().ok()?;
        let why = Refusal::of(bytes[2])?;
        let is_plain = bytes[1] == kind::REFUSED && bytes[3..8] == [0; 5];
        is_plain.then_some(Refused { version: bytes[0], why, of: *bytes.last_chunk()? })
    }
}

/// Head, the bytes of the head, payload and tag of a datagram.
pub type Parts<'a> = (DataHead, &'a [u8], &'a [u8], [u8; DATA_TAG]);

/// The head of DATA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHead {
    /// The protocol that the message belongs to.
    pub class: u8,
    /// Number of the session.
    pub session: u64,
    /// Number of the message in its direction, from 1.
    pub number: u64,
}

impl DataHead {
    /// Encodes it.
    pub fn encode(&self) -> [u8; DATA_HEAD] {
        let mut out = [0; DATA_HEAD];
        out[..3].copy_from_slice(&[VERSION, kind::DATA, self.class]);
        out[8..16].copy_from_slice(&self.session.to_le_bytes());
        out[16..].copy_from_slice(&self.number.to_le_bytes());
        out
    }

    /// Splits a datagram into head, the bytes of the head, payload and tag; none is proven.
    pub fn split(bytes: &[u8]) -> Option<Parts<'_>> {
        let (rest, tag) = bytes.split_last_chunk::<DATA_TAG>()?;
        let (head, payload) = rest.split_first_chunk::<DATA_HEAD>()?;
        if head[0] != VERSION || head[1] != kind::DATA || head[3..8] != [0; 5] {
            return None;
        }
        let number = |at: usize| head[at..].first_chunk().copied().map(u64::from_le_bytes);
        let parsed = DataHead { class: head[2], session: number(8)?, number: number(16)? };
        Some((parsed, head, payload, *tag))
    }
}
