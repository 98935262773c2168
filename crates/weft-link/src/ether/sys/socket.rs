//! Queries rtnetlink and listens to its events.

use super::parse;
use crate::ether::Interface;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Buffer for an answer; the kernel never sends a message longer than the buffer.
const BUFFER: usize = 32 << 10;

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rc)
}

/// Opens an rtnetlink socket that receives events of `groups`.
fn open(groups: u32, flags: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: no memory is passed; the result is a descriptor that nothing else owns.
    let fd = unsafe {
        OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?)
    };
    // SAFETY: all-zero is a valid sockaddr_nl.
    let mut name: libc::sockaddr_nl = unsafe { mem::zeroed() };
    name.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    name.nl_groups = groups;
    let len = mem::size_of_val(&name) as libc::socklen_t;
    // SAFETY: `name` is readable for its length.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), len) })?;
    Ok(fd)
}

fn recv(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (data, len) = (buffer.as_mut_ptr().cast(), buffer.len());
    // SAFETY: `buffer` is writable for its length.
    let got = unsafe { libc::recv(fd.as_raw_fd(), data, len, 0) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Asks for all objects of one type and passes each answer to `each`.
fn dump(fd: &OwnedFd, kind: u16, each: &mut dyn FnMut(&parse::Message<'_>)) -> io::Result<()> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    // Length, type, flags, sequence number, port; then a zeroed ifinfomsg: all families.
    let mut ask = [0; 32];
    ask[..4].copy_from_slice(&32u32.to_ne_bytes());
    ask[4..6].copy_from_slice(&kind.to_ne_bytes());
    ask[6..8].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: `ask` is readable for its length.
    let sent = unsafe { libc::send(fd.as_raw_fd(), ask.as_ptr().cast(), ask.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut buffer = vec![0; BUFFER];
    loop {
        let got = recv(fd, &mut buffer)?;
        for message in parse::messages(&buffer[..got]) {
            match i32::from(message.kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    let code = message.body.first_chunk().map_or(0, |b| i32::from_ne_bytes(*b));
                    return Err(io::Error::from_raw_os_error(-code));
                }
                _ => each(&message),
            }
        }
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Lists all interfaces, with their addresses.
pub fn list() -> io::Result<Vec<Interface>> {
    let fd = open(0, 0)?;
    let mut out: Vec<Interface> = Vec::new();
    dump(&fd, libc::RTM_GETLINK, &mut |m| {
        if m.kind == libc::RTM_NEWLINK {
            out.extend(parse::link(m.body));
        }
    })?;
    dump(&fd, libc::RTM_GETADDR, &mut |m| {
        let Some((index, ip, prefix)) = parse::address(m.body) else { return };
        if let Some(one) = out.iter_mut().find(|i| i.index == index) {
            one.ips.push((ip, prefix));
        }
    })?;
    Ok(out)
}

/// Listens to changes of interfaces.
#[derive(Debug)]
pub struct Monitor {
    fd: OwnedFd,
}

impl Monitor {
    /// Begins to listen.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open() -> io::Result<Monitor> {
        Ok(Monitor { fd: open(libc::RTMGRP_LINK as u32, libc::SOCK_NONBLOCK)? })
    }

    /// Returns the descriptor, which is readable after a change.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// True if an interface changed since the last call. Events may have been lost;
    /// [`Interfaces::list`] returns the present state.
    ///
    /// [`Interfaces::list`]: crate::ether::Interfaces::list
    pub fn changed(&self) -> bool {
        let mut buffer = [0; 4096];
        let mut any = false;
        loop {
            match recv(&self.fd, &mut buffer) {
                Ok(n) if n > 0 => any = true,
                // The queue overran: something changed.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                _ => return any,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn list__has_loopback_with_its_addresses() {
        let all = list().unwrap();
        let lo = all.iter().find(|i| i.flags & libc::IFF_LOOPBACK as u32 != 0).unwrap();
        assert!(lo.index != 0 && !lo.name.is_empty() && lo.mtu >= 1500, "{lo:?}");
    }
}
