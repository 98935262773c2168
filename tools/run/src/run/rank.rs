//! One rank's process, as held by its proxy.

use super::frame::{read_some, End, Outgoing, Start, Up};
use super::moving::image::{Numbers, Rest};
use super::output::Lines;
use super::sys;
use rustix::fs::OFlags;
use rustix::process::{waitid, Pid, PidfdFlags, Rlimit, Signal, WaitId, WaitIdOptions};
use rustix::thread::CpuSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use weft::launch::wire::LineBuffer;
use weft::launch::{ends, moving};

/// Prefixes of other launchers' variables, which must not reach a rank of this launcher.
const FOREIGN: [&str; 3] = ["PMI_", "PMIX_", "MPI_LOCAL"];

/// Most bytes queued for a rank that does not read its PMI connection.
const PMI_BACKLOG: usize = 1 << 20;

/// An output stream of the rank.
#[derive(Default)]
pub struct Stream {
    /// The reading end, until the stream ends.
    pub fd: Option<OwnedFd>,
    lines: Lines,
}

/// A running rank.
pub struct Rank {
    /// Its number.
    pub rank: usize,
    pid: Pid,
    /// Becomes readable when the process ends.
    pub pidfd: OwnedFd,
    /// Our end of its PMI connection, until the connection ends.
    pub pmi: Option<UnixStream>,
    received: LineBuffer,
    /// Bytes for its PMI connection.
    pub pmi_out: Outgoing,
    /// Its standard output and standard error.
    pub streams: [Stream; 2],
    /// The writing end of its standard input; only rank 0 has one.
    pub stdin: Option<OwnedFd>,
    /// Bytes for its standard input.
    pub stdin_out: Outgoing,
    /// True: close the standard input after the queued bytes are written.
    pub stdin_ends: bool,
    /// The connection by which moves are ordered, of a rank that can move.
    pub control: Option<Control>,
    /// The numbers of the descriptors of the two connections in the rank's process.
    pub numbers: Option<Numbers>,
}

/// The connection by which moves of a rank are ordered.
pub struct Control {
    /// Our end.
    pub socket: UnixStream,
    /// The rank has said that it obeys orders.
    pub ready: bool,
    received: LineBuffer,
}

impl Control {
    /// Takes our end of a process that is `ready`, or has not said so yet.
    pub fn of(socket: UnixStream, ready: bool) -> Control {
        Control { socket, ready, received: LineBuffer::default() }
    }

    /// Sends an order.
    pub fn order(&self, order: &moving::Order) -> io::Result<()> {
        (&self.socket).write_all(order.line().as_bytes())
    }

    /// Reads once, and returns the words of the rank. The end of the connection is an error.
    pub fn words(&mut self) -> io::Result<Vec<moving::Word>> {
        match read_some(&self.socket)? {
            None => return Ok(Vec::new()),
            Some(bytes) if bytes.is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(bytes) => self.received.extend(&bytes),
        }
        let mut words = Vec::new();
        while let Ok(Some(line)) = self.received.next_line() {
            words.extend(moving::Word::parse(&line));
        }
        Ok(words)
    }
}

/// The connections of a rank to its launcher, as its process has them.
pub struct Ends {
    /// Standard input, output and error.
    pub streams: [Option<OwnedFd>; 3],
    /// The connection of PMI.
    pub pmi: UnixStream,
    /// The connection by which moves are ordered.
    pub control: UnixStream,
}

/// The reason why a rank could not be started, and the exit status that a shell would give.
pub struct NotStarted {
    /// The reason, for the user.
    pub problem: String,
    /// The exit status.
    pub code: u8,
}

fn explain(start: &Start, error: &io::Error) -> NotStarted {
    let program = &start.command[0];
    let (hint, code) = match error.kind() {
        io::ErrorKind::NotFound if program.contains('/') => ("is the path right there?", 127),
        io::ErrorKind::NotFound => ("give its path (such as ./program) or put it in PATH", 127),
        io::ErrorKind::PermissionDenied => ("is it an executable file?", 126),
        _ => ("see the system's limits on processes and open files", 126),
    };
    NotStarted { problem: format!("cannot start {program}: {error}; {hint}"), code }
}

/// Returns the cores that this process may use.
pub fn allowed_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

fn core_of(local: usize) -> Option<CpuSet> {
    let cores = allowed_cores();
    let core = cores.get(local % cores.len().max(1))?;
    let mut set = CpuSet::new();
    set.set(*core);
    Some(set)
}

fn environment(command: &mut Command, start: &Start, rank: usize, given: &Given) {
    for (name, _) in std::env::vars_os() {
        let foreign = name.to_str().is_some_and(|n| FOREIGN.iter().any(|p| n.starts_with(p)));
        if foreign {
            command.env_remove(name);
        }
    }
    command.envs(start.env.iter().map(|(name, value)| (name, value)));
    command.env("PMI_FD", given.pmi.to_string());
    match given.control {
        // The file of the ends of ranks is this host's, and would stay behind.
        Some(control) => command.env(moving::VARIABLE, control.to_string()),
        None => command.env(ends::VARIABLE, given.ends.to_string()),
    };
    command.env("PMI_RANK", rank.to_string());
    command.env("PMI_SIZE", start.size.to_string());
    command.env("MPI_LOCALRANKID", (rank - start.first).to_string());
    command.env("MPI_LOCALNRANKS", start.count.to_string());
}

/// The descriptors that a rank inherits beside its streams.
struct Given {
    pmi: RawFd,
    ends: RawFd,
    control: Option<RawFd>,
}

impl Given {
    fn all(&self) -> [RawFd; 2] {
        [self.pmi, self.control.unwrap_or(self.ends)]
    }
}

/// Returns the command of a rank: the program, or the first process of a rank that can move.
fn command(start: &Start) -> Command {
    if !start.migratable {
        let mut command = Command::new(&start.command[0]);
        command.args(&start.command[1..]).process_group(0);
        return command;
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg0("weft").args(["run-init", "--"]).args(&start.command);
    command
}

fn nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    Ok(())
}

impl Rank {
    /// Starts the process, with a limit on its open files and the file of the ends of ranks.
    pub fn spawn(
        start: &Start,
        rank: usize,
        files: &Rlimit,
        ends: &File,
    ) -> Result<Rank, NotStarted> {
        if !std::path::Path::new(&start.directory).is_dir() {
            let problem = format!("the directory {} does not exist there", start.directory);
            return Err(NotStarted { problem, code: 126 });
        }
        Rank::try_spawn(start, rank, files, ends).map_err(|error| explain(start, &error))
    }

    fn try_spawn(start: &Start, rank: usize, files: &Rlimit, ends: &File) -> io::Result<Rank> {
        let (ours, theirs) = UnixStream::pair()?;
        nonblocking(&ours)?;
        let control = start.migratable.then(UnixStream::pair).transpose()?;
        let mut command = command(start);
        command.current_dir(&start.directory);
        command.stdin(if rank == 0 { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // The rank may read it, and no more.
        let ends = File::open(format!("/proc/self/fd/{}", ends.as_raw_fd()))?;
        let given = Given {
            pmi: theirs.as_raw_fd(),
            ends: ends.as_raw_fd(),
            control: control.as_ref().map(|(_, theirs)| theirs.as_raw_fd()),
        };
        environment(&mut command, start, rank, &given);
        let cpus = if start.bind { core_of(rank - start.first) } else { None };
        sys::prepare(&mut command, given.all(), (cpus, start.migratable), *files);
        let mut child = match start.migratable {
            true => sys::in_own_processes(|| sys::as_leader(&mut command).spawn())?,
            false => command.spawn()?,
        };
        let pid = Pid::from_child(&child);
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        for fd in [&stdin, &stdout, &stderr].into_iter().flatten() {
            nonblocking(fd)?;
        }
        let streams = [stdout, stderr].map(|fd| Stream { fd, lines: Lines::default() });
        let control = control.map(|(ours, _)| ours);
        control.iter().try_for_each(nonblocking)?;
        let numbers = given.control.map(|control| Numbers { pmi: given.pmi, control });
        Ok(Rank {
            rank,
            numbers,
            control: control.map(|ours| Control::of(ours, false)),
            pid,
            pidfd,
            pmi: Some(ours),
            received: LineBuffer::default(),
            pmi_out: Outgoing::default(),
            streams,
            stdin,
            stdin_out: Outgoing::default(),
            stdin_ends: false,
        })
    }

    /// Returns the reason why the rank cannot obey orders to move.
    pub fn unready(&self) -> Option<String> {
        let ready = self.control.as_ref().is_some_and(|control| control.ready);
        (!ready).then(|| {
            format!(
                "rank {} has not opened weft's provider, which moves it: its program is none of \
                 MPICH over weft, or has not come to MPI_Init",
                self.rank
            )
        })
    }

    /// Returns the process ID.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the rank's whole process group.
    pub fn signal(&self, signal: Signal) {
        // The group may have ended just now.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Reads one output stream once and passes it on. False if there were no bytes.
    pub fn read_output(&mut self, which: usize, whole_lines: bool, up: &mut Outgoing) -> bool {
        let stream = &mut self.streams[which];
        let Some(fd) = &stream.fd else {
            return false;
        };
        let bytes = match read_some(fd) {
            Ok(None) => return false,
            Ok(Some(bytes)) if !bytes.is_empty() => bytes,
            _ => {
                stream.fd = None;
                let rest = stream.lines.rest();
                output(self.rank, which, &rest, up);
                return false;
            }
        };
        let bytes = if whole_lines { stream.lines.take(&bytes) } else { bytes };
        output(self.rank, which, &bytes, up);
        true
    }

    /// Reads the PMI connection once and passes on whole lines. False if there were no bytes.
    pub fn read_pmi(&mut self, up: &mut Outgoing) -> bool {
        let Some(pmi) = &self.pmi else {
            return false;
        };
        match read_some(pmi) {
            Ok(None) => return false,
            Ok(Some(bytes)) if !bytes.is_empty() => self.received.extend(&bytes),
            _ => {
                self.pmi = None;
                return false;
            }
        }
        loop {
            match self.received.next_line() {
                Ok(Some(line)) => up.push(&Up::Pmi { rank: self.rank }, &line),
                Ok(None) => return true,
                Err(_) => {
                    // The line is longer than any valid one: an empty line makes the launcher end
                    // the job.
                    up.push(&Up::Pmi { rank: self.rank }, b"");
                    self.pmi = None;
                    return false;
                }
            }
        }
    }

    /// Writes queued bytes to the PMI connection.
    pub fn write_pmi(&mut self) {
        let Some(pmi) = &self.pmi else {
            return;
        };
        if self.pmi_out.flush(pmi).is_err() || self.pmi_out.len() > PMI_BACKLOG {
            self.pmi = None;
        }
    }

    /// Writes queued bytes to standard input, and reports to the launcher how many were written.
    pub fn write_stdin(&mut self, up: &mut Outgoing) {
        let before = self.stdin_out.len();
        match &self.stdin {
            Some(fd) if self.stdin_out.flush(fd).is_ok() => {}
            _ => {
                // The rank closed its input: the rest is dropped, as a shell's pipe would fail.
                self.stdin = None;
                self.stdin_out = Outgoing::default();
            }
        }
        let bytes = before - self.stdin_out.len();
        if bytes > 0 {
            up.push(&Up::StdinTaken { bytes }, b"");
        }
        if self.stdin_ends && self.stdin_out.is_empty() {
            self.stdin = None;
        }
    }

    /// Called after the process ended: kills the rest of its group, passes on its last output and
    /// requests, and reaps it.
    pub fn finish(mut self, whole_lines: bool, up: &mut Outgoing) -> io::Result<End> {
        // The process is not reaped yet, so its number still names this group and no other.
        self.signal(Signal::KILL);
        while self.read_pmi(up) {}
        for which in 0..2 {
            // Bounded, in case a process that left the group still writes.
            for _ in 0..64 {
                if !self.read_output(which, whole_lines, up) {
                    break;
                }
            }
            let rest = self.streams[which].lines.rest();
            output(self.rank, which, &rest, up);
        }
        let end = self.reap()?;
        up.push(&Up::Ended { rank: self.rank, end }, b"");
        Ok(end)
    }
}

impl Rank {
    /// Returns the end of the process, which has ended.
    fn reap(&self) -> io::Result<End> {
        let status = loop {
            match waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        let status = status.ok_or(io::ErrorKind::NotFound)?;
        Ok(match status.exit_status() {
            Some(code) => End::Status(code as u8),
            None => End::Signal(status.terminating_signal().unwrap_or(0)),
        })
    }

    /// Returns the rank as a restored process, which this process has as a child, with our ends of
    /// its connections.
    pub fn restored(rank: usize, pid: Pid, ends: Ends, rest: &Rest) -> io::Result<Rank> {
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        let Ends { streams: [stdin, stdout, stderr], pmi, control } = ends;
        let streams = [stdout, stderr].map(|fd| Stream { fd, lines: Lines::default() });
        let mut received = LineBuffer::default();
        received.extend(&rest.pmi_line);
        let (mut pmi_out, mut stdin_out) = (Outgoing::default(), Outgoing::default());
        pmi_out.raw(&rest.pmi);
        stdin_out.raw(&rest.stdin);
        for fd in streams.iter().filter_map(|s| s.fd.as_ref()).chain(&stdin) {
            nonblocking(fd)?;
        }
        nonblocking(&pmi)?;
        nonblocking(&control)?;
        Ok(Rank {
            rank,
            pid,
            pidfd,
            pmi: Some(pmi),
            received,
            pmi_out,
            streams,
            stdin,
            stdin_out,
            stdin_ends: rest.stdin_ends,
            control: Some(Control::of(control, true)),
            numbers: Some(rest.numbers),
        })
    }

    /// Takes back the bytes that the rank has not read, since it stays.
    pub fn keep(&mut self, rest: Rest) {
        (self.pmi_out, self.stdin_out) = (Outgoing::default(), Outgoing::default());
        self.pmi_out.raw(&rest.pmi);
        self.stdin_out.raw(&rest.stdin);
    }

    /// Kills and reaps a copy that nobody needs.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        // The process was reaped already, then.
        let _ = self.reap();
    }

    /// Returns bytes that are for the rank and not written yet, and those of it that are no whole
    /// line: for PMI, from PMI, for standard input.
    pub fn unwritten(&self) -> [Vec<u8>; 3] {
        let (pmi, stdin) = (self.pmi_out.waiting(), self.stdin_out.waiting());
        [pmi.to_vec(), self.received.rest().to_vec(), stdin.to_vec()]
    }

    /// Called after the process of a rank that has moved away is killed: passes on the output that
    /// it left, and reaps it.
    pub fn leave(mut self, up: &mut Outgoing) -> io::Result<()> {
        self.signal(Signal::KILL);
        self.reap()?;
        for which in 0..2 {
            while self.read_output(which, false, up) {}
        }
        Ok(())
    }
}

fn output(rank: usize, which: usize, bytes: &[u8], up: &mut Outgoing) {
    if !bytes.is_empty() {
        up.push(&Up::Output { rank, error: which == 1 }, bytes);
    }
}
