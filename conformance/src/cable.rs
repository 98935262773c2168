//! Two Ethernet interfaces joined by a cable, for links on raw Ethernet.

use crate::sys;
use std::process::Command;

/// Moves the calling thread into a network namespace of its own with the interfaces `v0` and `w0`,
/// joined, up, of MTU 1500. They go with the thread and what it opened there.
///
/// # Errors
/// Why this machine cannot have them: not root, no `ip` command, no veth.
pub fn cable() -> Result<[&'static str; 2], String> {
    sys::new_namespace().map_err(|e| format!("needs root (new network namespace: {e})"))?;
    for words in
        ["link add v0 type veth peer name w0", "link set v0 up", "link set w0 up"]
    {
        let out = Command::new("ip").args(words.split(' ')).output();
        let out = out.map_err(|e| format!("needs the ip command (iproute2): {e}"))?;
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr);
            return Err(format!("ip {words}: {}", why.trim()));
        }
    }
    Ok(["v0", "w0"])
}
