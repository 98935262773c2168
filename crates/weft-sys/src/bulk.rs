//! Descriptors that are closed by one call.
//!
//! A close that waits for somebody gives its number back first, but the thread that makes the call
//! gives back no other number meanwhile. close_range(2) gives back all numbers of a range before it
//! waits. So copies are made whose numbers are side by side, and the call closes these.

use crate::sys;
use rustix::io::fcntl_dupfd_cloexec;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// One thread at a time looks for numbers.
static TURN: Mutex<()> = Mutex::new(());

/// Descriptors whose numbers are side by side, where such numbers were found.
pub struct Run(Vec<OwnedFd>);

/// Gives sockets numbers side by side, from about `from` on. Closes of sockets that have another
/// descriptor do not wait.
pub fn gather(sockets: Vec<OwnedFd>, from: usize) -> Run {
    let from = RawFd::try_from(from).unwrap_or(RawFd::MAX);
    Run(copies(&sockets, from).unwrap_or(sockets))
}

/// Returns copies with numbers side by side. `None`: there are not so many such numbers.
fn copies(sockets: &[OwnedFd], mut from: RawFd) -> Option<Vec<OwnedFd>> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut run: Vec<OwnedFd> = Vec::with_capacity(sockets.len());
    while let Some(next) = sockets.get(run.len()) {
        let copy = fcntl_dupfd_cloexec(next, from).ok()?;
        let number = copy.as_raw_fd();
        if number == from {
            run.push(copy);
            from = number.checked_add(1)?;
        } else {
            // The program has the number between: the run begins behind it.
            run.clear();
            from = number;
        }
    }
    Some(run)
}

impl Run {
    /// Closes all, and waits for each.
    pub fn close(self) {
        // Where the call is missing, each gives its number back when its turn comes.
        drop(sys::close_run(self.0));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// A place for numbers that no other test has.
    const FROM: usize = 700;

    #[test]
    fn gather__numbers_side_by_side_past_those_that_the_program_has() {
        let (near, far): (Vec<_>, Vec<_>) = (0..20).map(|_| UnixStream::pair().unwrap()).unzip();
        let taken = fcntl_dupfd_cloexec(&near[0], FROM as RawFd + 7).unwrap();
        let run = gather(near.into_iter().map(OwnedFd::from).collect(), FROM);
        let numbers: Vec<RawFd> = run.0.iter().map(AsRawFd::as_raw_fd).collect();
        let first = numbers[0];
        assert!(first > taken.as_raw_fd() && numbers == Vec::from_iter(first..first + 20));
        run.close();
        drop(taken);
        for mut far in far {
            assert_eq!(far.read(&mut [0]).unwrap(), 0, "it is closed");
        }
    }
}
