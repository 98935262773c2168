//! The measurements over one link: two ranks, their floors and peers, in turn.

use super::far::Far;
use super::netns::{self, Place};
use super::options::Options;
use super::pair::{self, Kind, Meter, Pair, Sample, Subject};
use super::probe::Probe;
use super::progress::Plan;
use super::table::{Better, Other, Row, Table};
use anyhow::{Context, Result};
use clap::ValueEnum;
use weft_run::{idle, misuse};

/// A link that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkName {
    /// Shared memory
    Shm,
    /// UDP
    Udp,
    /// TCP
    Tcp,
    /// Packet sockets
    Packet,
    /// Frames longer than the MTU on packet sockets
    Gso,
    /// AF_XDP
    Xdp,
    /// Through an agent (weftd) on each host, which has the raw sockets
    Agent,
    /// The links that ranks on two hosts get
    Auto,
    /// The links that ranks on two hosts get without the right to raw sockets
    Unprivileged,
}

impl LinkName {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            LinkName::Shm => "shm",
            LinkName::Udp => "udp",
            LinkName::Tcp => "tcp",
            LinkName::Packet => "packet",
            LinkName::Gso => "gso",
            LinkName::Xdp => "xdp",
            LinkName::Agent => "agent",
            LinkName::Auto => "auto",
            LinkName::Unprivileged => "unprivileged",
        }
    }

    /// Returns the value of `WEFT_LINK`.
    pub const fn links(self) -> &'static str {
        match self {
            // The links of a job on several hosts: shared memory does not connect hosts.
            LinkName::Auto => "shm,packet,gso,udp,tcp",
            LinkName::Unprivileged => "shm,udp,tcp",
            _ => self.name(),
        }
    }

    /// True if the link uses raw Ethernet, which is measured between lab hosts only.
    pub fn is_raw(self) -> bool {
        !matches!(self, LinkName::Shm | LinkName::Udp | LinkName::Tcp | LinkName::Unprivileged)
    }
}

/// Returns floors or peers, each with its figure.
pub fn others(all: impl Iterator<Item = (&'static str, Option<Sample>)>) -> Vec<Other> {
    all.map(|(name, sample)| Other { name, sample }).collect()
}

impl Table {
    /// Adds a row; nothing without a figure of weft.
    pub fn push(
        &mut self,
        what: &'static str,
        size: usize,
        ours: Option<Sample>,
        floors: Vec<Other>,
        peers: Vec<Other>,
    ) {
        if let Some(ours) = ours {
            self.rows.push(Row { what, size, ours, floors, peers });
        }
    }
}

/// Settings of all ranks. A pair is silent while others have their turns, which must not cause a
/// warning.
pub const CONFIG: &[(&str, &str)] = &[("WEFT_WARN_AFTER_MS", "60000")];

/// MTU between the hosts, in bytes.
pub const MTU: u32 = 1500;

/// The measurements over one link.
pub struct Bench<'a> {
    /// The link.
    pub link: LinkName,
    /// The place of the ranks.
    pub place: Place,
    /// Index of the pair for floors and peers.
    pub bare: usize,
    /// Index of a pair over the packet link, beside one served by agents.
    pub direct: Option<usize>,
    /// The hosts, where they are neither hosts of a lab nor this one.
    pub far: Option<Far>,
    /// The reason why there is no lab, where one was wanted.
    pub why_not: Option<String>,
    /// The pairs.
    pub meter: Meter<'a>,
}

impl<'a> Bench<'a> {
    /// Starts the two ranks.
    pub fn start(link: LinkName, options: &'a Options) -> Result<Bench<'a>> {
        Bench::start_with(link, options, CONFIG)
    }

    /// Starts the two ranks with other settings.
    pub fn start_with(
        link: LinkName,
        options: &'a Options,
        config: &'static [(&'static str, &'static str)],
    ) -> Result<Bench<'a>> {
        if let Some(far) = options.reach.far()? {
            return Bench::between(far, link, options, config);
        }
        if link.is_raw() && options.netns == netns::Mode::Off {
            misuse!("{} is measured between lab hosts only: leave out --netns off", link.name());
        }
        let mut kind = Kind { link: link.links(), config, place: Place::Here };
        let (mut pair, mut why_not) = (None, None);
        if link != LinkName::Shm && options.netns != netns::Mode::Off {
            kind.place = Place::Between(MTU);
            match Pair::start(&kind) {
                Ok(started) => pair = Some(started),
                Err(e) if link.is_raw() => {
                    return Err(e).context("two lab hosts (udp can be measured without)");
                }
                Err(e) if options.netns == netns::Mode::On => {
                    return Err(e).context("network namespaces (--netns auto does without)");
                }
                Err(e) => {
                    why_not = Some(format!("{e:#}"));
                    kind.place = Place::Here;
                }
            }
        }
        let pair = pair.map_or_else(|| Pair::start(&kind), Ok)?;
        let mut pairs = vec![pair];
        if link.is_raw() {
            // Floors and peers run on hosts of their own, on whose interface weft has no socket and
            // no program.
            pairs.push(Pair::start(&Kind { link: "udp", config: CONFIG, place: kind.place })?);
        }
        let bare = pairs.len() - 1;
        let mut direct = None;
        if link == LinkName::Agent {
            direct = Some(pairs.len());
            pairs.push(Pair::start(&Kind { link: "packet", config: CONFIG, place: kind.place })?);
        }
        let (title, plan, absent) = (link.name().into(), Plan::default(), Vec::new());
        let meter = Meter { pairs, options, title, plan, absent };
        Ok(Bench { link, place: kind.place, bare, direct, far: None, why_not, meter })
    }

    /// Starts the ranks on two hosts named by the user.
    fn between(
        far: Far,
        link: LinkName,
        options: &'a Options,
        config: &'static [(&'static str, &'static str)],
    ) -> Result<Bench<'a>> {
        let mut pairs = vec![Pair::start_far(&far, link.links(), config)?];
        if link.is_raw() {
            // These processes have no weft socket: one would open with the first message.
            pairs.push(Pair::start_far(&far, "udp", CONFIG)?);
        }
        let bare = pairs.len() - 1;
        let (title, plan, absent) = (link.name().into(), Plan::default(), Vec::new());
        let meter = Meter { pairs, options, title, plan, absent };
        let (place, why_not) = (Place::Here, None);
        Ok(Bench { link, place, bare, direct: None, far: Some(far), why_not, meter })
    }

    /// Calls `work` with two more ranks of another configuration; its argument is the index of the
    /// pair.
    pub fn beside<T>(
        &mut self,
        config: &'static [(&'static str, &'static str)],
        work: impl FnOnce(&mut Self, usize) -> Result<T>,
    ) -> Result<T> {
        self.with(&[Kind { link: self.link.links(), config, place: self.place }], work)
    }

    /// Calls `work` with further ranks, a pair of each kind; its argument is the index of the
    /// first.
    pub fn with<T>(
        &mut self,
        kinds: &[Kind],
        work: impl FnOnce(&mut Self, usize) -> Result<T>,
    ) -> Result<T> {
        let start = |kind: &Kind| match &self.far {
            Some(far) => Pair::start_far(far, kind.link, kind.config),
            None => Pair::start(kind),
        };
        let pairs = kinds.iter().map(start).collect::<Result<Vec<_>>>()?;
        let first = self.meter.pairs.len();
        self.meter.pairs.extend(pairs);
        let result = work(self, first);
        self.meter.pairs.truncate(first);
        result
    }

    /// Returns the subject of a floor or peer.
    pub fn bare(&self, probe: impl Into<Probe>) -> Subject {
        Subject { pair: self.bare, ..probe.into().into() }
    }

    /// Returns the sizes that the user wants, else these.
    pub fn sizes(&self, defaults: &[usize]) -> Vec<usize> {
        match &self.meter.options.size {
            given if given.is_empty() => defaults.to_vec(),
            given => given.clone(),
        }
    }

    /// Returns a table without rows.
    pub fn table(
        &self,
        bench: &'static str,
        what: &'static str,
        unit: &'static str,
        better: Better,
    ) -> Table {
        let (rows, notes) = (Vec::new(), Vec::from_iter(self.path()));
        Table { bench, link: self.link.name(), what, unit, better, rows, notes }
    }

    /// Measures subjects in turn; `convert` turns seconds per iteration into the table's unit.
    ///
    /// # Errors
    /// A rank failed.
    pub fn measure(
        &mut self,
        size: usize,
        subjects: &[Subject],
        convert: impl Fn(f64) -> f64,
    ) -> Result<Vec<Option<Sample>>> {
        let got = self.meter.measure(size, subjects)?;
        Ok(got.into_iter().map(|s| s.map(|s| s.map(&convert))).collect())
    }

    /// Sets the number of subjects of the whole run, for the progress bar.
    pub fn plan(&mut self, subjects: usize) {
        self.meter.plan = Plan::of(self.meter.steps(subjects));
    }

    /// Describes the way between the two ranks; `None` inside this host.
    pub fn path(&self) -> Option<String> {
        if self.link == LinkName::Shm {
            return None;
        }
        if let Some(Far { hosts: [a, b], .. }) = &self.far {
            return Some(format!("between hosts {a} and {b}"));
        }
        Some(match (self.place, &self.why_not) {
            (Place::Between(mtu), _) => {
                let more = if self.link.is_raw() { "; floor and peer on two more" } else { "" };
                format!("between two network namespaces joined by a veth pair, MTU {mtu}{more}")
            }
            (_, Some(why)) => format!("over loopback; no network namespaces: {why}"),
            (_, None) => "over loopback".into(),
        })
    }
}

/// Describes the machine and the cores of the two ranks.
pub fn machine() -> String {
    machine_with(&match pair::cores() {
        Some([a, b]) => format!("ranks on cores {a} and {b}"),
        None => "both ranks on one core".to_string(),
    })
}

/// Describes the machine, and the ranks in these words.
pub fn machine_with(ranks: &str) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|l| Some(l.strip_prefix("model name")?.split_once(':')?.1.trim()));
    let uname = rustix::system::uname();
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = match idle::busy() {
        Some(cores) => {
            format!("\nTHE MACHINE IS BUSY ({cores:.1} cores): figures and ratios mean little")
        }
        None => String::new(),
    };
    format!(
        "{}, {all} cores, {} {}; {ranks}{busy}",
        model.unwrap_or(std::env::consts::ARCH),
        uname.sysname().to_string_lossy(),
        uname.release().to_string_lossy()
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__each_link_of_a_job_is_measured() {
        let all = LinkName::value_variants().iter().map(|link| link.name());
        let mut links: Vec<&str> = all.filter(|n| !["auto", "unprivileged"].contains(n)).collect();
        links.sort_unstable();
        let mut of_job = weft::Links::NAMES;
        of_job.sort_unstable();
        assert_eq!(links, of_job);
    }
}
