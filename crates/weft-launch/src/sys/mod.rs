//! System calls and foreign functions of start-up.
#![allow(unsafe_code)]

pub(crate) mod pmix;

use super::LaunchError;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Returns a copy of the descriptor that a launcher left for this process, and keeps both from the
/// process's children. The descriptor itself stays as it is: an MPI in the same process uses and
/// closes it.
pub(crate) fn share(fd: RawFd) -> Result<OwnedFd, LaunchError> {
    // SAFETY: fcntl with these requests touches no memory and only fails on a descriptor that is
    // not open.
    let copy = unsafe {
        libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0)
    };
    if copy < 0 {
        return Err(LaunchError::Environment {
            variable: "PMI_FD".into(),
            value: fd.to_string(),
            expected: "an open descriptor; did a wrapper close it, or an MPI in this process by \
                       MPI_Finalize (join the job of weft before)?",
        });
    }
    // SAFETY: the descriptor has just been made, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Called when the process exits, after all functions that were given to `atexit`: MPICH says its
/// farewell in one of those.
// SAFETY: the loader calls each function of this section once, without arguments.
#[used]
#[link_section = ".fini_array"]
static AT_EXIT: extern "C" fn() = super::pmi1::say_farewell;
