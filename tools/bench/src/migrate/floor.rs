//! The floor of a move: bare CRIU copies a process, its files are copied, the process is killed and
//! the copy restored, by this command itself.

use anyhow::{ensure, Context, Result};
use rustix::process::{kill_process, waitid, Pid, Signal, WaitId, WaitIdOptions};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_run::run::moving::criu;

/// Longest wait for the process.
const LIMIT: Duration = Duration::from_secs(30);

/// A folder in memory, as the copies of ranks have it.
struct InMemory(PathBuf);

impl InMemory {
    fn new() -> Result<InMemory> {
        let name = format!("weft-bench-{:x}", weft_link::random_u64());
        let folder = InMemory(Path::new("/dev/shm").join(name));
        for path in [folder.0.clone(), folder.0.join("from"), folder.0.join("to")] {
            fs::DirBuilder::new().mode(0o700).create(path)?;
        }
        Ok(folder)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        // The folder is in memory: a file that cannot be removed now goes with the machine.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process with memory, the first of its name space of process numbers as that of a rank is.
struct Alone {
    /// The command that made the name space: it ends with the process.
    keeper: Child,
    pid: Pid,
}

impl Alone {
    /// Starts it; waits until its memory is filled.
    fn start(weft: &Path, program: &Path, megabytes: usize, out: &Path) -> Result<Alone> {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "setsid"]);
        command.arg(weft).args(["run-init", "--"]).arg(program);
        command.args(["memory", &megabytes.to_string()]);
        command.stdin(Stdio::null()).stdout(fs::File::create(out)?).stderr(Stdio::null());
        let keeper = command.spawn().context("unshare (util-linux)")?;
        let mut alone = Alone { keeper, pid: rustix::process::getpid() };
        let children = format!("/proc/{0}/task/{0}/children", alone.keeper.id());
        let until = Instant::now() + LIMIT;
        while !fs::read_to_string(out)?.contains("runs") {
            ensure!(Instant::now() < until, "a process with {megabytes} MB does not begin");
            // tidy-allow(sleep): a file cannot be waited for.
            std::thread::sleep(Duration::from_millis(5));
        }
        let child = fs::read_to_string(children)?;
        let child = child.split_whitespace().next().and_then(|word| word.parse().ok());
        alone.pid = child.and_then(Pid::from_raw).context("the process of unshare")?;
        Ok(alone)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // The process that it waits for is killed with it, if it lives.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Returns the milliseconds in which a process of so many megabytes makes no progress.
///
/// # Errors
/// CRIU refuses.
pub fn measure(weft: &Path, program: &Path, megabytes: usize, out: &Path) -> Result<f64> {
    let folder = InMemory::new()?;
    let (from, to) = (folder.0.join("from"), folder.0.join("to"));
    let mut alone = Alone::start(weft, program, megabytes, out)?;
    let since = Instant::now();
    criu::dump(alone.pid, &from, &[])?;
    copy(&from, &to)?;
    kill_process(alone.pid, Signal::KILL)?;
    alone.keeper.wait()?;
    let ended = criu::restore(&to, &[]).status().context("starting CRIU")?;
    let restored = criu::restored(&to, ended.success())?;
    kill_process(restored, Signal::CONT)?;
    let ms = since.elapsed().as_secs_f64() * 1e3;
    kill_process(restored, Signal::KILL)?;
    waitid(WaitId::Pid(restored), WaitIdOptions::EXITED)?;
    Ok(ms)
}
