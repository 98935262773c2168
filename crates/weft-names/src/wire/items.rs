//! The items of lists.

use super::{Reader, Value, WireError, Writer};
use crate::directory::{Claim, Gone, Scope};
use crate::id::{HostId, Life, Owner};
use crate::membership::Record;
use alloc::string::String;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Longest alias in bytes.
pub const ALIAS_MAX: usize = 63;

/// The address of a name that has none.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Bits of the field `flags` of a publication.
mod flag {
    pub const UNIQUE: u32 = 1;
    pub const GROUP: u32 = 2;
    pub const SOCKET: u32 = 4;
    pub const KNOWN: u32 = UNIQUE | GROUP | SOCKET;
}

layout! {
    /// A host in a summary.
    Entry {
        /// The latest step of its history.
        record: Record,
        /// The number of changes of its names that are known.
        head: u64,
    } pad 0
}

impl Entry {
    fn check(self) -> Result<Entry, WireError> {
        Ok(self)
    }
}

layout! {
    /// A host whose names are wanted.
    Have {
        /// The host.
        host: HostId,
        /// The life that is meant.
        life: Life,
        /// The changes that the asker has.
        head: u64,
        /// The head of the snapshot that it is taking; 0: of none.
        snapshot: u64,
        /// The claims up to here that it has of that snapshot.
        after: u64,
    } pad 0
}

impl Have {
    fn check(self) -> Result<Have, WireError> {
        Ok(self)
    }
}

/// The item of messages without a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {}

/// The list of messages without one.
pub const NONE: super::List<'static, Nothing> = super::List::Items(&[]);

impl Value for Nothing {
    const SIZE: usize = 0;
    fn read(_: &mut Reader<'_>) -> Result<Nothing, WireError> {
        Err(WireError::Value { name: "count" })
    }
    fn write(&self, _: &mut Writer) {}
}

layout! {
    /// The fixed part of a publication.
    Fixed {
        claim: u64,
        stamp: u64,
        kind: u32,
        lower: u32,
        upper: u32,
        user: u32,
        process: u32,
        flags: u32,
        serial: u64,
        endpoint: u64,
        address: SocketAddr,
        alias_len: u8,
    } pad 1
}

impl Fixed {
    fn check(self) -> Result<Fixed, WireError> {
        let wrong = match () {
            () if self.lower > self.upper => "upper",
            () if self.flags & !flag::KNOWN != 0 => return Err(WireError::Reserved),
            () if usize::from(self.alias_len) > ALIAS_MAX => "alias_len",
            () if self.claim == 0 => "claim",
            () if self.flags & flag::SOCKET == 0 && self.address != NO_ADDRESS => "address",
            () => return Ok(self),
        };
        Err(WireError::Value { name: wrong })
    }
}

/// A claimed name as its host publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Number of the claim in the host's life: that of the change by which it came.
    pub claim: u64,
    /// Logical time of the claim: of two owners of a unique name the earlier one keeps it.
    pub stamp: u64,
    /// The name and its owner.
    pub name: Claim,
}

impl Publication {
    /// The fields of its fixed part; the alias follows.
    pub const FIELDS: &'static [super::FieldInfo] = Fixed::FIELDS;

    /// Returns its length in bytes.
    pub fn encoded_len(&self) -> usize {
        Fixed::SIZE + self.name.alias.len()
    }
}

impl Value for Publication {
    const SIZE: usize = Fixed::SIZE;

    fn read(from: &mut Reader<'_>) -> Result<Publication, WireError> {
        let fixed: Fixed = from.value()?;
        let alias = core::str::from_utf8(from.bytes(usize::from(fixed.alias_len))?)
            .ok()
            .filter(|alias| !alias.chars().any(char::is_control))
            .ok_or(WireError::Value { name: "alias" })?;
        let owner = Owner { user: fixed.user, process: fixed.process, serial: fixed.serial };
        let name = Claim {
            owner,
            kind: fixed.kind,
            lower: fixed.lower,
            upper: fixed.upper,
            alias: String::from(alias),
            scope: Scope::Cluster,
            unique: fixed.flags & flag::UNIQUE != 0,
            group: fixed.flags & flag::GROUP != 0,
            endpoint: fixed.endpoint,
            address: (fixed.flags & flag::SOCKET != 0).then_some(fixed.address),
        };
        Ok(Publication { claim: fixed.claim, stamp: fixed.stamp, name })
    }

    fn write(&self, to: &mut Writer) {
        let name = &self.name;
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        to.value(&Fixed {
            claim: self.claim,
            stamp: self.stamp,
            kind: name.kind,
            lower: name.lower,
            upper: name.upper,
            user: name.owner.user,
            process: name.owner.process,
            flags: bit(name.unique, flag::UNIQUE)
                | bit(name.group, flag::GROUP)
                | bit(name.address.is_some(), flag::SOCKET),
            serial: name.owner.serial,
            endpoint: name.endpoint,
            address: name.address.unwrap_or(NO_ADDRESS),
            alias_len: name.alias.len() as u8,
        });
        to.bytes(name.alias.as_bytes());
    }
}

/// One numbered change of a host's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A name was claimed; the number of the change is that of the claim.
    Claimed(Publication),
    /// A claim ended.
    Withdrawn {
        /// Its number.
        claim: u64,
        /// The cause.
        gone: Gone,
    },
}

impl Change {
    /// Returns its length in bytes.
    pub fn encoded_len(&self) -> usize {
        1 + match self {
            Change::Claimed(publication) => publication.encoded_len(),
            Change::Withdrawn { .. } => 8 + Gone::SIZE,
        }
    }
}

impl Value for Change {
    const SIZE: usize = 1 + 8 + Gone::SIZE;

    fn read(from: &mut Reader<'_>) -> Result<Change, WireError> {
        match from.value::<u8>()? {
            1 => from.value().map(Change::Claimed),
            2 => Ok(Change::Withdrawn { claim: from.value()?, gone: from.value()? }),
            _ => Err(WireError::Value { name: "change" }),
        }
    }

    fn write(&self, to: &mut Writer) {
        match self {
            Change::Claimed(publication) => {
                to.value(&1u8);
                to.value(publication);
            }
            Change::Withdrawn { claim, gone } => {
                to.value(&2u8);
                to.value(claim);
                to.value(gone);
            }
        }
    }
}
