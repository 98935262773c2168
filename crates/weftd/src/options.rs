//! Settings of the agent, from its command line.

use crate::cluster::ClusterOptions;
use lexopt::{Arg::Long, Arg::Short, Parser, ValueExt};
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

/// Most sessions of an agent.
const SESSIONS_MAX: usize = 512;

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
    /// Print the options.
    Help,
    /// Print the version.
    Version,
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

impl Default for Options {
    fn default() -> Options {
        Options {
            action: Action::Serve,
            name: default_name(),
            sessions: 16,
            interfaces: None,
            kind: EtherType::default(),
            packet: true,
            xdp: false,
            udp: true,
            ports: Ports::ANY,
            kernel: false,
            user: None,
            once: false,
            spin: Duration::from_micros(200),
            faults: None,
            connections: RUNS_MAX,
            sharing: Sharing::Same,
            quotas: Quotas {
                ranks: None,
                peers: 1024,
                bytes: 16 << 20,
                words: 4096,
                groups: 64,
                sharing: None,
            },
            cluster: ClusterOptions::default(),
        }
    }
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

/// A wrong word of the command line; the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong(String);

impl Wrong {
    /// Makes it from the reason.
    pub fn new(why: String) -> Wrong {
        Wrong(why)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; `weftd --help` lists the options", self.0)
    }
}

impl std::error::Error for Wrong {}

/// The text of `--help`.
pub const HELP: &str = "\
weftd: the agent of a host. Serves ranks (`weft run --link agent`) that have no
right to raw sockets, and acknowledges, forwards and counts in their place while
they compute.

usage: weftd [options]

  --name NAME        name of the socket: a path, or @ and an abstract name
                     [WEFT_AGENT, else /run/weft/agent.sock for root,
                     $XDG_RUNTIME_DIR/weft/agent.sock for other users]
  --sessions N       ranks served at a time; raw sockets opened on each
                     interface [16]
  --interfaces LIST  interfaces for raw sockets, separated by commas [all]
  --ethertype HEX    EtherType of raw frames [88b5]
  --links LIST       of packet (raw Ethernet, needs CAP_NET_RAW), xdp (an XDP
                     program whose queues all ranks share; needs CAP_NET_ADMIN
                     and CAP_BPF too) and udp [packet,udp]
  --udp-ports RANGE  ports of UDP sockets, as 50000-50999 [WEFT_UDP_PORTS, else
                     any]
  --kernel           serve counters in the kernel too (WEFT_FETCH_ADD=kernel),
                     by an XDP program on each interface with an IPv4 address;
                     needs CAP_NET_ADMIN and CAP_BPF, and not xdp among the
                     links. In generic mode it costs large packets a copy
  --user NAME        user to become after set-up when started by root; '' to
                     stay [weft, if that user exists; else a number that no user
                     has]
  --once             end when the last rank has left
  --spin-us N        time for which it yields the core before sleeping [200]
  --quota KEY=N      limit of one user or rank; repeat for more: ranks (of a
                     user) [all sessions but a quarter; for the user who started
                     it all], peers (of a rank) [1024], bytes (kept for a rank,
                     each way) [16M], words (for fetch-and-add) [4096], groups
                     [64], sharing (ranks of a user that share memory with other
                     containers) [384]
  --share USERS      ranks in different containers of this host share memory if
                     they are of one job, and of: same (one user), any (any
                     users), or ranges of user numbers such as 100000-165535,
                     within which users may differ; off: none [same]
  --cluster NAME     make one cluster with the agents of other hosts that have
                     this name and its key: hosts and names, `weft cluster`,
                     `weft names`
  --cluster-key FILE  its key, made by `weft cluster init`
                     [/etc/weft/cluster.key for root, ~/.config/weft/cluster.key
                     for other users]
  --join LIST        places of other agents, separated by commas: HOST,
                     HOST:PORT, n[1-9], a name with several addresses (a
                     headless service), @FILE, slurm (the hosts of the
                     allocation); one without a port is reached at this agent's
                     --cluster-port; they are looked up again and again
  --cluster-port N   UDP port of the agents [7117]
  --cluster-address IP  address at which others reach this agent [by route]
  --cluster-multicast on|off  call agents on the local network [on]
  --tolerance-ms N   silence after which a host is lost, the same on all hosts,
                     50 to 30000 [1500]
  --names-quota N    claims of names of one user [1024]
  --names-rule RULE  USERS:TYPES:WORDS, as 1000-1999:5000-5999:no-claim,see-own;
                     repeat for more, the first that holds counts
                     [all:all:claim,see-all]
  --faults SPEC      faults that its UDP links inject, for tests:
                     loss=1%,dup=1%,reorder=1%,seed=7
  --status           print the status of the agent at NAME; without --name and
                     WEFT_AGENT, of the one that ranks find
  --stop             end the agent at NAME, unless ranks are attached
  --version, --help

It needs CAP_NET_RAW for raw sockets (setcap cap_net_raw+ep weftd, a systemd
unit, or root) and gives up all rights once they are open. Without, it serves
over UDP.
";

fn number(name: &str, text: &str) -> Result<usize, Wrong> {
    let wrong = || Wrong(format!("{name} {text:?} is not a number"));
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

impl From<lexopt::Error> for Wrong {
    fn from(error: lexopt::Error) -> Wrong {
        Wrong(error.to_string())
    }
}

fn ports(name: &str, range: &str) -> Result<Ports, Wrong> {
    range.parse().map_err(|e| Wrong(format!("{name} {range:?}: {e}")))
}

impl Options {
    /// Parses the words of a command line, without the program's name.
    ///
    /// # Errors
    /// The first wrong word.
    pub fn parse(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Options, Wrong> {
        let mut options = Options::default();
        if let Some(range) = std::env::var(ports::VARIABLE).ok().filter(|text| !text.is_empty()) {
            options.ports = ports(ports::VARIABLE, &range)?;
        }
        let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
        let names = |word: &OsString| {
            word == "--name" || word.to_str().is_some_and(|word| word.starts_with("--name="))
        };
        let is_named = words.iter().any(names)
            || std::env::var_os("WEFT_AGENT").is_some_and(|name| !name.is_empty());
        let mut words = Parser::from_args(words);
        let mut join = Vec::new();
        while options.take(&mut words, &mut join)? {}
        options.cluster.finish(&join)?;
        if options.action == Action::Status && !is_named {
            options.action = Action::Find;
        }
        if options.kernel && options.xdp {
            let why = "--kernel: an interface has one XDP program; leave xdp out of --links";
            return Err(Wrong(why.into()));
        }
        Ok(options)
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

    /// Takes the next option and its value. Returns false if there is none.
    fn take(&mut self, words: &mut Parser, join: &mut Vec<String>) -> Result<bool, Wrong> {
        let Some(word) = words.next()? else { return Ok(false) };
        if let Long(name) = word {
            let name = name.to_string();
            let value = || Ok(words.value()?.string()?);
            if self.cluster.take(&name, value, join)? {
                return Ok(true);
            }
            return self.take_long(&name, words);
        }
        match word {
            Short('h') => self.action = Action::Help,
            Short('V') => self.action = Action::Version,
            other => return Err(other.unexpected().into()),
        }
        Ok(true)
    }

    fn take_long(&mut self, name: &str, words: &mut Parser) -> Result<bool, Wrong> {
        match Long(name) {
            Long("status") => self.action = Action::Status,
            Long("stop") => self.action = Action::Stop,
            Long("help") => self.action = Action::Help,
            Long("version") => self.action = Action::Version,
            Long("once") => self.once = true,
            Long("kernel") => self.kernel = true,
            Long("name") => self.name = words.value()?.string()?,
            Long("user") => self.user = Some(words.value()?.string()?),
            Long("sessions") => self.set_sessions(&words.value()?.string()?)?,
            Long("links") => self.set_links(&words.value()?.string()?)?,
            Long("quota") => self.set_quota(&words.value()?.string()?)?,
            Long("udp-ports") => self.ports = ports("--udp-ports", &words.value()?.string()?)?,
            Long("spin-us") => {
                let spin = number("--spin-us", &words.value()?.string()?)?;
                self.spin = Duration::from_micros(spin as u64);
            }
            Long("interfaces") => {
                let value = words.value()?.string()?;
                let names = value.split(',').map(|n| n.trim().to_string());
                self.interfaces = Some(names.filter(|n| !n.is_empty()).collect());
            }
            Long("share") => {
                let value = words.value()?.string()?;
                let wrong =
                    || Wrong(format!("--share {value:?}: same, any, off or FIRST-LAST,..."));
                self.sharing = Sharing::parse(&value).ok_or_else(wrong)?;
            }
            Long("ethertype") => {
                let value = words.value()?.string()?;
                let wrong = || Wrong(format!("--ethertype {value:?} is not one from 0x0600"));
                self.kind = EtherType::parse(&value).ok_or_else(wrong)?;
            }
            Long("faults") => {
                let value = words.value()?.string()?;
                let wrong = |e| Wrong(format!("--faults {value:?}: {e}"));
                self.faults = Some(value.parse().map_err(wrong)?);
            }
            other => return Err(other.unexpected().into()),
        }
        Ok(true)
    }

    fn set_sessions(&mut self, value: &str) -> Result<(), Wrong> {
        self.sessions = number("--sessions", value)?;
        if !(1..=SESSIONS_MAX).contains(&self.sessions) {
            let bounds = format!("1 to {SESSIONS_MAX} ranks are served at a time");
            return Err(Wrong(format!("--sessions {value}: {bounds}")));
        }
        Ok(())
    }

    fn set_links(&mut self, value: &str) -> Result<(), Wrong> {
        (self.packet, self.xdp, self.udp) = (false, false, false);
        for word in value.split(',') {
            match word.trim() {
                "packet" => self.packet = true,
                "xdp" => self.xdp = true,
                "udp" => self.udp = true,
                other => return Err(Wrong(format!("--links {other:?}: packet, xdp or udp"))),
            }
        }
        Ok(())
    }

    fn set_quota(&mut self, value: &str) -> Result<(), Wrong> {
        let wrong = format!("--quota {value:?}: ranks, peers, bytes, words, groups or sharing");
        let wrong = || Wrong(wrong.clone());
        let (key, amount) = value.split_once('=').ok_or_else(wrong)?;
        let amount = number(key, amount)?;
        match key {
            "ranks" if amount == 0 => {
                return Err(Wrong("--quota ranks=0: nobody would be served".into()));
            }
            "ranks" => self.quotas.ranks = Some(amount),
            "peers" => self.quotas.peers = u32::try_from(amount).unwrap_or(u32::MAX),
            "bytes" => self.quotas.bytes = amount.max(1 << 20),
            "words" => self.quotas.words = amount,
            "groups" => self.quotas.groups = amount,
            "sharing" => self.quotas.sharing = Some(amount),
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, Wrong> {
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
            ("--udp-ports 9-8", "--udp-ports \"9-8\""),
            ("--nmae x", "'--nmae'"),
            ("--sessions", "'--sessions'"),
            ("--sessions many", "--sessions \"many\" is not a number"),
            ("--quota ranks", "ranks, peers, bytes, words, groups or sharing"),
            ("--share 9-8", "--share \"9-8\""),
            ("--share some", "--share \"some\""),
            ("--links tcp", "--links \"tcp\""),
            ("--once=yes", "'--once'"),
            ("-o", "'-o'"),
            ("x", "\"x\""),
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
    fn parse__short_options_and_values_that_look_like_options() {
        assert_eq!(parse("-h").unwrap().action, Action::Help);
        assert_eq!(parse("-V").unwrap().action, Action::Version);
        assert_eq!(parse("--name --once").unwrap().name, "--once");
    }

    #[test]
    fn help__names_every_option() {
        for name in [
            "--name",
            "--sessions",
            "--interfaces",
            "--ethertype",
            "--links",
            "--udp-ports",
            "--kernel",
            "--share",
            "--user",
        ] {
            assert!(HELP.contains(name));
        }
        for line in HELP.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
