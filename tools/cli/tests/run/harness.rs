//! Starts `weft run`, waits for it with limits, and finds processes that it left behind.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// Limit of every wait; reached only by a fault.
const LIMIT: Duration = Duration::from_secs(300);
/// Name of the variable that all processes of a job inherit.
pub const MARK: &str = "WEFT_TEST_MARK";

static NEXT: AtomicU32 = AtomicU32::new(0);

fn unique() -> String {
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a path for this test run only.
pub fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    folder.join(format!("{name}-{}", unique()))
}

/// Returns a launch agent that runs on this machine: the shell lines `before`, then the program.
/// The shell reads the script; executing it could fail while another test's fork has it open.
pub fn fake_agent(before: &str) -> String {
    let path = scratch("agent");
    std::fs::write(&path, format!("{before}\nshift\nexec \"$@\"\n")).unwrap();
    format!("sh '{}'", path.display())
}

/// Returns the command of a rank that runs a shell script.
pub fn shell(script: &str) -> [String; 3] {
    ["sh".into(), "-c".into(), script.into()]
}

/// Returns the command of a rank that checks start-up.
pub fn selftest(args: &[&str]) -> Vec<String> {
    let mut command: Vec<String> = vec![env!("CARGO_BIN_EXE_weft").into()];
    command.extend(["selftest", "bootstrap"].map(String::from));
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    command
}

/// Checks that ranks 0 to `size - 1` reported, and returns their distinct job keys.
pub fn bootstrap_keys(out: &str, size: usize, launcher: &str) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for rank in 0..size {
        let start = format!("rank {rank} of {size} by {launcher}, job ");
        let line = out.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no {start:?} in {out:?}"));
        keys.insert(line.rsplit(' ').next().unwrap().to_owned());
    }
    keys
}

/// A job to start.
pub struct Job {
    command: Command,
    mark: String,
    input: bool,
}

/// A started job.
pub struct Running {
    child: Child,
    out: Receiver<String>,
    err: Receiver<String>,
    seen_out: String,
    seen_err: String,
    mark: String,
    input: Option<ChildStdin>,
}

/// A job that ended.
pub struct Done {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    mark: String,
}

impl Job {
    /// Returns a job of `weft run` with these options.
    pub fn new(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.arg("run").args(args);
        Job::of(command)
    }

    /// Returns a job of any launcher.
    pub fn of(command: Command) -> Self {
        Job::of_marked(command, &unique())
    }

    /// Returns a job of any command, with a mark that other processes may carry too.
    pub fn of_marked(mut command: Command, mark: &str) -> Self {
        let mark = mark.to_owned();
        command.env(MARK, &mark).env_remove("WEFT_LAUNCH_AGENT");
        for name in ["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE", "WEFT_BOOTSTRAP"] {
            command.env_remove(name);
        }
        Job { command, mark, input: false }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Adds the program that ranks run.
    pub fn command(mut self, words: impl IntoIterator<Item = String>) -> Self {
        self.command.args(words);
        self
    }

    /// Lets the ranks check start-up.
    pub fn selftest(self, args: &[&str]) -> Self {
        self.command(selftest(args))
    }

    /// Gives the job an input that the test writes.
    pub fn input(mut self) -> Self {
        self.input = true;
        self
    }

    pub fn start(mut self) -> Running {
        self.command.stdin(if self.input { Stdio::piped() } else { Stdio::null() });
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the launcher starts");
        Running {
            out: lines_of(child.stdout.take().unwrap()),
            err: lines_of(child.stderr.take().unwrap()),
            seen_out: String::new(),
            seen_err: String::new(),
            mark: self.mark,
            input: child.stdin.take(),
            child,
        }
    }

    pub fn finish(self) -> Done {
        self.start().finish()
    }
}

fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receive
}

/// Appends lines to `seen` until `count` of them contain `text`.
fn await_lines(from: &Receiver<String>, seen: &mut String, count: usize, text: &str) {
    let deadline = Instant::now() + LIMIT;
    let mut found = 0;
    while found < count {
        let left = deadline.saturating_duration_since(Instant::now());
        match from.recv_timeout(left) {
            Ok(line) => {
                found += usize::from(line.contains(text));
                seen.push_str(&line);
            }
            Err(error) => panic!("{found} of {count} lines {text:?} came: {error}; {seen}"),
        }
    }
}

impl Running {
    /// Waits for lines of output that contain `text`.
    pub fn lines(&mut self, count: usize, text: &str) {
        await_lines(&self.out, &mut self.seen_out, count, text);
    }

    /// Waits for a line of output that contains `text`, and returns it.
    pub fn line(&mut self, text: &str) -> String {
        self.lines(1, text);
        self.seen_out.lines().last().unwrap_or_default().to_owned()
    }

    /// Returns the output so far.
    pub fn said(&mut self) -> &str {
        self.seen_out.extend(self.out.try_iter());
        &self.seen_out
    }

    /// Waits for lines of error output that contain `text`.
    pub fn error_lines(&mut self, count: usize, text: &str) {
        await_lines(&self.err, &mut self.seen_err, count, text);
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(sent.success());
    }

    pub fn input_handle(&mut self) -> &mut ChildStdin {
        self.input.as_mut().expect("the job has an input")
    }

    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Returns the processes that run an application of the command: the ranks started so far.
    pub fn ranks(&self) -> Vec<u32> {
        let program = concat!(env!("CARGO_BIN_EXE_weft"), " app ");
        let number = |line: &String| {
            let (place, command) = line.split_once(' ')?;
            command.starts_with(program).then(|| place.strip_prefix("/proc/")?.parse().ok())?
        };
        left_behind(&self.mark).iter().filter_map(number).collect()
    }

    /// Waits until the job has so many ranks, or has ended.
    pub fn await_ranks(&mut self, count: usize) -> Vec<u32> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let ranks = self.ranks();
            if ranks.len() == count || self.child.try_wait().unwrap().is_some() {
                return ranks;
            }
            assert!(Instant::now() < deadline, "{count} ranks are awaited: {ranks:?}");
            std::thread::yield_now();
        }
    }

    /// True until the launcher has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until no process of the job is left.
    pub fn wait_until_nothing_left(&self) {
        await_nothing_left(&self.mark);
    }

    /// Waits until the job ends; its output ends with its last process.
    pub fn finish(mut self) -> Done {
        let deadline = Instant::now() + LIMIT;
        for (from, seen) in [(&self.out, &mut self.seen_out), (&self.err, &mut self.seen_err)] {
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                match from.recv_timeout(left) {
                    Ok(line) => seen.push_str(&line),
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                    Err(error) => {
                        let _ = self.child.kill();
                        panic!("the job did not end: {error}; {seen}");
                    }
                }
            }
        }
        self.input = None;
        let code = self.child.wait().unwrap().code();
        Done { code, out: self.seen_out, err: self.seen_err, mark: self.mark }
    }
}

/// Returns processes that carry a job's mark in their environment: process ID and command line.
pub fn left_behind(mark: &str) -> Vec<String> {
    let wanted = format!("{MARK}={mark}");
    let mut left = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        // Processes of others, and those that end meanwhile, cannot be read.
        let Ok(environ) = std::fs::read(path.join("environ")) else {
            continue;
        };
        if environ.split(|&b| b == 0).any(|pair| pair == wanted.as_bytes()) {
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            left.push(format!("{} {command}", path.display()));
        }
    }
    left
}

/// Waits until no process carries a mark: a killed process ends when it gets a processor.
#[track_caller]
fn await_nothing_left(mark: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = left_behind(mark);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "left: {left:?}");
        std::thread::yield_now();
    }
}

impl Done {
    #[track_caller]
    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "out: {}\nerr: {}", self.out, self.err);
    }

    #[track_caller]
    pub fn assert_says(&self, words: &[&str]) {
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing in: {}", self.err);
        }
    }

    /// Checks that the job has ended with a status and these words, and that nothing is left of it.
    #[track_caller]
    pub fn assert_ended(&self, code: i32, words: &[&str]) {
        self.assert_code(code);
        self.assert_says(words);
        self.assert_nothing_left();
    }

    #[track_caller]
    pub fn assert_nothing_left(&self) {
        await_nothing_left(&self.mark);
    }
}
