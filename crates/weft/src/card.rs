//! The card of a rank, which it publishes at start-up: its address, and its values of the settings
//! that all ranks of a job must share. A rank whose values differ would else be a silent peer.

use std::fmt::Write;
use weft_core::exception::FOR_PEERS;
use weft_core::{wire, Config};
use weft_link::ether::EtherType;
use weft_link::secure::Mode;
use weft_link::Address;

/// The name of the version of the protocol among the settings, which no variable sets.
const PROTOCOL: &str = "protocol";

/// A rank's card. Its bytes are the length of the address (u16, little-endian), the address, and a
/// line `NAME=VALUE` for each setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub address: Address,
    settings: Vec<(String, String)>,
}

impl Card {
    /// Makes the card of a rank with this configuration.
    pub fn new(address: Address, config: &Config, mode: Mode, kind: EtherType) -> Card {
        let mut settings = vec![
            (PROTOCOL.to_string(), wire::VERSION.to_string()),
            ("WEFT_SECURITY".to_string(), mode.to_string()),
            ("WEFT_TREE".to_string(), config.tree.to_string()),
        ];
        if !address.ether.is_empty() {
            settings.push(("WEFT_ETHERTYPE".to_string(), kind.to_string()));
        }
        // A value that holds for some ranks is in the setting of every rank.
        for setting in FOR_PEERS {
            let own = config.exceptions.iter().filter(|e| e.setting == *setting);
            let list = own.map(ToString::to_string).collect::<Vec<_>>().join(",");
            settings.push((format!("WEFT_{}", setting.to_uppercase()), list));
        }
        Card { address, settings }
    }

    pub fn encode(&self) -> Vec<u8> {
        let address = self.address.encode();
        let mut bytes = (address.len() as u16).to_le_bytes().to_vec();
        bytes.extend(address);
        let mut text = String::new();
        for (name, value) in self.settings.iter().filter(|(_, value)| !value.is_empty()) {
            let _never_fails = writeln!(text, "{name}={value}");
        }
        bytes.extend(text.bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Card, String> {
        let short = || "its card ends early".to_string();
        let (len, rest) = bytes.split_first_chunk::<2>().ok_or_else(short)?;
        let len = usize::from(u16::from_le_bytes(*len));
        let (address, text) = rest.split_at_checked(len).ok_or_else(short)?;
        let address = Address::decode(address).map_err(|e| e.to_string())?;
        let pair = |line: &str| line.split_once('=').map(|(n, v)| (n.to_string(), v.to_string()));
        let settings = String::from_utf8_lossy(text).lines().filter_map(pair).collect();
        Ok(Card { address, settings })
    }

    fn value(&self, name: &str) -> &str {
        let found = self.settings.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Compares the settings of two ranks.
    ///
    /// # Errors
    /// One differs; the text names it, both ranks and both values.
    pub fn agree(&self, rank: usize, other: &Card, other_rank: usize) -> Result<(), String> {
        for (name, ours) in &self.settings {
            let theirs = other.value(name);
            // The EtherType matters between ranks with packet sockets.
            if ours == theirs || name == "WEFT_ETHERTYPE" && theirs.is_empty() {
                continue;
            }
            let said = |value: &str| match value {
                "" => "no value for some ranks".to_string(),
                value => value.to_string(),
            };
            let (ours, theirs) = (said(ours), said(theirs));
            return Err(match name.as_str() {
                PROTOCOL => format!(
                    "rank {rank} speaks version {ours} of weft's protocol, rank {other_rank} \
                     version {theirs}: start every rank from the same build of weft"
                ),
                _ => format!(
                    "rank {rank} has {name}={ours}, rank {other_rank} has {theirs}: all ranks of \
                     a job need the same value"
                ),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn card(config: &Config, mode: Mode) -> Card {
        let address = Address { rank: Some(3), ..Address::default() };
        Card::new(address, config, mode, EtherType::default())
    }

    #[test]
    fn decode__gives_what_was_encoded() {
        let mut config = Config::default();
        config.set("transfer", "auto,3=copy,4-7=gather").unwrap();
        let card = card(&config, Mode::Auth);
        let back = Card::decode(&card.encode()).unwrap();
        assert_eq!((back.agree(1, &card, 2), card.agree(1, &back, 2)), (Ok(()), Ok(())));
        assert_eq!(back.value("WEFT_TRANSFER"), "3=copy,4-7=gather");
        for end in 0..30 {
            assert!(Card::decode(&card.encode()[..end]).is_err());
        }
    }

    #[test]
    fn agree__names_both_ranks_and_both_values() {
        let usual = card(&Config::default(), Mode::Auth);
        let why = card(&Config::default(), Mode::None).agree(5, &usual, 0).unwrap_err();
        assert!(why.contains("rank 5 has WEFT_SECURITY=none, rank 0 has auth"), "{why}");
        for (name, value) in [("tree", "chain"), ("mtu", "0,2=1K"), ("transfer", "auto,3=copy")] {
            let mut config = Config::default();
            config.set(name, value).unwrap();
            let other = card(&config, Mode::Auth);
            let name = format!("WEFT_{}=", name.to_uppercase());
            for (one, two) in [(&usual, &other), (&other, &usual)] {
                let why = one.agree(5, two, 0).unwrap_err();
                assert!(why.contains(&name) && why.contains("rank 0 has"), "{why}");
            }
        }
        // Each side may have its own value for all ranks.
        let mut config = Config::default();
        config.set("mtu", "1K").unwrap();
        assert_eq!(card(&config, Mode::Auth).agree(5, &usual, 0), Ok(()));
    }
}
