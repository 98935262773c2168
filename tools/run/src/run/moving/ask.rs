//! `weft migrate`, and the socket at which the launcher of a job is asked for moves.
//!
//! The socket lies in a folder of its user's alone, named by the job. The command writes a line of
//! JSON, and reads one for each thing that happens; its end, or a second line, cancels the move.

use crate::run::poll::{Set, READ};
use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit status of a move that did not happen; the rank goes on where it was.
const STAYED: u8 = 3;

/// Move a rank of a running job to another host of the job
///
/// The job was started by `weft run --migratable` or `weft mpi --migratable`. The rank stops, its
/// memory goes to the other host, and it goes on there; the program does not notice.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weft migrate 3 h2                        rank 3 of this user's only job on this host
  weft migrate 3 h2 --job weft-811-9f2c44  of this one
  weft migrate 3 h2 --dry-run              only tell what stands against it

Exit status: 0 the rank moved, 3 it goes on where it was, 1 it was lost or no job was found.")]
pub struct Args {
    /// Rank
    pub rank: usize,
    /// Host, as the job's lists of hosts name it
    pub host: String,
    /// Name of the job, or a part of it that no other job has [default: the only one]
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
    /// Only tell whether the rank could move, and what stands against it
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// A request to the launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The rank.
    pub rank: usize,
    /// The host.
    pub host: String,
    /// True: only tell what stands against it.
    pub dry_run: bool,
}

/// A thing that happens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A phase begins.
    Phase {
        /// Its name.
        name: String,
    },
    /// This number of bytes of the copy has left.
    Sent {
        /// Bytes sent.
        bytes: u64,
        /// Bytes of the copy.
        of: u64,
    },
    /// The rank runs on the other host.
    Moved(Moved),
    /// The rank goes on where it was, or could not move.
    Stayed {
        /// The reasons.
        why: Vec<String>,
    },
    /// The rank could move.
    Could,
    /// No copy of the rank runs.
    Lost {
        /// The reason.
        why: String,
    },
}

/// A move that happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Moved {
    /// The rank.
    pub rank: usize,
    /// The host that it left.
    pub from: String,
    /// The host where it runs.
    pub to: String,
    /// Bytes of the copy.
    pub bytes: u64,
    /// Peers that have not heard of it yet.
    pub untold: usize,
    /// The phases and their times, in milliseconds.
    pub phases: Vec<(String, f64)>,
    /// The time in which the rank made no progress, in milliseconds.
    pub stopped_ms: f64,
    /// The time from the order to stand still until its peers knew and its links were closed, a
    /// part of the phase `hold`, in milliseconds.
    #[serde(default)]
    pub quiet_ms: f64,
}

/// Returns the folder of this user's sockets.
fn folder() -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute()) {
        Some(runtime) => runtime.join("weft-jobs"),
        None => std::env::temp_dir().join(format!("weft-jobs-{user}")),
    }
}

/// Checks that only this user can make files in the folder.
fn check(folder: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(folder).with_context(|| folder.display().to_string())?;
    let own = meta.uid() == rustix::process::geteuid().as_raw();
    if !meta.is_dir() || !own || meta.mode() & 0o077 != 0 {
        bail!("{} is not this user's alone: remove it", folder.display());
    }
    Ok(())
}

/// The launcher's socket; its file goes with it.
pub struct Desk {
    /// The socket.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Desk {
    /// Opens the socket of a job.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open(job: &str) -> Result<Desk> {
        let folder = folder();
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| folder.display().to_string());
            }
            _ => check(&folder)?,
        }
        let path = folder.join(job);
        let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
        listener.set_nonblocking(true)?;
        Ok(Desk { listener, path })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // Somebody may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the launcher of a job.
fn connect(job: Option<&str>) -> Result<UnixStream> {
    let folder = folder();
    let mut found = Vec::new();
    if fs::symlink_metadata(&folder).is_ok() {
        check(&folder)?;
        for entry in fs::read_dir(&folder)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !job.is_none_or(|part| name.contains(part)) {
                continue;
            }
            match UnixStream::connect(entry.path()) {
                Ok(stream) => found.push((name, stream)),
                // Its launcher was killed.
                Err(_) => _ = fs::remove_file(entry.path()),
            }
        }
    }
    match (found.len(), job) {
        (1, _) => Ok(found.remove(0).1),
        (0, Some(job)) => bail!("this user has no job {job:?} on this host whose ranks can move"),
        (0, None) => bail!(
            "this user has no job on this host whose ranks can move: start it by `weft run \
             --migratable` or `weft mpi --migratable`, and call this where it was started"
        ),
        _ => {
            let names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
            misuse!("--job: one of {}", names.join(", "))
        }
    }
}

/// Runs the subcommand.
///
/// # Errors
/// There is no such job, or its launcher ended.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut launcher = connect(args.job.as_deref())?;
    let (mut signals, caught) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, caught.try_clone()?)?;
    }
    let request = Request { rank: args.rank, host: args.host.clone(), dry_run: args.dry_run };
    let mut line = serde_json::to_string(&request)?;
    line.push('\n');
    launcher.write_all(line.as_bytes())?;
    let mut events = BufReader::new(launcher.try_clone()?);
    let mut cancelled = false;
    loop {
        if events.buffer().is_empty() {
            let mut set = Set::default();
            set.add(true, launcher.as_fd(), READ);
            set.add(false, signals.as_fd(), READ);
            let ready = set.wait(None)?;
            if ready.contains(&false) {
                let _one_or_more = signals.read(&mut [0; 16])?;
                if std::mem::replace(&mut cancelled, true) {
                    bail!("interrupted again: the launcher goes on without this command");
                }
                eprintln!("weft migrate: interrupted: the move is taken back if it still can be");
                launcher.write_all(b"cancel\n")?;
            }
            if !ready.contains(&true) {
                continue;
            }
        }
        let mut line = String::new();
        if events.read_line(&mut line)? == 0 {
            bail!("the job's launcher ended");
        }
        if args.json {
            print!("{line}");
        }
        let event: Event = serde_json::from_str(&line).context("word of the launcher")?;
        if let Some(code) = tell(args, &event) {
            return Ok(ExitCode::from(code));
        }
    }
}

/// Tells people of an event. Returns the exit status after the last.
fn tell(args: &Args, event: &Event) -> Option<u8> {
    let (rank, host) = (args.rank, &args.host);
    match event {
        Event::Phase { .. } => None,
        Event::Sent { bytes, of } => {
            if !args.json && std::io::stderr().is_terminal() {
                eprint!("\r{} of {} MB", bytes >> 20, of >> 20);
            }
            None
        }
        Event::Moved(moved) => {
            if !args.json {
                println!("{}", moved.line());
            }
            Some(0)
        }
        Event::Could => {
            if !args.json {
                println!("rank {rank} could move to {host}");
            }
            Some(0)
        }
        Event::Stayed { why } => {
            if !args.json {
                why.iter().for_each(|why| eprintln!("weft migrate: {why}"));
                let goes_on = if args.dry_run { "could not move" } else { "goes on where it was" };
                eprintln!("weft migrate: rank {rank} {goes_on}");
            }
            Some(STAYED)
        }
        Event::Lost { why } => {
            eprintln!("weft migrate: {why}");
            Some(1)
        }
    }
}

impl Moved {
    /// Returns the line for people.
    fn line(&self) -> String {
        let Moved { rank, from, to, bytes, untold, phases, stopped_ms, .. } = self;
        let each: Vec<String> = phases.iter().map(|(name, ms)| format!("{name} {ms:.1}")).collect();
        let late = match untold {
            0 => String::new(),
            n => format!("; {n} peers have not answered yet"),
        };
        format!(
            "rank {rank} moved from {from} to {to}: {:.1} MB, stopped for {stopped_ms:.1} ms \
             ({} ms){late}",
            *bytes as f64 / 1e6,
            each.join(", ")
        )
    }
}

/// A command that asks, as the launcher has it.
pub struct Caller {
    /// The connection.
    pub stream: UnixStream,
    lines: weft::launch::wire::LineBuffer,
}

/// The word of a caller.
pub enum Said {
    /// Begin.
    Ask(Request),
    /// Take the move back: the caller says so, or has ended.
    Cancel,
}

impl Caller {
    /// Takes a connection, of this user or root.
    ///
    /// # Errors
    /// The connection is another user's.
    pub fn of(stream: UnixStream) -> Result<Caller> {
        let user = rustix::net::sockopt::socket_peercred(&stream)?.uid;
        if user != rustix::process::geteuid() && !user.is_root() {
            bail!("user {} asks for a move of another user's rank: refused", user.as_raw());
        }
        stream.set_nonblocking(true)?;
        Ok(Caller { stream, lines: weft::launch::wire::LineBuffer::default() })
    }

    /// Reads once.
    pub fn said(&mut self) -> Option<Said> {
        match crate::run::frame::read_some(&self.stream) {
            Ok(None) => return None,
            Ok(Some(bytes)) if !bytes.is_empty() => self.lines.extend(&bytes),
            _ => return Some(Said::Cancel),
        }
        let line = self.lines.next_line().ok()??;
        Some(serde_json::from_slice(&line).map_or(Said::Cancel, Said::Ask))
    }

    /// Writes an event. A caller that does not read misses it.
    pub fn tell(&self, event: &Event) {
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let _missed = (&self.stream).write_all(&line);
    }

    /// Writes the last event: waits a moment for a caller that is slow.
    pub fn end(self, event: &Event) {
        // Without it the caller reads that the launcher ended.
        let _ = self.stream.set_nonblocking(false);
        let _ = self.stream.set_write_timeout(Some(Duration::from_secs(1)));
        self.tell(event);
    }
}
