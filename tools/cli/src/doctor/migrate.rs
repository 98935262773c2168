//! Ranks that move between hosts: the needs of this host.

use super::Check;
use weft_run::run::moving::criu;

const TOPIC: &str = "migrate";

/// Returns the checks of `weft doctor --migrate`.
pub fn checks() -> Vec<Check> {
    let criu = match criu::version() {
        Err(why) => {
            let remedy = format!("install CRIU {}.{} or later", criu::LEAST[0], criu::LEAST[1]);
            return vec![Check::fail(TOPIC, format!("{why:#}"), remedy)];
        }
        Ok(version) => Check::ok(TOPIC, format!("CRIU {version}")),
    };
    let kernel = match criu::check() {
        Ok(()) => Check::ok(TOPIC, "the kernel, and the rights here, are enough for CRIU"),
        Err(why) => Check::fail(
            TOPIC,
            format!("{why:#}"),
            "run weft as root on the hosts; CRIU's page names what a kernel needs \
             (https://criu.org/Linux_kernel)",
        ),
    };
    let memory = match std::fs::read_to_string("/proc/mounts") {
        Ok(mounts) if mounts.contains(" /dev/shm tmpfs ") => {
            Check::ok(TOPIC, "copies lie in memory (/dev/shm)")
        }
        _ => Check::fail(TOPIC, "/dev/shm is no file system in memory", "mount a tmpfs there"),
    };
    vec![criu, kernel, memory]
}
