//! Settings of the agent, from its command line.

mod line;

pub use line::command;

use crate::cluster::ClusterOptions;
use clap::error::ErrorKind;
use clap::Parser;
use line::{Line, LinkSet};
use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use weft_link::ether::EtherType;
use weft_link::secure::RUNS_MAX;
use weft_link::wrap::FaultSpec;
use weft_link::{ports, Ports};

/// Limits of one user, and of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Ranks of one user; `None`: all sessions for the user who started the agent, and about three
    /// quarters for another user, so that some are left.
    pub ranks: Option<usize>,
    /// Peers of one rank.
    pub peers: u32,
    /// Bytes kept for one rank in each direction: sent and not acknowledged; received and not read.
    pub bytes: usize,
    /// Words for fetch-and-add of one rank.
    pub words: usize,
    /// Multicast groups of one rank.
    pub groups: usize,
    /// Ranks of one user that share memory with other containers; `None`: three quarters of
    /// [`SHARING_MAX`].
    pub sharing: Option<usize>,
}

/// Most ranks that share memory with other containers.
pub const SHARING_MAX: usize = 512;

/// The pairs of users whose ranks the agent joins over shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// None.
    Off,
    /// Ranks of one user.
    Same,
    /// Ranks of one user, and ranks of two users whose numbers are in the same of these ranges.
    Within(Vec<RangeInclusive<u32>>),
    /// Ranks of any users.
    Any,
}

impl Sharing {
    fn parse(text: &str) -> Option<Sharing> {
        let range = |word: &str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let range: RangeInclusive<u32> =
                first.trim().parse().ok()?..=last.trim().parse().ok()?;
            (!range.is_empty()).then_some(range)
        };
        Some(match text {
            "off" => Sharing::Off,
            "same" => Sharing::Same,
            "any" => Sharing::Any,
            ranges => Sharing::Within(ranges.split(',').map(range).collect::<Option<_>>()?),
        })
    }

    /// Tells if ranks of two users may share memory, by the numbers that the kernel shows to this
    /// process.
    ///
    /// # Errors
    /// The users may not share memory; the reason.
    pub fn may(&self, one: u32, other: u32) -> Result<(), String> {
        let within = |ranges: &[RangeInclusive<u32>]| {
            ranges.iter().any(|r| r.contains(&one) && r.contains(&other))
        };
        let nameless = weft_link::user::unknown();
        match self {
            Sharing::Off => Err("the agent joins no ranks (weftd --share off)".into()),
            Sharing::Any => Ok(()),
            _ if nameless.is_some_and(|n| n == one || n == other) => Err(format!(
                "a rank runs as a user without a number in the user namespace of the agent (shown \
                 as {one} and {other}): start weftd outside, or with --share any"
            )),
            _ if one == other => Ok(()),
            Sharing::Within(ranges) if within(ranges) => Ok(()),
            _ => Err(format!(
                "the two run as users {one} and {other} for the agent: let both containers run as \
                 one user, or start it with weftd --share {}-{} or any",
                one.min(other),
                one.max(other)
            )),
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sharing::Off => f.write_str("off"),
            Sharing::Same => f.write_str("same"),
            Sharing::Any => f.write_str("any"),
            Sharing::Within(ranges) => {
                let each = ranges.iter().map(|r| format!("{}-{}", r.start(), r.end()));
                f.write_str(&each.collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// A quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Ranks of one user.
    Ranks,
    /// Peers of one rank.
    Peers,
    /// Bytes kept for one rank in each direction.
    Bytes,
    /// Words for fetch-and-add of one rank.
    Words,
    /// Multicast groups of one rank.
    Groups,
    /// Ranks of one user that share memory with other containers.
    Sharing,
}

impl Quota {
    fn parse(text: &str) -> Option<Quota> {
        Some(match text {
            "ranks" => Quota::Ranks,
            "peers" => Quota::Peers,
            "bytes" => Quota::Bytes,
            "words" => Quota::Words,
            "groups" => Quota::Groups,
            "sharing" => Quota::Sharing,
            _ => return None,
        })
    }
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas { ranks: None, peers: 1024, bytes: 16 << 20, words: 4096, groups: 64, sharing: None }
    }
}

impl Quotas {
    /// Sets one.
    fn set(&mut self, quota: Quota, amount: usize) {
        match quota {
            Quota::Ranks => self.ranks = Some(amount),
            Quota::Peers => self.peers = u32::try_from(amount).unwrap_or(u32::MAX),
            Quota::Bytes => self.bytes = amount.max(1 << 20),
            Quota::Words => self.words = amount,
            Quota::Groups => self.groups = amount,
            Quota::Sharing => self.sharing = Some(amount),
        }
    }
}

/// The action of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Serve.
    Serve,
    /// Print the status of the agent of a name.
    Status,
    /// Print the status of the agent that ranks find.
    Find,
    /// Ask the agent that serves to end, if no ranks are attached.
    Stop,
}

/// All settings. More than 15 fields: each is one option of the command.
#[derive(Clone, Debug)]
pub struct Options {
    /// The action.
    pub action: Action,
    /// Name of the socket: a path, or `@` and an abstract name.
    pub name: String,
    /// Ranks served at the same time; also the number of raw sockets opened on each interface.
    pub sessions: usize,
    /// Names of the interfaces for raw sockets; `None` for all.
    pub interfaces: Option<Vec<String>>,
    /// EtherType of raw frames.
    pub kind: EtherType,
    /// True: open raw sockets.
    pub packet: bool,
    /// True: serve over XDP programs, whose queues the ranks share.
    pub xdp: bool,
    /// True: open UDP sockets.
    pub udp: bool,
    /// Ports of UDP sockets.
    pub ports: Ports,
    /// True: the kernel serves counters, by a program on each interface.
    pub kernel: bool,
    /// User to become after set-up, if the agent runs as root; empty: stay; `None`: a user of its
    /// own.
    pub user: Option<String>,
    /// True: end when the last rank has left.
    pub once: bool,
    /// Time for which an idle agent yields the core before it sleeps.
    pub spin: Duration,
    /// Faults that the UDP links inject, for tests.
    pub faults: Option<FaultSpec>,
    /// Connections to peers for which a rank's UDP link has packet numbers; fewer in tests.
    pub connections: u64,
    /// The ranks that it joins over shared memory.
    pub sharing: Sharing,
    /// Limits of users and ranks.
    pub quotas: Quotas,
    /// The cluster that it is a member of.
    pub cluster: ClusterOptions,
}

/// Returns the name that ranks use (`WEFT_AGENT`), else `/run/weft/agent.sock` for root, else a
/// path in the user's runtime folder, else an abstract name.
fn default_name() -> String {
    if let Some(name) = std::env::var("WEFT_AGENT").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    let names = weft_agent::usual_names();
    let first = usize::from(!crate::sys::is_root());
    names.into_iter().nth(first).unwrap_or_else(|| "@weft-agent".into())
}

/// Returns the ports of UDP sockets that the environment names; else any.
fn usual_ports() -> Result<Ports, clap::Error> {
    let range = std::env::var(ports::VARIABLE).unwrap_or_default();
    match range.is_empty() {
        true => Ok(Ports::ANY),
        false => {
            range.parse().map_err(|e| wrong(format_args!("{} {range:?}: {e}", ports::VARIABLE)))
        }
    }
}

/// Returns the error of a command line.
pub(crate) fn wrong(why: impl fmt::Display) -> clap::Error {
    command().error(ErrorKind::ValueValidation, why)
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

impl Options {
    /// Parses the words of a command line, without the program's name.
    ///
    /// # Errors
    /// The command line is wrong, or asks for help or for the version: the error says what there
    /// is to print, and where.
    pub fn parse(
        words: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Options, clap::Error> {
        let words = words.into_iter().map(Into::into);
        Options::of(Line::try_parse_from([OsString::from("weftd")].into_iter().chain(words))?)
    }

    fn of(line: Line) -> Result<Options, clap::Error> {
        let LinkSet { packet, xdp, udp } = line.links;
        if line.kernel && xdp {
            let why = "--kernel: an interface has one XDP program; leave xdp out of --links";
            return Err(wrong(why));
        }
        let is_named = line.name.is_some() || is_set("WEFT_AGENT");
        let action = match (line.status, line.stop) {
            (true, _) if is_named => Action::Status,
            (true, _) => Action::Find,
            (_, true) => Action::Stop,
            _ => Action::Serve,
        };
        let mut quotas = Quotas::default();
        line.quota.into_iter().for_each(|(quota, amount)| quotas.set(quota, amount));
        Ok(Options {
            action,
            name: line.name.unwrap_or_else(default_name),
            sessions: line.sessions.into(),
            interfaces: line.interfaces.map(|names| names.0),
            kind: line.ethertype,
            packet,
            xdp,
            udp,
            ports: line.udp_ports.map_or_else(usual_ports, Ok)?,
            kernel: line.kernel,
            user: line.user,
            once: line.once,
            spin: Duration::from_micros(line.spin_us.into()),
            faults: line.faults,
            connections: RUNS_MAX,
            sharing: line.share,
            quotas,
            cluster: line.cluster.settings()?,
        })
    }

    /// Returns the largest number of ranks of a user at a time. `owner`: the user who started the
    /// agent.
    pub fn ranks_of(&self, owner: bool) -> usize {
        match self.quotas.ranks {
            Some(most) => most,
            None if owner => self.sessions,
            None => self.sessions - (self.sessions / 4).max(1).min(self.sessions - 1),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, clap::Error> {
        Options::parse(text.split_whitespace())
    }

    #[test]
    fn parse__every_option() {
        let o = parse(
            "--name @x --sessions 3 --interfaces a,b --links=udp --once --kernel --spin-us 7 \
             --user= --quota ranks=2 --quota bytes=4M --ethertype 88b6 --udp-ports 50000-50009",
        )
        .unwrap();
        assert_eq!(
            (o.name.as_str(), o.sessions, o.packet, o.udp, o.once),
            ("@x", 3, false, true, true)
        );
        assert_eq!(o.interfaces, Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!((o.quotas.ranks, o.quotas.bytes, o.spin.as_micros()), (Some(2), 4 << 20, 7));
        assert_eq!((o.user.as_deref(), o.kind.get(), o.kernel), (Some(""), 0x88b6, true));
        assert_eq!(o.ports.count(), Some(10));
        assert_eq!(parse("--status").unwrap().action, Action::Find);
        assert_eq!(parse("--status --name x").unwrap().action, Action::Status);
        assert_eq!(parse("--name=x --status").unwrap().action, Action::Status);
    }

    #[test]
    fn ranks_of__by_default_one_user_leaves_sessions_to_another() {
        let of = |words: &str, user| parse(words).unwrap().ranks_of(user == 0);
        assert_eq!((of("", 1000), of("", 0)), (12, 16));
        assert_eq!(
            (of("--sessions 1", 1000), of("--sessions 2", 1000), of("--sessions 3", 1000)),
            (1, 1, 2)
        );
        assert_eq!((of("--quota ranks=16", 1000), of("--quota ranks=2", 0)), (16, 2));
    }

    #[test]
    fn may__users_differ_only_where_the_setting_lets_them() {
        let may = |words: &str, one, other| parse(words).unwrap().sharing.may(one, other);
        assert_eq!(may("", 1000, 1000), Ok(()));
        let why = may("", 1001, 1000).unwrap_err();
        assert!(why.contains("users 1001 and 1000") && why.contains("--share 1000-1001"), "{why}");
        assert_eq!(may("--share any", 1, 2), Ok(()));
        assert!(may("--share off", 1, 1).is_err());
        let ranges = "--share 5,100-200,1000-2000";
        assert_eq!(parse(ranges).unwrap().sharing.to_string(), "5-5,100-200,1000-2000");
        assert_eq!(may(ranges, 100, 200), Ok(()));
        assert_eq!(may(ranges, 7, 7), Ok(()));
        assert!(may(ranges, 200, 1000).is_err() && may(ranges, 5, 100).is_err());
    }

    #[test]
    fn parse__what_is_wrong_is_named() {
        for (text, named) in [
            ("--udp-ports 9-8", "'9-8' for '--udp-ports <RANGE>'"),
            ("--nmae x", "exists: '--name'"),
            ("--name=", "'--name <NAME>'"),
            ("--sessions", "'--sessions <N>'"),
            ("--sessions many", "'many' for '--sessions <N>'"),
            ("--sessions 0", "0 is not in 1..=512"),
            ("--quota ranks", "ranks, peers, bytes, words, groups or sharing"),
            ("--quota ranks=0", "nobody would be served"),
            ("--quota words=many", "\"many\" is not a number"),
            ("--share 9-8", "'9-8' for '--share <USERS>'"),
            ("--share some", "same, any, off or FIRST-LAST"),
            ("--links tcp", "\"tcp\" is not packet, xdp or udp"),
            ("--once=yes", "'--once'"),
            ("--status --stop", "'--stop'"),
            ("-o", "'-o'"),
            ("x", "'x'"),
            ("--kernel --links xdp,packet", "--kernel: an interface has one XDP program"),
        ] {
            let why = parse(text).unwrap_err().to_string();
            assert!(why.contains("--help") && why.contains(named), "{text}: {why}");
        }
    }

    #[test]
    fn parse__bytes_that_are_no_text_are_an_error() {
        use std::os::unix::ffi::OsStringExt;
        for words in [&[&b"--name"[..], b"/run/\xff"], &[b"\xff", b"--once"]] {
            let words: Vec<OsString> =
                words.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
            assert!(Options::parse(words).is_err());
        }
    }

    #[test]
    fn parse__the_last_of_an_option_counts() {
        let o = parse("--sessions 3 --links udp --sessions 4 --links packet").unwrap();
        assert_eq!((o.sessions, o.packet, o.udp), (4, true, false));
        for (word, kind) in [
            ("-h", ErrorKind::DisplayHelp),
            ("--help", ErrorKind::DisplayHelp),
            ("-V", ErrorKind::DisplayVersion),
        ] {
            assert_eq!(parse(word).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn help__says_what_each_option_does_in_80_columns() {
        command().debug_assert();
        for option in command().get_arguments() {
            assert!(option.get_help().is_some(), "{}", option.get_id());
        }
        let help = command().render_help().to_string();
        assert_eq!(parse("--help").unwrap_err().to_string(), help);
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
