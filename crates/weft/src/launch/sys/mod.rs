//! System calls and foreign functions of start-up.
#![allow(unsafe_code)]

pub(super) mod pmix;

use super::LaunchError;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Fills `out` with random bytes fit for a key.
pub(super) fn random(out: &mut [u8]) -> Result<(), LaunchError> {
    let mut done = 0;
    while done < out.len() {
        let rest = &mut out[done..];
        // SAFETY: the pointer and length describe `rest`, which is writable for the call.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        if got > 0 {
            done += got as usize;
        } else {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(LaunchError::io("getrandom", error));
            }
        }
    }
    Ok(())
}

/// Takes over the descriptor a launcher left for this process, and keeps it from its children.
pub(super) fn adopt(fd: RawFd) -> Result<OwnedFd, LaunchError> {
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
