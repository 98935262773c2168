//! `weft doctor --hosts`: the paths between hosts, in both directions of each pair.

use super::partner::{About, Answer, Ask, Port, MAGIC, NAME};
use super::{Check, Verdict};
use anyhow::{anyhow, bail, Context, Result};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weft_run::run::agents::Agent;
use weft_run::run::remote_weft;

/// The hosts, and the command that reaches them.
#[derive(Clone, Debug, clap::Args)]
pub struct Reach {
    /// Check the path between these hosts, which are reached as by `weft run --hosts`, in both
    /// directions
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', num_args = 1..)]
    pub hosts: Vec<String>,
    /// Command used in place of ssh, called with HOST PROGRAM ARGS
    #[arg(long, value_name = "CMD", env = "WEFT_LAUNCH_AGENT")]
    launch_agent: Option<String>,
    /// Path of weft on the hosts [default: the path of this program]
    #[arg(long, value_name = "PATH", requires = "hosts")]
    remote_weft: Option<String>,
}

/// Longest wait for a host to answer, logging in included.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Lines that a login shell may print before the helper's first line.
const MAX_BANNER: usize = 10_000;
/// A larger difference of clocks makes logs hard to read.
const CLOCK: Duration = Duration::from_millis(500);
/// Lengths of IP packets to try: jumbo frames, Ethernet, tunnels, and the minimum of IPv6.
const LENGTHS: [usize; 6] = [9000, 4000, 1500, 1450, 1400, 1280];

/// The helper on a host.
struct Visitor {
    host: String,
    process: Child,
    asks: ChildStdin,
    answers: Receiver<String>,
    about: About,
    /// Seconds by which its clock is ahead of this one's, and the uncertainty.
    clock: (f64, f64),
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the helper on a host, without waiting for its first line.
fn start(agent: &Agent, host: &str) -> Result<(Child, ChildStdin, Receiver<String>)> {
    let (mut command, _) = agent.command(host, &["doctor-visit"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().context("starting the command that reaches it")?;
    let asks = process.stdin.take().context("no pipe")?;
    let output = BufReader::new(process.stdout.take().context("no pipe")?);
    let (to, answers) = channel();
    std::thread::spawn(move || {
        let lines = output.lines().map_while(Result::ok);
        lines.take_while(|line| to.send(line.clone()).is_ok()).for_each(drop);
    });
    Ok((process, asks, answers))
}

fn line(answers: &Receiver<String>) -> Result<String> {
    let why = "it does not answer (see its own messages above, if there are any)";
    answers.recv_timeout(TIMEOUT).map_err(|_| anyhow!(why))
}

fn put(to: &mut ChildStdin, ask: &Ask) -> Result<()> {
    let mut line = serde_json::to_string(ask)?;
    line.push('\n');
    to.write_all(line.as_bytes()).and_then(|()| to.flush()).context("asking it")
}

fn take(answers: &Receiver<String>) -> Result<Answer> {
    match serde_json::from_str(&line(answers)?).context("an invalid answer")? {
        Answer::No(why) => Err(anyhow!(why)),
        other => Ok(other),
    }
}

impl Visitor {
    fn new(agent: &Agent, host: &str) -> Result<Visitor> {
        let (process, mut asks, answers) = start(agent, host)?;
        let mut banner = 0;
        loop {
            let said = line(&answers)?;
            if said == MAGIC {
                break;
            }
            if said.starts_with(NAME) {
                bail!("the weft there is of another version: install the same on all hosts");
            }
            banner += 1;
            if banner > MAX_BANNER {
                bail!("no weft of this kind answers there");
            }
        }
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let asked = Instant::now();
        put(&mut asks, &Ask::About)?;
        let Answer::About(about) = take(&answers)? else { bail!("another answer") };
        let half = asked.elapsed().as_secs_f64() / 2.0;
        let ahead = about.now.as_secs_f64() - before.as_secs_f64() - half;
        Ok(Visitor { host: host.into(), process, asks, answers, about, clock: (ahead, half) })
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        put(&mut self.asks, ask)?;
        take(&self.answers)
    }

    fn reach(&mut self, to: &[SocketAddr]) -> Result<Vec<Option<f64>>> {
        match self.ask(&Ask::Reach(to.to_vec()))? {
            Answer::Reached(took) => Ok(took),
            other => bail!("another answer: {other:?}"),
        }
    }

    fn connect(&mut self, to: &[SocketAddr]) -> Result<Vec<Result<f64, String>>> {
        match self.ask(&Ask::Connect(to.to_vec()))? {
            Answer::Connected(took) => Ok(took),
            other => bail!("another answer: {other:?}"),
        }
    }

    fn heard(&mut self, number: u32) -> Result<u64> {
        match self.ask(&Ask::Heard(number))? {
            Answer::Heard(count) => Ok(count),
            other => bail!("another answer: {other:?}"),
        }
    }

    fn longest(&mut self, to: SocketAddr) -> Result<Option<usize>> {
        match self.ask(&Ask::Longest(to, LENGTHS.to_vec()))? {
            Answer::Longest(length) => Ok(length),
            other => bail!("another answer: {other:?}"),
        }
    }

    fn open(&mut self, at: SocketAddr) -> Result<Port> {
        match self.ask(&Ask::Open(at.ip()))? {
            Answer::Opened(port) => Ok(port),
            other => bail!("another answer: {other:?}"),
        }
    }
}

/// Compares versions and clocks of two hosts.
fn same(a: &Visitor, b: &Visitor) -> Vec<Check> {
    let (here, there) = (&a.about, &b.about);
    let both = format!("{} and {}", a.host, b.host);
    let mut checks = Vec::new();
    checks.push(match (&here.version, here.wire) == (&there.version, there.wire) {
        true => Check::ok("versions", format!("{both}: weft {} on both", here.version)),
        false => Check::fail(
            "versions",
            format!(
                "{} has weft {} (wire format {}), {} has {} ({})",
                a.host, here.version, here.wire, b.host, there.version, there.wire
            ),
            "install the same weft on both",
        ),
    });
    if here.ether_type != there.ether_type {
        let (a, b) = (here.ether_type, there.ether_type);
        let finding = format!("{both}: WEFT_ETHERTYPE is {a:#06x} here and {b:#06x} there");
        checks.push(Check::fail("ethertype", finding, "set the same on both"));
    }
    let (apart, unsure) = ((a.clock.0 - b.clock.0).abs(), a.clock.1 + b.clock.1);
    checks.push(match apart > CLOCK.as_secs_f64() + unsure {
        false => Check::ok("clocks", format!("{both}: no more than {:.1} s apart", apart + unsure)),
        true => Check::warn(
            "clocks",
            format!("{both}: {apart:.1} s apart"),
            "run chrony or another NTP client, to be able to compare logs and captures",
        ),
    });
    checks
}

/// Checks UDP from host `a` to `b` and back; returns the first address of `b` that answers.
fn udp(a: &mut Visitor, b: &mut Visitor) -> Result<(Check, Option<SocketAddr>)> {
    let way = format!("{} -> {}", a.host, b.host);
    let to = b.about.addresses.clone();
    let before = b.heard(a.about.number)?;
    let took = a.reach(&to)?;
    let best = to.iter().zip(&took).filter_map(|(to, took)| Some((*to, (*took)?)));
    let best: Vec<(SocketAddr, f64)> = best.collect();
    if let Some((first, us)) = best.first() {
        let dead: Vec<String> = to
            .iter()
            .zip(&took)
            .filter(|(_, took)| took.is_none())
            .map(|(to, _)| to.ip().to_string())
            .collect();
        let rest = match dead.is_empty() {
            true => String::new(),
            false => format!("; no answer from {}", dead.join(", ")),
        };
        let finding = format!("{way}: {} answers after {us:.0} us{rest}", first.ip());
        return Ok((Check::ok("udp", finding), Some(*first)));
    }
    let list: Vec<String> = to.iter().map(SocketAddr::to_string).collect();
    let (arrived, list) = (b.heard(a.about.number)? > before, list.join(", "));
    let ports = match (a.about.ports.as_str(), b.about.ports.as_str()) {
        ("any", "any") => "UDP of all ports (or name some by WEFT_UDP_PORTS)".to_owned(),
        (a, b) => format!("UDP of ports {a} and {b}"),
    };
    let check = match arrived {
        _ if to.is_empty() => no_address("udp", &way, b),
        true => Check::fail(
            "udp",
            format!("{way}: datagrams arrive, and no answer comes back from {list}"),
            format!("let {ports} pass from {} to {}", b.host, a.host),
        ),
        false => Check::fail(
            "udp",
            format!("{way}: no datagram arrives at {list}"),
            format!("let {ports} pass from {} to {}, and check the route", a.host, b.host),
        ),
    };
    Ok((check, None))
}

/// The check of a protocol where a host has no address to be reached at.
fn no_address(protocol: &'static str, way: &str, host: &Visitor) -> Check {
    Check::fail(
        protocol,
        format!("{way}: {} has no address that others could use", host.host),
        "bring an interface up there and give it an address",
    )
}

/// Checks TCP connections from host `a` to `b`; returns the first address of `b` that takes them.
fn tcp(a: &mut Visitor, b: &Visitor) -> Result<(Check, Option<SocketAddr>)> {
    let way = format!("{} -> {}", a.host, b.host);
    let to = match &b.about.tcp {
        Ok(to) => to.clone(),
        Err(why) => {
            let finding = format!("{way}: {} takes no connections: {why}", b.host);
            let remedy = "name other ports by WEFT_TCP_PORTS there";
            return Ok((Check::fail("tcp", finding, remedy), None));
        }
    };
    let took = a.connect(&to)?;
    let first = to.iter().zip(&took).find_map(|(to, took)| Some((*to, took.as_ref().ok()?)));
    if let Some((first, us)) = first {
        let finding = format!("{way}: {} takes connections, after {us:.0} us", first.ip());
        return Ok((Check::ok("tcp", finding), Some(first)));
    }
    let why = |(to, took): (&SocketAddr, &Result<f64, String>)| match took {
        Err(why) => format!("{to} ({why})"),
        Ok(_) => to.to_string(),
    };
    let list = to.iter().zip(&took).map(why).collect::<Vec<_>>().join(", ");
    let ports = match b.about.tcp_ports.as_str() {
        "any" => "TCP to all ports (or name some by WEFT_TCP_PORTS)".to_owned(),
        ports => format!("TCP to ports {ports}"),
    };
    let check = match to.is_empty() {
        true => no_address("tcp", &way, b),
        false => Check::fail(
            "tcp",
            format!("{way}: no connection to {list}"),
            format!("let {ports} pass from {} to {}, and check the route", a.host, b.host),
        ),
    };
    Ok((check, None))
}

/// Checks the longest packet that reaches an address.
fn mtu(a: &mut Visitor, b: &Visitor, to: SocketAddr, ports: [&Port; 2]) -> Result<Check> {
    let way = format!("{} -> {}", a.host, b.host);
    let expected = ports[0].mtu.min(ports[1].mtu) as usize;
    let Some(longest) = a.longest(to)? else {
        let finding = format!("{way}: IP packets of {} bytes do not pass", LENGTHS[5]);
        return Ok(Check::fail("mtu", finding, "find what drops them: a tunnel, a switch"));
    };
    // The longest length tried that the MTU of both interfaces allows.
    let tried = LENGTHS.iter().copied().find(|&length| length <= expected).unwrap_or(longest);
    Ok(match longest >= tried {
        true => Check::ok("mtu", format!("{way}: IP packets of {longest} bytes pass whole")),
        false => Check::warn(
            "mtu",
            format!(
                "{way}: IP packets of {longest} bytes pass whole, longer ones do not, and the \
                 interfaces have an MTU of {expected}"
            ),
            format!("ip link set INTERFACE mtu {longest} on both, or mend what drops longer ones"),
        ),
    })
}

/// Checks weft's own frames from one host to another.
fn frames(a: &mut Visitor, b: &mut Visitor, ports: [&Port; 2]) -> Result<Check> {
    let way = format!("{} -> {}", a.host, b.host);
    for (visitor, port) in [(&*a, ports[0]), (&*b, ports[1])] {
        if let Some(why) = &port.closed {
            return Ok(Check::warn(
                "ethertype",
                format!("{way}: not checked: {} on {}: {why}", port.name, visitor.host),
                "setcap cap_net_raw+ep on weft there, or root; udp works without",
            ));
        }
    }
    let kind = a.about.ether_type;
    put(&mut b.asks, &Ask::Catch(ports[0].mac))?;
    let thrown = a.ask(&Ask::Throw(ports[1].mac));
    let caught = take(&b.answers)?;
    let Answer::Frames(_) = thrown? else { bail!("another answer") };
    let names = format!("{} to {}", ports[0].name, ports[1].name);
    Ok(match caught {
        Answer::Frames(true) => {
            Check::ok("ethertype", format!("{way}: frames of {kind:#06x} arrive, from {names}"))
        }
        _ => Check::warn(
            "ethertype",
            format!("{way}: no frame of {kind:#06x} arrives, from {names}"),
            "routers and some switches and clouds carry IP alone: packet, gso and xdp are of no \
             use there, and udp works without",
        ),
    })
}

/// The carriers that pass in both directions, and in one.
#[derive(Default)]
struct Passes {
    frames: u8,
    udp: u8,
    tcp: u8,
}

/// Checks one direction: `[there, back]` are addresses of the second and of the first host. Packets
/// of different lengths are tried where UDP passes both ways.
fn further(
    a: &mut Visitor,
    b: &mut Visitor,
    [there, back]: [SocketAddr; 2],
    by_udp: bool,
) -> Result<Vec<Check>> {
    let ports = [a.open(back)?, b.open(there)?];
    let ports = ports.each_ref();
    let mut checks = Vec::new();
    if by_udp {
        checks.push(mtu(a, b, there, ports)?);
    }
    checks.push(frames(a, b, ports)?);
    Ok(checks)
}

/// Says which links a job between two hosts would use.
fn links(a: &str, b: &str, passes: &Passes) -> Check {
    let both = format!("{a} and {b}");
    let frames = passes.frames == 2;
    match (frames, passes.udp == 2, passes.tcp) {
        (true, true, 1..) => Check::ok(
            "links",
            format!(
                "{both}: a job uses packet for small messages and udp (or gso, where long frames \
                 pass) for long ones; tcp if these fail"
            ),
        ),
        (false, true, 1..) => {
            Check::ok("links", format!("{both}: a job uses udp, and tcp if that fails"))
        }
        (_, true, _) => Check::ok(
            "links",
            format!(
                "{both}: a job uses {}; tcp does not pass, and is not needed",
                if frames { "packet and udp" } else { "udp" }
            ),
        ),
        (true, false, _) => Check::warn(
            "links",
            format!(
                "{both}: a job uses packet{}, since UDP does not pass; ranks without CAP_NET_RAW \
                 {}",
                if passes.tcp > 0 { ", and tcp for long messages" } else { "" },
                if passes.tcp > 0 { "use tcp" } else { "do not reach each other" }
            ),
            "let UDP pass, as above",
        ),
        (false, false, 1..) => Check::warn(
            "links",
            format!("{both}: a job uses tcp alone, since UDP does not pass"),
            "let UDP pass, as above, for less time a message",
        ),
        (false, false, 0) => Check::fail(
            "links",
            format!("{both}: no link reaches from one to the other: a job fails at start"),
            "let UDP or TCP pass, as above",
        ),
    }
}

/// A carrier that does not pass is a failure only if no other does.
fn milden(checks: &mut [Check], passes: &Passes) {
    if passes.frames == 2 || passes.udp == 2 || passes.tcp > 0 {
        let failed =
            |c: &&mut Check| c.verdict == Verdict::Fail && ["udp", "tcp"].contains(&c.topic);
        checks.iter_mut().filter(failed).for_each(|check| check.verdict = Verdict::Warn);
    }
}

fn two(a: &mut Visitor, b: &mut Visitor) -> Result<Vec<Check>> {
    let mut checks = same(a, b);
    let udp = [udp(a, b)?, udp(b, a)?];
    let tcp = [tcp(a, b)?, tcp(b, a)?];
    let count =
        |ways: &[(Check, Option<SocketAddr>)]| ways.iter().filter(|w| w.1.is_some()).count();
    let (by_udp, by_tcp) = (count(&udp) as u8, count(&tcp) as u8);
    let mut passes = Passes { udp: by_udp, tcp: by_tcp, frames: 0 };
    // The interfaces are those of addresses that answer, else of the first.
    let [(udp_there, there), (udp_back, back)] = udp;
    let [(tcp_there, tcp_to), (tcp_back, tcp_from)] = tcp;
    let there = there.or(tcp_to).or(b.about.addresses.first().copied());
    let back = back.or(tcp_from).or(a.about.addresses.first().copied());
    let ends = there.zip(back);
    checks.extend([udp_there, tcp_there]);
    if let Some((there, back)) = ends {
        checks.extend(further(a, b, [there, back], by_udp == 2)?);
    }
    checks.extend([udp_back, tcp_back]);
    if let Some((there, back)) = ends {
        checks.extend(further(b, a, [back, there], by_udp == 2)?);
    }
    passes.frames = checks.iter().filter(|c| c.topic == "ethertype" && c.works()).count() as u8;
    milden(&mut checks, &passes);
    checks.push(links(&a.host, &b.host, &passes));
    Ok(checks)
}

/// Returns the checks between the hosts, also those that could not be made.
///
/// # Errors
/// There are less than two hosts, or a name occurs twice.
pub fn checks(reach: &Reach) -> Result<Vec<Check>> {
    let hosts = &reach.hosts;
    let twice = hosts.iter().enumerate().find(|(at, host)| hosts[..*at].contains(host));
    if hosts.len() < 2 || twice.is_some() {
        misuse!("--hosts {}: two or more different hosts are needed", hosts.join(","));
    }
    let remote_weft = remote_weft(reach.remote_weft.as_deref())?;
    let agent = Agent { command: reach.launch_agent.clone(), remote_weft };
    let (mut checks, mut visitors) = (Vec::new(), Vec::new());
    for host in hosts {
        match Visitor::new(&agent, host) {
            Ok(visitor) => {
                let About { version, kernel, ports, tcp_ports, .. } = &visitor.about;
                let finding = format!(
                    "{host}: weft {version} on Linux {kernel}, UDP ports {ports}, TCP ports \
                     {tcp_ports}"
                );
                checks.push(Check::ok("host", finding));
                visitors.push(visitor);
            }
            Err(why) => checks.push(Check::fail(
                "host",
                format!("{host}: {why:#}"),
                format!(
                    "make `{} {host} weft --version` work without a password, or name \
                     --launch-agent and --remote-weft",
                    reach.launch_agent.as_deref().unwrap_or("ssh")
                ),
            )),
        }
    }
    for second in 1..visitors.len() {
        let (before, rest) = visitors.split_at_mut(second);
        for first in before {
            let found = two(first, &mut rest[0]);
            let names = format!("{} and {}", first.host, rest[0].host);
            checks.extend(found.unwrap_or_else(|why| {
                let finding = format!("{names}: {why:#}");
                vec![Check::fail("hosts", finding, "see the messages of the hosts above")]
            }));
        }
    }
    Ok(checks)
}
