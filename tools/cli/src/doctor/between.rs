//! `weft doctor --hosts`: the paths between hosts, in both directions of each pair.

use super::visit::{About, Answer, Ask, Port, MAGIC};
use super::Check;
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
const PATIENCE: Duration = Duration::from_secs(60);
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
    answers.recv_timeout(PATIENCE).map_err(|_| anyhow!(why))
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
        while line(&answers)? != MAGIC {
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
        _ if to.is_empty() => Check::fail(
            "udp",
            format!("{way}: {} has no address that others could use", b.host),
            "bring an interface up there and give it an address",
        ),
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

/// Checks the rest of one direction, if UDP works both ways: `there` and `back` are addresses of
/// the second and of the first host.
fn further(a: &mut Visitor, b: &mut Visitor, [there, back]: [SocketAddr; 2]) -> Result<Vec<Check>> {
    let ports = [a.open(back)?, b.open(there)?];
    let ports = ports.each_ref();
    Ok(vec![mtu(a, b, there, ports)?, frames(a, b, ports)?])
}

fn two(a: &mut Visitor, b: &mut Visitor) -> Result<Vec<Check>> {
    let mut checks = same(a, b);
    let ((first, there), (second, back)) = (udp(a, b)?, udp(b, a)?);
    let both = there.zip(back);
    checks.push(first);
    if let Some((there, back)) = both {
        checks.extend(further(a, b, [there, back])?);
    }
    checks.push(second);
    if let Some((there, back)) = both {
        checks.extend(further(b, a, [back, there])?);
    }
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
                let About { version, kernel, ports, .. } = &visitor.about;
                let finding =
                    format!("{host}: weft {version} on Linux {kernel}, UDP ports {ports}");
                checks.push(Check::ok("host", finding));
                visitors.push(visitor);
            }
            Err(why) => checks.push(Check::fail(
                "host",
                format!("{host}: {why:#}"),
                "make `ssh HOST weft --version` work without a password, or name --launch-agent \
                 and --remote-weft",
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
