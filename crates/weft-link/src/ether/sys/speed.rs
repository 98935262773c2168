//! Asks drivers for the speed of their interfaces.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Returns the speed of the interface of this name in Mbit/s (`ETHTOOL_GSET`, linux/ethtool.h); 0
/// if its driver does not tell.
pub fn speed(name: &[u8]) -> u32 {
    const GET: u32 = 1;
    // In `struct ethtool_cmd`, the low half of the speed is the first half of word 3, the high half
    // the first half of word 7.
    let mut command = [0u32; 11];
    command[0] = GET;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return 0;
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
    let half = |word: u32| u32::from(word.to_ne_bytes()[0]) | u32::from(word.to_ne_bytes()[1]) << 8;
    let known = half(command[3]) | half(command[7]) << 16;
    match rc == 0 && known != u32::MAX && known != 0xffff {
        true => known,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn speed__is_not_known_of_what_has_none() {
        assert_eq!([&b"lo"[..], b"no such interface at all", b""].map(speed), [0; 3]);
    }
}
