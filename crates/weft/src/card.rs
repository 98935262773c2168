//! The card of a rank, which it publishes at start-up: its address, and its values of the settings
//! that all ranks of a job must share. A rank whose values differ would else be a silent peer.

use crate::job::Links;
use std::fmt::Write;
use weft_core::exception::FOR_PEERS;
use weft_core::{wire, Config};
use weft_link::ether::EtherType;
use weft_link::secure::Mode;
use weft_link::Address;

/// The name of the version of the protocol among the settings, which no variable sets.
const PROTOCOL: &str = "protocol";

/// The names of lines that are not compared: the host, and what a rank opens for `WEFT_LINK`.
const HOST: &str = "host";
const LINKS: &str = "links";

/// Kinds of carriers, of which two ranks need one in common: memory, UDP, TCP, Ethernet frames.
const MEMORY: u8 = 1;
const UDP: u8 = 2;
const TCP: u8 = 4;
const FRAMES: u8 = 8;

/// A rank's card. Its bytes are the length of the address (u16, little-endian), the address, and a
/// line `NAME=VALUE` for each setting, for the name of the host, and for the links: the kinds of
/// carriers, a space, and `WEFT_LINK`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub address: Address,
    /// Name of the host, empty if unknown.
    pub host: String,
    /// Kinds of carriers, and the setting that they follow from.
    links: (u8, String),
    settings: Vec<(String, String)>,
}

/// Returns the kinds of carriers of a set of links. An agent has UDP or frames, or both.
fn carriers(links: Links) -> u8 {
    let frames = links.packet || links.gso || links.xdp || links.agent;
    [(links.shm, MEMORY), (links.udp || links.agent, UDP), (links.tcp, TCP), (frames, FRAMES)]
        .into_iter()
        .fold(0, |all, (is_there, kind)| all | if is_there { kind } else { 0 })
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
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Card { address, host: host.trim().to_string(), links: (0, String::new()), settings }
    }

    /// Adds the links that a rank opens for this value of `WEFT_LINK`.
    pub fn with_links(self, setting: &str, opened: Links) -> Card {
        Card { links: (carriers(opened), setting.to_string()), ..self }
    }

    pub fn encode(&self) -> Vec<u8> {
        let address = self.address.encode();
        let mut bytes = (address.len() as u16).to_le_bytes().to_vec();
        bytes.extend(address);
        let mut text = String::new();
        let _never_fails = writeln!(text, "{HOST}={}", self.host);
        let _never_fails = writeln!(text, "{LINKS}={} {}", self.links.0, self.links.1);
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
        let mut card =
            Card { address, host: String::new(), links: (0, String::new()), settings: Vec::new() };
        for (name, value) in String::from_utf8_lossy(text).lines().filter_map(pair) {
            match (name.as_str(), value.split_once(' ')) {
                (HOST, _) => card.host = value,
                (LINKS, Some((kinds, setting))) => {
                    card.links = (kinds.parse().unwrap_or(0), setting.to_string());
                }
                _ => card.settings.push((name, value)),
            }
        }
        Ok(card)
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
        self.share_a_link(rank, other, other_rank)
    }

    /// Checks that the settings leave two ranks a link in common.
    fn share_a_link(&self, rank: usize, other: &Card, other_rank: usize) -> Result<(), String> {
        let (ours, theirs) = (&self.address, &other.address);
        let one_agent = ours.agent.is_some() && ours.agent == theirs.agent;
        let one_host = ours.host == theirs.host || one_agent;
        let ((mine, set), (its, other_set)) = (&self.links, &other.links);
        let common = mine & its & if one_host { u8::MAX } else { !MEMORY };
        // A card without links is of a rank that says nothing of them.
        match common == 0 && *mine != 0 && *its != 0 {
            true => Err(format!(
                "rank {rank} has WEFT_LINK={set}, rank {other_rank} has {other_set}: that leaves \
                 no link between them; all ranks of a job need the same value, or a link in common"
            )),
            false => Ok(()),
        }
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
    fn agree__ranks_without_a_link_in_common_get_both_settings() {
        let of = |links: &str, host: u64| {
            let address = Address { host, ..Address::default() };
            let card = Card::new(address, &Config::default(), Mode::Auth, EtherType::default());
            let card = card.with_links(links, Links::parse(links).unwrap());
            Card::decode(&card.encode()).unwrap()
        };
        for (one, two, there, is_good) in [
            ("udp", "tcp", 1, false),
            ("shm,udp", "shm,tcp", 1, true),
            ("shm,udp", "shm,tcp", 2, false),
            ("shm,packet", "xdp", 2, true),
            ("agent", "udp", 2, true),
            ("agent", "tcp", 2, false),
            ("udp", "udp", 2, true),
        ] {
            let agreed = of(one, 1).agree(3, &of(two, there), 0);
            assert_eq!(agreed.is_ok(), is_good, "{one} and {two}: {agreed:?}");
            let said = format!("rank 3 has WEFT_LINK={one}, rank 0 has {two}: that leaves no link");
            assert!(is_good || agreed.unwrap_err().starts_with(&said), "{one} and {two}");
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(of("udp", 1).host, host.trim());
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
