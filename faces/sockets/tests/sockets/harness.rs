//! An agent of a test, and processes that play roles.

use crate::sys;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use weft_conformance::{cable, Started};
use weftd::options::Options;
use weftd::Agent;

/// Name of the variable with a process's role.
pub const ROLE: &str = "WEFT_TEST_ROLE";
/// Name of the variable with its argument.
pub const ARGUMENT: &str = "WEFT_TEST_ARGUMENT";
/// Name of the variable with the address of servers.
pub const ADDRESS: &str = "WEFT_TEST_ADDRESS";
/// Mark of a line that a role says to its test.
const SAYS: &str = ":: ";
/// Limit of every wait; reached only by a fault.
pub const LIMIT: Duration = Duration::from_secs(120);

/// An agent on a thread of its own.
pub struct Served {
    pub name: String,
    end: Arc<AtomicBool>,
    is_still: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    pub fn start() -> Served {
        Served::with_words(&[])
    }

    /// Starts one with more options.
    pub fn with_words(more: &[&str]) -> Served {
        Served::at(format!("@weft-sockets-test-{:016x}", weft_link::random_u64()), more)
    }

    /// Starts one under this name.
    pub fn at(name: String, more: &[&str]) -> Served {
        let words = ["--name", &name, "--links", "udp", "--spin-us", "0"];
        let options = Options::parse(words.into_iter().chain(more.iter().copied())).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let is_still = Arc::new(AtomicBool::new(false));
        let still = Arc::clone(&is_still);
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut agent = Agent::open(options).unwrap();
            ready.send(()).unwrap();
            while !ended.load(Ordering::Relaxed) {
                match still.load(Ordering::Relaxed) {
                    true => std::thread::yield_now(),
                    false => agent.step(),
                }
            }
        });
        is_ready.recv().unwrap();
        Served { name, end, is_still, thread: Some(thread) }
    }

    /// An agent of another process.
    pub fn of_other(name: &str) -> Served {
        let (end, is_still) = (Arc::default(), Arc::default());
        Served { name: name.into(), end, is_still, thread: None }
    }

    /// Has it do nothing, as if it were stopped, or go on. It is in no step after a moment.
    pub fn stands_still(&self, is_still: bool) {
        self.is_still.store(is_still, Ordering::Relaxed);
    }

    pub fn stop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Returns a counter of the agent.
    pub fn counter(&self, name: &str) -> u64 {
        let text = self.status();
        let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
        text.lines().find_map(value).unwrap_or_else(|| panic!("{name} is not in {text}"))
    }

    /// Returns the counters of the agent.
    pub fn status(&self) -> String {
        weftd::status::status(&self.name).unwrap()
    }

    /// Starts a server, and a client of it that plays a role.
    pub fn serves(&self, role: &str) -> (Process, Process) {
        let mut server = self.with("serve", "");
        let client = self.with(role, &server.says());
        (server, client)
    }

    /// Starts a process with the library.
    pub fn with(&self, role: &str, argument: &str) -> Process {
        start(role, argument, Some(&self.name), &[])
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Time of a look, in microseconds: long, so that busy machines come to it.
pub const LOOKS: (&str, &str) = ("WEFT_SOCKETS_SPIN_US", "1000");

/// Says that all bytes of a connection come by TCP, as it leads to another host.
pub const BY_TCP: (&str, &str) = ("WEFT_TEST_BY_TCP", "1");

/// True if a role's environment says so.
pub fn is_by_tcp() -> bool {
    std::env::var_os(BY_TCP.0).is_some()
}

/// Runs code at both ends of a cable between two networks, in a thread of its own, which is in
/// another namespace after that. The error says why there is no cable.
pub fn cabled(
    ends: [&str; 2],
    near: impl FnOnce() + Send,
    far: impl FnOnce() + Send,
) -> Result<(), String> {
    std::thread::scope(|scope| scope.spawn(|| cable::between(ends, near, far)).join().unwrap())
}

/// Runs `asks` at one end of a cable with the words of the process that `serves` at the other end,
/// which `ends` then.
pub fn across(
    ends_of_cable: [&str; 2],
    serves: impl FnOnce() -> Process + Send,
    asks: impl FnOnce(&str) + Send,
    ends: impl FnOnce(Process) + Send,
) -> Result<(), String> {
    let (says, said) = channel::<String>();
    let (over, is_over) = channel::<()>();
    let near = move || {
        asks(&said.recv().unwrap());
        drop(over);
    };
    let far = move || {
        let mut server = serves();
        says.send(server.says()).unwrap();
        let _ = is_over.recv();
        ends(server);
    };
    cabled(ends_of_cable, near, far)
}

/// The library that cargo built for this test.
pub fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let library = here.with_file_name("libweft_sockets.so");
    assert!(library.is_file(), "no library at {}", library.display());
    library
}

/// A process that plays a role.
pub struct Process {
    pub child: Started,
    lines: BufReader<ChildStdout>,
    name: String,
}

/// Starts a process that plays a role, with the library if an agent is named.
pub fn start(
    role: &str,
    argument: &str,
    agent: Option<&str>,
    settings: &[(&str, &str)],
) -> Process {
    start_by(&[], role, argument, agent, settings)
}

/// Starts a process that plays a role as [`start`] does, by a command that executes it.
pub fn start_by(
    by: &[&str],
    role: &str,
    argument: &str,
    agent: Option<&str>,
    settings: &[(&str, &str)],
) -> Process {
    let own = std::env::current_exe().unwrap();
    let mut words = by.iter().map(std::ffi::OsStr::new).chain([own.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args([
        "--exact",
        "role__plays_what_the_environment_names",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(ROLE, role).env(ARGUMENT, argument).env("RUST_BACKTRACE", "0");
    if let Some(agent) = agent {
        command.env("LD_PRELOAD", library()).env("WEFT_AGENT", agent);
        command.env("WEFT_SOCKETS_AFTER", "1");
    }
    // Long looks, so that a receiver is awake on a busy machine too.
    command
        .envs([LOOKS])
        .envs(settings.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = Started(command.spawn().unwrap());
    let lines = BufReader::new(child.stdout.take().unwrap());
    Process { child, lines, name: format!("{role} {argument}") }
}

impl Process {
    /// Returns the next line that the role says.
    pub fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            let n = self.lines.read_line(&mut line).unwrap();
            assert!(n > 0, "{}: it ended without a word", self.name);
            // The test runner's own words may stand before it.
            if let Some(at) = line.find(SAYS) {
                return line[at + SAYS.len()..].trim_end().to_string();
            }
        }
    }

    /// Returns the next line that the role says, as a number.
    pub fn number(&mut self) -> u64 {
        let said = self.says();
        said.parse().unwrap_or_else(|_| panic!("{}: {said}", self.name))
    }

    /// Lets it go on, where it waits for a byte.
    pub fn goes_on(&mut self, byte: u8) {
        use std::io::Write;
        self.child.stdin.as_mut().unwrap().write_all(&[byte]).unwrap();
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        let (ended, has_ended) = std::sync::mpsc::channel::<()>();
        let process = self.child.id() as i32;
        let guard = std::thread::spawn(move || {
            let late = has_ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
            if late {
                sys::kill(process);
            }
            late
        });
        let status = self.child.wait().unwrap();
        drop(ended);
        assert!(!guard.join().unwrap(), "{}: it hangs", self.name);
        status
    }

    /// Waits until it has done all, and for its end.
    pub fn ends_done(mut self) {
        assert_eq!(self.says(), "done");
        self.ends_well();
    }

    /// Waits for its end, which is to be a good one.
    pub fn ends_well(mut self) {
        let status = self.end();
        assert!(status.success(), "{}: {status}", self.name);
    }
}

/// Says a line to the test.
pub fn say(what: impl std::fmt::Display) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{SAYS}{what}").unwrap();
    out.flush().unwrap();
}

/// Returns the argument of this role.
pub fn argument() -> String {
    std::env::var(ARGUMENT).unwrap()
}

/// The byte at this place of a stream.
pub fn byte(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16) as u8
}

/// The bytes of a stream.
pub fn bytes(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(byte).collect()
}

/// The address of servers: this host's own, or that of the environment.
pub fn address() -> String {
    std::env::var(ADDRESS).unwrap_or_else(|_| "127.0.0.1".into())
}

/// Connects to a port of a server.
pub fn dial(port: &str) -> TcpStream {
    TcpStream::connect(format!("{}:{port}", address())).unwrap()
}
