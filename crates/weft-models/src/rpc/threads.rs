//! Calls by other threads: one thread, the desk, has the endpoint and handles its messages, as the
//! multi-threaded form of Panda does (paper 004, section 6.1.1). The threads of the program compute
//! meanwhile, and wait on condition variables.
//!
//! The form without this is single-threaded: a rank handles messages in its own calls alone. It
//! saves the two switches of threads that a call by a desk takes.
//!
//! ```no_run
//! use weft_models::net::{Live, Net};
//! use weft_models::rpc::{threads, Rpc};
//!
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let rpc = Rpc::open(&net);
//! rpc.serve(1, |request, args| request.answer(args));
//! let (desk, caller) = threads::open(&rpc)?;
//! let next = (net.rank() + 1) % net.size();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         println!("{:?}", caller.call(next, 1, b"hello"));
//!         caller.close();
//!     });
//!     desk.run();
//! });
//! job.world().barrier_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::{Call, CallError, Cause, Rpc};
use crate::net::Live;
use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which the desk looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(20);

type Ended = Result<Vec<u8>, CallError>;

/// The place of a call's answer.
#[derive(Default)]
struct Slot {
    answer: Mutex<Option<Ended>>,
    came: Condvar,
}

/// A call that a thread has handed in.
struct Job {
    to: usize,
    method: u16,
    args: Vec<u8>,
    slot: Arc<Slot>,
}

struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    /// Readable when there are jobs, if the desk sleeps.
    bell: OwnedFd,
    asleep: AtomicBool,
    closed: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn end(&self, answer: Ended) {
        *locked(&self.answer) = Some(answer);
        self.came.notify_one();
    }

    fn wait(&self) -> Ended {
        let mut answer = locked(&self.answer);
        loop {
            if let Some(answer) = answer.take() {
                return answer;
            }
            answer = self.came.wait(answer).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn ring(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            // Its counter is full only if the desk is about to wake.
            _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

/// Calls of the threads of a program. Clones are for other threads.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
}

impl Caller {
    /// Calls a method of a rank by the desk, and waits for the answer.
    ///
    /// # Errors
    /// Returns the errors of [`Call`], and [`Cause::Closed`] if the desk has ended.
    pub fn call(&self, to: usize, method: u16, args: &[u8]) -> Result<Vec<u8>, CallError> {
        let slot = Arc::<Slot>::default();
        {
            let mut jobs = locked(&self.shared.jobs);
            if self.shared.closed.load(Ordering::SeqCst) {
                return Err(CallError { rank: to, method, cause: Cause::Closed });
            }
            jobs.push_back(Job { to, method, args: args.to_vec(), slot: Arc::clone(&slot) });
        }
        self.shared.ring();
        slot.wait()
    }

    /// Has the desk end when all calls that were handed in have ended. Later calls fail.
    pub fn close(&self) {
        let jobs = locked(&self.shared.jobs);
        self.shared.closed.store(true, Ordering::SeqCst);
        drop(jobs);
        self.shared.ring();
    }
}

/// The thread that has the endpoint.
pub struct Desk {
    rpc: Rpc<Live>,
    shared: Arc<Shared>,
    running: Vec<(Call<Live>, Arc<Slot>)>,
}

/// Opens a desk at this thread, and calls for others.
///
/// # Errors
/// The system gives no descriptor to wake the desk by.
pub fn open(rpc: &Rpc<Live>) -> io::Result<(Desk, Caller)> {
    let shared = Arc::new(Shared {
        jobs: Mutex::default(),
        bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        asleep: AtomicBool::new(false),
        closed: AtomicBool::new(false),
    });
    let desk = Desk { rpc: rpc.clone(), shared: Arc::clone(&shared), running: Vec::new() };
    Ok((desk, Caller { shared }))
}

impl Desk {
    /// Handles messages, and the calls of other threads, until one of them has called
    /// [`Caller::close`] and their calls have ended.
    pub fn run(mut self) {
        let mut idle = None;
        while !self.is_over() {
            let endpoint = self.rpc.net().packets().endpoint();
            if endpoint.progress() | self.begin() | self.end() {
                idle = None;
                continue;
            }
            if idle.get_or_insert_with(Instant::now).elapsed() >= SPIN {
                self.sleep();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.shared.closed.load(Ordering::SeqCst)
            && self.running.is_empty()
            && locked(&self.shared.jobs).is_empty()
    }

    /// Begins the calls that were handed in. True if there were some.
    fn begin(&mut self) -> bool {
        let jobs = std::mem::take(&mut *locked(&self.shared.jobs));
        let found = !jobs.is_empty();
        for Job { to, method, args, slot } in jobs {
            self.running.push((self.rpc.call(to, method, &args), slot));
        }
        found
    }

    /// Ends the calls that have answers. True if there were some.
    fn end(&mut self) -> bool {
        let before = self.running.len();
        self.running.retain_mut(|(call, slot)| match call.take() {
            Some(answer) => {
                slot.end(answer);
                false
            }
            None => true,
        });
        self.running.len() < before
    }

    /// Sleeps until a packet or a job comes.
    fn sleep(&self) {
        let (shared, endpoint) = (&self.shared, self.rpc.net().packets().endpoint());
        let Some(fd) = endpoint.waiting().fd() else { return std::thread::yield_now() };
        shared.asleep.store(true, Ordering::SeqCst);
        // A job that comes from here on rings; a packet makes the descriptor readable.
        let idle = locked(&shared.jobs).is_empty();
        if idle && !self.is_over() && endpoint.waiting().prepare() {
            let mut fds =
                [PollFd::new(&fd, PollFlags::IN), PollFd::new(&shared.bell, PollFlags::IN)];
            // A signal ends the sleep as well.
            _ = poll(&mut fds, None);
            endpoint.waiting().finish();
        }
        shared.asleep.store(false, Ordering::SeqCst);
        _ = rustix::io::read(&shared.bell, &mut [0u8; 8]);
    }
}

impl Drop for Desk {
    /// Calls that wait get an error.
    fn drop(&mut self) {
        let jobs = {
            let mut jobs = locked(&self.shared.jobs);
            self.shared.closed.store(true, Ordering::SeqCst);
            std::mem::take(&mut *jobs)
        };
        for Job { to, method, slot, .. } in jobs {
            slot.end(Err(CallError { rank: to, method, cause: Cause::Closed }));
        }
        for (call, slot) in self.running.drain(..) {
            slot.end(Err(call.closed()));
        }
    }
}
