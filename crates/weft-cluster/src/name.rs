//! Names as people write them: `WORD`, `WORD:INSTANCE`, `WORD:FIRST-LAST`.
//!
//! A word that is a number is the type itself. Any other word is an alias, and its hash is the
//! type; a look-up compares the word as well, so two words with one hash are told apart.

use crate::client::NamesError;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use weft_names::wire::ALIAS_MAX;
use weft_names::{Binding, Claim};

/// A name, or a range of names, as it is claimed or looked up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Type.
    pub kind: u32,
    /// First instance.
    pub lower: u32,
    /// Last instance.
    pub upper: u32,
    /// The word; empty: the type was given as a number.
    pub alias: String,
}

/// Returns the type of a word. Numbers up to 2^31 are left to those who choose types by number.
pub fn kind_of(word: &str) -> u32 {
    let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as u32 | 1 << 31
}

impl Name {
    /// Makes a name from a type and instances.
    pub fn new(kind: u32, instances: RangeInclusive<u32>) -> Name {
        Name { kind, lower: *instances.start(), upper: *instances.end(), alias: String::new() }
    }

    /// Returns true if a claim has an instance of this name.
    pub fn has(&self, claim: &Claim) -> bool {
        let is_alias = self.alias.is_empty() || self.alias == claim.alias;
        is_alias
            && claim.kind == self.kind
            && claim.lower <= self.upper
            && self.lower <= claim.upper
    }

    /// Writes the name of a binding as it would be typed.
    pub fn of(binding: &Binding) -> Name {
        let Claim { kind, lower, upper, alias, .. } = &binding.name;
        let word = if kind_of(alias) == *kind { alias.clone() } else { String::new() };
        Name { kind: *kind, lower: *lower, upper: *upper, alias: word }
    }
}

impl FromStr for Name {
    type Err = NamesError;

    fn from_str(text: &str) -> Result<Name, NamesError> {
        let wrong = || NamesError::Name(text.into());
        let (word, range) = match text.split_once(':') {
            Some((word, range)) => (word, Some(range)),
            None => (text, None),
        };
        let (lower, upper) = match range.map(|r| r.split_once('-').unwrap_or((r, r))) {
            None => (0, u32::MAX),
            Some((first, last)) => {
                (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?)
            }
        };
        let is_word = !word.is_empty()
            && word.len() <= ALIAS_MAX
            && !word.chars().any(|c| c.is_control() || c.is_whitespace());
        if !is_word || lower > upper {
            return Err(wrong());
        }
        Ok(match word.parse() {
            Ok(kind) => Name { kind, lower, upper, alias: String::new() },
            Err(_) => Name { kind: kind_of(word), lower, upper, alias: word.into() },
        })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.alias.is_empty() {
            true => write!(f, "{}", self.kind)?,
            false => write!(f, "{}", self.alias)?,
        }
        match (self.lower, self.upper) {
            (0, u32::MAX) => Ok(()),
            (lower, upper) if lower == upper => write!(f, ":{lower}"),
            (lower, upper) => write!(f, ":{lower}-{upper}"),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__and_display_are_inverse() {
        for text in ["pump", "pump:7", "pump:7-9", "1000", "1000:0", "4294967295:1-2"] {
            assert_eq!(text.parse::<Name>().unwrap().to_string(), text);
        }
        for wrong in ["", ":1", "a:", "a:9-8", "a:x", "a b", "a:1:2", &"x".repeat(64)] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        assert!(kind_of("pump") > i32::MAX as u32);
    }
}
