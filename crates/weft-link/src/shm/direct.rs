//! Direct copies between this process's memory and a peer's (Linux `process_vm_readv(2)`).

use super::sys::memory::{self, Detour};
use crate::LinkError;

/// The choice of direct copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectCopy {
    /// Use them if the kernel permits it.
    #[default]
    Auto,
    /// Never use them.
    Off,
}

/// The state of direct access to one peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direct {
    pid: i32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Forbidden,
    /// The kernel permits it, but it is not proven yet that the process id names the peer.
    Permitted,
    Verified,
}

impl Direct {
    /// Asks the kernel about the process at the other end of a socket; 0: it is not visible.
    pub(super) fn probe(pid: i32, choice: DirectCopy) -> Direct {
        let wanted = choice == DirectCopy::Auto && pid > 0;
        let state =
            if wanted && memory::permitted(pid) { State::Permitted } else { State::Forbidden };
        Direct { pid, state }
    }

    /// Returns the process id of the other end, as the kernel reported it at the connection.
    pub(super) fn process(&self) -> i32 {
        self.pid
    }

    /// True if direct copies will work, as far as is known.
    pub(super) fn usable(&self) -> bool {
        self.state != State::Forbidden
    }

    /// True if `verify` succeeded.
    pub(super) fn verified(&self) -> bool {
        self.state == State::Verified
    }

    /// Reads the word at `addr` of the peer's memory and compares it with the peer's `word`. False
    /// if it differs, or cannot be read while the process runs; direct copies are then off.
    pub(super) fn verify(&mut self, addr: u64, word: u64) -> bool {
        if self.state != State::Permitted {
            return true;
        }
        let mut bytes = [0; 8];
        let read = memory::read(self.pid, addr, &mut bytes);
        let same = read.is_ok() && u64::from_ne_bytes(bytes) == word;
        self.state = if same { State::Verified } else { State::Forbidden };
        // A process that is ending has no memory any more.
        same || read.is_err_and(|e| e.raw_os_error() == Some(libc::ESRCH))
    }

    /// Reads `into.len()` bytes at `addr` of the peer.
    pub(super) fn read(
        &self,
        detour: &mut Detour,
        addr: u64,
        into: &mut [u8],
    ) -> Result<(), LinkError> {
        self.check()?;
        detour.read(self.pid, addr, into).map_err(|e| self.error("reading", e))
    }

    /// Writes `from` at `addr` of the peer.
    pub(super) fn write(
        &self,
        detour: &mut Detour,
        addr: u64,
        from: &[u8],
    ) -> Result<(), LinkError> {
        self.check()?;
        detour.write(self.pid, addr, from).map_err(|e| self.error("writing", e))
    }

    fn check(&self) -> Result<(), LinkError> {
        if self.verified() {
            Ok(())
        } else {
            Err(LinkError::Unsupported)
        }
    }

    fn error(&self, verb: &str, source: std::io::Error) -> LinkError {
        LinkError::System {
            what: format!("{verb} memory of process {}", self.pid),
            source,
            fix: "allow ptrace within the user (kernel.yama.ptrace_scope, seccomp profile of the \
                  container), or turn direct copies off",
        }
    }
}

#[cfg(all(test, not(loom)))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn probe__own_process_is_permitted_and_verified_by_its_word() {
        let word = 77_u64;
        let addr = &raw const word as u64;
        let mut direct = Direct::probe(std::process::id() as i32, DirectCopy::Auto);
        assert!(direct.usable() && !direct.verified());
        let detour = &mut Detour::default();
        let early = direct.read(detour, addr, &mut [0; 8]);
        assert!(matches!(early, Err(LinkError::Unsupported)));
        assert!(direct.verify(addr, word) && direct.verified());
        let mut into = [0; 8];
        direct.read(detour, addr, &mut into).unwrap();
        assert_eq!(u64::from_ne_bytes(into), word);
    }

    #[test]
    fn verify__a_process_that_ended_meanwhile_is_no_fault() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let mut direct = Direct::probe(child.id() as i32, DirectCopy::Auto);
        let usable = direct.usable();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(direct.verify(0x1000, 7), "a warning would blame the system's settings");
        assert!(!usable || !direct.usable());
    }

    #[test]
    fn probe__an_invisible_or_dead_process_is_forbidden() {
        for pid in [0, -1, i32::MAX] {
            assert!(!Direct::probe(pid, DirectCopy::Auto).usable());
        }
        let own = std::process::id() as i32;
        assert!(!Direct::probe(own, DirectCopy::Off).usable());
    }
}
