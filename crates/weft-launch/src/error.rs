//! Errors while a job starts.

use std::fmt;
use std::io;

/// The reason why a process could not join its job, or why the job's key-value space refused a
/// call.
#[non_exhaustive]
pub enum LaunchError {
    /// An environment variable of the launcher has an invalid value.
    Environment {
        /// Its name.
        variable: String,
        /// The value found.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// The launcher broke the PMI-1 protocol, or answered with an error.
    Protocol {
        /// The request.
        asked: String,
        /// The answer, and why it is wrong.
        problem: String,
    },
    /// The connection to the launcher closed: the launcher ended.
    LauncherGone {
        /// The activity of this rank at that time.
        during: String,
    },
    /// The launcher did not answer in time.
    Timeout {
        /// The event this rank waited for.
        during: String,
        /// Time of the wait, in seconds.
        seconds: u64,
        /// Ranks known to be late; empty when the launcher cannot tell.
        missing: Vec<usize>,
    },
    /// A rank put no value of this name before the last fence.
    NotPublished {
        /// The rank asked for.
        rank: usize,
        /// The name asked for.
        key: String,
    },
    /// A rank outside the job was asked for.
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// Number of ranks of the job.
        size: usize,
    },
    /// The name of a value is empty, too long, or has characters the launcher cannot carry.
    BadKey {
        /// The name.
        key: String,
    },
    /// The PMIx library could not be loaded.
    NoLibrary {
        /// The names tried, with the loader's answer to each.
        tried: Vec<String>,
    },
    /// A call of the PMIx library failed.
    Pmix {
        /// The function.
        call: &'static str,
        /// Its status.
        status: i32,
        /// The library's text for it.
        text: String,
    },
    /// The job key another rank published is malformed.
    BadJobKey,
    /// This process joined its job already.
    Twice,
    /// The operating system refused something.
    Io {
        /// The operation tried.
        during: String,
        /// Its answer.
        source: io::Error,
    },
}

impl LaunchError {
    pub(crate) fn io(during: &str, source: io::Error) -> Self {
        LaunchError::Io { during: during.to_owned(), source }
    }
}

/// Formats ranks as `1, 2, 5`, at most `limit` of them.
fn list(ranks: &[usize], limit: usize) -> String {
    let mut text = String::new();
    for (at, rank) in ranks.iter().take(limit).enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&rank.to_string());
    }
    if ranks.len() > limit {
        text.push_str(&format!(" and {} more", ranks.len() - limit));
    }
    text
}

fn write_timeout(
    f: &mut fmt::Formatter<'_>,
    during: &str,
    seconds: u64,
    missing: &[usize],
) -> fmt::Result {
    write!(f, "waited {seconds} s in {during}")?;
    if missing.is_empty() {
        write!(f, "; the launcher did not say which ranks are late")?;
    } else {
        let word = if missing.len() == 1 { "rank" } else { "ranks" };
        write!(f, "; {word} {} did not get there", list(missing, 16))?;
    }
    write!(
        f,
        ". See whether every rank runs the same program and reaches its start-up; \
         WEFT_LAUNCH_TIMEOUT=<seconds> waits longer"
    )
}

fn write_no_library(f: &mut fmt::Formatter<'_>, tried: &[String]) -> fmt::Result {
    write!(
        f,
        "the launcher speaks PMIx (PMIX_NAMESPACE is set) but libpmix.so.2 could not be loaded \
         ({}). Install it (Debian, Ubuntu: libpmix2 or libpmix2t64; Fedora, RHEL: pmix), or name \
         the file in WEFT_PMIX_LIBRARY, or start the job with `weft run`",
        tried.join("; ")
    )
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Environment { variable, value, expected } => {
                write!(f, "environment variable {variable}={value:?}: expected {expected}")
            }
            LaunchError::Protocol { asked, problem } => {
                write!(f, "the launcher answered {asked:?} wrongly: {problem}")
            }
            LaunchError::LauncherGone { during } => {
                write!(f, "the launcher closed its connection during {during}: it has ended")
            }
            LaunchError::Timeout { during, seconds, missing } => {
                write_timeout(f, during, *seconds, missing)
            }
            LaunchError::NotPublished { rank, key } => write!(
                f,
                "rank {rank} put no {key:?} at start-up; \
                 does it run the same program and version?"
            ),
            LaunchError::NoSuchRank { rank, size } => {
                write!(f, "rank {rank} does not exist: the job has ranks 0 to {}", size - 1)
            }
            LaunchError::BadKey { key } => {
                write!(f, "{key:?} cannot name a value: use up to 32 of a-z A-Z 0-9 - _")
            }
            LaunchError::NoLibrary { tried } => write_no_library(f, tried),
            LaunchError::Pmix { call, status, text } => {
                write!(f, "{call} failed: {text} ({status})")
            }
            LaunchError::BadJobKey => {
                write!(f, "the job key in the launcher's key-value space is malformed")
            }
            LaunchError::Twice => write!(
                f,
                "this process joined its job already, which a launcher's process does once: keep \
                 the job, and leave it at the end of the program"
            ),
            LaunchError::Io { during, source } => write!(f, "{during}: {source}"),
        }
    }
}

weft_core::readable!(LaunchError);

// Its text has the cause.
impl std::error::Error for LaunchError {}
