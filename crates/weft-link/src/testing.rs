//! Helpers of tests: run commands, keep descriptors out of child processes, skip tests that cannot
//! run.

#[path = "../../../conformance/src/skip.rs"]
mod skip;
#[allow(unsafe_code)]
#[path = "../../../conformance/src/sys/fork.rs"]
mod sys;

pub(crate) use skip::skip;
pub(crate) use sys::in_a_fork;

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

/// The two ends of a link in one process.
pub(crate) mod ends {
    use crate::secure::{JobKey, Mode, Security};
    use crate::{Address, Link};
    use std::time::Duration;
    use weft_core::wire::{emit, Common, Hello, Packet};
    use weft_core::{EndpointId, PeerId};

    pub const A: EndpointId = EndpointId(0xa);
    pub const B: EndpointId = EndpointId(0xb);
    /// The number of the other side, the same on both sides.
    pub const P: PeerId = PeerId(2);
    /// Session numbers that A and B gave each other.
    pub const TO_A: u32 = (1 << 20) | 7;
    pub const TO_B: u32 = (3 << 20) | 9;
    pub const LONG: Duration = Duration::from_secs(300);

    pub fn security(me: EndpointId, mode: Mode, key: u8) -> Security {
        Security { mode, job_key: JobKey::from_bytes(&[key; 32]).unwrap(), me }
    }

    pub fn address_of(link: &impl Link, endpoint: EndpointId) -> Address {
        let mut address = Address { endpoint, host: 1, ..Default::default() };
        link.advertise(&mut address);
        address
    }

    /// Returns the header of a HELLO.
    pub fn hello(src: EndpointId, dst: EndpointId) -> Vec<u8> {
        let hello = Hello {
            src_eid: src.0,
            dst_eid: dst.0,
            session_offer: 1,
            mtu: 1456,
            version_min: 1,
            version_max: 1,
            credit: 0,
        };
        emit(&Common::default(), &Packet::Hello(hello)).as_slice().to_vec()
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
