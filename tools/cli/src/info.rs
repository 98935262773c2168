//! `weft info`: the links of this machine, the effective configuration, and the resulting
//! protocols.

use crate::tune;
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use weft::choices::Transfer;
use weft::endpoint::choice;
use weft::job::{config_from_env, links_from_env, reachable};
use weft::{settings, Calibration, Config, EndpointId};
use weft_core::config::Table;
use weft_core::exception::FOR_PEERS;
use weft_core::transfer::select::{eager_max, protocol, rendezvous_ns, Protocol};
use weft_core::LinkCaps;
use weft_ffi::rendezvous::Settings as Meet;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::shm::broker::BrokerConfig;
use weft_link::{
    Link, LinkError, PacketConfig, PacketLink, ShmConfig, ShmLink, TcpLink, UdpConfig, UdpLink,
    XdpLink,
};
use weft_measure::layout::{self, hanging, Columns};
use weft_packets::Settings as Packets;

/// Show links, protocols and the effective configuration
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Show only the configuration, with the reason of each default
    #[arg(long)]
    config: bool,
}

#[derive(Serialize)]
struct Info {
    version: &'static str,
    wire_version: u8,
    security: String,
    calibration: Option<Calibrated>,
    links: Vec<LinkInfo>,
    messages: Vec<Messages>,
    config: Vec<Setting>,
    variables: Vec<Variable>,
}

/// The calibration in use.
#[derive(Serialize)]
struct Calibrated {
    file: String,
    made_utc: String,
}

/// Protocols and paths of messages between two places.
#[derive(Serialize)]
struct Messages {
    place: &'static str,
    small_over: &'static str,
    data_over: &'static str,
    why: Vec<String>,
    sizes: Vec<Choice>,
}

#[derive(Default, Serialize)]
struct LinkInfo {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caps: Option<Caps>,
    /// Capabilities that the link itself reports.
    #[serde(skip)]
    raw: Option<LinkCaps>,
    addresses: Vec<String>,
    notes: Vec<String>,
    protocols: Vec<Choice>,
}

#[derive(Serialize)]
struct Caps {
    mtu_bytes: u32,
    reliable: bool,
    ordered: bool,
    network: bool,
    direct: bool,
    latency_ns: u32,
    mb_per_s: u32,
    at_once_mb_per_s: u32,
    eager_max_bytes: u32,
    /// `estimate`, or place and time of the measurement.
    source: String,
}

/// The protocol of messages up to a size.
#[derive(Serialize)]
struct Choice {
    up_to_bytes: Option<u64>,
    protocol: String,
    /// Link of the message or its announcement, and of its data.
    path: String,
    why: String,
}

#[derive(Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    unit: &'static str,
    /// The valid numbers; absent where the unit lists the values.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    is_default: bool,
    variable: String,
    why: &'static str,
}

/// A setting outside the engine's table.
#[derive(Serialize)]
struct Variable {
    variable: &'static str,
    value: String,
    takes: &'static str,
    is_default: bool,
    why: &'static str,
}

fn variables() -> Vec<Variable> {
    let shown = |v: &settings::Variable| {
        let set = std::env::var(v.name).ok().filter(|text| !text.is_empty());
        let is_default = set.is_none();
        let value = match set {
            Some(_) if v.secret => "set, not shown".to_string(),
            Some(text) => text,
            None => v.usual.to_string(),
        };
        Variable { variable: v.name, value, takes: v.takes, is_default, why: v.why }
    };
    settings::VARIABLES.iter().map(shown).collect()
}

/// Returns the settings of all layers.
fn settings(config: &Config, usual: &Config, packets: &Packets, meet: &Meet) -> Vec<Setting> {
    let mut all = rows(config, usual);
    all.extend(rows(packets, &Packets::default()));
    all.extend(rows(meet, &Meet::default()));
    all
}

fn rows<T: Table>(config: &T, usual: &T) -> Vec<Setting> {
    T::KEYS
        .iter()
        .map(|key| Setting {
            name: key.name,
            value: config.get(key.name).unwrap_or_default(),
            unit: key.unit,
            range: key.range.map(|range| range.to_string()),
            is_default: config.get(key.name) == usual.get(key.name),
            variable: format!("WEFT_{}", key.name.to_uppercase()),
            why: key.why,
        })
        .collect()
}

fn bytes(n: u64) -> String {
    match n {
        _ if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        _ if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        _ => format!("{n} B"),
    }
}

fn reason(config: &Config, caps: &LinkCaps, choice: Protocol) -> String {
    let eager = bytes(eager_max(config, caps).into());
    let threshold = if config.eager_max != 0 {
        format!("WEFT_EAGER_MAX is {eager}")
    } else if caps.eager_max != 0 {
        format!("measured: announcing is faster from {eager} on")
    } else {
        let us = rendezvous_ns(caps) as f64 / 1e3;
        format!("a copy of {eager} takes about the {us:.1} us of a rendezvous")
    };
    match choice {
        Protocol::Inject => {
            let most = config.inject_max.min(eager_max(config, caps));
            format!("one copy of at most {} costs less than waiting", bytes(most.into()))
        }
        Protocol::Eager => format!("no round trip first: {threshold}"),
        Protocol::Pull => format!(
            "announced, then pulled {} blocks of {} ahead: {threshold}",
            config.pull_depth,
            bytes(config.pull_block.into())
        ),
        Protocol::Direct => format!(
            "one copy between the two processes, from WEFT_DIRECT_MIN = {} on{}",
            bytes(config.direct_min.into()),
            match config.transfer {
                Transfer::Rcpy => "",
                _ => ", unless packets measure faster while the job runs",
            }
        ),
    }
}

/// Returns the link of a message of `len` bytes, or the links of its announcement and of its data.
/// `data` is the link of data.
fn path_of(caps: &LinkCaps, data: &str, chosen: Protocol, len: u64) -> String {
    match chosen {
        _ if data == caps.name => data.to_string(),
        Protocol::Pull => format!("{}, data {data}", caps.name),
        _ if len >= u64::from(caps.bulk_min) => data.to_string(),
        _ => caps.name.to_string(),
    }
}

/// Returns protocols and paths by size: each begins where the one before ends. `data` names the
/// link of data.
fn choices(config: &Config, caps: &LinkCaps, data: &str) -> Vec<Choice> {
    let at = |len| {
        let chosen = protocol(config, caps, len);
        (chosen, path_of(caps, data, chosen, len))
    };
    let mut ends: Vec<u64> = [
        caps.bulk_min.saturating_sub(1),
        config.inject_max,
        eager_max(config, caps),
        config.direct_min.saturating_sub(1),
    ]
    .map(u64::from)
    .to_vec();
    ends.sort_unstable();
    ends.retain(|&end| at(end) != at(end + 1));
    ends.dedup();
    let choice = |up_to: Option<u64>| {
        let (chosen, path) = at(up_to.unwrap_or(u64::MAX));
        let protocol = chosen.to_string();
        Choice { up_to_bytes: up_to, protocol, path, why: reason(config, caps, chosen) }
    };
    ends.into_iter().map(Some).chain([None]).map(choice).collect()
}

/// Returns the source of a link's figures.
fn source(name: &str) -> String {
    let calibration = Calibration::in_use();
    calibration.link(name).map_or_else(
        || "estimate".into(),
        |l| format!("measured {} UTC, {}", tune::day(calibration.made), l.place),
    )
}

/// Returns the figure of each link, for the choice between links.
fn compare(links: &[LinkCaps], what: &str, figure: impl Fn(&LinkCaps) -> String) -> String {
    let each = |caps: &LinkCaps| {
        let caps = Calibration::in_use().apply(*caps);
        format!("{} {}", caps.name, figure(&caps))
    };
    format!("{what}: {}", links.iter().map(each).collect::<Vec<_>>().join(", "))
}

/// Returns protocols and paths of messages to a peer that these links reach.
fn messages(config: &Config, place: &'static str, links: &[LinkCaps]) -> Option<Messages> {
    let choice = choice(links, Calibration::in_use())?;
    let (small, data) = (links[choice.small].name, links[choice.data].name);
    let why = match links {
        [_] => vec!["the only link".to_string()],
        _ => vec![
            compare(links, "lowest latency", |c| format!("{} ns", c.latency_ns)),
            compare(links, "highest rate", |c| format!("{} MB/s", c.bytes_per_us)),
        ],
    };
    let sizes = choices(config, &choice.caps, data);
    Some(Messages { place, small_over: small, data_over: data, why, sizes })
}

fn describe(config: &Config, name: &'static str, link: Option<&mut dyn Link>) -> LinkInfo {
    let mut info = LinkInfo { name, ..LinkInfo::default() };
    let Some(link) = link else { return info };
    let raw = link.caps();
    let caps = choice(&[raw], Calibration::in_use()).map_or(raw, |c| c.caps);
    info.raw = Some(raw);
    info.protocols = choices(config, &caps, name);
    info.caps = Some(Caps {
        mtu_bytes: caps.mtu,
        reliable: caps.reliable,
        ordered: caps.ordered,
        network: caps.network,
        direct: caps.direct,
        latency_ns: caps.latency_ns,
        mb_per_s: caps.bytes_per_us,
        at_once_mb_per_s: caps.small_bytes_per_us,
        eager_max_bytes: eager_max(config, &caps),
        source: source(name),
    });
    while let Some(event) = link.poll_event() {
        if let weft_link::LinkEvent::Warning(text) = event {
            info.notes.push(text);
        }
    }
    info
}

/// Returns the security mode asked for, and its description.
fn security() -> Result<(Mode, String)> {
    let mode = weft::job::security_from_env()?;
    let text = match mode {
        Mode::Auth => "frames on networks are authenticated with the key of the job",
        Mode::Encrypt => "frames on networks are authenticated and encrypted",
        Mode::None => "NONE: anyone on the network can forge frames (WEFT_SECURITY=none)",
    };
    let open = std::env::var("WEFT_MXOE").ok().filter(|name| !name.is_empty());
    let except = open.map_or(String::new(), |name| {
        format!("; NONE for frames of MX over Ethernet on {name}, of programs of MX (WEFT_MXOE)")
    });
    Ok((mode, format!("{text}{except}")))
}

/// Reports shared memory, and the agent by which it reaches ranks in other containers.
fn shm(
    config: &Config,
    me: EndpointId,
    job_key: &JobKey,
) -> std::result::Result<LinkInfo, LinkError> {
    let broker = Some(BrokerConfig::new(weft::job::agent_from_env().names, job_key.clone()));
    let mut link = ShmLink::new(ShmConfig { broker, ..ShmConfig::new(me) })?;
    let mut info = describe(config, "shm", Some(&mut link));
    info.notes.push(match link.standing() {
        Ok(at) => format!(
            "reaches ranks of the job in other containers of this host too, joined by the agent at \
             {}, for which this process is of user {}",
            at.name, at.user
        ),
        Err(why) => format!(
            "does not reach ranks in other containers of this host: {why}; `weft doctor` tells more"
        ),
    });
    Ok(info)
}

fn links(config: &Config, mode: Mode) -> Vec<LinkInfo> {
    let me = EndpointId(weft_link::random_u64());
    let failed = |name, error: &dyn std::fmt::Display| LinkInfo {
        error: Some(error.to_string()),
        ..describe(config, name, None)
    };
    let key: Vec<u8> = (0..4).flat_map(|_| weft_link::random_u64().to_le_bytes()).collect();
    let Some(job_key) = JobKey::from_bytes(&key) else { return Vec::new() };
    let shm = shm(config, me, &job_key).unwrap_or_else(|error| failed("shm", &error));
    let security = Security { mode, job_key, me };
    let sockets = |name: &'static str| {
        let open = weft::job::packet_from_env().map_err(|e| e.to_string()).and_then(|c| {
            let c = PacketConfig { trains: name == "gso", ..c };
            PacketLink::new(c, security.clone()).map_err(|e| e.to_string())
        });
        let mut link = match open {
            Ok(link) => link,
            Err(error) => return failed(name, &error),
        };
        let mut info = describe(config, name, Some(&mut link));
        let ports = link.ports();
        info.addresses = ports.iter().map(|(name, slot)| format!("{name} {slot:#06x}")).collect();
        info.notes.push(format!(
            "used between hosts by default, and when asked for: WEFT_LINK={name}, or in a list"
        ));
        if ports.len() > 1 && config.stripes > 1 {
            info.notes.push(format!(
                "large messages are spread over up to {} interfaces of equal speed and MTU",
                config.stripes
            ));
        }
        if name == "gso" {
            info.notes.push("takes part where frames longer than the MTU arrive whole".into());
        }
        info
    };
    let (packet, gso) = (sockets("packet"), sockets("gso"));
    let xdp = xdp(config, security.clone()).unwrap_or_else(|error| failed("xdp", &error));
    let udp = UdpConfig {
        ports: weft::job::ports_from_env().unwrap_or_default(),
        ..UdpConfig::default()
    };
    let udp = match UdpLink::new(udp, security.clone()).and_then(reachable) {
        Ok(mut link) => {
            let mut info = describe(config, "udp", Some(&mut link));
            info.addresses = link.local_addrs().iter().map(ToString::to_string).collect();
            info
        }
        Err(error) => failed("udp", &error),
    };
    let tcp = tcp(config, security).unwrap_or_else(|error| failed("tcp", &error));
    vec![shm, agent(), xdp, packet, gso, udp, tcp]
}

fn tcp(config: &Config, security: Security) -> Result<LinkInfo> {
    let opened = TcpLink::new(weft::job::tcp_from_env(config)?, security);
    let mut link = opened.and_then(reachable)?;
    let mut info = describe(config, "tcp", Some(&mut link));
    info.addresses = link.local_addrs().iter().map(ToString::to_string).collect();
    info.notes.push(
        "between hosts by default: where no other link answers, or where `weft tune` measured it \
         to be the fastest carrier of data"
            .into(),
    );
    Ok(info)
}

/// Reports the agent of this host, if there is one. It is asked for its status only.
fn agent() -> LinkInfo {
    let mut info = LinkInfo { name: "agent", ..LinkInfo::default() };
    let serving = weft_run::agent::serving();
    if serving.is_empty() {
        info.error = Some("no agent serves here (`weft run --agent`, or weftd)".into());
    }
    let stranger = |(name, why)| format!("{name} is not trusted: {why}");
    info.notes.extend(weft_run::agent::strangers().into_iter().map(stranger));
    for (name, lines) in serving {
        let shown = |(name, value): &(String, String)| format!("{name} {value}");
        info.addresses.push(name);
        info.notes.extend(lines.iter().filter(|(n, _)| n != "name").map(shown));
        info.notes.push("used when asked for: WEFT_LINK=agent, or agent in a list".into());
    }
    info
}

/// Opens the XDP link only where `WEFT_LINK` names it: attaching a program may make a card pause.
fn xdp(config: &Config, security: Security) -> Result<LinkInfo, String> {
    let xdp = weft::job::xdp_from_env().map_err(|e| e.to_string())?;
    if !links_from_env().map_err(|e| e.to_string())?.xdp {
        let mut notes = XdpLink::probe(&xdp).map_err(|e| e.to_string())?;
        notes.push(
            "used when asked for: WEFT_LINK=xdp, or xdp in a list; then shown in full".into(),
        );
        return Ok(LinkInfo { notes, ..describe(config, "xdp", None) });
    }
    let mut link = XdpLink::new(xdp, security).map_err(|e| e.to_string())?;
    let addresses = link.describe();
    Ok(LinkInfo { addresses, ..describe(config, "xdp", Some(&mut link)) })
}

/// Prints a text behind its head, within the width of the terminal.
fn say(head: &str, text: impl AsRef<str>) {
    println!("{}", hanging(head, text.as_ref(), layout::width()));
}

fn print_link(link: &LinkInfo) {
    println!("\nlink {}", link.name);
    if let Some(error) = &link.error {
        say("  not available: ", format!("{error}; `weft doctor` tells more"));
    }
    if let Some(caps) = &link.caps {
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        println!("  longest packet   {} B", caps.mtu_bytes);
        println!("  reliable         {}", yes(caps.reliable));
        println!("  ordered          {}", yes(caps.ordered));
        println!("  crosses networks {}", yes(caps.network));
        println!("  direct copies    {}", yes(caps.direct));
        let (latency, data, small) = (caps.latency_ns, caps.mb_per_s, caps.at_once_mb_per_s);
        let model = format!("{latency} ns one way, data {data} MB/s, at once {small} MB/s");
        say("  cost model       ", model);
        let hint = if caps.source == "estimate" { "; `weft tune` measures" } else { "" };
        say("  figures          ", format!("{}{hint}", caps.source));
    }
    link.addresses.iter().for_each(|address| say("  address          ", address));
    link.notes.iter().for_each(|note| say("  note             ", note));
}

/// Prints protocol, path and reason of messages by size, over these links.
fn print_messages(m: &Messages) {
    println!("\nmessages {}: small over {}, data over {}", m.place, m.small_over, m.data_over);
    m.why.iter().for_each(|why| say("  ", why));
    let mut columns = Columns::new("><<<", 2);
    for choice in &m.sizes {
        let sizes = choice.up_to_bytes.map_or("beyond".to_string(), |n| format!("to {}", bytes(n)));
        columns.row([&sizes, &choice.protocol, &choice.path, &choice.why]);
    }
    print!("{}", columns.text("  ", layout::width()));
}

/// Returns a table, or another form of it for a terminal that is too narrow for the first.
fn fitting(wide: &Columns, narrow: &Columns, width: Option<usize>) -> String {
    let whole = wide.text("", None);
    match width {
        Some(width) if whole.lines().any(|line| line.chars().count() > width) => {
            narrow.text("", Some(width))
        }
        _ => whole,
    }
}

/// Returns the settings and the variables as text; `why`: all of these, with the reasons of their
/// defaults. On a narrow terminal the name of a setting stands in its variable alone.
fn config_text(
    settings: &[Setting],
    variables: &[Variable],
    why: bool,
    width: Option<usize>,
) -> String {
    let heading = if why { "range, or values" } else { "unit" };
    let mark = |is_default| if is_default { " " } else { "*" };
    let together = |takes: &str, reason: &str| match why {
        true => format!("{takes}; {reason}"),
        false => takes.to_string(),
    };
    let (mut wide, mut narrow) = (Columns::new("<><<<<", 1), Columns::new("<<><", 2));
    wide.row(["name", "value", heading, "", "variable"]);
    narrow.row(["", "variable", "value", heading]);
    for s in settings {
        let reason = if why { s.why } else { "" };
        let takes = match &s.range {
            Some(range) => format!("{}: {range}", s.unit),
            None => s.unit.to_owned(),
        };
        let mark = mark(s.is_default);
        wide.row([s.name, &s.value, &takes, mark, &s.variable, reason]);
        narrow.row([mark, &s.variable, &s.value, &together(&takes, reason)]);
    }
    let mut text = fitting(&wide, &narrow, width);
    let shown: Vec<&Variable> = variables.iter().filter(|v| why || !v.is_default).collect();
    if !shown.is_empty() {
        let (mut wide, mut narrow) = (Columns::new("<<<<<", 1), Columns::new("<<<<", 2));
        wide.row(["variable", "", "value", "takes"]);
        narrow.row(["", "variable", "value", "takes"]);
        for v in shown {
            let (mark, reason) = (mark(v.is_default), if why { v.why } else { "" });
            wide.row([v.variable, mark, &v.value, v.takes, reason]);
            narrow.row([mark, v.variable, &v.value, &together(v.takes, reason)]);
        }
        text += &format!("\n{}", fitting(&wide, &narrow, width));
    }
    text
}

fn print_config(config: &Config, settings: &[Setting], variables: &[Variable], why: bool) {
    print!("{}", config_text(settings, variables, why, layout::width()));
    println!("* differs from the default");
    if why || !config.exceptions.is_empty() {
        let settings = FOR_PEERS.join(", ");
        say("", format!("{settings} take values for some ranks too, as in auto,3=copy,4-7=rcpy"));
    }
}

/// Returns the messages inside the host and between hosts, over the links that open here and that
/// `WEFT_LINK` allows in a job on two hosts.
fn all_messages(config: &Config, links: &[LinkInfo]) -> Result<Vec<Messages>> {
    let asked = links_from_env()?.of_job(2, Some(1));
    let asked = |link: &&LinkInfo| asked.has(link.name);
    let open: Vec<LinkCaps> = links.iter().filter(asked).filter_map(|link| link.raw).collect();
    let (network, mut inside): (Vec<_>, Vec<_>) = open.into_iter().partition(|c| c.network);
    // Inside a host the engine uses only the first link that reaches a peer.
    inside.truncate(1);
    let of = |place, links: &[LinkCaps]| messages(config, place, links);
    let both = [of("inside the host", &inside), of("between hosts", &network)];
    Ok(both.into_iter().flatten().collect())
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    settings::check()?;
    let (config, usual) = (config_from_env()?, settings::usual());
    let packets = Packets::from_env()?;
    let meet = Meet::from_env()?;
    if args.config && !args.json {
        print_config(&config, &settings(&config, &usual, &packets, &meet), &variables(), true);
        return Ok(ExitCode::SUCCESS);
    }
    let (mode, security) = security()?;
    let links = if args.config { Vec::new() } else { links(&config, mode) };
    let calibrated = Calibration::in_use();
    let file = Calibration::path_from_env().filter(|_| !calibrated.links.is_empty());
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        wire_version: weft_core::wire::VERSION,
        security,
        calibration: file.map(|file| Calibrated {
            file: file.display().to_string(),
            made_utc: tune::day(calibrated.made),
        }),
        messages: all_messages(&config, &links)?,
        links,
        config: settings(&config, &usual, &packets, &meet),
        variables: variables(),
    };
    if args.json {
        println!("{}", serde_json::to_string(&info)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("weft {}, wire format {}", info.version, info.wire_version);
    say("security: ", &info.security);
    let calibration = match &info.calibration {
        Some(c) => format!("{}, made {} UTC by `weft tune`", c.file, c.made_utc),
        None => "none, links are chosen by estimates; `weft tune` measures".into(),
    };
    say("calibration: ", calibration);
    info.links.iter().for_each(print_link);
    info.messages.iter().for_each(print_messages);
    println!("\nconfiguration");
    print_config(&config, &info.config, &info.variables, false);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn choices__cover_all_sizes_in_order() {
        let config = Config::default();
        let mut caps = LinkCaps::memory("shm", 32 << 10);
        caps.direct = true;
        for caps in [caps, LinkCaps::network("udp", 1400)] {
            let all = choices(&config, &caps, caps.name);
            assert_eq!(all[0].protocol, "inject");
            assert_eq!(all.last().and_then(|c| c.up_to_bytes), None);
            assert!(all.windows(2).all(|w| w[0].protocol != w[1].protocol));
            assert!(all.iter().all(|c| !c.why.is_empty()));
        }
    }

    #[test]
    fn choices__what_does_not_fit_a_packet_goes_the_way_of_data() {
        let mut caps = LinkCaps::network("packet", 1400);
        caps.bulk_min = 1401;
        let all = choices(&Config::default(), &caps, "gso");
        let paths: Vec<_> = all.iter().map(|c| (c.up_to_bytes, c.path.as_str())).collect();
        assert_eq!(paths[0], (Some(1400), "packet"));
        assert_eq!(paths[1].1, "gso");
        assert_eq!(paths.last(), Some(&(None, "packet, data gso")));
    }

    #[test]
    fn config_text__fits_a_terminal_and_names_every_variable() {
        let (config, packets) = (Config::default(), Packets::default());
        let settings = settings(&config, &config, &packets, &Meet::default());
        for why in [false, true] {
            let text = config_text(&settings, &variables(), why, Some(80));
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let whole = config_text(&settings, &variables(), why, None);
            for text in [&text, &whole] {
                assert!(settings.iter().all(|s| text.contains(&s.variable)), "{text}");
            }
            assert!(whole.lines().count() < text.lines().count());
        }
    }

    #[test]
    fn settings__mark_what_differs() {
        let mut config = Config::default();
        config.set("window", "7").unwrap();
        let all = settings(&config, &Config::default(), &Packets::default(), &Meet::default());
        assert_eq!(all.len(), Config::KEYS.len() + settings::ABOVE.len());
        let above = Packets::KEYS.iter().chain(Meet::KEYS);
        let above = above.map(|key| format!("WEFT_{}", key.name.to_uppercase()));
        assert!(above.eq(settings::ABOVE.iter().copied()), "settings::ABOVE has other variables");
        let mut names: Vec<_> = all.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len(), "a name stands in two tables");
        let odd: Vec<_> = all.iter().filter(|s| !s.is_default).map(|s| s.name).collect();
        assert_eq!(odd, ["window"]);
    }
}
