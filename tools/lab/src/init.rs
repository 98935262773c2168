//! The first process of a host: sets the host up, then stays and reaps ended processes.
//!
//! The process ends when its keeper ends. It is the first of its PID namespace, so all processes of
//! the host end with it, and with them the host's namespaces and interfaces.

use super::spec::Spec;
use super::{net, sys};
use anyhow::{ensure, Context, Result};
use rustix::mount::{
    mount, mount_bind, mount_bind_recursive, mount_change, unmount, MountFlags,
    MountPropagationFlags, UnmountFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Run the first process of a host; started by `weft lab`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lab, as JSON
    #[arg(long)]
    spec: String,
    /// Index of the host, counted from 0
    #[arg(long)]
    host: usize,
}

/// Report of a host's first process to its keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// The host is set up, apart from these shortcomings.
    Ready(Vec<String>),
    /// The host could not be set up; the reason.
    Failed(String),
}

/// Runs until the keeper ends.
pub fn run(args: &Args) -> Result<ExitCode> {
    let spec: Spec = serde_json::from_str(&args.spec).context("the lab's description")?;
    ensure!(args.host < spec.hosts, "host {} of {}", args.host, spec.hosts);
    let keeper = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(keeper.try_clone()?);
    let mut line = String::new();
    // The keeper sends a line when the interface exists.
    if lines.read_line(&mut line)? == 0 {
        return Ok(ExitCode::FAILURE);
    }
    let report = match set_up(&spec, args.host) {
        Ok(notes) => Report::Ready(notes),
        Err(e) => Report::Failed(format!("{}: {e:#}", spec.host_name(args.host))),
    };
    sys::ignore_children();
    let mut text = serde_json::to_string(&report)?;
    text.push('\n');
    (&keeper).write_all(text.as_bytes())?;
    // The keeper sends nothing more: this call returns when the keeper ends.
    let _ = lines.read_to_string(&mut line);
    Ok(ExitCode::SUCCESS)
}

fn set_up(spec: &Spec, host: usize) -> Result<Vec<String>> {
    rustix::system::sethostname(spec.host_name(host).as_bytes()).context("the host's name")?;
    // Mounts made here must not appear outside.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("a private view of the file system")?;
    let mut notes = Vec::new();
    notes.extend(hosts_file(spec).err().map(|e| format!("host names do not resolve: {e:#}")));
    let own_proc = mount_fresh("proc", "/proc");
    notes.extend(own_proc.err().map(|e| format!("/proc shows the whole machine: {e}")));
    notes.extend(own_sys().err().map(|e| format!("/sys shows the machine's interfaces: {e}")));
    net::configure(spec, host)?;
    await_carrier()?;
    Ok(notes)
}

fn mount_fresh(kind: &str, at: &str) -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(kind, at, kind, flags, None::<&std::ffi::CStr>)
}

/// Mounts the lab's hosts file over the machine's. The file is in a nameless file system that is
/// visible only for a moment, in this mount namespace, so nothing is written to any disk.
fn hosts_file(spec: &Spec) -> Result<()> {
    ensure!(std::path::Path::new("/etc/hosts").exists(), "there is no /etc/hosts to replace");
    // Any folder works; this one exists everywhere and is replaced next anyway.
    let corner = "/proc";
    mount_fresh("tmpfs", corner).context("a file system for it")?;
    let path = format!("{corner}/hosts");
    let placed = std::fs::write(&path, spec.hosts_file())
        .context("writing it")
        .and_then(|()| mount_bind(&path, "/etc/hosts").context("placing it"));
    unmount(corner, UnmountFlags::DETACH).context("hiding its file system")?;
    placed
}

/// Mounts `/sys` of this network namespace; the control groups stay visible.
fn own_sys() -> rustix::io::Result<()> {
    let groups = std::fs::File::open("/sys/fs/cgroup");
    mount_fresh("sysfs", "/sys")?;
    if let Ok(groups) = groups {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", groups.as_raw_fd());
        // If this fails, programs that read limits find none.
        let _ = mount_bind_recursive(path, "/sys/fs/cgroup");
    }
    Ok(())
}

/// Waits until the interface carries packets, which is shortly after both ends are up.
fn await_carrier() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(60);
    let start = Instant::now();
    while !net::carries()? {
        ensure!(start.elapsed() < LIMIT, "{} stays without carrier", net::INTERFACE);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
