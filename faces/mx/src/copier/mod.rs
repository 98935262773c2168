//! A thread that copies received bytes to their place, while another one receives more: the overlap
//! of paper 001, section 4.3, by a second processor where no copy engine is.

#[allow(unsafe_code)]
mod sys;

pub use sys::Job;

use std::sync::mpsc::{sync_channel, SyncSender, TryRecvError, TrySendError};
use weft_sys::threads::without_signals;

/// Least bytes of a frame for which the thread is asked, as of Open-MX for its copy engine.
pub const FRAME_MIN: usize = 1 << 10;
/// Least bytes of a message for which it is asked, as of Open-MX.
pub const MESSAGE_MIN: usize = 64 << 10;
/// Most copies that wait. More frames would keep places of the ring.
const WAITING_MAX: usize = 32;
/// Looks for work before the thread sleeps.
const SPINS: u32 = 20_000;

/// The thread.
pub struct Copier(SyncSender<Job>);

impl Copier {
    /// Starts it; it ends with this value. `None` if the system has no thread.
    pub fn start() -> Option<Copier> {
        let (jobs, work) = sync_channel::<Job>(WAITING_MAX);
        let run = move || loop {
            let mut spins = 0;
            let next = loop {
                match work.try_recv() {
                    Err(TryRecvError::Empty) if spins < SPINS => spins += 1,
                    Err(TryRecvError::Empty) => break work.recv().ok(),
                    Err(TryRecvError::Disconnected) => break None,
                    Ok(job) => break Some(job),
                }
                std::hint::spin_loop();
            };
            let Some(job) = next else { return };
            job.run();
        };
        let builder = std::thread::Builder::new().name("weft-mx-copy".into());
        without_signals(|| builder.spawn(run)).ok()?;
        Some(Copier(jobs))
    }

    /// Lets the thread copy; copies itself if too much waits.
    pub fn give(&self, job: Job) {
        match self.0.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => job.run(),
        }
    }
}
