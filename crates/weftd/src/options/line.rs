//! The command line of the agent.

use super::{Quota, Sharing};
use crate::cluster::options::ClusterLine;
use clap::{ArgAction, CommandFactory, Parser};
use weft_link::ether::EtherType;
use weft_link::wrap::FaultSpec;
use weft_link::Ports;

/// Most sessions of an agent.
const SESSIONS_MAX: i64 = 512;
const ABOUT: &str = "\
It serves ranks (`weft run --link agent`) that have no right to raw sockets, and acknowledges, \
forwards and counts in their place while they compute.

It needs CAP_NET_RAW for raw sockets (setcap cap_net_raw+ep weftd, a systemd unit, or root) and \
gives up all rights once they are open. Without, it serves over UDP.";

/// The agent of a host for weft's ranks
#[derive(Debug, Parser)]
#[command(
    name = "weftd",
    version = version(),
    args_override_self = true,
    max_term_width = 80,
    after_help = ABOUT
)]
// More than 15 fields: each is an option of the command.
pub struct Line {
    /// Name of the socket: a path, or @ and an abstract name [default: WEFT_AGENT, else
    /// /run/weft/agent.sock for root, $XDG_RUNTIME_DIR/weft/agent.sock for other users]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub name: Option<String>,
    /// Ranks served at a time; raw sockets opened on each interface
    #[arg(
        long,
        value_name = "N",
        default_value = "16",
        value_parser = clap::value_parser!(u16).range(1..=SESSIONS_MAX)
    )]
    pub sessions: u16,
    /// User to become after set-up when started by root; '' to stay [default: weft, if that user
    /// exists; else a number that no user has]
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// End when the last rank has left
    #[arg(long)]
    pub once: bool,
    /// Time for which it yields the core before sleeping
    #[arg(long, value_name = "N", default_value = "200")]
    pub spin_us: u32,

    /// Links, of packet (raw Ethernet, needs CAP_NET_RAW), xdp (an XDP program whose queues all
    /// ranks share; needs CAP_NET_ADMIN and CAP_BPF too) and udp
    #[arg(
        long,
        value_name = "LIST",
        default_value = "packet,udp",
        value_parser = links,
        help_heading = "Links"
    )]
    pub links: LinkSet,
    /// Interfaces for raw sockets, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_parser = names, help_heading = "Links")]
    pub interfaces: Option<Names>,
    /// EtherType of raw frames
    #[arg(
        long,
        value_name = "HEX",
        default_value = "88b5",
        value_parser = ethertype,
        help_heading = "Links"
    )]
    pub ethertype: EtherType,
    /// Ports of UDP sockets, as 50000-50999 [default: WEFT_UDP_PORTS, else any]
    #[arg(long, value_name = "RANGE", help_heading = "Links")]
    pub udp_ports: Option<Ports>,
    /// Serve counters in the kernel too (WEFT_FETCH_ADD=kernel), by an XDP program on each
    /// interface with an IPv4 address; needs CAP_NET_ADMIN and CAP_BPF, and not xdp among the
    /// links. In generic mode it costs large packets a copy
    #[arg(long, help_heading = "Links")]
    pub kernel: bool,
    /// Faults that its UDP links inject, for tests: loss=1%,dup=1%,reorder=1%,seed=7
    #[arg(long, value_name = "SPEC", help_heading = "Links")]
    pub faults: Option<FaultSpec>,

    /// Limit of one user or rank; repeat for more: ranks of a user (usually all sessions but a
    /// quarter; all for the user who started it), peers of a rank (1024), bytes kept for a rank,
    /// each way (16M), words for fetch-and-add (4096), groups (64), sharing: ranks of a user that
    /// share memory with other containers (384)
    #[arg(
        long,
        value_name = "KEY=N",
        action = ArgAction::Append,
        value_parser = quota,
        help_heading = "Limits"
    )]
    pub quota: Vec<(Quota, usize)>,
    /// Ranks in different containers of this host share memory if they are of one job, and of: same
    /// (one user), any (any users), or ranges of user numbers such as 100000-165535, within which
    /// users may differ; off: none
    #[arg(
        long,
        value_name = "USERS",
        default_value = "same",
        value_parser = sharing,
        help_heading = "Limits"
    )]
    pub share: Sharing,

    #[command(flatten)]
    pub cluster: ClusterLine,

    /// Print the status of the agent at NAME; without --name and WEFT_AGENT, of the one that ranks
    /// find
    #[arg(long, conflicts_with = "stop", help_heading = "The agent that serves")]
    pub status: bool,
    /// End the agent at NAME, unless ranks are attached
    #[arg(long, help_heading = "The agent that serves")]
    pub stop: bool,
}

fn version() -> &'static str {
    // The text is made once, and clap keeps it to the end of the process.
    crate::version().leak()
}

/// Returns the command line, for pages and completions.
pub fn command() -> clap::Command {
    Line::command()
}

/// The links that an agent opens.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSet {
    pub packet: bool,
    pub xdp: bool,
    pub udp: bool,
}

/// Names that are separated by commas.
#[derive(Clone, Debug)]
pub struct Names(pub Vec<String>);

fn links(text: &str) -> Result<LinkSet, String> {
    let mut links = LinkSet::default();
    for word in text.split(',') {
        match word.trim() {
            "packet" => links.packet = true,
            "xdp" => links.xdp = true,
            "udp" => links.udp = true,
            other => return Err(format!("{other:?} is not packet, xdp or udp")),
        }
    }
    Ok(links)
}

fn names(text: &str) -> Result<Names, std::convert::Infallible> {
    let names = text.split(',').map(|name| name.trim().to_string());
    Ok(Names(names.filter(|name| !name.is_empty()).collect()))
}

fn ethertype(text: &str) -> Result<EtherType, &'static str> {
    EtherType::parse(text).ok_or("not one from 0x0600")
}

fn sharing(text: &str) -> Result<Sharing, &'static str> {
    Sharing::parse(text).ok_or("same, any, off or FIRST-LAST,...")
}

fn quota(text: &str) -> Result<(Quota, usize), String> {
    let wrong = "ranks, peers, bytes, words, groups or sharing, = and a number";
    let (key, amount) = text.split_once('=').ok_or(wrong)?;
    let (key, amount) = (Quota::parse(key).ok_or(wrong)?, number(amount)?);
    match key {
        Quota::Ranks if amount == 0 => Err("nobody would be served".into()),
        _ => Ok((key, amount)),
    }
}

/// Parses a number, also one with `k` or `M`.
fn number(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is not a number");
    let (digits, shift) = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}
