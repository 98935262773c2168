//! Socket addresses in the kernel's form.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An IPv4 or IPv6 socket address, encoded once and passed to the kernel many times.
#[derive(Clone, Copy)]
pub struct SockAddr {
    raw: libc::sockaddr_in6,
    len: libc::socklen_t,
}

const V4_LEN: usize = mem::size_of::<libc::sockaddr_in>();
const V6_LEN: usize = mem::size_of::<libc::sockaddr_in6>();

impl SockAddr {
    /// Makes an empty address that the kernel can fill.
    #[inline]
    pub fn empty() -> SockAddr {
        // SAFETY: all-zero is a valid sockaddr_in6.
        SockAddr { raw: unsafe { mem::zeroed() }, len: V6_LEN as libc::socklen_t }
    }

    /// Encodes an address.
    pub fn new(addr: SocketAddr) -> SockAddr {
        let mut out = SockAddr::empty();
        match addr {
            SocketAddr::V4(a) => {
                out.len = V4_LEN as libc::socklen_t;
                // SAFETY: `raw` is larger than a sockaddr_in and aligned at least as strictly.
                let v4 = unsafe { &mut *(&raw mut out.raw).cast::<libc::sockaddr_in>() };
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_port = a.port().to_be();
                v4.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            }
            SocketAddr::V6(a) => {
                out.raw.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                out.raw.sin6_port = a.port().to_be();
                out.raw.sin6_addr.s6_addr = a.ip().octets();
                out.raw.sin6_flowinfo = a.flowinfo();
                out.raw.sin6_scope_id = a.scope_id();
            }
        }
        out
    }

    /// True if address and port are equal. Flow label and scope, which the kernel fills in, may
    /// differ.
    #[inline]
    pub fn same(&self, other: &SockAddr) -> bool {
        // Both forms have the port at the same offset; an IPv4 address is at the offset of the flow
        // label.
        let (a, b) = (&self.raw, &other.raw);
        let v4 = i32::from(a.sin6_family) == libc::AF_INET;
        a.sin6_family == b.sin6_family
            && a.sin6_port == b.sin6_port
            && if v4 {
                a.sin6_flowinfo == b.sin6_flowinfo
            } else {
                a.sin6_addr.s6_addr == b.sin6_addr.s6_addr
            }
    }

    /// Decodes the address; `None` if it is neither IPv4 nor IPv6.
    #[inline]
    pub fn get(&self) -> Option<SocketAddr> {
        match i32::from(self.raw.sin6_family) {
            libc::AF_INET => {
                // SAFETY: the family says sockaddr_in; `raw` is larger and aligned at least as
                // strictly.
                let v4 = unsafe { &*(&raw const self.raw).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                let ip = Ipv6Addr::from(self.raw.sin6_addr.s6_addr);
                let port = u16::from_be(self.raw.sin6_port);
                let (flow, scope) = (self.raw.sin6_flowinfo, self.raw.sin6_scope_id);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)))
            }
            _ => None,
        }
    }

    /// Returns a pointer for the kernel to read.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.raw).cast()
    }

    /// Returns a pointer to which the kernel may write [`len`](Self::len) bytes.
    pub fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.raw).cast()
    }

    /// Returns the length of the encoding.
    pub fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// Decodes an address in memory of the kernel's lists; `None` if null or neither IPv4 nor IPv6.
    ///
    /// # Safety
    /// `p` is null or points to a socket address as long as its family demands.
    pub unsafe fn from_kernel(p: *const libc::sockaddr) -> Option<SocketAddr> {
        if p.is_null() {
            return None;
        }
        let mut out = SockAddr::empty();
        // SAFETY: by contract the family is readable, and then the length that it implies.
        unsafe {
            let len = match i32::from((*p).sa_family) {
                libc::AF_INET => V4_LEN,
                libc::AF_INET6 => V6_LEN,
                _ => return None,
            };
            std::ptr::copy_nonoverlapping(p.cast::<u8>(), out.as_mut_ptr().cast::<u8>(), len);
        }
        out.get()
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn get__what_new_encoded() {
        for text in ["1.2.3.4:5", "[2001:db8::7]:65535", "[fe80::1%3]:9"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::new(addr).get(), Some(addr));
        }
        assert_eq!(SockAddr::empty().get(), None);
    }
}
