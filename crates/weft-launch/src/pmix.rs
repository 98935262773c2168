//! Joining through the PMIx client library.
//!
//! The library's calls block without a bound, so each runs in a thread of its own, and this side
//! waits for it at most the configured time. A call that never returns leaves its thread behind;
//! the process is about to give up then.

use super::sys::pmix::{self as ffi, Client, Failed, Got};
use super::wait_log::WaitLog;
use super::{announce_abort, check_key, check_rank, Bootstrap, LaunchError};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name under which PMIx keeps the number of ranks.
const JOB_SIZE: &str = "pmix.job.size";

/// Most ranks, and most time, that a timed-out fence spends to find the late ranks.
const LATE_RANKS: usize = 32;
const LATE_WAIT: Duration = Duration::from_secs(2);

/// A rank whose launcher speaks PMIx.
pub struct Pmix {
    client: Arc<Client>,
    timeout: Duration,
    rank: usize,
    size: usize,
    /// The name this rank put last: a fence that times out asks which other ranks put it.
    last_put: Option<String>,
    /// The launcher has heard the farewell of this process.
    finalized: bool,
}

/// Returns the possible paths of the library: the path that the user names, else the launcher's own
/// installation, whose version matches the launcher, else the loader's search path.
fn candidates() -> Vec<String> {
    match std::env::var("WEFT_PMIX_LIBRARY") {
        Ok(path) if !path.is_empty() => return vec![path],
        _ => {}
    }
    let named = named_prefixes(|variable| std::env::var_os(variable));
    let started_by = ancestors().filter_map(|program| prefix_of_launcher(&program));
    let mut names: Vec<String> = named.chain(started_by).flat_map(|p| installed(&p)).collect();
    names.push("libpmix.so.2".to_owned());
    names
}

/// Returns the folders of installations that variables name. A relative path is ignored, since it
/// would depend on the program's working directory.
fn named_prefixes(lookup: impl Fn(&str) -> Option<OsString>) -> impl Iterator<Item = PathBuf> {
    let names = ["PMIX_PREFIX", "PMIX_INSTALL_PREFIX", "OPAL_PREFIX"];
    names.into_iter().filter_map(lookup).map(PathBuf::from).filter(|prefix| prefix.is_absolute())
}

/// Returns the libraries of an installation.
fn installed(prefix: &Path) -> impl Iterator<Item = String> {
    let folders = ["lib", "lib64", "lib/openmpi"];
    let files = folders.map(|folder| prefix.join(folder).join("libpmix.so.2"));
    files.into_iter().filter(|file| file.is_file()).filter_map(|file| file.to_str().map(Into::into))
}

/// Programs that start ranks and speak PMIx to them, on the launcher's host and on others. If one
/// is in a folder of its own (`prterun` of a Python package), no variable names the folder.
const LAUNCHERS: [&str; 6] = ["prterun", "prte", "prted", "mpirun", "mpiexec", "orted"];

/// Returns the folder in which a program is installed, if the program is a launcher.
fn prefix_of_launcher(program: &Path) -> Option<PathBuf> {
    let name = program.file_name()?.to_str()?;
    LAUNCHERS.contains(&name).then(|| program.ancestors().nth(2).map(PathBuf::from))?
}

/// Most ancestors of this process that are examined: there may be scripts between it and its
/// launcher.
const ANCESTORS: usize = 4;

/// Returns the programs of this process's ancestors, the nearest first, as far as they can be read
/// and belong to the same user: another user must not choose the library that is loaded.
fn ancestors() -> impl Iterator<Item = PathBuf> {
    let user = |process: &str| std::fs::metadata(format!("/proc/{process}")).ok().map(|m| m.uid());
    let own = user("self");
    let parent = |process: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|&parent| parent > 1)
    };
    std::iter::successors(Some(std::os::unix::process::parent_id()), parent)
        .take(ANCESTORS)
        .filter(move |process| {
            let both = own.zip(user(&process.to_string()));
            both.is_some_and(|(ours, theirs)| weft_link::user::same(ours, theirs).is_ok())
        })
        .filter_map(|process| std::fs::read_link(format!("/proc/{process}/exe")).ok())
}

fn connect() -> Result<Client, LaunchError> {
    let mut tried = Vec::new();
    for name in candidates() {
        match ffi::open(&name).and_then(Client::init) {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(((call, status), text))) => {
                return Err(LaunchError::Pmix { call, status, text });
            }
            Err(error) => tried.push(error),
        }
    }
    Err(LaunchError::NoLibrary { tried })
}

/// Runs a call in a thread of its own and waits for it at most `timeout`.
fn bounded<T: Send + 'static>(
    timeout: Duration,
    during: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LaunchError> {
    let (send, receive) = sync_channel(1);
    let run = move || {
        // The receiver is gone if the answer comes too late.
        let _ = send.send(work());
    };
    std::thread::Builder::new()
        .name("weft-pmix".into())
        .spawn(run)
        .map_err(|error| LaunchError::io("starting a PMIx thread", error))?;
    let (began, mut patience) = (Instant::now(), WaitLog::begin());
    let received = loop {
        let left = timeout.saturating_sub(began.elapsed());
        let part = patience.part(left);
        match receive.recv_timeout(part) {
            Err(RecvTimeoutError::Timeout) if part < left => patience.say(|| {
                format!(
                    "in {during}: ranks that have not got there have not started, or their hosts \
                     do not reach the launcher"
                )
            }),
            received => break received,
        }
    };
    let during = during.to_owned();
    received.map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            LaunchError::Timeout { during, seconds: timeout.as_secs(), missing: Vec::new() }
        }
        RecvTimeoutError::Disconnected => LaunchError::LauncherGone { during },
    })
}

impl Pmix {
    /// Joins through libpmix; `timeout` bounds this and every later wait.
    ///
    /// # Errors
    /// [`LaunchError::NoLibrary`] says what to install; else the error has the library's answer.
    pub fn init(timeout: Duration) -> Result<Self, LaunchError> {
        // The library of Open MPI 5 cannot leave twice (it frees the topology twice), and the
        // launcher has heard the MPI's farewell.
        let finalized = ffi::has_mpi_left();
        let client = Arc::new(bounded(timeout, "PMIx_Init", connect)??);
        let rank = client.rank() as usize;
        let mut joined = Pmix { client, timeout, rank, size: 1, last_put: None, finalized };
        let size = joined.call("PMIx_Get", |client| client.get(ffi::RANK_JOB, JOB_SIZE))?;
        joined.size = match size {
            Got::Number(size) if rank < size as usize => size as usize,
            _ => return Err(malformed(JOB_SIZE, "not a number above this rank")),
        };
        Ok(joined)
    }

    fn call<T: Send + 'static>(
        &self,
        during: &str,
        work: impl FnOnce(&Client) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, LaunchError> {
        let client = self.client.clone();
        let work = move || {
            work(&client).map_err(|(call, status)| LaunchError::Pmix {
                call,
                status,
                text: client.text(status),
            })
        };
        bounded(self.timeout, during, work)?
    }

    /// Returns, after a fence timed out, the ranks that did not put the name that this rank put. A
    /// rank whose value does not come within [`LATE_WAIT`] is late.
    fn late_ranks(&self) -> Vec<usize> {
        let Some(name) = &self.last_put else {
            return Vec::new();
        };
        let others = (0..self.size).filter(|&rank| rank != self.rank);
        let mut late: Vec<usize> = others.take(LATE_RANKS).collect();
        let (send, receive) = sync_channel(LATE_RANKS);
        for &rank in &late {
            let (client, name, send) = (self.client.clone(), name.clone(), send.clone());
            let ask = move || {
                if client.get(rank as u32, &name).is_ok() {
                    // The receiver is gone if the answer comes too late.
                    let _ = send.send(rank);
                }
            };
            if std::thread::Builder::new().name("weft-pmix".into()).spawn(ask).is_err() {
                return Vec::new();
            }
        }
        drop(send);
        let deadline = Instant::now() + LATE_WAIT;
        let left = || deadline.saturating_duration_since(Instant::now());
        while let Ok(rank) = receive.recv_timeout(left()) {
            late.retain(|&other| other != rank);
        }
        late
    }
}

fn malformed(key: &str, problem: &str) -> LaunchError {
    LaunchError::Protocol { asked: format!("PMIx_Get {key}"), problem: problem.to_owned() }
}

fn pmix_name(key: &str) -> Result<String, LaunchError> {
    check_key(key)?;
    Ok(format!("weft.{key}"))
}

impl Bootstrap for Pmix {
    fn launcher(&self) -> &'static str {
        "pmix"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn job_id(&self) -> String {
        self.client.nspace()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        let name = pmix_name(key)?;
        self.last_put = Some(name.clone());
        let mut value = value.to_vec();
        self.call("PMIx_Put", move |client| client.put(&name, &mut value))
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        match self.call("PMIx_Fence", Client::fence) {
            Err(LaunchError::Timeout { seconds, .. }) => {
                let during = "the start of the job".to_owned();
                Err(LaunchError::Timeout { during, seconds, missing: self.late_ranks() })
            }
            done => done,
        }
    }

    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError> {
        check_rank(rank, self.size)?;
        let name = pmix_name(key)?;
        let during = format!("PMIx_Get of {key} from rank {rank}");
        match self.call(&during, move |client| client.get(rank as u32, &name)) {
            Ok(Got::Bytes(bytes)) => Ok(bytes),
            Ok(_) => Err(malformed(key, "not a byte object")),
            Err(LaunchError::Pmix { status: ffi::NOT_FOUND, .. }) => {
                Err(LaunchError::NotPublished { rank, key: key.to_owned() })
            }
            Err(LaunchError::Timeout { during, seconds, .. }) => {
                Err(LaunchError::Timeout { during, seconds, missing: vec![rank] })
            }
            Err(error) => Err(error),
        }
    }

    fn preseeded(&mut self, key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
        check_key(key)?;
        // Only weft's own launcher leaves values, and that speaks PMI-1.
        Ok(None)
    }

    fn abort(&mut self, code: i32, message: &str) -> ! {
        announce_abort(self.rank, message);
        let message = message.to_owned();
        // A failure to tell the launcher does no harm: the end of this process tells it too.
        let _ = self.call("PMIx_Abort", move |client| client.abort(code, &message));
        std::process::exit(code)
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        self.call("PMIx_Finalize", Client::finalize)
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn open__of_a_missing_library_names_what_to_install() {
        let error = ffi::open("libpmix-absent.so.2").err().unwrap();
        let text = LaunchError::NoLibrary { tried: vec![error] }.to_string();
        assert!(text.contains("libpmix2") && text.contains("weft run"), "{text}");
    }

    #[test]
    fn named_prefixes__are_absolute() {
        let lookup = |name: &str| match name {
            "PMIX_PREFIX" => Some("".into()),
            "PMIX_INSTALL_PREFIX" => Some("here".into()),
            _ => Some("/opt/mpi".into()),
        };
        assert_eq!(named_prefixes(lookup).collect::<Vec<_>>(), [PathBuf::from("/opt/mpi")]);
    }

    #[test]
    fn prefix_of_launcher__is_that_of_launchers_alone() {
        let prefix = |program| prefix_of_launcher(Path::new(program));
        assert_eq!(prefix("/venv/bin/prterun"), Some("/venv".into()));
        assert_eq!(prefix("/opt/mpi/bin/prted"), Some("/opt/mpi".into()));
        for other in ["/venv/bin/python3", "/usr/bin/bash", "prterun", "/", ""] {
            assert_eq!(prefix(other), None, "{other}");
        }
    }

    #[test]
    fn ancestors__begin_with_the_parent_of_this_process() {
        let parent = std::os::unix::process::parent_id();
        let program = std::fs::read_link(format!("/proc/{parent}/exe")).ok();
        assert_eq!(ancestors().next(), program);
        assert!(ancestors().count() <= ANCESTORS);
    }

    #[test]
    fn bounded__gives_up_on_a_call_that_does_not_return() {
        let (release, held) = sync_channel::<()>(1);
        let call = move || held.recv();
        let error = bounded(Duration::from_millis(1), "PMIx_Fence", call).unwrap_err();
        assert!(matches!(error, LaunchError::Timeout { .. }), "{error}");
        drop(release);
        let done = bounded(Duration::from_secs(30), "PMIx_Fence", || 7);
        assert_eq!(done.unwrap(), 7);
    }

    #[test]
    fn put__refuses_names_outside_the_common_set() {
        for bad in ["", "a b", "a/b", "a.b", &"x".repeat(33)] {
            assert!(pmix_name(bad).is_err(), "{bad}");
        }
    }
}
