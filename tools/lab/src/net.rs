//! The lab's interfaces, made with `ip` and `tc` inside the lab's own namespaces.
//!
//! Each host has `eth0`, one end of a veth pair. The other end, `pK`, is a port of the switch in
//! the keeper's namespace: of a bridge, or, for a lab with delay, of `switch.rs`. Rate and loss act
//! where a packet leaves the switch, so that no host can avoid them. On the path into the switch
//! the rate acts at the host's own interface, as with a real card.
//!
//! Loss needs neither netem nor the right to load eBPF: a classic BPF filter picks packets at
//! random for a class whose queue has no room.

use super::spec::Spec;
use anyhow::{ensure, Context, Result};
use std::io::Write;
use std::process::{Command, Stdio};

/// Name of the interface of each host.
pub const INTERFACE: &str = "eth0";
/// Name of the switch.
const BRIDGE: &str = "sw0";

/// Kernels refuse a maximum train length below the longest headers of TCP.
const LEAST_GSO: u32 = 512;

/// Returns the name of the switch's port for a host.
pub fn port(host: usize) -> String {
    format!("p{}", host + 1)
}

/// Runs `ip` or `tc` once with several commands, in this process's namespace.
fn batch(tool: &str, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut child = Command::new(tool)
        .args(["-batch", "-"])
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("a lab is made with `{tool}`: install the package iproute2"))?;
    let mut input = child.stdin.take().context("its input")?;
    // If the tool ended early, its output below says why.
    let _ = input.write_all((lines.join("\n") + "\n").as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{tool}: {}", explain(why.trim(), lines));
    Ok(())
}

/// Returns a search path with the folders where `ip` and `tc` often are, and which only root's path
/// has.
fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Returns the tool's error message with the command that caused it.
fn explain(why: &str, lines: &[String]) -> String {
    let number = why.rsplit_once("Command failed -:").map(|(_, rest)| rest.trim());
    let line = number.and_then(|n| n.parse::<usize>().ok()).and_then(|n| lines.get(n - 1));
    match line {
        Some(line) => format!("{line}: {}", why.replace('\n', " ")),
        None => why.replace('\n', " "),
    }
}

fn show_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Makes the interfaces; `pids` are the hosts' first processes. Called in the keeper's namespace.
pub fn connect(spec: &Spec, pids: &[u32]) -> Result<()> {
    let mut lines = vec!["link set lo up".to_string()];
    let mtu = spec.mtu;
    let quiet = quiet(spec);
    if spec.direct {
        let [a, b] = [spec.mac(0), spec.mac(1)].map(show_mac);
        lines.push(format!(
            "link add {INTERFACE} address {a} mtu {mtu} netns {} type veth \
             peer name {INTERFACE} address {b} mtu {mtu} netns {}",
            pids[0], pids[1]
        ));
        return batch("ip", &lines);
    }
    if spec.delay.is_none() {
        lines.push(format!(
            "link add {BRIDGE} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        ));
        lines.push(format!("link set {BRIDGE} {quiet} up"));
    }
    for (host, pid) in pids.iter().enumerate() {
        let (port, mac) = (port(host), show_mac(spec.mac(host)));
        lines.push(format!(
            "link add {port} mtu {mtu} type veth \
             peer name {INTERFACE} address {mac} mtu {mtu} netns {pid}"
        ));
        if spec.delay.is_none() {
            lines.push(format!("link set {port} master {BRIDGE}"));
        }
        lines.push(format!("link set {port} {quiet} up"));
    }
    batch("ip", &lines)?;
    let shape: Vec<String> = (0..spec.hosts).flat_map(|h| shape(spec, &port(h), true)).collect();
    batch("tc", &shape).with_context(|| limits(spec))
}

/// Returns the option that stops an interface from making an IPv6 address and announcing it, where
/// the kernel has IPv6.
fn quiet(spec: &Spec) -> &'static str {
    spec.v6(0).map_or("", |_| "addrgenmode none")
}

/// Configures the interface of one host, in that host's namespace.
pub fn configure(spec: &Spec, host: usize) -> Result<()> {
    let mut lines = vec!["link set lo up".to_string()];
    if whole_packets(spec) {
        // The kernel counts no segments in sends of a packet socket, so the length limits them.
        let longest = spec.mtu.max(LEAST_GSO);
        lines.push(format!("link set {INTERFACE} gso_max_segs 1 gso_max_size {longest}"));
    }
    lines.push(format!("addr add {}/24 dev {INTERFACE}", spec.v4(host)));
    if let Some(address) = spec.v6(host) {
        // The addresses are ours: checking for duplicates would delay the first packet by a second.
        lines.push(format!("addr add {address}/64 dev {INTERFACE} nodad"));
    }
    lines.push(format!("link set {INTERFACE} {} up", quiet(spec)));
    batch("ip", &lines)?;
    batch("tc", &shape(spec, INTERFACE, false)).with_context(|| limits(spec))
}

/// True if the interface of this host carries packets.
pub fn carries() -> Result<bool> {
    if let Ok(state) = std::fs::read_to_string(format!("/sys/class/net/{INTERFACE}/operstate")) {
        return Ok(state.trim() == "up");
    }
    // The file system may show interfaces of another namespace, so `ip` is asked.
    let mut show = Command::new("ip");
    show.args(["-o", "link", "show", "dev", INTERFACE]).env("PATH", search_path());
    let output = show.stdin(Stdio::null()).output().context("`ip`")?;
    Ok(String::from_utf8_lossy(&output.stdout).contains("state UP"))
}

fn limits(spec: &Spec) -> String {
    format!("this kernel cannot do {}", spec.conditions())
}

/// True if packets must leave a host one by one: loss must drop single packets and not trains, and
/// kernels before 6.2 pass no trains of UDP to the switch that delays.
fn whole_packets(spec: &Spec) -> bool {
    spec.loss.is_some() || (spec.delay.is_some() && kernel() < (6, 2))
}

fn kernel() -> (u32, u32) {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Returns `tc` commands for an interface: the rate, and the loss if packets leave the switch
/// there.
fn shape(spec: &Spec, interface: &str, leaves_switch: bool) -> Vec<String> {
    let loss = spec.loss.filter(|_| leaves_switch);
    // The host's own queue is larger, because it delays its sender instead of dropping.
    let queue = if leaves_switch { spec.queue } else { spec.queue.max(1 << 20) };
    let burst = spec.rate.map_or(0, |rate| (rate / 8 / 4000).max(u64::from(spec.mtu) * 10));
    let mut lines = Vec::new();
    match (loss, spec.rate) {
        (None, None) => {}
        (None, Some(rate)) => lines.push(format!(
            "qdisc add dev {interface} root tbf rate {rate}bit burst {burst}b limit {queue}b"
        )),
        (Some(loss), rate) => {
            let default = if rate.is_some() { "default 1" } else { "direct_qlen 10000" };
            lines.push(format!("qdisc add dev {interface} root handle 1: htb {default}"));
            if let Some(rate) = rate {
                lines.push(format!(
                    "class add dev {interface} parent 1: classid 1:1 \
                     htb rate {rate}bit burst {burst}b cburst {burst}b quantum 60000"
                ));
                lines.push(format!("qdisc add dev {interface} parent 1:1 bfifo limit {queue}b"));
            }
            lines.push(format!(
                "class add dev {interface} parent 1: classid 1:2 htb rate 1gbit quantum 60000"
            ));
            lines.push(format!("qdisc add dev {interface} parent 1:2 pfifo limit 0"));
            lines.push(format!(
                "filter add dev {interface} parent 1: protocol all prio 1 \
                 bpf bytecode {} flowid 1:2",
                lottery(loss)
            ));
        }
    }
    lines
}

/// Returns a classic BPF program that returns -1 (match) for this share of packets: load a random
/// number; below the threshold match, else not.
fn lottery(share: f64) -> String {
    const RANDOM: u32 = 0xffff_f000 + 56; // SKF_AD_OFF + SKF_AD_RANDOM
    let threshold = (share * 4_294_967_296.0) as u32;
    format!("\"4,32 0 0 {RANDOM},53 0 1 {threshold},6 0 0 0,6 0 0 4294967295\"")
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::super::spec::Conditions;
    use super::*;

    fn spec(rate: Option<u64>, loss: Option<f64>) -> Spec {
        let conditions = Conditions { mtu: 1500, rate, loss, ..Conditions::default() };
        Spec::new("x", 2, &conditions, 0).unwrap()
    }

    #[test]
    fn shape__loses_packets_only_where_they_leave_the_switch() {
        let spec = spec(None, Some(0.5));
        assert!(shape(&spec, "eth0", false).is_empty());
        let lines = shape(&spec, "p1", true).join("\n");
        assert!(lines.contains("53 0 1 2147483648") && lines.contains("pfifo limit 0"), "{lines}");
    }

    #[test]
    fn lottery__of_nothing_loses_nothing() {
        // Threshold 0: every number is at or above it, no packet matches.
        assert!(lottery(0.0).contains(",53 0 1 0,6 0 0 0,"), "{}", lottery(0.0));
        assert!(whole_packets(&spec(None, Some(0.0))));
    }

    #[test]
    fn shape__limits_both_ways() {
        let spec = spec(Some(1_000_000_000), None);
        for leaves in [false, true] {
            let lines = shape(&spec, "x", leaves);
            assert!(lines[0].contains("tbf rate 1000000000bit"), "{lines:?}");
        }
    }

    #[test]
    fn explain__quotes_the_command_that_failed() {
        let lines = ["link add a".to_string(), "link add b".to_string()];
        let text = explain("Error: nope.\nCommand failed -:2", &lines);
        assert!(text.starts_with("link add b: ") && text.contains("nope"), "{text}");
        assert_eq!(explain("weird", &lines), "weird");
    }
}
