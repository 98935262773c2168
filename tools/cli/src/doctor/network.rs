//! Requirements of the UDP, packet and XDP links.

use super::host::{read, read_number};
use super::{sys, Check};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use weft::EndpointId;
use weft_agent::{version_text, VERSION};
use weft_link::ether::{Interface, Interfaces};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{LinkError, PacketConfig, PacketLink, TcpLink, UdpConfig, UdpLink, XdpLink};
use weft_run::program;

/// Socket buffers that hold the packets of a fast burst, in bytes.
const BUFFER: u64 = 4 << 20;
/// An interface is switched on (netdevice(7)).
const IFF_UP: u32 = 1;
/// The smallest buffer that does not lose bulk data regularly, in bytes.
const BUFFER_MIN: u64 = 1 << 20;

/// Runs all checks.
pub fn checks() -> Vec<Check> {
    let v4 = loopback("127.0.0.1:0");
    let v6 = loopback("[::1]:0");
    let udp = link();
    let mut without: Vec<&str> = udp.works().then_some("udp").into_iter().collect();
    let mut checks =
        vec![udp, agent(), sockets(), family("udp over IPv4", &v4), family("udp over IPv6", &v6)];
    // One of IPv4 and IPv6 is enough.
    if v4.is_ok() || v6.is_ok() {
        let failed = |c: &mut Check| c.verdict == super::Verdict::Fail;
        for check in checks.iter_mut().skip(1).filter_map(|c| failed(c).then_some(c)) {
            check.verdict = super::Verdict::Warn;
        }
    }
    if let Ok(socket) = v4.or(v6) {
        checks.push(offload("udp sending", sys::udp_gso(socket.as_fd()), "4.18"));
        checks.push(offload("udp receiving", sys::udp_gro(socket.as_fd()), "5.0"));
    }
    checks.push(buffer("receive buffer", "net.core.rmem_max"));
    checks.push(buffer("send buffer", "net.core.wmem_max"));
    checks.push(ports());
    checks.push(tcp());
    let raw = [ethernet("packet link", false, &without), ethernet("gso link", true, &without)];
    if raw[0].works() {
        without.insert(0, "packet");
    }
    checks.extend(raw);
    checks.push(xdp(&without));
    checks.extend(interfaces());
    checks
}

/// Returns the fix for a link on raw Ethernet that does not open, by its error. `rights` is the
/// command that gives the right; `without` names the links between hosts that work.
fn remedy(error: &LinkError, usable: bool, rights: &str, without: &[&str]) -> String {
    let rest = match without {
        [] => "no link between hosts works; ranks of one host have shm".into(),
        [one] => format!("{one} works without"),
        more => format!("{} work without", more.join(" and ")),
    };
    let denied = |source: &io::Error| source.kind() == io::ErrorKind::PermissionDenied;
    match error {
        _ if !usable => format!("bring an Ethernet interface up to use it; {rest}"),
        LinkError::System { source, .. } if denied(source) => format!("{rights}; {rest}"),
        _ => format!("follow the reason, if you need this link; {rest}"),
    }
}

/// True if there is an interface for links on raw Ethernet.
fn usable(only: Option<&[String]>) -> bool {
    // If interfaces cannot be listed, the link's own error says so.
    Interfaces::list().map_or(true, |all| all.usable(only).is_ok())
}

/// Checks the links on packet sockets. They are optional: one that does not open is no failure.
fn ethernet(what: &'static str, trains: bool, without: &[&str]) -> Check {
    let config = match weft::job::packet_from_env() {
        Ok(config) => PacketConfig { trains, ..config },
        Err(error) => return Check::warn(what, error.to_string(), "correct the variable"),
    };
    let Some(job_key) = JobKey::from_bytes(&[7; 32]) else {
        return Check::fail(what, "no key", "this is an error of weft: please report it");
    };
    let me = EndpointId(weft_link::random_u64());
    let usable = usable(config.interfaces.as_deref());
    match PacketLink::new(config, Security { mode: Mode::Auth, job_key, me }) {
        Ok(link) => {
            let names: Vec<String> = link.ports().into_iter().map(|(name, _)| name).collect();
            let where_to = if trains { "; used where long frames pass whole" } else { "" };
            Check::ok(what, format!("opens on {}{where_to}", names.join(", ")))
        }
        Err(error) => {
            let rights = "setcap cap_net_raw+ep PROGRAM for lower latency between hosts";
            Check::warn(what, error.to_string(), remedy(&error, usable, rights, without))
        }
    }
}

/// Checks the XDP link, which is optional too. It attaches no program.
fn xdp(without: &[&str]) -> Check {
    let what = "xdp link";
    let config = match weft::job::xdp_from_env() {
        Ok(config) => config,
        Err(error) => return Check::warn(what, error.to_string(), "correct the variable"),
    };
    match XdpLink::probe(&config) {
        Ok(lines) => Check::ok(what, format!("program loads; {}", lines.join("; "))),
        Err(error) => {
            let rights = "run as root to use it";
            let usable = usable(config.interfaces.as_deref());
            Check::warn(what, error.to_string(), remedy(&error, usable, rights, without))
        }
    }
}

/// Checks for agents that serve ranks of this host. They are optional.
fn agent() -> Check {
    if let Some((name, why)) = weft_run::agent::strangers().first() {
        return Check::warn(
            "agent",
            format!("ranks do not use the agent at {name}: {why}"),
            "end that process, or serve at a path: `weftd --name PATH`, and WEFT_AGENT=PATH",
        );
    }
    let serving = weft_run::agent::serving();
    let Some((name, lines)) = serving.first() else {
        return Check::ok("agent", "none serves here; ranks work without one (see `weftd --help`)");
    };
    let of = |key: &str| {
        lines.iter().find(|(n, _)| n == key).map_or("?", |(_, value)| value.as_str()).to_string()
    };
    let (version, protocol) = (of("weftd"), of("protocol"));
    let (ranks, raw) = (of("ranks"), of("raw_free"));
    let finding =
        format!("weftd {version} at {name}: {ranks} ranks attached, {raw} raw sockets free");
    let (own, speaks) = (program::version(), version_text(VERSION));
    match (version == own, protocol == speaks) {
        (true, true) => Check::ok("agent", finding),
        (_, same) => Check::warn(
            "agent",
            format!(
                "{finding}; it is of another build than this weft {own}{}",
                match same {
                    true => String::new(),
                    false => format!(
                        " and serves none of its ranks: it speaks protocol {protocol}, this weft \
                         {speaks}"
                    ),
                }
            ),
            "`weftd --stop` when the jobs have ended, then start the weftd of this build",
        ),
    }
}

/// Checks for what unmodified socket programs need. It is optional.
fn sockets() -> Check {
    let what = "socket programs";
    match crate::sockets::finding() {
        Ok(finding) => Check::ok(what, finding),
        Err(error) => Check::warn(
            what,
            format!("{error:#}"),
            "mount the folder of the agent's sockets, or start the `weftd` of this build",
        ),
    }
}

fn link() -> Check {
    let Some(job_key) = JobKey::from_bytes(&[7; 32]) else {
        return Check::fail("udp link", "no key", "this is an error of weft: please report it");
    };
    let me = EndpointId(weft_link::random_u64());
    let ports = match weft::job::ports_from_env() {
        Ok(ports) => ports,
        Err(error) => return Check::fail("udp link", error.to_string(), "correct the variable"),
    };
    let config = UdpConfig { ports, ..UdpConfig::default() };
    let opened = UdpLink::new(config, Security { mode: Mode::Auth, job_key, me });
    match opened.and_then(weft::job::reachable) {
        Ok(_) => Check::ok("udp link", "opens"),
        Err(error) => Check::fail("udp link", error.to_string(), "see the lines below"),
    }
}

/// Checks the TCP link, which carries messages where UDP does not pass.
fn tcp() -> Check {
    let what = "tcp link";
    let Some(job_key) = JobKey::from_bytes(&[7; 32]) else {
        return Check::fail(what, "no key", "this is an error of weft: please report it");
    };
    let config = match weft::job::tcp_from_env(&weft::Config::default()) {
        Ok(config) => config,
        Err(error) => return Check::fail(what, error.to_string(), "correct the variable"),
    };
    let (me, ports) = (EndpointId(weft_link::random_u64()), config.ports);
    let opened = TcpLink::new(config, Security { mode: Mode::Auth, job_key, me });
    match opened.and_then(weft::job::reachable) {
        Ok(_) => Check::ok(
            what,
            format!(
                "takes connections at ports: {ports} (WEFT_TCP_PORTS); used where no other link \
                 answers, or where `weft tune` found it to be the fastest"
            ),
        ),
        Err(error) => Check::warn(what, error.to_string(), "udp and others work without it"),
    }
}

/// Returns a socket that received a datagram of its own.
fn loopback(address: &str) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.send_to(b"weft", socket.local_addr()?)?;
    let mut buffer = [0; 8];
    let len = loop {
        match socket.recv(&mut buffer) {
            // The process was stopped and continued.
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            received => break received?,
        }
    };
    if &buffer[..len] == b"weft" {
        Ok(socket)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn family(topic: &'static str, result: &io::Result<UdpSocket>) -> Check {
    match result {
        Ok(_) => Check::ok(topic, "a datagram over loopback arrived"),
        Err(error) => Check::fail(
            topic,
            format!("over loopback: {error}"),
            "bring loopback up (ip link set lo up), allow UDP in the firewall; shm needs neither",
        ),
    }
}

fn offload(topic: &'static str, result: io::Result<()>, since: &str) -> Check {
    let what = if topic == "udp sending" { "segmentation (GSO)" } else { "joining (GRO)" };
    match result {
        Ok(()) => Check::ok(topic, format!("{what} by the kernel")),
        Err(error) => Check::warn(
            topic,
            format!("no {what} by the kernel: {error}; bulk data is slower"),
            format!("use a kernel from {since} on"),
        ),
    }
}

fn buffer(topic: &'static str, key: &str) -> Check {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    match read_number(&path) {
        // Only the first network namespace shows this setting.
        None => Check::ok(topic, format!("{key} is not visible here; set on the host")),
        Some(bytes) if bytes >= BUFFER_MIN => {
            Check::ok(topic, format!("up to {} KiB", bytes >> 10))
        }
        Some(bytes) => Check::warn(
            topic,
            format!("at most {} KiB: bursts of bulk data may be lost and sent again", bytes >> 10),
            format!("sysctl {key}={BUFFER}"),
        ),
    }
}

/// Returns the number of ports of a range that are free now.
fn free((first, last): (u16, u16)) -> usize {
    (first..=last).filter(|&port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()).count()
}

/// Checks the ports of the udp link: those of the setting, or those that the kernel gives.
fn ports() -> Check {
    let set = weft::job::ports_from_env().unwrap_or_default();
    if let (Some(range), Some(count)) = (set.range(), set.count()) {
        let free = free(range);
        let finding = format!("{set} ({}), {free} of {count} free", weft_link::ports::VARIABLE);
        return match free {
            0 => Check::fail("udp ports", finding, "name a wider range: each rank takes one"),
            _ => Check::ok("udp ports", format!("{finding}: open them between hosts")),
        };
    }
    let range = read("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|n| n.parse::<u32>().ok());
    let finding = match (ends.next(), ends.next()) {
        (Some(first), Some(last)) => format!(
            "any of {first} to {last}: open them between hosts, or name some by WEFT_UDP_PORTS"
        ),
        _ => "any that is free: open them between hosts".into(),
    };
    Check::ok("udp ports", finding)
}

/// Returns the interface of the default route over IPv4, from the kernel's table.
fn default_route() -> Option<String> {
    let table = read("/proc/net/route")?;
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == "00000000").then(|| name.to_string())
    })
}

/// Lists the interfaces of this network namespace; /sys may show those of another.
fn interfaces() -> Vec<Check> {
    let default = default_route();
    let mut list = match Interfaces::list() {
        Ok(Interfaces(list)) => list,
        Err(error) => {
            let finding = format!("cannot be listed: {error}");
            return vec![Check::warn("interfaces", finding, "allow netlink sockets (rtnetlink)")];
        }
    };
    list.sort_by(|a, b| a.name.cmp(&b.name));
    let mut checks = Vec::new();
    for Interface { name, mtu, .. } in list.iter().filter(|one| one.flags & IFF_UP != 0) {
        let speed = match weft_link::ether::speed(name.as_bytes()) {
            0 => String::new(),
            known => format!(", {known} Mb/s"),
        };
        let route = if default.as_ref() == Some(name) { ", default route" } else { "" };
        checks.push(Check::ok("interface", format!("{name}: MTU {mtu}{speed}{route}")));
    }
    if checks.is_empty() {
        checks.push(Check::warn(
            "interfaces",
            "none is up",
            "ip link set lo up, for udp on this host; shm needs none",
        ));
    }
    if default.is_none() {
        checks.push(Check::warn(
            "routes",
            "no default route over IPv4: other hosts are reached on local networks only",
            "ip route add default via GATEWAY, if other hosts take part",
        ));
    }
    checks
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn remedy__follows_the_cause_and_names_only_what_works() {
        let none = LinkError::Unreachable("no usable Ethernet interface: lo: loopback".into());
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let denied = LinkError::System { what: "open".into(), source: denied, fix: "be root" };
        let said = remedy(&none, false, "RIGHTS", &["udp"]);
        assert!(said.contains("interface up") && said.ends_with("; udp works without"), "{said}");
        assert!(!said.contains("RIGHTS"), "{said}");
        let said = remedy(&denied, true, "RIGHTS", &["packet", "udp"]);
        assert_eq!(said, "RIGHTS; packet and udp work without");
        let said = remedy(&LinkError::Unsupported, true, "RIGHTS", &[]);
        assert!(!said.contains("RIGHTS") && said.contains("no link between hosts"), "{said}");
    }
}
