//! Two network namespaces joined by a veth pair, so that network figures pass a network interface.
//!
//! The namespaces have no name: each lives as long as the rank in it, and the veth pair as long as
//! the namespaces. Nothing is left behind however the processes end.

use anyhow::{ensure, Context, Result};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Address of each rank on the veth pair.
pub const HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 99, 77, 1)), IpAddr::V4(Ipv4Addr::new(10, 99, 77, 2))];
const INTERFACE: &str = "weft0";

/// When to use namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Always; fail where that is not allowed
    On,
    /// Never: loopback
    Off,
    /// Where that is allowed (root)
    Auto,
}

fn ip(words: &[&str]) -> Result<String> {
    let output = Command::new("ip")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("`ip` (package iproute2) makes the network of this measurement")?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", words.join(" "), why.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Joins the namespaces of two processes.
pub fn join(pids: [u32; 2]) -> Result<()> {
    let [a, b] = pids.map(|pid| pid.to_string());
    ip(&[
        "link", "add", INTERFACE, "mtu", "1500", "netns", &a, "type", "veth", "peer", "name",
        INTERFACE, "mtu", "1500", "netns", &b,
    ])?;
    Ok(())
}

/// Gives this process's end of the veth pair its address; called inside the namespace.
pub fn configure(rank: usize) -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["addr", "add", &format!("{}/30", HOSTS[rank]), "dev", INTERFACE])?;
    ip(&["link", "set", INTERFACE, "up"])?;
    Ok(())
}

/// Waits until the interface carries packets, which is a moment after both ends are up.
pub fn await_carrier() -> Result<()> {
    let start = Instant::now();
    while !ip(&["-o", "link", "show", "dev", INTERFACE])?.contains("state UP") {
        ensure!(start.elapsed().as_secs() < 10, "the veth pair stays without carrier");
    }
    Ok(())
}
