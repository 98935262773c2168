//! Child processes of the demo: each runs weft for one step, with a spinner, and ends with this
//! process.

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use rustix::process::{kill_process, Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_run::bars;

/// Time that a child may take to end after a request to do so.
const GRACE: Duration = Duration::from_secs(5);
/// Interval of the checks for a signal.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The user has interrupted the demo.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The end of a child and its output.
pub struct Ended {
    pub success: bool,
    pub output: String,
    pub errors: String,
    status: String,
}

impl Ended {
    /// Returns the last line of its output: the object of commands called with `--json`.
    pub fn last_line(&self) -> &str {
        self.output.lines().last().unwrap_or_default()
    }

    /// Returns the reason of its failure in one line: its last message before those of its
    /// launcher.
    pub fn reason(&self) -> String {
        let said = |line: &&str| !line.is_empty();
        let lines = || self.errors.lines().map(str::trim).filter(said);
        let last = lines().rfind(|line| !line.starts_with("weft run: ")).or(lines().next_back());
        let said = last.map(|line| line.strip_prefix("weft: ").unwrap_or(line));
        said.map_or_else(|| self.status.clone(), str::to_string)
    }
}

/// Starts children one after the other.
pub struct Children {
    weft: String,
    stop: Arc<AtomicBool>,
}

fn reader(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (to, out) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output read before an error is worth showing too.
        let _ = from.read_to_end(&mut bytes);
        let _ = to.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    out
}

fn spinner(what: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bars::form(&bar, "  {spinner}     {msg}  {elapsed}");
    bar.set_message(what.to_string());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Asks a child to end, and kills it if it does not.
fn end(child: &mut Child) {
    let pid = Pid::from_child(child);
    let _ = kill_process(pid, Signal::TERM);
    let until = Instant::now() + GRACE;
    while Instant::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(POLL_EVERY);
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Children {
    /// Returns a value that starts children; signals are caught from now on.
    pub fn new() -> Result<Children> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, stop.clone()).context("catching signals")?;
        }
        let weft = std::env::current_exe().context("finding this program's path")?;
        let weft = weft.into_os_string().into_string().ok();
        Ok(Children { weft: weft.context("this program's path is not UTF-8")?, stop })
    }

    /// Returns the path of this program.
    pub fn weft(&self) -> &str {
        &self.weft
    }

    /// Runs this program with these arguments to its end.
    ///
    /// # Errors
    /// [`Interrupted`] when the user wanted to end: the child was ended too.
    pub fn run(&mut self, what: &str, args: &[&str]) -> Result<Ended> {
        let bar = spinner(what);
        let mut child = Command::new(&self.weft)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {} {}", self.weft, args.join(" ")))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            anyhow::bail!("a child without output");
        };
        let (stdout, stderr) = (reader(stdout), reader(stderr));
        let output = loop {
            if self.stop.load(Ordering::Relaxed) {
                end(&mut child);
                return Err(Interrupted.into());
            }
            match stdout.recv_timeout(POLL_EVERY) {
                Ok(output) => break output,
                Err(RecvTimeoutError::Disconnected) => break String::new(),
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let errors = stderr.recv().unwrap_or_default();
        let status = child.wait().context("waiting for a child")?;
        bar.finish_and_clear();
        Ok(Ended { success: status.success(), output, errors, status: status.to_string() })
    }
}
