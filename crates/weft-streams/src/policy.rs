//! The connections of a program that may share memory, by their addresses and ports.
//!
//! A policy is a list of rules, separated by commas. A rule names addresses, ports or both of one
//! end, its own or the other: `:6379`, `:7000-7100`, `10.0.0.0/8`, `[fd00::]/8:5432`. The first
//! rule that fits decides: the connection may, or, after `!`, it stays TCP. Others may only if
//! every rule has a `!`.

use crate::message::Place;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most rules of a policy.
pub const RULES_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    denies: bool,
    address: u128,
    mask: u128,
    first: u16,
    last: u16,
}

/// A policy. The default one allows all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    rules: [Option<Rule>; RULES_MAX],
}

impl Policy {
    /// Parses a policy; allocates nothing.
    ///
    /// # Errors
    /// The rule that is wrong.
    pub fn parse(text: &str) -> Result<Policy, &str> {
        let mut policy = Policy::default();
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        for (i, word) in words.enumerate() {
            let place = policy.rules.get_mut(i).ok_or(word)?;
            *place = Some(rule(word).ok_or(word)?);
        }
        Ok(policy)
    }

    /// True if a connection with these names may share memory.
    pub fn allows(&self, local: Place, remote: Place) -> bool {
        let mut rules = self.rules.iter().flatten();
        let fits = |rule: &&Rule| [local, remote].into_iter().any(|place| rule.fits(place));
        match rules.clone().find(fits) {
            Some(rule) => !rule.denies,
            None => rules.all(|rule| rule.denies),
        }
    }
}

impl Rule {
    fn fits(&self, place: Place) -> bool {
        u128::from_be_bytes(place.address()) & self.mask == self.address
            && (self.first..=self.last).contains(&place.port())
    }
}

fn rule(word: &str) -> Option<Rule> {
    let (denies, word) = match word.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let (address, rest) = match word.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(address, rest)| (Some(address), rest))?,
        None => {
            let end = word.find(['/', ':']).unwrap_or(word.len());
            (Some(&word[..end]).filter(|text| !text.is_empty()), &word[end..])
        }
    };
    let (bits, ports) = match rest.split_once(':') {
        Some((bits, ports)) => (bits, Some(ports)),
        None => (rest, None),
    };
    if address.is_none() && ports.is_none() {
        return None;
    }
    let bits = match bits.strip_prefix('/') {
        Some(bits) => Some(bits.parse::<u32>().ok()?),
        None if bits.is_empty() => None,
        None => return None,
    };
    let (address, mask) = network(address, bits)?;
    let (first, last) = match ports {
        Some(ports) => {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            (first.parse().ok()?, last.parse().ok()?)
        }
        None => (0, u16::MAX),
    };
    (first <= last).then_some(Rule { denies, address, mask, first, last })
}

/// Returns the first address of a network, and the mask of its bits.
fn network(address: Option<&str>, bits: Option<u32>) -> Option<(u128, u128)> {
    let Some(address) = address else { return bits.is_none().then_some((0, 0)) };
    let (address, before) = match address.parse().ok()? {
        IpAddr::V4(v4) => (Ipv4Addr::to_ipv6_mapped(&v4), 96),
        IpAddr::V6(v6) => (v6, 0),
    };
    let bits = before + bits.unwrap_or(128 - before);
    let mask = match bits {
        0 => 0,
        1..=128 => u128::MAX << (128 - bits),
        _ => return None,
    };
    Some((Ipv6Addr::to_bits(address) & mask, mask))
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn v4(last: u8, port: u16) -> Place {
        Place::v4([10, 0, 0, last], port)
    }

    #[test]
    fn allows__the_first_rule_that_fits_either_end() {
        let (own, other) = (v4(1, 50_000), v4(2, 6379));
        for (policy, allows) in [
            ("", true),
            (":6379", true),
            (":50000", true),
            (":6380", false),
            ("!:6379", false),
            ("!:6380", true),
            (":6000-7000", true),
            ("10.0.0.0/8", true),
            ("10.0.0.2", true),
            ("10.0.0.3", false),
            ("!10.0.0.2:6379", false),
            ("!10.0.0.2:6380", true),
            ("!10.0.0.0/31, 10.0.0.0/24", false),
            (":6379, !10.0.0.0/8", true),
            ("11.0.0.0/8:6379,0.0.0.0/0:1-2", false),
            ("::ffff:1", false),
        ] {
            let parsed = Policy::parse(policy);
            if policy.starts_with(':') && policy.contains("ffff") {
                assert!(parsed.is_err(), "addresses of IPv6 stand in brackets");
                continue;
            }
            assert_eq!(parsed.unwrap().allows(own, other), allows, "{policy}");
        }
        let v6 = Place::new("fd00::1".parse::<Ipv6Addr>().unwrap().octets(), 80);
        assert!(Policy::parse("[fd00::]/8:80").unwrap().allows(v6, v6));
        assert!(!Policy::parse("![fd00::1]").unwrap().allows(v6, v6));
        assert!(!Policy::parse("0.0.0.0/0").unwrap().allows(v6, v6));
    }

    #[test]
    fn parse__names_the_rule_that_is_wrong() {
        for wrong in ["x", ":", ":70000", ":9-8", "10.0.0.0/33", "10.0.0.0/x", "[fd00::", "/8", "!"]
        {
            let text = format!(":1, {wrong}");
            assert_eq!(Policy::parse(&text).err(), Some(wrong), "{wrong}");
        }
        let many = vec![":1"; RULES_MAX + 1].join(",");
        assert!(Policy::parse(&many).is_err());
    }
}
