//! Two Ethernet interfaces joined by a cable, for tests of links on plain Ethernet.

use crate::sys;
use std::process::Command;

/// Names of the two interfaces.
pub const ENDS: [&str; 2] = ["weft0", "weft1"];

/// Lays a cable (a veth pair) in a new network namespace of the calling thread. Nothing is left of
/// it when the thread and its descriptors have ended.
///
/// # Errors
/// Why this machine cannot: it needs root and the `ip` command.
pub fn lay(mtu: u32) -> Result<(), String> {
    sys::new_namespace().map_err(|e| format!("needs root to make a network namespace: {e}"))?;
    let [a, b] = ENDS;
    ip(&format!("link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}"))?;
    ip(&format!("link set {a} up"))?;
    ip(&format!("link set {b} up"))
}

/// Lets UDP be used in the calling thread's namespace, over its loopback interface.
///
/// # Errors
/// As `lay`.
pub fn loopback() -> Result<(), String> {
    ip("link set lo up")
}

fn ip(words: &str) -> Result<(), String> {
    let out = Command::new("ip").args(words.split_whitespace()).output();
    let out = out.map_err(|e| format!("needs the `ip` command (iproute2): {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}
