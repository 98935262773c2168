//! A thread that copies received bytes to their place, while another one receives more: the overlap
//! of paper 001, section 4.3, by a second processor where no copy engine is.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender, TryRecvError, TrySendError};
use std::sync::Arc;
use weft_link::Held;
use weft_sys::threads::without_signals;

/// Least bytes of a frame for which the thread is asked, as of Open-MX for its copy engine.
pub const FRAME_MIN: usize = 1 << 10;
/// Least bytes of a message for which it is asked, as of Open-MX.
pub const MESSAGE_MIN: usize = 64 << 10;
/// Most copies that wait. More frames would keep places of the ring.
const WAITING_MAX: usize = 32;
/// Looks for work before the thread sleeps.
const SPINS: u32 = 20_000;

/// A copy.
pub struct Job {
    frame: Held,
    from: usize,
    len: usize,
    to: *mut u8,
    pending: Arc<AtomicUsize>,
}

// SAFETY: the memory is that of a program, which lends it to the library; any thread may write it.
unsafe impl Send for Job {}

impl Job {
    /// Makes one, which `pending` counts until it has ended.
    ///
    /// # Safety
    /// `to` has room for the bytes, and is nobody else's until then.
    pub unsafe fn new(
        frame: Held,
        (from, len): (usize, usize),
        to: *mut u8,
        pending: Arc<AtomicUsize>,
    ) -> Job {
        Job { frame, from, len, to, pending }
    }

    /// Copies.
    pub fn run(self) {
        let Job { frame, from, len, to, pending } = self;
        if let Some(bytes) = frame.bytes().get(from..from + len) {
            // SAFETY: promised where it was made; the ring is no memory of a program.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        drop(frame);
        pending.fetch_sub(1, Ordering::Release);
    }
}

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
