//! One program for each interface, shared by all ranks on it.
//!
//! The first rank loads the program and attaches it through a BPF link, which lasts while any
//! process has the link open. The other ranks find link and map in the kernel by the program's name
//! and open both. So the attachment outlives the first rank and ends with the last one, in whatever
//! way the ranks end.

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
    /// Keeps the program attached.
    _link: OwnedFd,
    /// The map of sockets to which the program sends frames.
    pub map: OwnedFd,
    /// Another process had attached the program.
    pub joined: bool,
}

/// The reason why there is no program.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The operation that failed, and the error of the system.
    System(&'static str, io::Error),
    /// Another program is attached.
    Foreign,
    /// Weft's program is attached in the other mode.
    OtherMode,
}

/// Longest wait for a blocking program to be detached: another rank may be changing its mode, or a
/// process that searches the system's programs for its own opens each for a moment.
const ATTACH_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval between two tries.
const PAUSE: Duration = Duration::from_millis(2);

/// Attaches a program that shares nothing with other processes, in the first mode that works, while
/// the descriptor is open.
///
/// # Errors
/// The kernel's, of the last mode: `EBUSY` if another program is attached.
pub fn alone(program: &OwnedFd, interface: &Interface) -> io::Result<(OwnedFd, XdpMode)> {
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

/// Attaches the program to an interface, in the driver (`native`) or in the stack, or joins the
/// program that is attached.
pub(super) fn attach(
    namespace: u64,
    ifindex: u32,
    native: bool,
    kind: EtherType,
) -> Result<Attachment, Trouble> {
    let (ours, other) =
        (name(namespace, ifindex, native, kind), name(namespace, ifindex, !native, kind));
    let end = Instant::now() + ATTACH_TIMEOUT;
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
            // Another process was faster; the next try finds its program, if it is weft's.
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

/// Loads the code and attaches it; the inner error is that of attaching.
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
        // Drivers with an MTU beyond a page demand a program that accepts frames in several pieces;
        // elsewhere such a program would only make the kernel copy more.
        Err(e) if native && e.raw_os_error().is_some_and(|code| refused.contains(&code)) => {
            let Ok(program) = load(true) else { return Ok(attached) };
            Ok(bpf::attach(&program, ifindex, flags))
        }
        _ => Ok(attached),
    }
}

/// Returns the name of the program on an interface: the same in every process of the network
/// namespace, and different for every other interface of the system and every other EtherType.
fn name(namespace: u64, ifindex: u32, native: bool, kind: EtherType) -> String {
    let mode = if native { 'n' } else { 'g' };
    let place = u64::from(ifindex).rotate_left(32) ^ u64::from(kind.get()).rotate_left(16);
    let mixed = Rng::new(namespace ^ place).next_u64();
    let name = format!("weft_{mode}_{:08x}", mixed as u32);
    debug_assert!(name.len() <= bpf::NAME_MAX);
    name
}

/// Returns link and map of the program with this name on an interface. `None` also without the
/// right to search (CAP_SYS_ADMIN).
fn find(ifindex: u32, name: &str) -> Option<(OwnedFd, OwnedFd)> {
    let mut id = 0;
    while let Ok(Some(next)) = bpf::link_after(id) {
        id = next;
        // A link that is being removed cannot be opened.
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
