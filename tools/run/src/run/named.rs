//! Hosts on which programs have claimed a name.

use super::hosts::Host;
use anyhow::{bail, Context, Result};
use std::collections::BTreeMap;
use weft_cluster::names::HostId;
use weft_cluster::{Name, Names};

/// Returns the hosts of the owners of a name, with a slot for each owner.
///
/// # Errors
/// The text is no name, no agent of a cluster serves here, or nobody has the name.
pub fn hosts(text: &str) -> Result<Vec<Host>> {
    let name: Name = text.parse().map_err(crate::misuse::of)?;
    let mut names = Names::connect()?;
    let mut owners: BTreeMap<HostId, usize> = BTreeMap::new();
    for binding in names.resolve_all(&name)? {
        *owners.entry(binding.id.host).or_default() += 1;
    }
    if owners.is_empty() {
        bail!("nobody has the name {name}; `weft names list` shows all names");
    }
    let known = names.hosts()?;
    let place = |(host, slots)| {
        let host = known.iter().find(|h| h.host == host).context("a host is gone")?;
        Ok(Host { name: host.address.ip().to_string(), slots: Some(slots) })
    };
    owners.into_iter().map(place).collect()
}
