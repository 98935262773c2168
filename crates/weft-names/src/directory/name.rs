//! Names: claims of owners, and why they end.

use crate::id::{BindingId, HostId, Owner};
use crate::membership::Cause;
use crate::wire::{Reader, Value, WireError, Writer};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

/// The hosts that see a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The owner's host alone.
    Host,
    /// All hosts of the cluster.
    #[default]
    Cluster,
}

/// A name as its owner claims it: a range of instances of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The process that claims.
    pub owner: Owner,
    /// Type of the name.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
    /// A name to read, at most 63 bytes; it may be empty.
    pub alias: String,
    /// The hosts that see it.
    pub scope: Scope,
    /// True if no other owner may have any instance of the range.
    pub unique: bool,
    /// True if the owner is a member of a group: its type is the group's, its instance the
    /// member's.
    pub group: bool,
    /// The endpoint that serves the name; 0: none.
    pub endpoint: u64,
    /// The socket address that serves the name.
    pub address: Option<SocketAddr>,
}

impl Claim {
    /// Makes a claim that all hosts see and others may share.
    pub fn new(owner: Owner, kind: u32, instances: RangeInclusive<u32>) -> Claim {
        Claim {
            owner,
            kind,
            lower: *instances.start(),
            upper: *instances.end(),
            alias: String::new(),
            scope: Scope::Cluster,
            unique: false,
            group: false,
            endpoint: 0,
            address: None,
        }
    }

    /// Adds a name to read.
    pub fn alias(self, alias: &str) -> Claim {
        Claim { alias: alias.into(), ..self }
    }

    /// Names the endpoint that serves it.
    pub fn endpoint(self, endpoint: u64) -> Claim {
        Claim { endpoint, ..self }
    }

    /// Names the socket address that serves it.
    pub fn address(self, address: SocketAddr) -> Claim {
        Claim { address: Some(address), ..self }
    }

    /// Excludes other owners.
    pub fn unique(self) -> Claim {
        Claim { unique: true, ..self }
    }

    /// Restricts it to its host.
    pub fn on_host(self) -> Claim {
        Claim { scope: Scope::Host, ..self }
    }

    /// Makes the owner a member of a group.
    pub fn group(self) -> Claim {
        Claim { group: true, ..self }
    }
}

/// A name with its owner, as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its number.
    pub id: BindingId,
    /// Logical time of the claim.
    pub stamp: u64,
    /// The name.
    pub name: Claim,
}

impl Binding {
    /// Returns the order of claims: of two owners of a unique name the lesser one keeps it.
    pub fn seniority(&self) -> (u64, HostId) {
        (self.stamp, self.id.host)
    }
}

/// The owner that a look-up answers, if several share a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// By turns.
    #[default]
    Turn,
    /// One of this host, if there is one; otherwise by turns.
    Nearest,
}

/// The reason why a claim is refused at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// Its last instance is before its first.
    EmptyRange,
    /// Its alias is too long, or has control characters.
    Alias,
    /// The type is one of those that agents have for themselves.
    Reserved,
    /// The policy of this host forbids this user this type.
    Forbidden,
    /// The user has as many claims as one may have.
    TooMany {
        /// The bound.
        bound: usize,
    },
    /// Another owner has it.
    Taken {
        /// The owner's host.
        holder: HostId,
        /// The owner.
        owner: Owner,
    },
    /// This host has left, or was replaced.
    Ended,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::EmptyRange => f.write_str("the last instance is before the first"),
            ClaimError::Alias => {
                f.write_str("an alias has at most 63 bytes and no control character")
            }
            ClaimError::Reserved => f.write_str(
                "types below 64 are the agents': take one from 64 to 4294967295, or a word",
            ),
            ClaimError::Forbidden => {
                f.write_str("the policy of this host does not let this user claim this type")
            }
            ClaimError::TooMany { bound } => {
                write!(f, "the user has {bound} claims, and more are not allowed: withdraw some")
            }
            ClaimError::Taken { holder, owner } => {
                write!(f, "{owner} on host {holder} has the name")
            }
            ClaimError::Ended => f.write_str("this host is no member of the cluster any more"),
        }
    }
}

impl core::error::Error for ClaimError {}

/// The cause of the end of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gone {
    /// Its owner withdrew it.
    Withdrawn,
    /// Its owner ended.
    Exited {
        /// The exit status.
        status: u32,
    },
    /// A signal ended its owner.
    Killed {
        /// The signal.
        signal: u32,
    },
    /// Its owner ended, in a way that the kernel did not tell.
    Ended,
    /// An older claim of another host came to light when two parts of the cluster met.
    Conflict {
        /// The host of the older claim.
        winner: HostId,
    },
    /// Its owner was a slow member of a group, and another member evicted it.
    Evicted {
        /// The host of that member.
        by: HostId,
    },
    /// A later life of its host took the place.
    Replaced {
        /// The incarnation of that life.
        incarnation: u64,
    },
    /// Its host is gone. Does not travel: each host sees it itself.
    Host(Cause),
    /// This host hears no other. Does not travel.
    CutOff,
    /// The claim was gone when tables were compared. Does not travel.
    Missing,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(|host| host.to_string()))
    }
}

impl Gone {
    /// Returns the cause for people, with hosts called as `name` says.
    pub fn text(&self, name: impl FnOnce(HostId) -> String) -> String {
        match *self {
            Gone::Withdrawn => "withdrawn by its owner".into(),
            Gone::Exited { status } => format!("its owner ended with status {status}"),
            Gone::Killed { signal } => format!("signal {signal} ended its owner"),
            Gone::Ended => "its owner ended".into(),
            Gone::Conflict { winner } => format!("host {} has an older claim", name(winner)),
            Gone::Evicted { by } => format!("host {} evicted the slow member", name(by)),
            Gone::Replaced { incarnation } => {
                format!("incarnation {incarnation} of its host took the place")
            }
            Gone::Host(cause) => format!("its host: {}", cause.text(name)),
            Gone::CutOff => "this host hears no other".into(),
            Gone::Missing => "gone when tables were compared".into(),
        }
    }
}

impl Value for Gone {
    const SIZE: usize = 9;

    fn read(from: &mut Reader<'_>) -> Result<Gone, WireError> {
        let (code, detail): (u8, u64) = (from.value()?, from.value()?);
        let small = u32::try_from(detail).map_err(|_| WireError::Value { name: "detail" });
        Ok(match code {
            1 if detail == 0 => Gone::Withdrawn,
            2 => Gone::Exited { status: small? },
            3 => Gone::Killed { signal: small? },
            4 => Gone::Conflict { winner: HostId(detail) },
            5 => Gone::Evicted { by: HostId(detail) },
            6 => Gone::Replaced { incarnation: detail },
            7 if detail == 0 => Gone::Ended,
            _ => return Err(WireError::Value { name: "gone" }),
        })
    }

    fn write(&self, to: &mut Writer) {
        let (code, detail): (u8, u64) = match *self {
            Gone::Exited { status } => (2, status.into()),
            Gone::Killed { signal } => (3, signal.into()),
            Gone::Conflict { winner } => (4, winner.0),
            Gone::Evicted { by } => (5, by.0),
            Gone::Replaced { incarnation } => (6, incarnation),
            Gone::Ended => (7, 0),
            Gone::Withdrawn | Gone::Host(_) | Gone::CutOff | Gone::Missing => (1, 0),
        };
        to.value(&code);
        to.value(&detail);
    }
}
