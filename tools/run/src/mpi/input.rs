//! Standard input under Hydra, the launcher of MPICH and Intel MPI: it ends the job when more waits
//! for rank 0 than a pipe takes.

use super::detect::Family;
use rustix::fs::{fstat, FileType};
use std::os::fd::AsFd;

/// Bytes that a pipe takes by default.
const PIPE: i64 = 64 << 10;

/// Exit statuses of such an end: a broken pipe, and a failed assertion of the launcher. Programs
/// seldom have them.
const OF_LAUNCHER: [i32; 2] = [141, 255];

/// True if input may hold more than a pipe takes: a file so long; or another program's output, if
/// the job has ended with this status.
fn is_long(input: impl AsFd, code: i32) -> bool {
    let Ok(stat) = fstat(input) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_size > PIPE,
        FileType::Fifo | FileType::Socket => OF_LAUNCHER.contains(&code),
        _ => false,
    }
}

/// Returns a hint for a job that failed with this status, and with input from such a source.
pub fn hint(family: Family, code: i32) -> Option<&'static str> {
    let hydra = matches!(family, Family::Mpich | Family::Intel);
    (hydra && code != 0 && is_long(std::io::stdin(), code)).then_some(
        "with more than 64 KiB of standard input that rank 0 does not read at once, this MPI's \
         launcher ends the job (\"reading stdin too slowly\", a failed assertion, or no word), \
         without weft too: let rank 0 read the file itself, or give the job </dev/null",
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn is_long__of_files_by_length_and_of_pipes_by_the_end() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(!is_long(&null, 255) && is_long(&read, 141) && !is_long(&read, 1));
        let own = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(is_long(own, 1));
    }
}
