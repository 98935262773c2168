//! Owners of names, as programs in C see them.

use std::ffi::{c_char, c_int};
use weft::names::{Binding, Name};

/// An owner of a name: `struct weft_owner`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeftOwner {
    kind: u32,
    lower: u32,
    upper: u32,
    user: u32,
    process: u32,
    is_here: c_int,
    host: u64,
    endpoint: u64,
    name: [c_char; 96],
    address: [c_char; 64],
}

impl WeftOwner {
    pub(super) const NONE: WeftOwner = WeftOwner {
        kind: 0,
        lower: 0,
        upper: 0,
        user: 0,
        process: 0,
        is_here: 0,
        host: 0,
        endpoint: 0,
        name: [0; 96],
        address: [0; 64],
    };

    pub(super) fn of(binding: &Binding, here: u64) -> WeftOwner {
        let claim = &binding.name;
        let mut owner = WeftOwner {
            kind: claim.kind,
            lower: claim.lower,
            upper: claim.upper,
            user: claim.owner.user,
            process: claim.owner.process,
            is_here: c_int::from(binding.id.host.0 == here),
            host: binding.id.host.0,
            endpoint: claim.endpoint,
            ..WeftOwner::NONE
        };
        put(&Name::of(binding).to_string(), &mut owner.name);
        if let Some(address) = claim.address {
            put(&address.to_string(), &mut owner.address);
        }
        owner
    }

    /// Returns the sender of a message: its user, its process and its host.
    pub(super) fn of_sender((user, process): (u32, u32), host: u64, here: u64) -> WeftOwner {
        WeftOwner { user, process, ..WeftOwner::of_host(host, c_int::from(host == here)) }
    }

    /// Returns an owner of which only the host is known.
    pub(super) fn of_host(host: u64, is_here: c_int) -> WeftOwner {
        WeftOwner { host, is_here, ..WeftOwner::NONE }
    }
}

/// Copies a text to an array that ends it with 0, as far as there is room.
pub(super) fn put(text: &str, to: &mut [c_char]) {
    let len = text.len().min(to.len() - 1);
    for (to, byte) in to.iter_mut().zip(&text.as_bytes()[..len]) {
        *to = *byte as c_char;
    }
}
