//! Jobs between two hosts, and in namespaces of their own.

use super::harness::{run, scratch, Mpi};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_conformance::hosts::{self, Host};
use weft_conformance::skip;

const LIMIT: Duration = Duration::from_secs(120);
const PROGRAMS: &[&str] = &["collectives", "storm", "onesided"];

/// Returns the program that launchers call in place of `rsh`: it starts a process on the other
/// host.
fn agent(host: &Host, mpi: Mpi, link: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = scratch().join(format!("on-host-{}-{mpi:?}-{link}", std::process::id()));
    let skip = "while [ \"${1#-}\" != \"$1\" ]; do shift; done; shift";
    // The host gets a name: Open MPI 5 takes two hosts of one name for one, and waits for ever.
    let named = "echo weft-other > /proc/sys/kernel/hostname";
    let space = host.other_space();
    let enter = format!("exec nsenter --net={space} unshare --uts sh -c \"{named}; $*\"");
    std::fs::write(&path, format!("#!/bin/sh\n{skip}\n{enter}\n")).expect("a script");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a script");
    path
}

/// Has a launcher start two ranks on each host.
fn place(command: &mut Command, mpi: Mpi, agent: &Path, link: &str) {
    command.env("WEFT_LINK", link);
    if mpi.is_hydra() {
        command.args(["-launcher", "rsh", "-launcher-exec"]).arg(agent);
        command.args(["-localhost", "10.9.0.1", "-iface", "cable0", "-ppn", "2"]);
        command.args(["-hosts", "10.9.0.1,10.9.0.2"]);
        return;
    }
    command.args(["--mca", "plm_rsh_agent"]).arg(agent);
    command.args(["--mca", "plm_rsh_no_tree_spawn", "1"]);
    command.args(["--host", "10.9.0.1:2,10.9.0.2:2", "--bind-to", "none"]);
    for variable in ["FI_PROVIDER_PATH", "FI_PROVIDER", "WEFT_LINK"] {
        command.args(["-x", variable]);
    }
}

/// Numbers of units sent from the calling thread's network namespace.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// Frames on the cable.
    frames: u64,
    /// UDP datagrams, a train of them counted once; includes those within the namespace.
    udp: u64,
    /// TCP segments, counted in the same manner.
    tcp: u64,
}

fn left() -> Left {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).expect("its counts")
    };
    let snmp = read("snmp");
    let of = |protocol: &str, column: &str| -> u64 {
        let mut lines = snmp.lines().filter(|line| line.starts_with(protocol));
        let names = lines.next().expect("names").split_whitespace();
        let mut both = names.zip(lines.next().expect("numbers").split_whitespace());
        let (_, number) = both.find(|(name, _)| *name == column).expect("a column");
        number.parse().expect("a number")
    };
    let devices = read("dev");
    let cable = devices.lines().find_map(|line| line.trim().strip_prefix("cable0:"));
    let frames = cable.and_then(|line| line.split_whitespace().nth(9)).expect("the cable");
    let frames = frames.parse().expect("a number");
    Left { frames, udp: of("Udp:", "OutDatagrams"), tcp: of("Tcp:", "OutSegs") }
}

/// Checks that the units sent since `before` are those of the named links.
fn went_over(link: &str, before: Left) {
    // Launchers and the kernel send a few themselves.
    const SOME: u64 = 100;
    let now = left();
    let frames = now.frames - before.frames;
    let (udp, tcp) = (now.udp - before.udp, now.tcp - before.tcp);
    let as_told = match link {
        "udp" => udp > SOME && frames > SOME,
        // A frame carries at most one segment.
        "shm,packet" => udp < SOME && frames > tcp + SOME,
        _ => frames > SOME,
    };
    assert!(as_told, "{link}: {frames} frames, {udp} UDP datagrams, {tcp} TCP segments");
}

/// Runs these tests' programs on two ranks on each of two hosts, over one link.
fn between_hosts(mpi: Mpi, link: &str) {
    let programs: Vec<_> = PROGRAMS.iter().map(|name| mpi.build(name)).collect();
    if let Some(why) = programs.iter().find_map(|p| p.as_ref().err()) {
        return skip(why);
    }
    let (done, wait) = channel::<()>();
    let on_first = |host: &Host| {
        let _until_dropped = done;
        let before = left();
        for program in programs.iter().flatten() {
            let mut command = mpi.launcher(4).expect("checked");
            place(&mut command, mpi, &agent(host, mpi, link), link);
            command.arg(program).arg("2");
            if mpi == Mpi::System {
                // The argument has the same reason as in `storm__system`.
                command.arg("unmatched");
            }
            run(command, LIMIT).expect(": passed");
        }
        went_over(link, before);
    };
    if let Err(why) = hosts::run(1, on_first, move |_| wait.recv().is_err()) {
        skip(&why);
    }
}

tests! { between_hosts:
    hosts__mpich_over_udp(Mpi::Mpich, "udp");
    // Packet sockets reach only other hosts.
    hosts__mpich_over_packet_sockets(Mpi::Mpich, "shm,packet");
    hosts__mpich_over_the_links_chosen(Mpi::Mpich, "auto");
    hosts__intel_over_udp(Mpi::Intel, "udp");
    hosts__open_mpi_over_udp(Mpi::Open, "udp");
    hosts__open_mpi_over_the_links_chosen(Mpi::Open, "auto");
    hosts__system_over_udp(Mpi::System, "udp");
    hosts__system_over_the_links_chosen(Mpi::System, "auto");
}

/// Runs ranks of a user without rights, in a PID and mount namespace of their own.
fn unprivileged(mpi: Mpi) {
    let binary = match mpi.build("storm") {
        Ok(binary) => binary,
        Err(why) => return skip(&why),
    };
    let mut inner = match mpi.launcher(2) {
        Ok(launcher) => launcher,
        Err(why) => return skip(&why),
    };
    inner.arg(binary);
    let namespaces = ["unshare", "-Urpmf", "--mount-proc"];
    let mut words = namespaces.to_vec();
    // Root gives up its rights first.
    let root = is_root();
    if root {
        words.splice(0..0, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    let wrapped = |program: &std::ffi::OsStr| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(program);
        command
    };
    match wrapped("true".as_ref()).output() {
        Ok(done) if done.status.success() => {}
        Ok(done) => return skip(&format!("unshare: {}", String::from_utf8_lossy(&done.stderr))),
        Err(e) => return skip(&format!("needs setpriv and unshare (Debian: util-linux): {e}")),
    }
    let readable =
        wrapped("test".as_ref()).arg("-x").arg(inner.get_args().last().unwrap()).status();
    if !readable.is_ok_and(|status| status.success()) {
        return skip("the build folder cannot be read by a user without rights");
    }
    for link in ["auto", "udp"] {
        let mut command = wrapped(inner.get_program());
        // A user without a home has no key file.
        command.args(inner.get_args()).env("WEFT_LINK", link).env("HOME", "/nonexistent");
        command.env("WEFT_KEY", "5a".repeat(32));
        for (name, value) in inner.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        run(command, LIMIT).expect("storm: passed");
    }
}

tests! { unprivileged:
    namespaces__unprivileged_mpich(Mpi::Mpich);
    namespaces__unprivileged_open_mpi(Mpi::Open);
    namespaces__unprivileged_intel(Mpi::Intel);
}

/// Returns true if this process is root.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
