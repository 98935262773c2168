//! Ranks that move to another host while their job runs.
//!
//! | module | content |
//! | --- | --- |
//! | `init` | the first process of a rank's own name space of process numbers |
//! | `leave`, `arrive` | the proxy's part on the host that the rank leaves, and on the other |
//! | `carry` | the process that copies the rank and sends the copy, and the one that receives it |
//! | `obstacles` | the descriptors with which a rank cannot move |
//! | `shared` | files in memory that go along |
//! | `criu` | the program that copies and restores processes |
//! | `ask` | `weft migrate`, and the launcher's socket for it |

pub(super) mod arrive;
pub mod ask;
mod carrier;
pub mod carry;
pub mod criu;
pub(super) mod image;
pub mod init;
pub(super) mod leave;
pub(super) mod obstacles;
pub(super) mod shared;
mod tree;

use serde::{Deserialize, Serialize};
use weft::launch::moving::coordinator::{FromHost, ToHost};

/// An order of the launcher to a proxy, about a move.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Order {
    /// Make room for a copy, which comes under this key (hexadecimal).
    Take { key: String },
    /// Copy the rank, and send it to this place.
    Give { key: String, place: String },
    /// Kill the rank's process.
    End,
    /// The rank goes on where it is.
    Resume { first: u64, last: u64 },
    /// The copy runs.
    Go { first: u64, last: u64 },
    /// There will be no copy.
    Drop,
    /// Only tell what stands against a move from here, or to here.
    Check,
}

impl Order {
    /// Returns an order of the coordinator, for a move with this key.
    pub fn of(order: ToHost, key: &str) -> Order {
        let key = key.to_owned();
        match order {
            ToHost::Take => Order::Take { key },
            ToHost::Give { place } => Order::Give { key, place },
            ToHost::End => Order::End,
            ToHost::Resume { runs } => Order::Resume { first: runs.start, last: runs.end },
            ToHost::Go { runs } => Order::Go { first: runs.start, last: runs.end },
            ToHost::Drop => Order::Drop,
        }
    }
}

/// Word of a proxy, about a move.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum News {
    /// There is room for the copy at this place.
    Taking { place: String },
    /// The rank stands still, so many milliseconds after it was told to.
    Held { ms: f64 },
    /// The rank is copied.
    Copied { bytes: u64 },
    /// This number of bytes has left.
    Sending { bytes: u64 },
    /// The copy stands, as this process.
    Stands { pid: u32 },
    /// The rank's process is dead.
    Dead,
    /// The rank runs.
    Went { untold: usize },
    /// The order cannot be obeyed.
    Failed { why: String },
    /// The rank was to run, and does not.
    Broken { why: String },
    /// This stands against a move: nothing, if empty.
    Checked { why: Vec<String> },
}

impl From<News> for FromHost {
    fn from(news: News) -> FromHost {
        match news {
            News::Taking { place } => FromHost::Taking { place },
            News::Held { .. } => FromHost::Held,
            News::Copied { bytes } => FromHost::Copied { bytes },
            News::Sending { bytes } => FromHost::Sending { bytes },
            News::Stands { .. } => FromHost::Stands,
            News::Dead => FromHost::Dead,
            News::Went { untold } => FromHost::Went { untold },
            News::Failed { why } => FromHost::Failed { why },
            News::Broken { why } => FromHost::Broken { why },
            News::Checked { why } => FromHost::Failed { why: why.join("; ") },
        }
    }
}

/// Name of the variable that asks for ranks that can move.
pub const ASKED: &str = "WEFT_MIGRATABLE";

/// Adds the variables that ranks that can move need, to those of a job.
///
/// # Errors
/// The user chose something with which they cannot move, or a program of an MPI whose ranks cannot.
pub fn check(env: &mut Vec<(String, String)>, program: &str) -> anyhow::Result<()> {
    if let Some(library) = crate::mpi::needs::immovable(program) {
        misuse!(
            "--migratable: {program} uses {library}, and ranks of MPICH alone can move: compile it \
             with MPICH's mpicc, or leave --migratable out"
        );
    }
    let chosen = |name: &str| {
        let named = env.iter().rfind(|(other, _)| other == name).map(|(_, value)| value.clone());
        named.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
    };
    if let Some(links) = chosen("WEFT_LINK").filter(|links| links != "udp") {
        misuse!("--migratable: ranks that can move use the link udp alone, not {links}");
    }
    if chosen("WEFT_SECURITY").is_some_and(|mode| mode == "none") {
        misuse!(
            "--migratable: peers believe a rank's new address, so frames need authentication: not \
             WEFT_SECURITY=none"
        );
    }
    let key = chosen(weft::launch::keyfile::VARIABLE);
    env.push(("WEFT_LINK".into(), "udp".into()));
    if key.is_none() {
        let key = weft::launch::keyfile::format(&weft::launch::random_key()?);
        env.push((weft::launch::keyfile::VARIABLE.into(), key));
    }
    Ok(())
}
