//! Asks the kernel about an interface by ioctl, since `/sys` may belong to another network
//! namespace.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// `struct ethtool_channels`
#[derive(Default)]
#[repr(C)]
struct Channels {
    cmd: u32,
    max: [u32; 4],
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// Asks the driver of `interface`; the structure begins with the command.
fn ethtool<T>(interface: &str, request: &mut T) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all-zero is a valid value.
    let mut ask: libc::ifreq = unsafe { zeroed() };
    if interface.len() >= ask.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in ask.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    ask.ifr_ifru.ifru_data = (&raw mut *request).cast();
    // SAFETY: the name ends with a zero, the data is as large as its command demands.
    if unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL, &raw mut ask) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the name of the driver of an interface.
pub(in crate::xdp) fn driver(interface: &str) -> io::Result<String> {
    let mut info = DriverInfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    ethtool(interface, &mut info)?;
    let name = String::from_utf8_lossy(&info.driver);
    Ok(name.trim_end_matches('\0').to_string())
}

/// Returns the number of receive queues in use of an interface; 1 if the driver does not tell.
pub(in crate::xdp) fn queues(interface: &str) -> u32 {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    match ethtool(interface, &mut channels) {
        Ok(()) => channels.rx.saturating_add(channels.combined).max(1),
        Err(_) => 1,
    }
}
