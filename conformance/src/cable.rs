//! Two Ethernet interfaces joined by a cable, for tests of links on plain Ethernet.

use crate::sys;
use std::process::Command;

/// Names of the two interfaces.
pub const ENDS: [&str; 2] = ["weft0", "weft1"];

/// Lays a cable (a veth pair) in a new network namespace of the calling thread. It disappears when
/// the thread and its descriptors have ended.
///
/// # Errors
/// The reason why this machine cannot: it needs root and the `ip` command.
pub fn lay(mtu: u32) -> Result<(), String> {
    sys::new_namespace().map_err(|e| format!("needs root to make a network namespace: {e}"))?;
    let [a, b] = ENDS;
    ip(&format!("link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}"))?;
    ip(&format!("link set {a} up"))?;
    ip(&format!("link set {b} up"))
}

/// Lays a cable between interfaces of these names, with so many queues each, in a new network
/// namespace of the calling thread.
///
/// # Errors
/// Returns the errors of `lay`.
pub fn with_queues([a, b]: [&str; 2], queues: u32) -> Result<(), String> {
    sys::new_namespace().map_err(|e| format!("needs root to make a network namespace: {e}"))?;
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add {a} {queues} type veth peer name {b} {queues}"))?;
    ip(&format!("link set {a} up"))?;
    ip(&format!("link set {b} up"))
}

/// Enables UDP in the calling thread's namespace, over its loopback interface.
///
/// # Errors
/// Returns the errors of `lay`.
pub fn loopback() -> Result<(), String> {
    ip("link set lo up")
}

/// Lays a cable between two network namespaces: one of the calling thread, which runs `near`, and
/// one of another thread, which runs `far`. Their ends have these IPv4 addresses.
///
/// # Errors
/// Returns the errors of `lay`; then neither has run.
///
/// # Panics
/// One of `near` and `far` panicked.
pub fn between(
    addresses: [&str; 2],
    near: impl FnOnce(),
    far: impl FnOnce() + Send,
) -> Result<(), String> {
    lay(1500)?;
    let [a, b] = ENDS;
    let gone = |e: std::sync::mpsc::RecvError| e.to_string();
    std::thread::scope(|scope| {
        let (say, hear) = std::sync::mpsc::channel();
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let thread = std::fs::read_link("/proc/thread-self").map_err(|e| e.to_string());
            let made = sys::new_namespace().map_err(|e| e.to_string());
            let _ = say.send(made.and(thread));
            if may_go_on.recv().is_ok() {
                let up = address(b, addresses[1], true);
                let is_up = up.is_ok();
                let _ = say.send(up.map(|()| "up".into()));
                if is_up {
                    far();
                }
            }
        });
        let thread = hear.recv().map_err(gone)??;
        let number = thread.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ip(&format!("link set {b} netns {number}"))?;
        address(a, addresses[0], true)?;
        let _ = go_on.send(());
        hear.recv().map_err(gone)??;
        near();
        Ok(())
    })
}

/// Gives an end of a cable an IPv4 address and sets it up, or removes the address.
///
/// # Errors
/// Returns the errors of `lay`.
pub fn address(end: &str, address: &str, is_there: bool) -> Result<(), String> {
    let word = if is_there { "add" } else { "del" };
    ip(&format!("addr {word} {address}/24 dev {end}"))?;
    ip(&format!("link set {end} up"))
}

/// Has datagrams of this thread's host to the address of its cable's other end arrive nowhere, as
/// while no request for its Ethernet address is answered; or there again. Frames of links are not
/// concerned.
///
/// # Errors
/// Returns the errors of `lay`.
pub fn astray(end: &str, address: &str, is_astray: bool) -> Result<(), String> {
    let word = if is_astray { "add" } else { "del" };
    // A router that is not there.
    let network = address.rsplit_once('.').map_or(address, |(network, _)| network);
    ip(&format!("route {word} {address}/32 via {network}.250 dev {end}"))
}

fn ip(words: &str) -> Result<(), String> {
    let out = Command::new("ip").args(words.split_whitespace()).output();
    let out = out.map_err(|e| format!("needs the `ip` command (iproute2): {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("ip {words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}
