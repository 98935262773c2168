//! The descriptors of a rank with which it cannot move, found before anything is stopped.

use super::{criu, tree};
use rustix::process::Pid;
use std::collections::HashSet;
use std::fs;

/// Devices that are the same on every host.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm/"];
/// Objects of the kernel that CRIU does not copy.
const KERNEL: [(&str, &str); 4] = [
    ("anon_inode:[io_uring]", "io_uring"),
    ("anon_inode:[perf_event]", "a performance counter"),
    ("anon_inode:bpf-", "BPF"),
    ("anon_inode:[userfaultfd]", "userfaultfd"),
];

/// Returns the inodes of TCP sockets of the host that are in use.
fn tcp() -> HashSet<String> {
    let lists = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(fs::read_to_string);
    let lines = |list: String| -> Vec<String> {
        let of = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
        list.lines().skip(1).filter_map(of).collect()
    };
    lists.into_iter().flatten().flat_map(lines).collect()
}

/// Returns the reason why a descriptor that leads there cannot move.
fn reason(target: &str, tcp: &HashSet<String>) -> Option<String> {
    if let Some((_, what)) = KERNEL.iter().find(|(name, _)| target.starts_with(name)) {
        return Some((*what).to_owned());
    }
    let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
    if inode.is_some_and(|inode| tcp.contains(inode)) {
        return Some("a TCP socket of the program's own".to_owned());
    }
    let device = target.starts_with("/dev/") && !DEVICES.iter().any(|own| target.starts_with(own));
    device.then(|| format!("the device {target}"))
}

/// Lists what stands against a move of the rank with this first process, a line each.
pub fn of(root: Pid) -> Vec<String> {
    let mut all: Vec<String> = here().into_iter().collect();
    let tcp = tcp();
    for pid in tree::of(root) {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let name = fs::read_to_string(format!("{folder}/comm")).unwrap_or_default();
        for entry in fs::read_dir(format!("{folder}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            if let Some(why) = reason(&target.to_string_lossy(), &tcp) {
                let number = entry.file_name();
                let number = number.to_string_lossy();
                all.push(format!("descriptor {number} of {} cannot move: {why}", name.trim()));
            }
        }
    }
    all
}

/// Returns the reason why this host cannot copy or restore processes.
pub fn here() -> Option<String> {
    criu::version().and_then(|_| criu::check()).err().map(|why| format!("{why:#}"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn reason__names_devices_and_objects_of_the_kernel() {
        let tcp = HashSet::from(["77".to_owned()]);
        for good in ["/dev/null", "pipe:[3]", "socket:[78]", "/tmp/x", "/dev/shm/mpich", "x"] {
            assert_eq!(reason(good, &tcp), None, "{good}");
        }
        for (bad, part) in [
            ("/dev/dri/card0", "device"),
            ("anon_inode:[io_uring]", "io_uring"),
            ("socket:[77]", "TCP"),
        ] {
            assert!(reason(bad, &tcp).unwrap().contains(part), "{bad}");
        }
    }

    #[test]
    fn of__a_tcp_socket_is_named_with_its_number() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let number = format!("descriptor {} of ", listener.as_raw_fd());
        let found = of(rustix::process::getpid());
        let found = found.iter().any(|line| line.starts_with(&number) && line.contains("TCP"));
        assert!(found, "{number}: {:?}", of(rustix::process::getpid()));
    }
}
