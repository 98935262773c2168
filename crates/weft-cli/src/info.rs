//! `weft info`: the links of this machine, the effective configuration, and what follows from them.

use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use weft::job::config_from_env;
use weft::{Config, EndpointId, Links};
use weft_core::transfer::select::{eager_max, protocol, rendezvous_ns, Protocol};
use weft_core::LinkCaps;
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Link, PacketLink, ShmConfig, ShmLink, UdpConfig, UdpLink, XdpLink};

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
    links: Vec<LinkInfo>,
    config: Vec<Setting>,
}

#[derive(Serialize)]
struct LinkInfo {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caps: Option<Caps>,
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
    eager_max_bytes: u32,
}

/// The protocol of messages of up to a size.
#[derive(Serialize)]
struct Choice {
    up_to_bytes: Option<u64>,
    protocol: String,
    why: String,
}

#[derive(Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    unit: &'static str,
    is_default: bool,
    variable: String,
    why: &'static str,
}

fn settings(config: &Config) -> Vec<Setting> {
    let usual = Config::default();
    let keys = Config::KEYS.iter();
    keys.map(|key| Setting {
        name: key.name,
        value: config.get(key.name).unwrap_or_default(),
        unit: key.unit,
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
            "one copy between the two processes, from WEFT_DIRECT_MIN = {} on",
            bytes(config.direct_min.into())
        ),
    }
}

/// The protocols by size: where one ends, the next begins.
fn choices(config: &Config, caps: &LinkCaps) -> Vec<Choice> {
    let at = |len| protocol(config, caps, len);
    let mut ends: Vec<u64> =
        [config.inject_max, eager_max(config, caps), config.direct_min.saturating_sub(1)]
            .map(u64::from)
            .to_vec();
    ends.sort_unstable();
    ends.retain(|&end| at(end) != at(end + 1));
    ends.dedup();
    let choice = |up_to: Option<u64>| {
        let chosen = at(up_to.unwrap_or(u64::MAX));
        Choice {
            up_to_bytes: up_to,
            protocol: chosen.to_string(),
            why: reason(config, caps, chosen),
        }
    };
    ends.into_iter().map(Some).chain([None]).map(choice).collect()
}

fn describe(config: &Config, name: &'static str, link: Option<&mut dyn Link>) -> LinkInfo {
    let mut info = LinkInfo {
        name,
        error: None,
        caps: None,
        addresses: Vec::new(),
        notes: Vec::new(),
        protocols: Vec::new(),
    };
    let Some(link) = link else { return info };
    let caps = link.caps();
    info.protocols = choices(config, &caps);
    info.caps = Some(Caps {
        mtu_bytes: caps.mtu,
        reliable: caps.reliable,
        ordered: caps.ordered,
        network: caps.network,
        direct: caps.direct,
        latency_ns: caps.latency_ns,
        mb_per_s: caps.bytes_per_us,
        eager_max_bytes: eager_max(config, &caps),
    });
    while let Some(event) = link.poll_event() {
        if let weft_link::LinkEvent::Warning(text) = event {
            info.notes.push(text);
        }
    }
    info
}

/// The security mode as asked for, and the link of a job that nobody is in.
fn security() -> Result<(Mode, String)> {
    let mode = weft::job::security_from_env()?;
    let text = match mode {
        Mode::Auth => "frames on networks are authenticated with the key of the job",
        Mode::Encrypt => "frames on networks are authenticated and encrypted",
        Mode::None => "NONE: anyone on the network can forge frames (WEFT_SECURITY=none)",
    };
    Ok((mode, text.to_string()))
}

fn links(config: &Config, mode: Mode) -> Vec<LinkInfo> {
    let me = EndpointId(weft_link::random_u64());
    let failed = |name, error: &dyn std::fmt::Display| LinkInfo {
        error: Some(error.to_string()),
        ..describe(config, name, None)
    };
    let shm = match ShmLink::new(ShmConfig::new(me)) {
        Ok(mut link) => describe(config, "shm", Some(&mut link)),
        Err(error) => failed("shm", &error),
    };
    let key: Vec<u8> = (0..4).flat_map(|_| weft_link::random_u64().to_le_bytes()).collect();
    let Some(job_key) = JobKey::from_bytes(&key) else { return vec![shm] };
    let security = Security { mode, job_key, me };
    let packet = weft::job::packet_from_env().map_err(|e| e.to_string());
    let packet =
        packet.and_then(|c| PacketLink::new(c, security.clone()).map_err(|e| e.to_string()));
    let packet = match packet {
        Ok(mut link) => {
            let mut info = describe(config, "packet", Some(&mut link));
            let ports = link.ports();
            info.addresses =
                ports.iter().map(|(name, slot)| format!("{name} {slot:#06x}")).collect();
            info.notes.push("used when asked for: WEFT_LINK=packet, or packet in a list".into());
            info
        }
        Err(error) => failed("packet", &error),
    };
    let xdp = xdp(config, security.clone()).unwrap_or_else(|error| failed("xdp", &error));
    let udp = match UdpLink::new(UdpConfig::default(), security) {
        Ok(mut link) => {
            let mut info = describe(config, "udp", Some(&mut link));
            info.addresses = link.local_addrs().iter().map(ToString::to_string).collect();
            info
        }
        Err(error) => failed("udp", &error),
    };
    vec![shm, xdp, packet, udp]
}

/// The XDP link is opened only where `WEFT_LINK` asks for it: attaching a program may make a card
/// pause.
fn xdp(config: &Config, security: Security) -> Result<LinkInfo, String> {
    let xdp = weft::job::xdp_from_env().map_err(|e| e.to_string())?;
    let asked = std::env::var("WEFT_LINK").ok().and_then(|text| Links::parse(&text));
    if !asked.is_some_and(|links| links.xdp) {
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

fn print_link(link: &LinkInfo) {
    println!("\nlink {}", link.name);
    if let Some(error) = &link.error {
        println!("  not available: {error}; `weft doctor` tells more");
    }
    if let Some(caps) = &link.caps {
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        println!("  longest packet   {} B", caps.mtu_bytes);
        println!("  reliable         {}", yes(caps.reliable));
        println!("  ordered          {}", yes(caps.ordered));
        println!("  crosses networks {}", yes(caps.network));
        println!("  direct copies    {}", yes(caps.direct));
        println!("  cost model       {} ns one way, {} MB/s", caps.latency_ns, caps.mb_per_s);
    }
    for address in &link.addresses {
        println!("  address          {address}");
    }
    for note in &link.notes {
        println!("  note             {note}");
    }
    for (at, choice) in link.protocols.iter().enumerate() {
        let sizes = choice.up_to_bytes.map_or("beyond".to_string(), |n| format!("to {}", bytes(n)));
        let head = if at == 0 { "messages" } else { "" };
        println!("  {head:<9}{sizes:>13}  {:<24} {}", choice.protocol, choice.why);
    }
}

fn print_config(settings: &[Setting], why: bool) {
    println!("{:<20} {:>10} {:<19}   variable", "name", "value", "unit");
    for s in settings {
        let mark = if s.is_default { ' ' } else { '*' };
        let why = if why { s.why } else { "" };
        let line = format!(
            "{:<20} {:>10} {:<19} {mark} {:<26} {why}",
            s.name, s.value, s.unit, s.variable
        );
        println!("{}", line.trim_end());
    }
    println!("* differs from the default");
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode> {
    let config = config_from_env()?;
    if args.config && !args.json {
        print_config(&settings(&config), true);
        return Ok(ExitCode::SUCCESS);
    }
    let (mode, security) = security()?;
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        wire_version: weft_core::wire::VERSION,
        security,
        links: if args.config { Vec::new() } else { links(&config, mode) },
        config: settings(&config),
    };
    if args.json {
        println!("{}", serde_json::to_string(&info)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("weft {}, wire format {}", info.version, info.wire_version);
    println!("security: {}", info.security);
    info.links.iter().for_each(print_link);
    println!("\nconfiguration");
    print_config(&info.config, false);
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
            let all = choices(&config, &caps);
            assert_eq!(all[0].protocol, "inject");
            assert_eq!(all.last().and_then(|c| c.up_to_bytes), None);
            assert!(all.windows(2).all(|w| w[0].protocol != w[1].protocol));
            assert!(all.iter().all(|c| !c.why.is_empty()));
        }
    }

    #[test]
    fn settings__mark_what_differs() {
        let mut config = Config::default();
        config.set("window", "7").unwrap();
        let all = settings(&config);
        assert_eq!(all.len(), Config::KEYS.len());
        let odd: Vec<_> = all.iter().filter(|s| !s.is_default).map(|s| s.name).collect();
        assert_eq!(odd, ["window"]);
    }
}
