//! The process that holds a lab: makes the hosts, answers the command, and forwards packets if they
//! are to be delayed.
//!
//! Every part of a lab ends with this process: hosts die with it, namespaces end with their hosts,
//! interfaces with their namespaces. It is found by the name of an abstract socket, which vanishes
//! with it as well. So there is no stale state to clean up, whichever process is killed.

use super::init::Report;
use super::net;
use super::spec::Spec;
use super::switch::Switch;
use super::sys;
use super::wire::{self, Description, HostState, Request};
use anyhow::{bail, ensure, Context, Result};
use rustix::process::{pidfd_open, waitpid, Pid, PidfdFlags, WaitOptions};
use rustix::thread::{
    move_into_link_name_space, move_into_thread_name_spaces, LinkNameSpaceType,
    ThreadNameSpaceType, UnshareFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weft_run::run::poll::{Set, READ};
use weft_sys::{Foreign, Peer};

/// Hold a lab; started by `weft lab`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lab, as JSON
    #[arg(long)]
    spec: String,
    /// End when standard input ends
    #[arg(long)]
    attached: bool,
}

/// The keeper's report to the process that started it, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub enum Started {
    /// The lab is up, apart from these shortcomings.
    Ready(Vec<String>),
    /// The lab is not up; the reason.
    Failed(String),
}

/// Longest time in which a host may be set up.
const TIMEOUT: Duration = Duration::from_secs(120);

struct Host {
    pid: Pid,
    process: OwnedFd,
    /// Closed when this process ends; the host's first process waits for that.
    line: UnixStream,
    ended: bool,
}

struct Keeper {
    spec: Spec,
    hosts: Vec<Host>,
    own_user_namespace: bool,
    notes: Vec<String>,
    switch: Option<Switch>,
    me: u32,
    /// Sockets for requests: outside, in this process's own network, and on the hosts.
    listeners: Vec<Place>,
    /// Processes that start commands for callers on hosts.
    proxies: Vec<Child>,
}

struct Place {
    listener: UnixListener,
    /// True if the socket is on a host.
    inside: bool,
}

/// An event to serve.
#[derive(Clone, Copy)]
enum Ready {
    Starter,
    Program(usize),
    Host(usize),
}

/// Makes a lab and serves it until a request to end.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !args.attached {
        // In a session of its own, the signals of the starter's terminal do not reach it.
        rustix::process::setsid().context("a session of its own")?;
    }
    let (started, lab) = match make(&args.spec) {
        Ok(keeper) => (Started::Ready(keeper.notes.clone()), Some(keeper)),
        Err(e) => (Started::Failed(format!("{e:#}")), None),
    };
    let mut text = serde_json::to_string(&started)?;
    text.push('\n');
    // If the starter has ended, nobody wants the lab or an error message.
    let told = std::io::stdout().write_all(text.as_bytes());
    let Some(mut keeper) = lab else { return Ok(ExitCode::FAILURE) };
    match told {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::FAILURE),
        told => told.context("telling that the lab is up")?,
    }
    silence()?;
    keeper.serve(args.attached)?;
    Ok(ExitCode::SUCCESS)
}

/// Redirects its output, so that the starter's output can close.
fn silence() -> Result<()> {
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn make(spec: &str) -> Result<Keeper> {
    let spec: Spec = serde_json::from_str(spec).context("the lab's description")?;
    let listener = match wire::listen(&spec.name) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => bail!(
            "a lab named {0} is up already: `weft lab down --name {0}` removes it, \
             `--name` gives another one its own name",
            spec.name
        ),
        other => other.context("the lab's socket")?,
    };
    let me = std::process::id();
    let own_user_namespace = enter()?;
    let mut keeper = Keeper {
        spec,
        hosts: Vec::new(),
        own_user_namespace,
        notes: Vec::new(),
        switch: None,
        me,
        listeners: vec![Place { listener, inside: false }],
        proxies: Vec::new(),
    };
    let text = serde_json::to_string(&keeper.spec)?;
    for host in 0..keeper.spec.hosts {
        let (line, theirs) = UnixStream::pair()?;
        line.set_read_timeout(Some(TIMEOUT))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weft").args(["lab-host", "--spec", &text, "--host", &host.to_string()]);
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        let pid = sys::spawn_host(&mut command).map_err(|e| refused(&e))?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        keeper.hosts.push(Host { pid, process, line, ended: false });
    }
    let pids: Vec<u32> = keeper.hosts.iter().map(|h| h.pid.as_raw_nonzero().get() as u32).collect();
    net::connect(&keeper.spec, &pids)?;
    keeper.notes = keeper.set_up_hosts()?;
    keeper.open_listeners().context("the lab's sockets on its hosts")?;
    if let Some(delay) = keeper.spec.delay {
        keeper.switch = Some(Switch::start(&keeper.spec, delay).context("the delaying switch")?);
    }
    Ok(keeper)
}

/// Enters new namespaces: a network, and before it, if the process lacks the right, a user
/// namespace in which it has it. Returns true if there is a user namespace.
fn enter() -> Result<bool> {
    match sys::unshare(UnshareFlags::NEWNET) {
        Ok(()) => return Ok(false),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {}
        Err(e) => return Err(refused(&e)),
    }
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    sys::unshare(UnshareFlags::NEWUSER).map_err(|e| refused(&e))?;
    // A process may map its own identity once setgroups is denied.
    let _ = std::fs::write("/proc/self/setgroups", "deny");
    for (file, id) in [("uid_map", uid.as_raw()), ("gid_map", gid.as_raw())] {
        std::fs::write(format!("/proc/self/{file}"), format!("0 {id} 1"))
            .with_context(|| format!("/proc/self/{file} of the lab's user namespace"))?;
    }
    sys::unshare(UnshareFlags::NEWNET).map_err(|e| refused(&e))?;
    Ok(true)
}

/// Returns the error with the rights that a lab needs and what may forbid them here.
fn refused(error: &std::io::Error) -> anyhow::Error {
    let setting = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
        Some(text.trim().to_owned())
    };
    let is = |name: &str, value: &str| setting(name).as_deref() == Some(value);
    let cause = if is("user/max_user_namespaces", "0") {
        "user namespaces are off: sysctl user.max_user_namespaces=10000 allows them"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "only root may make user namespaces: sysctl kernel.unprivileged_userns_clone=1 allows them"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "AppArmor takes the rights out of user namespaces: \
         sysctl kernel.apparmor_restrict_unprivileged_userns=0 allows them"
    } else {
        "a container or its seccomp profile may forbid it"
    };
    anyhow::anyhow!(
        "{error}: a lab needs namespaces of its own (network, mount, UTS, PID, IPC): run as root \
         (CAP_SYS_ADMIN and CAP_NET_ADMIN), or without root where user namespaces are allowed; \
         {cause}"
    )
}

impl Keeper {
    /// Lets all hosts set themselves up in parallel, and returns their shortcomings.
    fn set_up_hosts(&mut self) -> Result<Vec<String>> {
        for host in &mut self.hosts {
            host.line.write_all(b"go\n").context("a host ended while it was made")?;
        }
        let mut notes = Vec::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let name = self.spec.host_name(at);
            let mut line = String::new();
            BufReader::new(&host.line)
                .read_line(&mut line)
                .with_context(|| format!("{name} is not set up within {TIMEOUT:?}"))?;
            ensure!(!line.is_empty(), "{name} ended while it was made");
            match serde_json::from_str(&line)? {
                Report::Ready(more) => notes.extend(more),
                Report::Failed(why) => bail!("{why}"),
            }
        }
        notes.sort();
        notes.dedup();
        Ok(notes)
    }

    /// Listens in this process's own network, where proxies are, and in that of each host, because
    /// each network namespace has its own abstract socket names.
    fn open_listeners(&mut self) -> Result<()> {
        let home = std::fs::File::open("/proc/self/ns/net")?;
        let mut open = |inside| {
            let listener = wire::listen(&self.spec.name)?;
            self.listeners.push(Place { listener, inside });
            anyhow::Ok(())
        };
        open(false)?;
        for host in &self.hosts {
            let network = ThreadNameSpaceType::NETWORK;
            move_into_thread_name_spaces(host.process.as_fd(), network)?;
            open(true)?;
        }
        move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    fn serve(&mut self, attached: bool) -> Result<()> {
        let stdin = std::io::stdin();
        loop {
            let mut set = Set::default();
            for (at, listener) in self.listeners.iter().enumerate() {
                set.add(Ready::Program(at), listener.listener.as_fd(), READ);
            }
            if attached {
                set.add(Ready::Starter, stdin.as_fd(), READ);
            }
            for (at, host) in self.hosts.iter().enumerate().filter(|(_, host)| !host.ended) {
                set.add(Ready::Host(at), host.process.as_fd(), READ);
            }
            for ready in set.wait(None)? {
                match ready {
                    Ready::Program(at) => {
                        if self.answer(at)? {
                            self.listeners.clear();
                            return Ok(());
                        }
                    }
                    Ready::Starter => return self.end(),
                    Ready::Host(host) => self.bury(host),
                }
            }
        }
    }

    /// Marks a host whose first process ended.
    fn bury(&mut self, host: usize) {
        let host = &mut self.hosts[host];
        // The process is our child and has ended, so an error here does not matter.
        let _ = waitpid(Some(host.pid), WaitOptions::NOHANG);
        host.ended = true;
    }

    /// Ends all hosts and waits until the last of their processes is gone.
    fn end(&mut self) -> Result<()> {
        let alive = |host: &&mut Host| !host.ended;
        for host in self.hosts.iter_mut().filter(alive) {
            // The process may end by itself at this moment.
            let _ =
                rustix::process::pidfd_send_signal(&host.process, rustix::process::Signal::KILL);
        }
        for host in self.hosts.iter_mut().filter(|host| !host.ended) {
            waitpid(Some(host.pid), WaitOptions::empty())?;
            host.ended = true;
        }
        Ok(())
    }

    fn describe(&self, inside: bool) -> Description {
        let host = |(at, host): (usize, &Host)| HostState {
            name: self.spec.host_name(at),
            v4: self.spec.v4(at),
            v6: self.spec.v6(at),
            pid: host.pid.as_raw_nonzero().get(),
            up: !host.ended,
        };
        Description {
            spec: self.spec.clone(),
            hosts: self.hosts.iter().enumerate().map(host).collect(),
            keeper: self.me,
            own_user_namespace: self.own_user_namespace,
            notes: self.notes.clone(),
            inside,
            overflowed: self.switch.as_ref().map(|s| s.overflowed.load(Ordering::Relaxed)),
        }
    }

    /// Starts a process in the namespaces of this one, which may enter all hosts, to run a command
    /// on a host.
    fn hand_to_proxy(&mut self, stream: UnixStream, host: usize) -> std::io::Result<()> {
        self.proxies.retain_mut(|proxy| matches!(proxy.try_wait(), Ok(None)));
        let mut command = Command::new("/proc/self/exe");
        command.arg0("weft").args(["lab-proxy", "--lab", &self.spec.name]);
        command.args(["--host", &host.to_string()]).stdin(OwnedFd::from(stream));
        self.proxies.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        Ok(())
    }

    /// Answers one connection; returns true if it ended the lab. A bad request affects only its
    /// sender.
    fn answer(&mut self, listener: usize) -> Result<bool> {
        let Place { listener, inside } = &self.listeners[listener];
        let inside = *inside;
        let Ok((stream, _)) = listener.accept() else { return Ok(false) };
        let Ok(peer) = Peer::of(&stream) else { return Ok(false) };
        // Of other users nothing is received: it could be a descriptor.
        if peer.is_own().is_err() {
            drop(Foreign::connection(stream, peer.uid));
            return Ok(false);
        }
        let Ok(Some(request)) = wire::receive_request(&stream) else { return Ok(false) };
        let fd = match request {
            Request::Describe => None,
            Request::Host(at) => self.hosts.get(at).filter(|h| !h.ended).map(|h| &h.process),
            Request::Exec(host) => {
                // Without a proxy the connection closes, which the caller reports.
                let _ = self.hand_to_proxy(stream, host);
                return Ok(false);
            }
            Request::Down => {
                self.end()?;
                // The caller waits until this connection closes, which the end of this process
                // does.
                std::mem::forget(stream);
                return Ok(true);
            }
        };
        let _ = wire::reply(&stream, &self.describe(inside), fd);
        Ok(false)
    }
}
