//! Parts that links over IP share: addresses to offer and to use, routes, socket addresses.

pub(crate) mod interfaces;
pub(crate) mod sys;

use std::net::{IpAddr, SocketAddr};

/// The kernel's route to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The local address from which it would send.
    pub source: IpAddr,
    /// Largest IP packet of the path, as far as the kernel knows.
    pub mtu: u32,
}

/// Lists this host's addresses that others may reach, best first.
pub fn advertised() -> Vec<IpAddr> {
    let all = sys::interfaces().unwrap_or_default();
    // Nothing is sent to these documentation addresses (RFC 5737, RFC 3849): the kernel only tells
    // the source addresses of its default routes.
    let outside = ["192.0.2.1:9", "[2001:db8::1]:9"].map(|a| a.parse::<SocketAddr>());
    let defaults: Vec<IpAddr> = outside
        .into_iter()
        .flatten()
        .filter_map(|to| Some(sys::route_to(to).ok()?.source))
        .collect();
    interfaces::advertised(&all, &defaults)
}

/// Names the way from this host to `to`, by the candidate in use, for messages to people.
pub(crate) fn path_text(candidates: &[interfaces::Candidate], to: SocketAddr) -> String {
    let Some(used) = candidates.iter().find(|c| c.addr == to) else {
        return format!("to {to}");
    };
    match (used.device, sys::name_of(used.device)) {
        (0, _) => format!("from {} to {to}", used.source),
        (index, None) => format!("from {} to {to}, interface {index} is gone", used.source),
        (_, Some(name)) => format!("from {} on {name} to {to}", used.source),
    }
}
