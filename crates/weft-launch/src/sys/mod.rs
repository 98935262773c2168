//! System calls and foreign functions of start-up.
#![allow(unsafe_code)]

pub(crate) mod pmix;

use super::LaunchError;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over the descriptor a launcher left for this process, and keeps it from its children.
pub(crate) fn adopt(fd: RawFd) -> Result<OwnedFd, LaunchError> {
    // SAFETY: fcntl with F_SETFD touches no memory and only fails on a descriptor that is not open.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(LaunchError::Environment {
            variable: "PMI_FD".into(),
            value: fd.to_string(),
            expected: "an open descriptor; was the program started through a wrapper closing it?",
        });
    }
    // SAFETY: the descriptor is open, and `join_once` lets a process adopt it only once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
