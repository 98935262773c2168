//! Asks drivers for the speed of their interfaces, and for the coalescing of interrupts.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns the speed of the interface of this name in Mbit/s (`ETHTOOL_GSET`, linux/ethtool.h); 0
/// if its driver does not tell.
pub fn speed(name: &[u8]) -> u32 {
    // In `struct ethtool_cmd`, the low half of the speed is the first half of word 3, the high half
    // the first half of word 7.
    let Some(command) = ask::<11>(name, 1) else { return 0 };
    let half = |word: u32| u32::from(word.to_ne_bytes()[0]) | u32::from(word.to_ne_bytes()[1]) << 8;
    let known = half(command[3]) | half(command[7]) << 16;
    match known != u32::MAX && known != 0xffff {
        true => known,
        false => 0,
    }
}

/// The coalescing of receive interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds until an interrupt after a frame.
    pub usecs: u32,
    /// Frames until an interrupt; 0: the time alone counts.
    pub frames: u32,
    /// True if the driver chooses both by the load.
    pub adaptive: bool,
}

/// Returns the coalescing of receive interrupts of the interface of this name
/// (`ETHTOOL_GCOALESCE`, linux/ethtool.h); none if its driver does not tell.
pub fn coalescing(name: &[u8]) -> Option<Coalescing> {
    // `struct ethtool_coalesce`: words 1 and 2 are of receiving, word 10 is the choice by load.
    let command = ask::<23>(name, 0x0e)?;
    Some(Coalescing { usecs: command[1], frames: command[2], adaptive: command[10] != 0 })
}

/// Asks the driver by a command that fills `N` words, itself included.
fn ask<const N: usize>(name: &[u8], number: u32) -> Option<[u32; N]> {
    let mut command = [0u32; N];
    command[0] = number;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return None;
    }
    // SAFETY: a descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, &from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
    // SAFETY: `request` names a command of the size the kernel writes, both alive for the call.
    let rc = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (rc == 0).then_some(command)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn speed__is_not_known_of_what_has_none() {
        let names = [&b"lo"[..], b"no such interface at all", b""];
        assert_eq!(names.map(speed), [0; 3]);
        assert_eq!(names.map(coalescing), [None; 3]);
    }
}
