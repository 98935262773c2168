//! Ctrl-C, or another request to end, during a measurement: one line names the results stored so
//! far, the programs that it has started end, its folders are removed, and this process ends by the
//! signal, as a process without a handler does.

use anyhow::{Context, Result};
use rustix::process::{kill_process, waitid, Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe};
use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time for which children are waited for, and time between two looks.
const GRACE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// True from a watched signal on.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Returns if no signal has come. After a signal this never returns: the process ends, and must
/// neither start further programs nor print figures of those that the signal has ended.
pub fn hold() {
    while ENDING.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// An output that takes nothing more after a signal.
pub struct Held<W>(pub W);

impl<W: Write> Write for Held<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        hold();
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Called once when a signal ends the work; stores results and returns a description of them.
type Left = Box<dyn FnOnce() -> String + Send>;

/// Returns the signals that this process ignores, as a mask from signal 1 on.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let all: Vec<String> = lists.collect();
    let words = all.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

/// Asks children of this process to end. All of them stand still before the first one ends, else
/// one would report the death of another.
fn ask_to_end(all: &[Pid]) {
    let tell = |signal| {
        for &child in all {
            let _ = kill_process(child, signal);
        }
    };
    // A process of several threads stands still once the last of them does.
    let still = WaitIdOptions::STOPPED | WaitIdOptions::EXITED;
    let look = still | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let until = Instant::now() + GRACE;
    let runs = |&child: &Pid| matches!(waitid(WaitId::Pid(child), look), Ok(None));
    tell(Signal::STOP);
    while all.iter().any(runs) && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    tell(Signal::TERM);
    tell(Signal::CONT);
}

/// Ends the children of this process: launchers end their ranks. A signal of a terminal has come to
/// them as well, one of kill(1) has not.
fn end_children() {
    let mut told: Vec<Pid> = Vec::new();
    let end = Instant::now() + GRACE;
    let lives = |child: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.as_raw_nonzero()));
        // Nobody waits for one that has ended while this process ends.
        stat.is_ok_and(|stat| {
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        })
    };
    loop {
        let all = children();
        // Another thread may just have started one. A launcher takes a second signal for haste.
        let new: Vec<Pid> = all.iter().filter(|child| !told.contains(child)).copied().collect();
        ask_to_end(&new);
        told.extend(new);
        if !all.iter().any(lives) || Instant::now() >= end {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Watches for signals from its creation on.
pub struct Interrupt {
    /// Number of the signal received; 0 for none.
    signal: Arc<AtomicUsize>,
    left: Arc<Mutex<Option<Left>>>,
}

impl Interrupt {
    /// Watches for signals during the command `what`. Ignored signals stay ignored: `nohup`, or a
    /// script that started this in the background, wants that.
    ///
    /// # Errors
    /// Signals cannot be caught.
    pub fn watch(what: &'static str) -> Result<Interrupt> {
        let signal = Arc::new(AtomicUsize::new(0));
        let left = Arc::new(Mutex::new(None::<Left>));
        let (mut reader, writer) = UnixStream::pair().context("a pipe for signals")?;
        let ignored = ignored();
        for number in [SIGHUP, SIGINT, SIGTERM] {
            if ignored & 1 << (number - 1) != 0 {
                continue;
            }
            // In this order, so that the thread finds the number when it wakes.
            signal_hook::flag::register_usize(number, signal.clone(), number as usize)
                .and_then(|_| pipe::register(number, writer.try_clone()?))
                .context("catching signals")?;
        }
        let (of, shared) = (signal.clone(), left.clone());
        std::thread::spawn(move || {
            // Until the first signal there is nothing to read.
            while reader.read(&mut [0]).is_err() {}
            ENDING.store(true, Ordering::SeqCst);
            let left = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
            let left = left.map_or_else(|| "nothing stored".into(), |left| left());
            let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
            eprintln!("{clear}{what}: interrupted, {left}");
            end_children();
            crate::folder::remove_all();
            let number = of.load(Ordering::SeqCst) as i32;
            if emulate_default_handler(number).is_err() {
                std::process::exit(128 + number);
            }
        });
        Ok(Interrupt { signal, left })
    }

    /// Sets the function that stores the results so far and describes them.
    pub fn leaves(&self, left: impl FnOnce() -> String + Send + 'static) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(left));
    }

    /// Returns the result of the work. After a signal this never returns: child processes that the
    /// same signal ended are no error.
    pub fn unless<T>(&self, result: Result<T>) -> Result<T> {
        while self.signal.load(Ordering::SeqCst) != 0 {
            std::thread::park();
        }
        result
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn ask_to_end__none_sees_the_death_of_another() {
        let mut first = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat starts");
        let mut second = Command::new("sh")
            .args(["-c", "echo ready; read line; echo saw it"])
            .stdin(first.stdout.take().expect("a pipe"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let mut said = BufReader::new(second.stdout.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");

        let [one, other] = [&first, &second].map(Pid::from_child);
        // Time passes between the first and the last.
        let mut all = vec![one; 100_000];
        all.push(other);
        ask_to_end(&all);
        let mut rest = String::new();
        said.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        assert!(!first.wait().unwrap().success() && !second.wait().unwrap().success());
    }
}
