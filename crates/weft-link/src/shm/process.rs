//! The process at the other end of a connection: whether it runs.
//!
//! The end of a process closes its sockets, which the link hears of. That it is stopped, or has
//! ended while a child that it forked still holds a socket, takes a look at `/proc`.

use super::sys::misc;
use std::fs;
use weft_core::Pulse;

/// A process, and when it was met: another one that gets its number starts later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pid: i32,
    met: u64,
}

impl Process {
    /// A process that exists now, by number; 0 where the number is not visible from here.
    pub(super) fn met(pid: i32) -> Process {
        Process { pid, met: misc::ticks_since_boot() }
    }

    /// What it does.
    pub(super) fn pulse(self) -> Pulse {
        if self.pid <= 0 {
            return Pulse::Unseen;
        }
        if !misc::exists(self.pid) {
            return Pulse::Ended;
        }
        // Where /proc shows another PID namespace than this process is in, numbers mean others.
        let own = fs::read_link("/proc/self").ok();
        let own = own.and_then(|own| own.to_str()?.parse::<u32>().ok());
        if own != Some(std::process::id()) {
            return Pulse::Unseen;
        }
        // Its name may hold any bytes.
        let stat = fs::read(format!("/proc/{}/stat", self.pid));
        let stat = stat.as_deref().map(String::from_utf8_lossy);
        stat.ok().and_then(|stat| of_stat(&stat, self.met)).unwrap_or(Pulse::Unseen)
    }
}

/// What `/proc/PID/stat` says of a process that was met at `met`, in ticks since the start of the
/// system. See proc_pid_stat(5).
fn of_stat(stat: &str, met: u64) -> Option<Pulse> {
    // The name before may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let (state, threads) = (fields.first()?, fields.get(17)?.parse::<u64>().ok()?);
    let started: u64 = fields.get(19)?.parse().ok()?;
    Some(match *state {
        _ if started > met => Pulse::Ended,
        "T" => Pulse::Stopped,
        "X" => Pulse::Ended,
        "Z" if threads <= 1 => Pulse::Ended,
        // Its first thread has left the others, and says nothing of them.
        "Z" => Pulse::Unseen,
        // One that a debugger holds (t) has somebody who looks after it.
        _ => Pulse::Runs,
    })
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that sleeps.
    fn sleeper() -> Child {
        Command::new("sleep").arg("600").spawn().unwrap()
    }

    fn signal(child: &Child, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until it is so: a signal takes a moment to have its effect.
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
        // Nobody has asked how it ended: its number is not free yet.
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
