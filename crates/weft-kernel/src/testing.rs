//! Two interfaces joined by a cable, for tests.

use std::process::Command;
use std::time::{Duration, Instant};
use weft_conformance::{cable, skip};
use weft_link::ether::{Interface, Interfaces};

const LONG: Duration = Duration::from_secs(300);

/// Makes a cable v0-w0 with two queues in a namespace of this thread. False, with a note, if this
/// machine does not allow it.
pub(crate) fn cable() -> bool {
    let made = cable::with_queues(["v0", "w0"], 2);
    if let Err(why) = &made {
        skip(&format!("needs root, AF_XDP and the ip command: {why}"));
    }
    made.is_ok()
}

/// Returns the interface of this name.
pub(crate) fn interface(name: &str) -> Interface {
    let all = Interfaces::list().unwrap();
    all.0.into_iter().find(|i| i.name == name).unwrap_or_else(|| panic!("no {name}"))
}

/// Runs a command given as words; returns its output, or the reason of its failure.
pub(crate) fn run(words: &str) -> Result<String, String> {
    let mut parts = words.split_whitespace();
    let out = Command::new(parts.next().ok_or("no command")?).args(parts).output();
    let out = out.map_err(|e| format!("{words}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

/// Returns true if a program is attached to an interface.
pub(crate) fn attached(interface: &str) -> bool {
    run(&format!("ip -d link show dev {interface}")).unwrap().contains("xdp")
}

/// Waits until no program is attached, which takes a moment if a child process or a search of the
/// system's programs holds a descriptor.
pub(crate) fn wait_detached(interface: &str) {
    let start = Instant::now();
    while attached(interface) {
        assert!(start.elapsed() < LONG, "a program stays on {interface}");
    }
}
