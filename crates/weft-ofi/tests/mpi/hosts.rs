//! Jobs between two hosts, and in namespaces of their own.

use super::harness::{run, scratch, Mpi};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_conformance::hosts::{self, Host};
use weft_conformance::skip;

const LIMIT: Duration = Duration::from_secs(120);

/// What MPICH's launcher calls in place of `rsh`: starts a process on the other host.
fn agent(host: &Host, link: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = scratch().join(format!("on-host-{}-{link}", std::process::id()));
    let text =
        format!("#!/bin/sh\nshift\nexec nsenter --net={} sh -c \"$*\"\n", host.other_space());
    std::fs::write(&path, text).expect("a script");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a script");
    path
}

/// Runs programs of ours on two ranks on each of two hosts, over one link.
fn between_hosts(link: &str) {
    let mpi = Mpi::Mpich;
    let programs = ["collectives", "storm", "onesided"].map(|name| mpi.build(name));
    if let Some(why) = programs.iter().find_map(|p| p.as_ref().err()) {
        return skip(why);
    }
    let (done, wait) = channel::<()>();
    let on_first = |host: &Host| {
        let _until_dropped = done;
        for program in programs.iter().flatten() {
            let mut command = mpi.launcher(4).expect("checked");
            let agent = agent(host, link);
            command.args(["-launcher", "rsh", "-launcher-exec"]).arg(&agent);
            command.args(["-localhost", "10.9.0.1", "-iface", "cable0", "-ppn", "2"]);
            command.args(["-hosts", "10.9.0.1,10.9.0.2"]).arg(program).arg("2");
            command.env("WEFT_LINK", link);
            run(command, LIMIT).expect(": passed");
        }
    };
    if let Err(why) = hosts::run(1, on_first, move |_| wait.recv().is_err()) {
        skip(&why);
    }
}

#[test]
fn hosts__over_udp() {
    between_hosts("udp");
}

#[test]
fn hosts__over_packet_sockets() {
    // Packet sockets reach only other hosts.
    between_hosts("shm,packet");
}

#[test]
fn hosts__over_the_links_chosen() {
    between_hosts("auto");
}

/// Ranks of a user without rights, in a PID and mount namespace of their own.
#[test]
fn namespaces__unprivileged() {
    let mpi = Mpi::Mpich;
    let binary = match mpi.build("storm") {
        Ok(binary) => binary,
        Err(why) => return skip(&why),
    };
    let mut inner = mpi.launcher(2).expect("checked");
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

/// Whether this is root: nobody else may read the memory of the first process.
fn is_root() -> bool {
    std::fs::read("/proc/1/environ").is_ok()
}
