//! Joining through the PMIx client library.
//!
//! The library's calls block without a bound of their own, so one thread makes them and this side
//! waits for its answer no longer than the configured time.

use super::sys::pmix::{self as ffi, Client, Failed, Got};
use super::{check_key, check_rank, Bootstrap, LaunchError};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Name under which PMIx keeps the number of ranks.
const JOB_SIZE: &str = "pmix.job.size";

enum Call {
    Put(String, Vec<u8>),
    Fence,
    Get(u32, String),
    Abort(i32, String),
    Finalize,
}

enum Answer {
    Done,
    Value(Got),
}

type Reply = Result<Answer, LaunchError>;

/// A rank whose launcher speaks PMIx.
pub struct Pmix {
    calls: SyncSender<Call>,
    replies: Receiver<Reply>,
    timeout: Duration,
    rank: usize,
    size: usize,
    nspace: String,
    finalized: bool,
    /// A wait failed, so that a late reply could be taken for that to a later call.
    broken: bool,
}

fn failed(client: &Client, (call, status): Failed) -> LaunchError {
    LaunchError::Pmix { call, status, text: client.text(status) }
}

/// Where the library may be: what the user names, else the launcher's own installation, whose
/// version matches the launcher, else the loader's search path.
fn candidates() -> Vec<String> {
    if let Ok(path) = std::env::var("WEFT_PMIX_LIBRARY") {
        return vec![path];
    }
    let mut names = Vec::new();
    for variable in ["PMIX_PREFIX", "PMIX_INSTALL_PREFIX", "OPAL_PREFIX"] {
        if let Ok(prefix) = std::env::var(variable) {
            let folders = ["lib", "lib64", "lib/openmpi"];
            names.extend(folders.map(|folder| format!("{prefix}/{folder}/libpmix.so.2")));
        }
    }
    names.retain(|name| std::path::Path::new(name).exists());
    names.push("libpmix.so.2".to_owned());
    names
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

fn perform(client: &Client, call: Call) -> Reply {
    match call {
        Call::Put(key, mut value) => client.put(&key, &mut value).map(|()| Answer::Done),
        Call::Fence => client.fence().map(|()| Answer::Done),
        Call::Get(rank, key) => client.get(rank, &key).map(Answer::Value),
        Call::Abort(code, message) => client.abort(code, &message).map(|()| Answer::Done),
        Call::Finalize => client.finalize().map(|()| Answer::Done),
    }
    .map_err(|error| failed(client, error))
}

/// The thread that makes all calls; ends when the other side is dropped.
fn serve(calls: &Receiver<Call>, replies: &SyncSender<Reply>, hello: &SyncSender<Hello>) {
    let client = match connect() {
        Ok(client) => client,
        Err(error) => {
            // The other side may have given up waiting; then nobody wants the error.
            let _ = hello.send(Err(error));
            return;
        }
    };
    if hello.send(Ok((client.rank(), client.nspace()))).is_err() {
        return;
    }
    while let Ok(call) = calls.recv() {
        if replies.send(perform(&client, call)).is_err() {
            return;
        }
    }
}

type Hello = Result<(u32, String), LaunchError>;

impl Pmix {
    /// Joins through libpmix; `timeout` bounds this and every later wait.
    ///
    /// # Errors
    /// [`LaunchError::NoLibrary`] says what to install; else what the library answered.
    pub fn init(timeout: Duration) -> Result<Self, LaunchError> {
        let (calls, calls_in) = sync_channel(1);
        let (replies_out, replies) = sync_channel(1);
        let (hello_out, hello) = sync_channel(1);
        std::thread::Builder::new()
            .name("weft-pmix".into())
            .spawn(move || serve(&calls_in, &replies_out, &hello_out))
            .map_err(|error| LaunchError::io("starting the PMIx thread", error))?;
        let (rank, nspace) = wait(&hello, timeout, "PMIx_Init")??;
        let rank = rank as usize;
        let mut client = Pmix {
            calls,
            replies,
            timeout,
            rank,
            size: 1,
            nspace,
            finalized: false,
            broken: false,
        };
        let size = client.call(Call::Get(ffi::RANK_JOB, JOB_SIZE.into()), "PMIx_Get")?;
        client.size = match size {
            Answer::Value(Got::Number(size)) if rank < size as usize => size as usize,
            _ => return Err(malformed(JOB_SIZE, "not a number above this rank")),
        };
        Ok(client)
    }

    fn call(&mut self, call: Call, during: &str) -> Reply {
        if self.broken || self.calls.send(call).is_err() {
            return Err(LaunchError::LauncherGone { during: during.to_owned() });
        }
        let reply = wait(&self.replies, self.timeout, during);
        self.broken = reply.is_err();
        reply?
    }
}

fn malformed(key: &str, problem: &str) -> LaunchError {
    LaunchError::Protocol { asked: format!("PMIx_Get {key}"), problem: problem.to_owned() }
}

fn wait<T>(from: &Receiver<T>, timeout: Duration, during: &str) -> Result<T, LaunchError> {
    let during = during.to_owned();
    from.recv_timeout(timeout).map_err(|error| match error {
        RecvTimeoutError::Timeout => {
            LaunchError::Timeout { during, seconds: timeout.as_secs(), missing: Vec::new() }
        }
        RecvTimeoutError::Disconnected => LaunchError::LauncherGone { during },
    })
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
        self.nspace.clone()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        let call = Call::Put(pmix_name(key)?, value.to_vec());
        self.call(call, "PMIx_Put").map(|_| ())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        self.call(Call::Fence, "PMIx_Fence").map(|_| ())
    }

    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError> {
        check_rank(rank, self.size)?;
        let call = Call::Get(rank as u32, pmix_name(key)?);
        match self.call(call, &format!("PMIx_Get of {key} from rank {rank}")) {
            Ok(Answer::Value(Got::Bytes(bytes))) => Ok(bytes),
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
        // Only weft's own launcher leaves values, and it speaks PMI-1.
        Ok(None)
    }

    fn abort(&mut self, code: i32, message: &str) -> ! {
        eprintln!("weft: rank {} aborts the job: {message}", self.rank);
        // Failing to tell the launcher changes nothing: this process's end tells it as well.
        let _ = self.call(Call::Abort(code, message.to_owned()), "PMIx_Abort");
        std::process::exit(code)
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        if std::mem::replace(&mut self.finalized, true) {
            return Ok(());
        }
        self.call(Call::Finalize, "PMIx_Finalize").map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn open__of_a_missing_library_tells_what_to_install() {
        let error = ffi::open("libpmix-absent.so.2").err().unwrap();
        let text = LaunchError::NoLibrary { tried: vec![error] }.to_string();
        assert!(text.contains("libpmix2") && text.contains("weft run"), "{text}");
    }

    #[test]
    fn wait__is_bounded() {
        let (_keep, replies) = sync_channel::<()>(1);
        let error = wait(&replies, Duration::from_millis(1), "PMIx_Fence").unwrap_err();
        assert!(matches!(error, LaunchError::Timeout { .. }), "{error}");
    }

    #[test]
    fn put__refuses_names_outside_the_common_set() {
        for bad in ["", "a b", "a/b", "a.b", &"x".repeat(33)] {
            assert!(pmix_name(bad).is_err(), "{bad}");
        }
    }
}
