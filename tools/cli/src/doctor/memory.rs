//! Requirements of the shared-memory link.

use super::{sys, Check};
use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use rustix::process::{getrlimit, Resource};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use weft::EndpointId;
use weft_link::{ShmConfig, ShmLink};

/// Runs all checks.
pub fn checks() -> Vec<Check> {
    let mut checks = vec![link(), memory_file(), socket(), direct(), barrier(), files(), locked()];
    checks.push(dev_shm());
    checks
}

fn link() -> Check {
    match ShmLink::new(ShmConfig::new(EndpointId(weft_link::random_u64()))) {
        Ok(_) => Check::ok("shm link", "opens"),
        Err(error) => Check::fail("shm link", error.to_string(), "see the lines below"),
    }
}

fn sealed_file() -> io::Result<()> {
    let file = memfd_create("weft-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, 4096)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    match ftruncate(&file, 0) {
        Err(_) => Ok(()),
        Ok(()) => Err(io::Error::other("the seal does not hold")),
    }
}

fn memory_file() -> Check {
    match sealed_file() {
        Ok(()) => Check::ok("memory files", "memfd_create and seals work"),
        Err(error) => Check::fail(
            "memory files",
            format!("memfd_create or seals: {error}"),
            "allow memfd_create in the container's seccomp profile; kernels before 3.17 lack it",
        ),
    }
}

fn credentials() -> io::Result<Result<(), String>> {
    let name = format!("weft-doctor-{:016x}", weft_link::random_u64());
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address)?;
    let near = UnixStream::connect_addr(&address)?;
    let _far = listener.accept()?;
    Ok(weft_sys::Peer::of(&near)?.is_own())
}

fn socket() -> Check {
    let topic = "unix sockets";
    match credentials() {
        Ok(Ok(())) => Check::ok(topic, "abstract names and SO_PEERCRED work"),
        Ok(Err(why)) => Check::fail(
            topic,
            format!("the kernel does not name this user: {why}"),
            "run all ranks in one user namespace, or use --link udp",
        ),
        Err(error) => Check::fail(
            topic,
            format!("abstract unix sockets: {error}"),
            "allow AF_UNIX sockets in the container's or service's profile, or use --link udp",
        ),
    }
}

fn direct() -> Check {
    let topic = "direct copies";
    match sys::direct_copy() {
        Ok(()) => Check::ok(topic, "process_vm_readv between ranks is permitted"),
        Err(error) => {
            let scope = super::host::read("/proc/sys/kernel/yama/ptrace_scope");
            let remedy = match scope.as_deref() {
                Some("2" | "3") => "sysctl kernel.yama.ptrace_scope=1",
                _ => {
                    "allow process_vm_readv (docker: --cap-add SYS_PTRACE, or its seccomp profile)"
                }
            };
            let remedy = format!("{remedy}; until then messages are copied through shared memory");
            Check::warn(topic, format!("process_vm_readv between ranks: {error}"), remedy)
        }
    }
}

fn barrier() -> Check {
    if sys::barriers() {
        Check::ok("barriers", "membarrier works: a send needs no fence of its own")
    } else {
        Check::warn(
            "barriers",
            "membarrier is not offered: each send needs a fence",
            "allow membarrier in the seccomp profile (kernels before 4.16 lack it)",
        )
    }
}

/// Descriptors that a rank needs for each peer of its host.
const FILES_PER_PEER: u64 = 2;

fn files() -> Check {
    let limit = getrlimit(Resource::Nofile);
    let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let (soft, hard) = (most(limit.current), most(limit.maximum));
    let peers = soft.saturating_sub(32) / FILES_PER_PEER;
    let finding = format!("{soft} open files: enough for {peers} ranks on this host");
    if soft >= 1024 {
        Check::ok("open files", finding)
    } else {
        Check::warn("open files", finding, format!("ulimit -n {}", hard.min(65536)))
    }
}

fn locked() -> Check {
    match getrlimit(Resource::Memlock).current {
        None => Check::ok("locked memory", "not limited"),
        Some(bytes) => {
            let kib = bytes >> 10;
            Check::ok("locked memory", format!("limit {kib} KiB; no link of this version locks"))
        }
    }
}

/// Bytes that an MPI's own shared memory needs for a few ranks. Containers often have less.
const MPI_SHM: u64 = 256 << 20;

fn dev_shm() -> Check {
    let topic = "/dev/shm";
    let Ok(about) = rustix::fs::statvfs("/dev/shm") else {
        return Check::ok(topic, "not there; weft does not use it, MPIs' own shared memory does");
    };
    let (all, free) = (about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize);
    let finding = format!(
        "{} of {} MiB free; weft does not use it, MPIs' own shared memory does",
        free >> 20,
        all >> 20
    );
    match free < MPI_SHM {
        true => {
            Check::warn(topic, finding, "docker run --shm-size 1g; weft mpi --all-through-weft")
        }
        false => Check::ok(topic, finding),
    }
}
