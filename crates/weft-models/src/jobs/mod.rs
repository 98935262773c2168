//! Jobs that are pushed to the ranks which own their data.
//!
//! A job is a value of some bytes, and one rank owns it, by a function of the job: *owner
//! computes*. Doing a job makes others, which are pushed to their owners. Nobody waits for an
//! answer, so the way between ranks hides behind work. The run ends when no rank has a job left and
//! none is on its way. This is the model of transposition-driven scheduling (Romein, Plaat, Bal,
//! Schaeffer, 1999), in which the owner of a position has its entry of the transposition table.
//!
//! The parts are usable alone: [`Aggregator`] gathers short records into messages,
//! [`Quiescence`] finds the end of work that is spread over ranks, [`Table`] remembers what has
//! been done here, and [`Jobs`] joins the first two.
//!
//! ```no_run
//! use weft_models::jobs::Jobs;
//! use weft_models::net::{Blocking, Live, Net};
//! use weft_models::together::Together;
//!
//! // Counts the numbers below a million that are reached by n -> 2n and n -> 3n + 1.
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let together = Together::open(&net, 0);
//! let jobs = Jobs::<_, u64>::open(&net, 0, 64);
//! let ranks = net.size();
//! let owner = move |n: &u64| *n as usize % ranks;
//! let mut seen = vec![false; 1_000_000 / ranks + 1];
//! if owner(&1) == net.rank() {
//!     jobs.push(net.rank(), &1);
//! }
//! net.block_on(jobs.run(|n, next| {
//!     if !std::mem::replace(&mut seen[n as usize / ranks], true) {
//!         for m in [2 * n, 3 * n + 1].into_iter().filter(|m| *m < 1_000_000) {
//!             next.push(owner(&m), &m);
//!         }
//!     }
//! }))?;
//! let mine = seen.iter().filter(|seen| **seen).count() as u64;
//! let add = |all: Vec<u8>, other: &[u8]| {
//!     let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
//!     (number(&all) + number(other)).to_le_bytes().to_vec()
//! };
//! let all = net.block_on(together.reduce(mine.to_le_bytes().to_vec(), add))?;
//! println!("{} numbers", u64::from_le_bytes(all[..].try_into()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aggregator;
mod queue;
mod quiescence;
mod table;

pub use crate::regions::Item;
pub use aggregator::Aggregator;
pub use queue::{Done, Jobs, Next};
pub use quiescence::Quiescence;
pub use table::Table;

/// Number of queues that a rank may have at a time: they have numbers below this.
pub const QUEUES: u16 = 256;

/// Returns the handlers of the messages and of the waves of a number.
///
/// # Panics
/// The number is too large.
fn handlers(number: u16) -> (u16, u16) {
    assert!(number < QUEUES, "queues of jobs have numbers below {QUEUES}");
    let first = crate::QUEUE_HANDLERS + 2 * number;
    (first, first + 1)
}
