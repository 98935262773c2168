//! The machine: processors and clock.

use super::Check;
use weft_link::secure::Backend;
use weft_run::idle;

/// Returns a file's text without the line end.
pub fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim_end().to_string())
}

/// Returns the number in a file.
pub fn read_number(path: &str) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// Runs all checks.
pub fn checks() -> Vec<Check> {
    let halt = read_number(HALT_POLL);
    [cores(), load(), authentication(), clock()].into_iter().chain(halt.map(idling)).collect()
}

fn cores() -> Check {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let online = read("/sys/devices/system/cpu/online").unwrap_or_else(|| "?".into());
    let finding = format!("{usable} usable (online: {online}); more ranks than that share cores");
    match usable {
        1 => Check::warn("cores", finding, "ranks take turns on one core: give it more if you can"),
        _ => Check::ok("cores", finding),
    }
}

fn load() -> Check {
    let Some(cores) = idle::cores_in_use() else {
        return Check::ok("load", "unknown: /proc/stat cannot be read");
    };
    let finding = format!("{cores:.1} cores in use");
    match cores > idle::BUSY {
        true => Check::warn(
            "load",
            format!("{finding}: measurements will be noisy"),
            "wait until other programs have ended before you measure",
        ),
        false => Check::ok("load", finding),
    }
}

/// File with the time in ns for which an idle virtual processor polls for work before the host
/// takes it away; present where the guest's kernel decides that.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

fn idling(poll_ns: u64) -> Check {
    match poll_ns {
        0 => Check::warn(
            "idle cores",
            "an idle core halts at once and leaves this virtual machine: waking a rank that sleeps \
             takes 20 to 60 us",
            format!("as root, `echo 200000 > {HALT_POLL}` has idle cores poll for 0.2 ms"),
        ),
        _ => Check::ok("idle cores", format!("poll for {} us", poll_ns / 1000)),
    }
}

fn authentication() -> Check {
    match Backend::detect() {
        Backend::Portable => Check::warn(
            "authentication",
            "no AES instructions that weft uses: authenticating udp frames takes more time",
            "pass AES through to the virtual machine (CPU model `host`)",
        ),
        backend => Check::ok("authentication", format!("instructions: {}", backend.name())),
    }
}

fn clock() -> Check {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match read(path) {
        None => Check::ok("clock", "unknown clock source: /sys cannot be read"),
        Some(fast)
            if ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"]
                .contains(&fast.as_str()) =>
        {
            Check::ok("clock", format!("{fast}: read without a system call"))
        }
        Some(slow) => Check::warn(
            "clock",
            format!("{slow}: each reading of the clock is a system call"),
            "boot with clocksource=tsc if the machine's TSC is stable",
        ),
    }
}
