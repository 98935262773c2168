//! One program for each interface, shared by all ranks on it.
//!
//! The first rank loads the program and attaches it through a BPF link: attached for as long as any
//! process has the link open. The others find link and map in the kernel by the program's name and
//! open both, so that the attachment outlives the first rank and ends with the last one, however it
//! ends.

use super::program::{self, ENTRIES};
use super::sys::{bpf, net, Insn};
use super::XdpMode;
use crate::ether::{EtherType, Interface};
use crate::rng::Rng;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The program on an interface.
#[derive(Debug)]
pub(super) struct Attachment {
    /// Keeps it attached.
    _link: OwnedFd,
    /// The sockets it sends frames to.
    pub map: OwnedFd,
    /// Another process had attached it.
    pub joined: bool,
}

/// Why there is no program.
#[derive(Debug)]
pub(super) enum Trouble {
    /// What was tried, and what the system said.
    System(&'static str, io::Error),
    /// Another program is attached.
    Foreign,
    /// Weft's program is attached in the other mode.
    OtherMode,
}

/// How long a program that is in the way may be about to go: another rank may be between two modes,
/// and whoever looks for its own program among those of the system opens each for a moment.
const PATIENCE: Duration = Duration::from_millis(500);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Attaches a program that shares nothing with other processes, in the first mode that works, for
/// as long as the descriptor is open.
///
/// # Errors
/// The kernel's, of the last mode: `EBUSY` where another program is attached.
pub(super) fn alone(program: &OwnedFd, interface: &Interface) -> io::Result<(OwnedFd, XdpMode)> {
    let driver = net::driver(&interface.name).unwrap_or_default();
    let mut failed = io::Error::from(io::ErrorKind::Unsupported);
    for &mode in XdpMode::candidates(&driver).iter().filter(|&&m| m != XdpMode::ZeroCopy) {
        let native = mode == XdpMode::Native;
        let flags = if native { bpf::FLAGS_NATIVE } else { bpf::FLAGS_GENERIC };
        match bpf::attach(program, interface.index, flags) {
            Ok(link) => return Ok((link, mode)),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Attaches the program to an interface in the driver (`native`) or in the stack, or joins the one
/// that is there.
pub(super) fn attach(
    namespace: u64,
    ifindex: u32,
    native: bool,
    kind: EtherType,
) -> Result<Attachment, Trouble> {
    let (ours, other) =
        (name(namespace, ifindex, native, kind), name(namespace, ifindex, !native, kind));
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some((link, map)) = find(ifindex, &ours) {
            return Ok(Attachment { _link: link, map, joined: true });
        }
        let is_late = Instant::now() >= end;
        if find(ifindex, &other).is_some() {
            if is_late {
                return Err(Trouble::OtherMode);
            }
            std::thread::sleep(PAUSE);
            continue;
        }
        let map = bpf::socket_map(ENTRIES, &ours).map_err(|e| Trouble::System("make a map", e))?;
        let code = program::assemble(&map, kind);
        match load_and_attach(&code, &ours, ifindex, native)? {
            Ok(link) => return Ok(Attachment { _link: link, map, joined: false }),
            // Somebody was faster; we shall find the program, if it is ours.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                if is_late {
                    return Err(Trouble::Foreign);
                }
                std::thread::sleep(PAUSE);
            }
            Err(e) => return Err(Trouble::System("attach the program", e)),
        }
    }
}

/// Attaches freshly loaded code; the inner error is that of attaching.
fn load_and_attach(
    code: &[Insn],
    name: &str,
    ifindex: u32,
    native: bool,
) -> Result<io::Result<OwnedFd>, Trouble> {
    let load =
        |frags| bpf::load(code, name, frags).map_err(|e| Trouble::System("load the program", e));
    let flags = if native { bpf::FLAGS_NATIVE } else { bpf::FLAGS_GENERIC };
    let attached = bpf::attach(&load(false)?, ifindex, flags);
    let refused = [libc::ERANGE, libc::EINVAL, libc::EOPNOTSUPP];
    match &attached {
        // Drivers with an MTU beyond a page want a program that copes with pieces; elsewhere that
        // would only make the kernel copy more.
        Err(e) if native && e.raw_os_error().is_some_and(|code| refused.contains(&code)) => {
            let Ok(program) = load(true) else { return Ok(attached) };
            Ok(bpf::attach(&program, ifindex, flags))
        }
        _ => Ok(attached),
    }
}

/// The name of the program on an interface: the same in every process of the network namespace, and
/// of no other interface of the system or EtherType.
fn name(namespace: u64, ifindex: u32, native: bool, kind: EtherType) -> String {
    let mode = if native { 'n' } else { 'g' };
    let place = u64::from(ifindex).rotate_left(32) ^ u64::from(kind.get()).rotate_left(16);
    let mixed = Rng::new(namespace ^ place).next_u64();
    let name = format!("weft_{mode}_{:08x}", mixed as u32);
    debug_assert!(name.len() <= bpf::NAME_MAX);
    name
}

/// Link and map of the program of this name on an interface. `None` also without the right to look
/// (CAP_SYS_ADMIN).
fn find(ifindex: u32, name: &str) -> Option<(OwnedFd, OwnedFd)> {
    let mut id = 0;
    while let Ok(Some(next)) = bpf::link_after(id) {
        id = next;
        // A link that is just going cannot be opened.
        let Ok(link) = bpf::link(id) else { continue };
        let Ok(Some((at, program))) = bpf::xdp_link(&link) else { continue };
        if at != ifindex {
            continue;
        }
        let Ok((found, Some(map))) = bpf::program(program) else { continue };
        if found != name {
            continue;
        }
        if let Ok(map) = bpf::map(map) {
            return Some((link, map));
        }
    }
    None
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn name__differs_by_interface_namespace_mode_and_type() {
        let usual = EtherType::default();
        let all = [
            name(1, 2, true, usual),
            name(1, 2, false, usual),
            name(1, 3, true, usual),
            name(2, 2, true, usual),
            name(1, 2, true, EtherType::parse("88b6").unwrap()),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(a.len() <= bpf::NAME_MAX);
            assert!(all[i + 1..].iter().all(|b| a != b), "{all:?}");
        }
    }
}
