//! Helpers of tests: run commands, keep descriptors out of child processes, skip tests that cannot
//! run.

#[path = "../../../conformance/src/skip.rs"]
mod skip;

pub(crate) use skip::skip;

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

/// Held during the start of a process: until the child executes its program, it has a copy of every
/// descriptor of this process.
static STARTS: RwLock<()> = RwLock::new(());

/// Starts a process.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let _starting = STARTS.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Prevents all tests from starting processes, so that a descriptor closed meanwhile has no copy.
pub(crate) fn none_starts() -> RwLockWriteGuard<'static, ()> {
    STARTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command given as words; returns its output, or the reason of its failure.
pub(crate) fn run(words: &str) -> Result<String, String> {
    let mut parts = words.split_whitespace();
    let program = parts.next().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(parts).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = start(&mut command).and_then(Child::wait_with_output);
    let out = out.map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).into_owned()),
        false => Err(format!("{words}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}

#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn skip__a_run_without_the_ip_command_names_what_it_left_out() {
        let tests = [
            "packet::tests::send__all_sizes_in_every_mode",
            "udp::tests::namespaces::connect__two_hosts_at_mtu_1500",
            "xdp::tests::program__tcp_passes_unharmed",
        ];
        let log = format!("weft-skipped-{:x}", crate::random_u64());
        let log = std::env::temp_dir().join(log);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--exact").args(tests).stdout(Stdio::null()).stderr(Stdio::null());
        // The test harness names threads after tests only if it runs several threads.
        command.envs([("PATH", "/nowhere"), ("RUST_TEST_THREADS", "2")]).env("WEFT_SKIP_LOG", &log);
        let ran = start(&mut command).and_then(Child::wait_with_output).unwrap();
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(&log);
        assert!(ran.status.success(), "{text}");
        let mut names: Vec<&str> =
            text.lines().filter_map(|l| Some(l.split_once(": ")?.0)).collect();
        names.sort_unstable();
        let mut wanted = tests.to_vec();
        wanted.sort_unstable();
        assert_eq!(names, wanted, "{text}");
    }
}
