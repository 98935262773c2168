//! Protection tags.

use crate::code::{Answer, Code};
use crate::handle::{unpack, Handle, Kind};
use crate::table::{Key, Table};

/// Most protection tags.
pub const TAGS_MAX: usize = 4096;

/// The protection tags of a network interface, each with the part of the keys of regions that it
/// gives.
pub struct Tags {
    /// Number of the interface in this process.
    nic: u8,
    /// True if the interface has tags.
    tagged: bool,
    secrets: Table<u32>,
}

impl Tags {
    /// Makes an empty table; `turn` as of [`Table::new`].
    pub fn new(nic: u8, tagged: bool, turn: u32) -> Tags {
        Tags { nic, tagged, secrets: Table::new(TAGS_MAX, turn) }
    }

    /// Checks a tag that a program names by handle.
    ///
    /// # Errors
    /// `VIP_INVALID_PTAG`: it is none, and the interface has tags.
    pub fn find(&self, handle: Handle) -> Answer<Option<Key>> {
        if !self.tagged {
            return Ok(None);
        }
        let found = unpack(Kind::Tag, handle).filter(|(nic, _)| *nic == self.nic);
        let found = found.filter(|(_, key)| self.secrets.get(*key).is_some());
        found.map(|(_, key)| Some(key)).ok_or(Code::InvalidPtag)
    }

    /// Returns the part of the keys of regions that a tag gives.
    pub fn secret(&self, tag: Option<Key>) -> u32 {
        tag.and_then(|tag| self.secrets.get(tag)).copied().unwrap_or_default()
    }

    /// Makes a tag.
    ///
    /// # Errors
    /// `VIP_ERROR_RESOURCE`: there are too many.
    pub fn create(&mut self) -> Answer<Key> {
        // Never 0, the secret of an interface without tags.
        let secret = (weft_link::random_u64() as u32).max(1);
        self.secrets.add(secret).ok_or(Code::ErrorResource)
    }

    /// Ends a tag, unless it is in use.
    ///
    /// # Errors
    /// `VIP_INVALID_PARAMETER`: it is none; `VIP_ERROR_RESOURCE`: it is in use.
    pub fn destroy(&mut self, key: Key, is_used: bool) -> Answer {
        self.secrets.get(key).ok_or(Code::InvalidParameter)?;
        if is_used {
            return Err(Code::ErrorResource);
        }
        self.secrets.remove(key);
        Ok(())
    }
}
