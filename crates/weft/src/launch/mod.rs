//! Joining a job: which rank this process is, how many there are, and a key-value space through
//! which the ranks tell each other their addresses.
//!
//! Launching is not weft's business: [`bootstrap`] speaks to whatever started the process, PMI-1
//! (MPICH's Hydra, Slurm, `weft run`) or PMIx (Open MPI's mpirun, prterun, Slurm), and makes a job
//! of one when nothing did. Every wait is bounded by `WEFT_LAUNCH_TIMEOUT` (60 s).

mod env;
mod error;
mod patience;
mod pmi1;
mod pmix;
mod singleton;
mod sys;
pub mod wire;

pub use env::{detect, ranks_here, timeout, Launcher, DEFAULT_TIMEOUT};
pub use error::LaunchError;
pub use pmi1::Pmi1;
pub use pmix::Pmix;
pub use singleton::Singleton;

use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a job key.
pub const KEY_LEN: usize = 32;

/// Name under which a launcher of weft's own leaves the job key, in hexadecimal digits, in the
/// key-value space: there it is in no command line and no environment.
pub const JOB_KEY: &str = "weft-job-key";

/// The connection of one process to its job.
///
/// Values put before a fence can be got by every rank after it. A value is put once. Names have up
/// to 32 of the characters `a-z A-Z 0-9 - _`.
pub trait Bootstrap {
    /// What started the job, in one word: `pmi1`, `pmix` or `none`.
    fn launcher(&self) -> &'static str;

    /// Rank of this process, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks of the job, at least 1.
    fn size(&self) -> usize;

    /// A name of the job that no other running job of this launcher has.
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

    /// A value that `rank` put before the last fence. Costs one exchange with the launcher: ask
    /// when the peer is first used, not for all peers at once.
    ///
    /// # Errors
    /// [`LaunchError::NotPublished`] names the rank that did not put it.
    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError>;

    /// A value the launcher itself put before any rank started.
    ///
    /// # Errors
    /// A launcher that cannot be reached; an absent value is `None`.
    fn preseeded(&mut self, key: &str) -> Result<Option<Vec<u8>>, LaunchError>;

    /// Prints `message`, asks the launcher to end the whole job with this exit code, and ends
    /// this process.
    fn abort(&mut self, code: i32, message: &str) -> !;

    /// Leaves the job in good order; the launcher then takes this process's end for success.
    /// Only the first call does anything.
    ///
    /// # Errors
    /// The launcher ended before, or did not answer.
    fn finalize(&mut self) -> Result<(), LaunchError>;
}

/// A joined job with its key.
pub struct Bootstrapped {
    /// The connection to the job.
    pub boot: Box<dyn Bootstrap>,
    /// Key all ranks share, made for this job.
    pub key: [u8; KEY_LEN],
}

static JOINED: AtomicBool = AtomicBool::new(false);

/// Joins the job this process was started in, by its environment.
///
/// # Errors
/// [`LaunchError::Twice`] on a second call; else what the launcher or the environment did wrong.
pub fn bootstrap() -> Result<Box<dyn Bootstrap>, LaunchError> {
    let lookup = |name: &str| std::env::var(name).ok();
    let launcher = detect(&lookup)?;
    let timeout = timeout(&lookup)?;
    if JOINED.swap(true, Ordering::SeqCst) {
        return Err(LaunchError::Twice);
    }
    Ok(match launcher {
        Launcher::Pmi1Fd { fd, rank, size } => {
            let stream = std::os::unix::net::UnixStream::from(sys::adopt(fd)?);
            Box::new(Pmi1::over_socket(stream, rank, size, timeout)?)
        }
        Launcher::Pmi1Port { address, id } => Box::new(Pmi1::over_tcp(&address, id, timeout)?),
        Launcher::Pmix => Box::new(Pmix::init(timeout)?),
        Launcher::Singleton => Box::new(Singleton::new()?),
    })
}

/// Joins the job and agrees on its key: the one `weft run` left for the ranks, else one that rank
/// 0 makes and the others get after a fence. The key is as secret as the launcher's key-value
/// space: `weft run` carries it over pipes and ssh only, other launchers over their own sockets.
///
/// # Errors
/// As [`bootstrap`]; [`LaunchError::BadJobKey`] when the published key is malformed.
pub fn join() -> Result<Bootstrapped, LaunchError> {
    let mut boot = bootstrap()?;
    let key = agree_on_key(boot.as_mut())?;
    Ok(Bootstrapped { boot, key })
}

/// A fresh random job key.
///
/// # Errors
/// [`LaunchError::Io`] when the system gives no random bytes.
pub fn random_key() -> Result<[u8; KEY_LEN], LaunchError> {
    let mut key = [0; KEY_LEN];
    sys::random(&mut key)?;
    Ok(key)
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
    // The others put an empty value: a fence that times out names the ranks without one.
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
    // In one piece: all ranks may write to the same place.
    let text = format!("weft: rank {rank} aborts the job: {message}\n");
    eprint!("{text}");
}

fn check_rank(rank: usize, size: usize) -> Result<(), LaunchError> {
    if rank >= size {
        return Err(LaunchError::NoSuchRank { rank, size });
    }
    Ok(())
}
