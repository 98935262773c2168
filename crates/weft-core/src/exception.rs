//! Values that hold for some peers: settings such as `auto,3=gather,4-7=copy`.
//!
//! An item with an equals sign names ranks, and the value that holds between each of them and every
//! other rank; the item without one holds for the rest. Both sides of a pair thus get the same
//! value from one setting of the whole job. Of several items that concern a pair the last counts.
//! For fetch-and-add the ranks are the owners of the counters.

use crate::config::{Config, ConfigError};
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::ops::RangeInclusive;

/// The settings that may have values for some peers alone.
pub const FOR_PEERS: &[&str] = &["reliability", "transfer", "mtu", "fetch_add"];

/// A value of a setting for some ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The ranks.
    pub ranks: RangeInclusive<u32>,
    /// The setting, one of [`FOR_PEERS`].
    pub setting: &'static str,
    /// Its value for them, as [`Config::get`] has it.
    pub value: String,
}

impl Exception {
    /// Returns true if it names this rank.
    pub fn names(&self, rank: Option<u32>) -> bool {
        rank.is_some_and(|rank| self.ranks.contains(&rank))
    }

    /// Returns what is wrong with it in a job of `size` ranks: it names ranks that are not there.
    pub fn beyond(&self, size: usize) -> Option<String> {
        let last = size.saturating_sub(1) as u32;
        (*self.ranks.end() > last).then(|| {
            format!(
                "WEFT_{} has a value for ranks that are not there, in {self}: the job has ranks \
                 0 to {last}",
                self.setting.to_uppercase()
            )
        })
    }

    /// Returns true if it applies in process `me` between `me` and `peer`.
    fn concerns(&self, me: Option<u32>, peer: Option<u32>) -> bool {
        self.names(peer) || self.setting != "fetch_add" && self.names(me)
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.ranks.start(), self.ranks.end());
        match first == last {
            true => write!(f, "{first}={}", self.value),
            false => write!(f, "{first}-{last}={}", self.value),
        }
    }
}

const NOT_FOR_PEERS: &str =
    "it holds for a whole job; for some ranks reliability, transfer, mtu and fetch_add can be set";
const RANKS: &str = "name ranks as in auto,3=copy,4-7=gather: a number, or the first and the last";
const TWICE: &str = "one value holds for all ranks that are not named; write 3=VALUE for rank 3";

/// Parses ranks such as `3` or `4-7`.
fn ranks(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let text = text.trim();
        text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok())?
    };
    let ranks = number(first)?..=number(last)?;
    (!ranks.is_empty()).then_some(ranks)
}

impl Config {
    /// Sets one key from text: a value, or, for settings with values for some peers, a list such as
    /// `auto,3=gather,4-7=copy`. A list without a value for the others leaves that unchanged.
    ///
    /// # Errors
    /// There is no such key, or it does not accept this value; nothing is changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let bad = |advice| ConfigError {
            name: name.to_string(),
            value: value.to_string(),
            range: None,
            advice,
        };
        let Some(&setting) = FOR_PEERS.iter().find(|known| **known == name) else {
            return match value.contains('=') && self.get(name).is_some() {
                true => Err(bad(NOT_FOR_PEERS)),
                false => self.set_for_all(name, value),
            };
        };
        let mut new = self.clone();
        new.exceptions.retain(|e| e.setting != setting);
        let mut for_all = false;
        for item in value.split(',') {
            let Some((who, value)) = item.split_once('=') else {
                if core::mem::replace(&mut for_all, true) {
                    return Err(bad(TWICE));
                }
                new.set_for_all(setting, item)?;
                continue;
            };
            let ranks = ranks(who).ok_or_else(|| bad(RANKS))?;
            let mut one = Config::default();
            one.set_for_all(setting, value)?;
            let value = one.get_field(setting).unwrap_or_default();
            new.exceptions.push(Exception { ranks, setting, value });
        }
        *self = new;
        Ok(())
    }

    /// Returns the value of a key as text that [`set`](Config::set) accepts.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut text = self.get_field(name)?;
        for exception in self.exceptions.iter().filter(|e| e.setting == name) {
            text += &format!(",{exception}");
        }
        Some(text)
    }

    /// Returns the configuration for a peer of this rank, with all exceptions resolved.
    pub fn for_peer(&self, rank: Option<u32>) -> Config {
        let mut config = self.clone();
        for exception in core::mem::take(&mut config.exceptions) {
            if exception.concerns(self.rank, rank) {
                let set = config.set_for_all(exception.setting, &exception.value);
                debug_assert!(set.is_ok(), "read before: {exception}");
            }
        }
        config
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::choices::{Server, Transfer};
    use crate::Reliability;
    use alloc::vec::Vec;

    fn with(set: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        set.iter().for_each(|(name, value)| config.set(name, value).unwrap());
        config
    }

    fn of(config: &Config, me: u32, peer: u32) -> Config {
        Config { rank: Some(me), ..config.clone() }.for_peer(Some(peer))
    }

    #[test]
    fn set__ranks_that_are_named_are_exceptions() {
        let config = with(&[("transfer", "gather, 3=copy ,4-7=rcpy,5=auto")]);
        assert_eq!(config.transfer, Transfer::Gather);
        let transfers: Vec<_> = (2..9).map(|peer| of(&config, 0, peer).transfer).collect();
        use Transfer::{Auto, Copy, Gather, Rcpy};
        assert_eq!(transfers, [Gather, Copy, Rcpy, Auto, Rcpy, Rcpy, Gather]);
        assert_eq!(config.get("transfer").as_deref(), Some("gather,3=copy,4-7=rcpy,5=auto"));
        assert_eq!(config.for_peer(None).transfer, Gather);
    }

    #[test]
    fn set__both_sides_of_a_pair_come_to_the_same() {
        let config = with(&[
            ("reliability", "none,1-2=gbn,2=selective"),
            ("mtu", "4K,0=1000"),
            ("transfer", "1=copy,3=gather"),
        ]);
        let part = |a, b| {
            let c = of(&config, a, b);
            (c.reliability, c.mtu, c.transfer)
        };
        for (a, b) in (0..5).flat_map(|a| (0..5).map(move |b| (a, b))) {
            assert_eq!(part(a, b), part(b, a), "{a} and {b}");
        }
        assert_eq!(part(0, 1), (Reliability::GoBackN, 1000, Transfer::Copy));
        assert_eq!(part(1, 3), (Reliability::GoBackN, 4096, Transfer::Gather));
        assert_eq!(part(4, 5), (Reliability::None, 4096, Transfer::Auto));
    }

    #[test]
    fn set__fetch_and_add_is_of_the_owner_of_the_counters() {
        let config = with(&[("fetch_add", "host,2=agent")]);
        assert_eq!(of(&config, 0, 2).fetch_add, Server::Agent);
        assert_eq!(of(&config, 2, 2).fetch_add, Server::Agent);
        assert_eq!(of(&config, 2, 0).fetch_add, Server::Host);
    }

    #[test]
    fn set__a_new_value_replaces_exceptions_of_that_setting_alone() {
        let mut config = with(&[("transfer", "copy,3=gather"), ("mtu", "3=2K")]);
        config.set("transfer", "1=rcpy").unwrap();
        assert_eq!(config.get("transfer").as_deref(), Some("copy,1=rcpy"));
        config.set("transfer", "auto").unwrap();
        assert_eq!(config.get("transfer").as_deref(), Some("auto"));
        assert_eq!(config.get("mtu").as_deref(), Some("0,3=2048"));
    }

    #[test]
    fn set__nonsense_is_refused_with_what_to_do_and_changes_nothing() {
        let cases = [
            ("receipt", "adaptive,3=polling", "for some ranks reliability, transfer, mtu and"),
            ("window", "3=7", "it holds for a whole job"),
            ("transfer", "auto,copy", "3=VALUE for rank 3"),
            ("transfer", "3=copi", "weft info --config"),
            ("transfer", "auto,3=", "weft info --config"),
            ("transfer", "auto,", "3=VALUE for rank 3"),
            ("transfer", "", "weft info --config"),
            ("transfer", "7-4=copy", "the first and the last"),
            ("transfer", "nodeb=copy", "name ranks as in"),
            ("transfer", "=copy", "name ranks as in"),
            ("transfer", "-1=copy", "name ranks as in"),
            ("transfer", "+1=copy", "name ranks as in"),
            ("transfer", "4294967296=copy", "name ranks as in"),
            ("mtu", "0,1-2-3=2K", "name ranks as in"),
            ("mtu", "1=2K=3", "no whole number: 276 to"),
            ("fetch_add", "1=agent,2=nobody", "weft info --config"),
            ("nothing", "1=2", "weft info --config"),
        ];
        let mut config = with(&[("transfer", "copy,3=gather")]);
        for (name, value, says) in cases {
            let why = config.set(name, value).unwrap_err().to_string();
            assert!(why.contains(says), "{name}={value}: {why}");
        }
        assert_eq!(config.get("transfer").as_deref(), Some("copy,3=gather"));
        assert_eq!(config.exceptions.len(), 1);
    }

    #[test]
    fn beyond__names_what_the_job_has() {
        let config = with(&[("transfer", "auto,3=copy,9=copy,2-4=rcpy")]);
        let beyond: Vec<_> = config.exceptions.iter().map(|e| e.beyond(4)).collect();
        assert_eq!((&beyond[0], beyond[1].is_some()), (&None, true));
        let text = beyond[2].as_deref().unwrap();
        assert!(text.contains("WEFT_TRANSFER") && text.contains("2-4=rcpy"), "{text}");
        assert!(text.ends_with("ranks 0 to 3"), "{text}");
    }

    /// Returns the next number of a generator, so that every run is the same.
    fn next(state: &mut u64, below: u64) -> u64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    #[test]
    fn set__takes_back_what_get_says_and_never_panics() {
        let parts: Vec<&str> =
            ",|=|-|0|3|17|auto|copy|2K|gbn|agent| |K|é|none|3=copy|,0-17=2K|17=gbn"
                .split('|')
                .collect();
        let (mut taken, mut seed) = (0, 7);
        for _ in 0..200_000 {
            let count = next(&mut seed, 12);
            let pick = |_| parts[next(&mut seed, parts.len() as u64) as usize];
            let text: String = (0..count).map(pick).collect();
            let setting = FOR_PEERS[next(&mut seed, FOR_PEERS.len() as u64) as usize];
            let mut config = Config::default();
            if config.set(setting, &text).is_err() {
                continue;
            }
            taken += usize::from(!config.exceptions.is_empty());
            let said = config.get(setting).unwrap();
            let mut again = Config::default();
            again.set(setting, &said).unwrap();
            assert_eq!(again.exceptions, config.exceptions, "{text:?}, {said:?}");
            for peer in [0, 3, 17, 30] {
                let held = config.for_peer(Some(peer)).get(setting);
                let last = config.exceptions.iter().rfind(|e| e.ranks.contains(&peer));
                let wanted = last.map_or(config.get_field(setting), |e| Some(e.value.clone()));
                assert_eq!(held, wanted, "{text:?} for {peer}");
            }
        }
        assert!(taken > 100, "only {taken} texts had exceptions");
    }
}
