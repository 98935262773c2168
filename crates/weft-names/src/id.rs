//! Identities: hosts, their lives, owners of names, bindings.

use core::fmt;

/// A host of the cluster. The driver keeps it the same over restarts of its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl HostId {
    /// Returns the host's place on the ring: neighbours in a rack are not neighbours there, so
    /// that one power supply does not take a host together with all that watch it.
    pub fn place(self) -> u64 {
        mix(self.0)
    }
}

/// One run of a host's agent. Of two lives of a host the greater one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life {
    /// Grows with each start. The driver offers a guess, such as the time of day; an agent that
    /// joins raises it above what the cluster remembers, so a clock may jump.
    pub incarnation: u64,
    /// A random number drawn at the start: it tells a copied incarnation from the original.
    pub nonce: u64,
}

impl Life {
    /// The largest incarnation on the wire.
    pub const INCARNATION_MAX: u64 = 1 << 62;
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:08x}", self.incarnation, self.nonce as u32)
    }
}

/// The process that claims names, as its host's kernel knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Its user number.
    pub user: u32,
    /// Its process number.
    pub process: u32,
    /// Distinguishes it from others that had the process number before, such as its start time.
    pub serial: u64,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.process, self.user)
    }
}

/// One claim of a name, unique in the cluster for all time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId {
    /// The host of its owner.
    pub host: HostId,
    /// The life of that host's agent.
    pub life: Life,
    /// Number of the claim in that life.
    pub claim: u64,
}

/// Spreads the bits of a number: the finalizer of SplitMix64, which is one to one.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Spreads the bits of several numbers.
pub(crate) fn mix_all(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, n| mix(sum.rotate_left(5) ^ mix(*n)))
}
