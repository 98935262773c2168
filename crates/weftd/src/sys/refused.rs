//! Refusals of datagrams by the kernels of their receivers: nobody has the port there.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// "Port unreachable" of ICMP and of ICMPv6, as origin, type and code (RFC 792, RFC 4443).
const PORT_UNREACHABLE: [(u8, u8, u8); 2] =
    [(libc::SO_EE_ORIGIN_ICMP, 3, 3), (libc::SO_EE_ORIGIN_ICMP6, 1, 4)];

/// Has the kernel keep refusals of what a socket sends, for [`next`].
///
/// # Errors
/// The system refuses.
pub fn keep(socket: &UdpSocket) -> io::Result<()> {
    let is_v6 = socket.local_addr()?.is_ipv6();
    let (level, option) = match is_v6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    let (on, len): (libc::c_int, _) = (1, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the option takes an integer of this length.
    super::check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), len)
    })
}

fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place: *const libc::sockaddr_storage = storage;
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: a storage holds every kind of address; the family says that it is this one.
            let found = unsafe { &*place.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(found.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(found.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as before.
            let found = unsafe { &*place.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(found.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(found.sin6_port)))
        }
        _ => None,
    }
}

/// An error that the kernel kept: what it is, and the host that sent it.
#[repr(C)]
struct Kept {
    error: libc::sock_extended_err,
    offender: libc::sockaddr_storage,
}

/// Takes the next error of a socket. Returns the receiver of the refused datagram, and how many of
/// its bytes are quoted, if it was refused by the receiver's own kernel because nobody has the
/// port; `Some(None)`: it was another error; `None`: there is none.
pub fn next(socket: &UdpSocket, quoted: &mut [u8]) -> Option<Option<(SocketAddr, usize)>> {
    // SAFETY: all-zero is a valid value of these.
    let (mut to, mut head): (libc::sockaddr_storage, libc::msghdr) = unsafe { zeroed() };
    let mut part = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: quoted.len() };
    let mut control = [0u64; 64];
    head.msg_name = (&raw mut to).cast();
    head.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    head.msg_iov = &raw mut part;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the head names memory that is writable for the lengths in it.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, flags) };
    let len = usize::try_from(len).ok()?;
    // SAFETY: the kernel filled the head; the control messages lie in `control`.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const head) };
    while !message.is_null() {
        // SAFETY: not null, so it is a control message within `control`.
        let (level, kind, size) =
            unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len as usize) };
        let is_error = (level, kind) == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        if is_error {
            // SAFETY: all-zero is a valid value.
            let mut kept: Kept = unsafe { zeroed() };
            // SAFETY: arithmetic on a length.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            let bytes = size.saturating_sub(before).min(size_of::<Kept>());
            // SAFETY: the message has so many bytes behind its head, and `kept` takes them.
            unsafe {
                let data = libc::CMSG_DATA(message);
                std::ptr::copy_nonoverlapping(data, (&raw mut kept).cast::<u8>(), bytes);
            }
            return Some(refusal(&kept, &to).map(|to| (to, len)));
        }
        // SAFETY: as before.
        message = unsafe { libc::CMSG_NXTHDR(&raw const head, message) };
    }
    Some(None)
}

/// Returns the receiver that refused, if it was its own kernel that did.
fn refusal(kept: &Kept, to: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let libc::sock_extended_err { ee_origin, ee_type, ee_code, .. } = kept.error;
    let to = address(to)?;
    let by: IpAddr = address(&kept.offender)?.ip();
    let is_own = by.to_canonical() == to.ip().to_canonical();
    (is_own && PORT_UNREACHABLE.contains(&(ee_origin, ee_type, ee_code))).then_some(to)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn next__a_port_that_no_process_has_is_refused_with_the_datagram() {
        for ip in ["127.0.0.1", "::1"] {
            let Ok(socket) = UdpSocket::bind((ip, 0)) else {
                weft_conformance::skip("the host has no such address");
                continue;
            };
            keep(&socket).unwrap();
            let gone = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap();
            socket.send_to(b"hello", gone).unwrap();
            let mut quoted = [0; 64];
            let found = loop {
                if let Some(found) = next(&socket, &mut quoted) {
                    break found;
                }
            };
            assert_eq!(found, Some((gone, 5)));
            assert_eq!(&quoted[..5], b"hello");
            assert_eq!(next(&socket, &mut quoted), None);
        }
    }
}
