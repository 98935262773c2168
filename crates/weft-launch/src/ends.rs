//! The ends of ranks, as `weft run` tells them to the ranks of a job.
//!
//! The launcher sees the end of every rank. On each host it keeps a memory file with two bytes for
//! each rank, which the ranks inherit and read when a peer is silent: a message to them would have
//! to wait until they listen.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Variable with the number of the descriptor of that file.
pub const VARIABLE: &str = "WEFT_RUN_ENDS";
/// Name of the memory file.
pub const NAME: &str = "weft-ends";
/// Bytes of each rank.
const EACH: u64 = 2;

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The rank left the job in good order; its process may run still.
    Left,
    /// Its process exited with this status.
    Status(u8),
    /// This signal killed its process.
    Signal(u8),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Left => write!(f, "it left the job"),
            End::Status(status) => write!(f, "it exited with status {status}"),
            End::Signal(signal) => write!(f, "signal {signal} killed it"),
        }
    }
}

impl End {
    /// Returns the bytes of the file.
    fn encode(self) -> [u8; EACH as usize] {
        match self {
            End::Left => [1, 0],
            End::Status(status) => [2, status],
            End::Signal(signal) => [3, signal],
        }
    }

    fn decode(bytes: [u8; EACH as usize]) -> Option<End> {
        match bytes {
            [1, 0] => Some(End::Left),
            [2, status] => Some(End::Status(status)),
            [3, signal] => Some(End::Signal(signal)),
            _ => None,
        }
    }
}

/// Records the end of a rank in the file of its host, for the launcher.
///
/// # Errors
/// Errors of the system.
pub fn record(file: &File, rank: usize, end: End) -> std::io::Result<()> {
    file.write_all_at(&end.encode(), rank as u64 * EACH)
}

/// The ends of the ranks of this process's job.
#[derive(Debug)]
pub struct Ends {
    file: File,
}

impl Ends {
    /// Opens the file that the launcher left for this process. `None` if another launcher started
    /// it, or a wrapper closed the descriptor.
    pub fn of_launcher() -> Option<Ends> {
        let fd: u32 = std::env::var(VARIABLE).ok()?.parse().ok()?;
        let path = format!("/proc/self/fd/{fd}");
        let target = std::fs::read_link(&path).ok()?;
        let ours = target.to_str()?.starts_with(&format!("/memfd:{NAME} "));
        Some(Ends { file: File::open(path).ok().filter(|_| ours)? })
    }

    /// Makes the ends of such a file.
    pub fn of_file(file: File) -> Ends {
        Ends { file }
    }

    /// Returns the end of a rank. `None` while it runs, as far as the launcher knows.
    pub fn of(&self, rank: u32) -> Option<End> {
        let mut bytes = [0; EACH as usize];
        self.file.read_exact_at(&mut bytes, u64::from(rank) * EACH).ok()?;
        End::decode(bytes)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn of__gives_what_was_recorded_and_nothing_of_those_that_run() {
        let path = std::env::temp_dir().join(format!("weft-ends-{:x}", weft_link::random_u64()));
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let ends = Ends { file: file.try_clone().unwrap() };
        assert_eq!(ends.of(2), None);
        for end in [End::Left, End::Status(0), End::Status(255), End::Signal(9)] {
            record(&file, 2, end).unwrap();
            assert_eq!(ends.of(2), Some(end));
        }
        assert_eq!((ends.of(1), ends.of(3)), (None, None));
    }
}
