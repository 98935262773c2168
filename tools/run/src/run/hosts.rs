//! Host lists, and the placement of ranks.

use anyhow::{bail, Context, Result};

/// A host of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name as the user gave it.
    pub name: String,
    /// Number of ranks that it has room for, if the user gave one.
    pub slots: Option<usize>,
}

/// The ranks of one host, numbered from `first`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name of the host.
    pub host: String,
    /// First rank.
    pub first: usize,
    /// Number of ranks.
    pub count: usize,
}

fn parse_host(text: &str) -> Result<Host> {
    let (name, slots) = match text.rsplit_once(':') {
        // An IPv6 address without brackets has more than one colon.
        Some((name, slots)) if !name.contains(':') || name.ends_with(']') => {
            let count = slots.parse::<usize>().ok().filter(|&n| n > 0);
            let count = count.with_context(|| {
                format!("{text:?}: expected HOST or HOST:SLOTS, with SLOTS a positive number")
            })?;
            (name, Some(count))
        }
        _ => (text, None),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    // A name that starts with a dash would be an option of ssh.
    if name.is_empty() || name.starts_with('-') || name.contains(char::is_whitespace) {
        bail!("{text:?} is not a host name");
    }
    Ok(Host { name: name.to_owned(), slots })
}

fn add(hosts: &mut Vec<Host>, host: Host) {
    match hosts.iter_mut().find(|h| h.name == host.name) {
        Some(known) => {
            let slots = known.slots.unwrap_or(1) + host.slots.unwrap_or(1);
            known.slots = Some(slots);
        }
        None => hosts.push(host),
    }
}

/// Parses `h1,h2:4`.
pub fn parse_list(text: &str) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        add(&mut hosts, parse_host(part)?);
    }
    if hosts.is_empty() {
        bail!("the host list is empty");
    }
    Ok(hosts)
}

/// Parses a host file: one host per line, as `host`, `host:4` or `host slots=4`; `#` starts a
/// comment.
pub fn parse_file(text: &str) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else {
            continue;
        };
        let place = || format!("line {}", at + 1);
        let mut host = parse_host(first).with_context(place)?;
        for word in words {
            let slots = word.strip_prefix("slots=").and_then(|n| n.parse().ok());
            match slots.filter(|&n: &usize| n > 0) {
                Some(slots) => host.slots = Some(slots),
                None => bail!("{}: expected slots=N, found {word:?}", place()),
            }
        }
        add(&mut hosts, host);
    }
    if hosts.is_empty() {
        bail!("it names no host");
    }
    Ok(hosts)
}

/// Returns the number of ranks if the user gave none: all slots.
pub fn slots(hosts: &[Host]) -> usize {
    hosts.iter().map(|host| host.slots.unwrap_or(1)).sum()
}

/// Places `size` ranks in blocks: hosts with slots are filled in order, hosts without slots share
/// the rest evenly. The second value is the number of ranks beyond the slots; those are spread
/// evenly.
pub fn place(hosts: &[Host], size: usize) -> (Vec<Share>, usize) {
    let mut counts: Vec<usize> = Vec::with_capacity(hosts.len());
    let mut left = size;
    for host in hosts {
        let count = host.slots.unwrap_or(0).min(left);
        left -= count;
        counts.push(count);
    }
    let open: Vec<usize> = (0..hosts.len()).filter(|&i| hosts[i].slots.is_none()).collect();
    let excess = if open.is_empty() { left } else { 0 };
    let takers = if open.is_empty() { (0..hosts.len()).collect() } else { open };
    for (at, &host) in takers.iter().enumerate() {
        let share = left.div_ceil(takers.len() - at);
        counts[host] += share;
        left -= share;
    }
    let mut first = 0;
    let mut shares = Vec::new();
    for (host, &count) in hosts.iter().zip(&counts) {
        if count > 0 {
            shares.push(Share { host: host.name.clone(), first, count });
            first += count;
        }
    }
    (shares, excess)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn counts(list: &str, size: usize) -> (Vec<usize>, usize) {
        let (shares, excess) = place(&parse_list(list).unwrap(), size);
        assert_eq!(shares.iter().map(|s| s.count).sum::<usize>(), size);
        (shares.iter().map(|s| s.count).collect(), excess)
    }

    #[test]
    fn place__fills_slots_then_shares_the_rest() {
        assert_eq!(counts("a,b", 5), (vec![3, 2], 0));
        assert_eq!(counts("a:2,b:4", 5), (vec![2, 3], 0));
        assert_eq!(counts("a:2,b", 6), (vec![2, 4], 0));
        assert_eq!(counts("a:4,b:4", 3), (vec![3], 0));
        assert_eq!(counts("a:1,b:1", 5), (vec![3, 2], 3));
        assert_eq!(counts("a,b,c", 2), (vec![1, 1], 0));
    }

    #[test]
    fn parse_list__joins_repeated_hosts_and_refuses_junk() {
        assert_eq!(parse_list("a,a,b:2").unwrap()[0], Host { name: "a".into(), slots: Some(2) });
        for bad in ["", ",", "a:0", "a:x", ":3", "-oProxyCommand=x", "a b"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_list("fe80::1").unwrap()[0].name, "fe80::1");
        assert_eq!(parse_list("[fe80::1]:2").unwrap()[0].slots, Some(2));
    }

    #[test]
    fn parse_file__reads_the_usual_forms() {
        let hosts = parse_file("# all\nh1\nh2:4\n\nh3 slots=8 # fast\n").unwrap();
        assert_eq!(hosts.len(), 3);
        assert_eq!(slots(&hosts), 13);
        for bad in ["", "# none", "h1 cores=2", "h1:0"] {
            assert!(parse_file(bad).is_err(), "{bad}");
        }
    }
}
