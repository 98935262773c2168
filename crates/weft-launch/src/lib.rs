//! Joining a job by the protocol of its launcher (PMI-1, PMIx): the rank of this process, the
//! number of ranks, and a key-value space through which ranks exchange their addresses.
//!
//! Weft does not replace launchers: [`bootstrap`] speaks the protocol of the program that started
//! the process, PMI-1 (MPICH's Hydra, Slurm, `weft run`) or PMIx (Open MPI's mpirun, prterun,
//! Slurm), and makes a job of one without a launcher. Every wait is bounded by
//! `WEFT_LAUNCH_TIMEOUT` (60 s).
//!
//! Programs find this crate as `weft::launch`. [`keyfile`] has the key of programs that another
//! launcher starts, which gives its ranks no key.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod ends;
mod env;
mod error;
pub mod keyfile;
pub mod moving;
mod pmi1;
mod pmix;
mod singleton;
mod sys;
mod wait_log;
pub mod wire;

pub use env::{detect, ranks_here, timeout, Launcher, DEFAULT_TIMEOUT};
pub use error::LaunchError;
pub use pmi1::Pmi1;
pub use pmix::Pmix;
pub use singleton::Singleton;

use rustix::io::retry_on_intr;
use rustix::rand::{getrandom, GetRandomFlags};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a job key.
pub const KEY_LEN: usize = 32;

/// Name under which a launcher of weft leaves the job key, in hexadecimal digits, in the key-value
/// space, so that no command line and no environment shows it.
pub const JOB_KEY: &str = "weft-job-key";

/// The connection of one process to its job.
///
/// After a fence every rank can get the values put before it. A value is put once. Names have up to
/// 32 of the characters `a-z A-Z 0-9 - _`.
pub trait Bootstrap {
    /// Returns the launcher's protocol in one word: `pmi1`, `pmix` or `none`.
    fn launcher(&self) -> &'static str;

    /// Returns the rank of this process, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks of the job, at least 1.
    fn size(&self) -> usize;

    /// Returns a name of the job that no other running job of this launcher has.
    fn job_id(&self) -> String;

    /// Publishes a value under this rank's name; others can get it after the next fence.
    ///
    /// # Errors
    /// [`LaunchError::BadKey`] for a name the launchers cannot carry, or the launcher's refusal.
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError>;

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// [`LaunchError::Timeout`] after the configured time, naming the ranks known to be late.
    fn fence(&mut self) -> Result<(), LaunchError>;

    /// Returns a value that `rank` put before the last fence. It costs one exchange with the
    /// launcher: ask when the peer is first used, not for all peers at once.
    ///
    /// # Errors
    /// [`LaunchError::NotPublished`] names the rank that did not put it.
    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError>;

    /// Fetches the values that ranks put before the last fence, for a later [`get`](Self::get),
    /// where the connection to the launcher may end before this rank leaves: an MPI in this process
    /// that uses the same connection ends it in `MPI_Finalize`. Elsewhere it does nothing.
    ///
    /// # Errors
    /// The launcher's refusal.
    fn keep(&mut self, _key: &str) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Returns a value that the launcher itself put before any rank started.
    ///
    /// # Errors
    /// The launcher cannot be reached. An absent value is no error but `None`.
    fn preseeded(&mut self, key: &str) -> Result<Option<Vec<u8>>, LaunchError>;

    /// Prints `message`, asks the launcher to end the whole job with this exit code, and ends
    /// this process.
    fn abort(&mut self, code: i32, message: &str) -> !;

    /// Leaves the job in good order; the launcher then treats the end of this process as success.
    /// Only the first call has an effect. A launcher other than `weft run` that speaks PMI-1 learns
    /// it when the process exits, since an MPI in the same process may need the connection until
    /// then, and has closed it if it leaves first.
    ///
    /// # Errors
    /// The launcher ended before, or did not answer.
    fn finalize(&mut self) -> Result<(), LaunchError>;
}

/// A joined job with its key.
pub struct Bootstrapped {
    /// The connection to the job.
    pub boot: Box<dyn Bootstrap>,
    /// The key that all ranks share, made for this job.
    pub key: [u8; KEY_LEN],
}

static JOINED: AtomicBool = AtomicBool::new(false);

/// Joins the job of this process, as the environment describes it.
///
/// # Errors
/// [`LaunchError::Twice`] on a second call; else the fault of the launcher or the environment.
pub fn bootstrap() -> Result<Box<dyn Bootstrap>, LaunchError> {
    let lookup = |name: &str| std::env::var(name).ok();
    let launcher = detect(&lookup)?;
    let timeout = timeout(&lookup)?;
    if JOINED.swap(true, Ordering::SeqCst) {
        return Err(LaunchError::Twice);
    }
    Ok(match launcher {
        Launcher::Pmi1Fd { fd, rank, size } => {
            let stream = std::os::unix::net::UnixStream::from(sys::share(fd)?);
            let client = Pmi1::over_socket(stream, rank, size, timeout)?;
            // `weft run` goes on to answer after a farewell, so its ranks leave at once.
            let is_ours = lookup(ends::VARIABLE).is_some();
            Box::new(if is_ours { client } else { client.until_exit() })
        }
        Launcher::Pmi1Port { address, id } => Box::new(Pmi1::over_tcp(&address, id, timeout)?),
        Launcher::Pmix => Box::new(Pmix::init(timeout)?),
        Launcher::Singleton => Box::new(Singleton::new()?),
    })
}

/// Joins the job and agrees on its key: the key that `weft run` left for the ranks, else a key that
/// rank 0 makes and the others get after a fence. The key is as secret as the launcher's key-value
/// space: `weft run` carries it over pipes and ssh only, other launchers over their own sockets.
///
/// # Errors
/// Returns the errors of [`bootstrap`], or [`LaunchError::BadJobKey`] when the published key is
/// malformed.
pub fn join() -> Result<Bootstrapped, LaunchError> {
    join_by(bootstrap()?)
}

/// Agrees on the key of a job that the caller has connected to, as [`join`] does.
///
/// # Errors
/// The launcher's refusal, or [`LaunchError::BadJobKey`] when the published key is malformed.
pub fn join_by(mut boot: Box<dyn Bootstrap>) -> Result<Bootstrapped, LaunchError> {
    let key = agree_on_key(boot.as_mut())?;
    Ok(Bootstrapped { boot, key })
}

/// Makes a random job key.
///
/// # Errors
/// [`LaunchError::Io`] when the system gives no random bytes.
pub fn random_key() -> Result<[u8; KEY_LEN], LaunchError> {
    let mut key = [0; KEY_LEN];
    fill_random(&mut key)?;
    Ok(key)
}

/// Fills `out` with random bytes fit for a key.
fn fill_random(out: &mut [u8]) -> Result<(), LaunchError> {
    let mut done = 0;
    while done < out.len() {
        let got = retry_on_intr(|| getrandom(&mut out[done..], GetRandomFlags::empty()));
        done += got.map_err(|error| LaunchError::io("getrandom", error.into()))?;
    }
    Ok(())
}

fn agree_on_key(boot: &mut dyn Bootstrap) -> Result<[u8; KEY_LEN], LaunchError> {
    const SHARED: &str = "job-key";
    if let Some(value) = boot.preseeded(JOB_KEY)? {
        return value.try_into().map_err(|_| LaunchError::BadJobKey);
    }
    if boot.size() == 1 {
        return random_key();
    }
    let first = boot.rank() == 0;
    let key = random_key()?;
    // The others put an empty value, so that a fence that times out can name the ranks without a
    // value.
    boot.put(SHARED, if first { &key } else { &[] })?;
    boot.fence()?;
    if first {
        return Ok(key);
    }
    boot.get(0, SHARED)?.try_into().map_err(|_| LaunchError::BadJobKey)
}

fn check_key(key: &str) -> Result<(), LaunchError> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if key.is_empty() || key.len() > 32 || !key.bytes().all(fits) {
        return Err(LaunchError::BadKey { key: key.to_owned() });
    }
    Ok(())
}

fn announce_abort(rank: usize, message: &str) {
    // In one write, since all ranks may write to the same terminal or file.
    let text = format!("weft: rank {rank} aborts the job: {message}\n");
    eprint!("{text}");
}

fn check_rank(rank: usize, size: usize) -> Result<(), LaunchError> {
    if rank >= size {
        return Err(LaunchError::NoSuchRank { rank, size });
    }
    Ok(())
}
