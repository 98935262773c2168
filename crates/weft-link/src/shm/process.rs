//! The state of the process at the other end of a connection.
//!
//! The end of a process closes its sockets, which the link notices. Two states are visible only in
//! `/proc`: a process that is stopped, and a process that has ended while a child that it forked
//! still holds a socket.

use super::sys::misc;
use std::fs;
use weft_core::Pulse;

/// A process and the time when it was seen. A later process with the same id starts later than
/// that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pid: i32,
    met: u64,
}

impl Process {
    /// Makes the entry of a process that exists now, by its id; 0 if the id is not visible from
    /// here.
    pub(super) fn met(pid: i32) -> Process {
        Process { pid, met: misc::ticks_since_boot() }
    }

    /// Returns the state of the process.
    pub(super) fn pulse(self) -> Pulse {
        if self.pid <= 0 {
            return Pulse::Unseen;
        }
        if !misc::exists(self.pid) {
            return Pulse::Ended;
        }
        // If /proc belongs to another PID namespace than this process, its ids mean other
        // processes.
        let own = fs::read_link("/proc/self").ok();
        let own = own.and_then(|own| own.to_str()?.parse::<u32>().ok());
        if own != Some(std::process::id()) {
            return Pulse::Unseen;
        }
        // The process name in the file may hold any bytes.
        let stat = fs::read(format!("/proc/{}/stat", self.pid));
        let stat = stat.as_deref().map(String::from_utf8_lossy);
        stat.ok().and_then(|stat| of_stat(&stat, self.met)).unwrap_or(Pulse::Unseen)
    }
}

/// Parses `/proc/PID/stat` of a process that was seen at `met`, in ticks since the start of the
/// system. See proc_pid_stat(5).
fn of_stat(stat: &str, met: u64) -> Option<Pulse> {
    // The process name before may hold any characters.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let (state, threads) = (fields.first()?, fields.get(17)?.parse::<u64>().ok()?);
    let started: u64 = fields.get(19)?.parse().ok()?;
    Some(match *state {
        _ if started > met => Pulse::Ended,
        "T" => Pulse::Stopped,
        "X" => Pulse::Ended,
        "Z" if threads <= 1 => Pulse::Ended,
        // Its first thread has ended before the others; the file does not show their state.
        "Z" => Pulse::Unseen,
        // A process that a debugger holds (t) counts as running: a person attends to it.
        _ => Pulse::Runs,
    })
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// Starts a process that sleeps.
    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn signal(child: &Child, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for this state: a signal takes effect after a short time.
    fn until(process: Process, pulse: Pulse) {
        while process.pulse() != pulse {
            std::thread::yield_now();
        }
    }

    #[test]
    fn pulse__follows_a_process_to_its_end() {
        let mut child = sleeper();
        let process = Process::met(child.id() as i32);
        assert_eq!(process.pulse(), Pulse::Runs);
        signal(&child, "STOP");
        until(process, Pulse::Stopped);
        signal(&child, "CONT");
        until(process, Pulse::Runs);
        child.kill().unwrap();
        // The parent has not waited for it yet, so its process id is not free.
        until(process, Pulse::Ended);
        child.wait().unwrap();
        assert_eq!(process.pulse(), Pulse::Ended);
    }

    #[test]
    fn pulse__of_one_that_is_not_visible() {
        assert_eq!(Process::met(0).pulse(), Pulse::Unseen);
    }

    #[test]
    fn pulse__another_process_has_the_number() {
        let process = Process { met: 0, ..Process::met(std::process::id() as i32) };
        assert_eq!(process.pulse(), Pulse::Ended);
    }

    #[test]
    fn of_stat__whatever_the_name_is() {
        let stat = |state: &str, threads: u32| {
            format!(
                "7 (a ) T (b) {state} 1 7 7 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 {threads} 0 5000 9"
            )
        };
        for (state, threads, pulse) in [
            ("R", 1, Pulse::Runs),
            ("S", 4, Pulse::Runs),
            ("D", 1, Pulse::Runs),
            ("t", 1, Pulse::Runs),
            ("Z", 2, Pulse::Unseen),
            ("Z", 1, Pulse::Ended),
            ("X", 1, Pulse::Ended),
            ("T", 3, Pulse::Stopped),
        ] {
            assert_eq!(of_stat(&stat(state, threads), 5000), Some(pulse), "{state}");
            assert_eq!(of_stat(&stat(state, threads), 4999), Some(Pulse::Ended), "{state}");
        }
        for nonsense in ["", "7", "7 (a) T", "7 (a) T 1 2 x"] {
            assert_eq!(of_stat(nonsense, 5000), None);
        }
    }
}
