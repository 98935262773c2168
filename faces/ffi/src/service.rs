//! Waiting, and the thread that serves an object while its program does something else.
//!
//! A thread of the program that waits makes progress itself, for all: it leads. While the program
//! calls without waiting, its calls make progress. Otherwise the thread of the object sleeps on the
//! endpoint, so that writes of others arrive, silent peers are noticed, and handlers are called. It
//! looks for calls of the program only while there are some; nobody's wait takes time of a
//! processor.

use crate::lock::{self, Bells, Face, Inside, Leader, Slot};
use crate::sys::bell;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft_sys::threads::without_signals;

/// Time without a call after which the thread takes over.
const TICK: Duration = Duration::from_millis(5);
/// Longest time for which a wait polls before it sleeps, and holds the lock: that of some 256 KiB
/// between processes.
const SPIN: Duration = Duration::from_micros(50);
/// Longest wait for another thread's progress, after which the thread looks again.
const FOLLOW: Duration = Duration::from_secs(3600);

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// None.
    Never,
    /// After this time, which runs from the second look on: most waits end before, and need no look
    /// at the clock.
    In(Duration),
    /// At this time.
    At(Instant),
}

impl From<Option<Instant>> for Until {
    fn from(end: Option<Instant>) -> Until {
        end.map_or(Until::Never, Until::At)
    }
}

impl Until {
    /// Returns the time that is left; none if the wait has no end.
    #[inline]
    fn left(&self) -> Option<Duration> {
        match self {
            Until::Never => None,
            Until::In(time) => Some(*time),
            Until::At(end) => Some(end.saturating_duration_since(Instant::now())),
        }
    }

    /// Lets the time run.
    fn runs(&mut self) {
        if let Until::In(time) = self {
            *self = Instant::now().checked_add(*time).into();
        }
    }
}

impl<F: Face> Inside<F> {
    /// Makes one round of progress. True if anything happened.
    ///
    /// # Errors
    /// The object was closed meanwhile.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, F::Code> {
        let is_service = self.is_service;
        let seat = self.seat()?;
        seat.relieve();
        seat.rounds += u64::from(!is_service);
        let asleep = seat.leader == Leader::Program { asleep: true };
        if asleep {
            seat.face.endpoint().waiting().finish();
        }
        Ok(seat.round())
    }

    /// Calls `f` in place of a round of progress. `None` if another thread makes progress.
    ///
    /// # Errors
    /// The object was closed meanwhile.
    #[inline]
    pub fn in_place<R>(&mut self, f: impl FnOnce(&mut F) -> R) -> Result<Option<R>, F::Code> {
        let seat = self.seat()?;
        if seat.leader != Leader::Nobody {
            return Ok(None);
        }
        seat.rounds += 1;
        Ok(Some(f(&mut seat.face)))
    }

    /// Makes progress until `look` finds something.
    ///
    /// # Errors
    /// `TIMEOUT`: the time is over; `CLOSED`: the object was closed.
    pub fn wait<R>(
        &mut self,
        until: impl Into<Until>,
        mut look: impl FnMut(&mut Inside<F>) -> Result<Option<R>, F::Code>,
    ) -> Result<R, F::Code> {
        let (mut until, mut made_progress, mut has_waited) = (until.into(), false, false);
        loop {
            if !made_progress {
                self.progress()?;
            }
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if std::mem::replace(&mut has_waited, true) {
                until.runs();
            }
            let left = until.left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(F::TIMEOUT);
            }
            let seat = self.seat()?;
            made_progress = match seat.leader {
                Leader::Program { .. } => {
                    seat.followers += 1;
                    let alive = self.follow(left.unwrap_or(FOLLOW));
                    self.find().into_iter().for_each(|seat| seat.followers -= 1);
                    if !alive {
                        return Err(F::CLOSED);
                    }
                    false
                }
                Leader::Nobody | Leader::Service => self.lead(&mut until)?,
            };
        }
    }

    /// Makes progress for all until something happened, or sleeps once. True if it made progress.
    fn lead(&mut self, until: &mut Until) -> Result<bool, F::Code> {
        let seat = self.seat()?;
        seat.leader = Leader::Program { asleep: false };
        let did = seat.face.endpoint().waiting().wait_awake(SPIN);
        seat.face.reap();
        let polls_on = !did && seat.face.endpoint().waiting().polls_always();
        if did || polls_on || !seat.prepare_wait() {
            self.end_lead(false)?;
            return match polls_on {
                true => self.let_others_in().map(|()| false),
                false => Ok(did),
            };
        }
        let bells = Arc::clone(&seat.bells);
        let fd = seat.face.endpoint().waiting().fd().map_or(-1, |fd| fd.as_raw_fd());
        until.runs();
        self.unlock_to_sleep();
        bell::wait(&[fd, bells.leader.fd()], until.left());
        bells.leader.hush();
        match self.lock() {
            true => self.end_lead(true).map(|()| false),
            false => Err(F::CLOSED),
        }
    }

    /// Lets other threads use the object for a moment.
    ///
    /// # Errors
    /// The object was closed meanwhile.
    fn let_others_in(&mut self) -> Result<(), F::Code> {
        self.unlock();
        std::thread::yield_now();
        match self.lock() {
            true => Ok(()),
            false => Err(F::CLOSED),
        }
    }

    /// Ends the lead of this thread.
    fn end_lead(&mut self, slept: bool) -> Result<(), F::Code> {
        let slot = self.slot();
        let seat = self.seat()?;
        seat.leader = Leader::Nobody;
        if slept {
            seat.face.endpoint().waiting().finish();
        }
        if seat.followers > 0 {
            // One of them leads on.
            slot.changed.notify_all();
        }
        if std::mem::take(&mut seat.stands_by) {
            seat.bells.service.ring();
        }
        Ok(())
    }
}

/// The next sleep of the thread.
enum Nap {
    /// None: there is work.
    None,
    /// Until it is woken, or for a time.
    Bell(Option<Duration>),
    /// Until the endpoint has work, or it is woken.
    Endpoint(RawFd),
}

/// Starts the thread of an object. False if the system has none.
pub(crate) fn start<F: Face>(slot: &'static Slot<F>, generation: u32, bells: Arc<Bells>) -> bool {
    let run = move || serve(slot, generation, &bells);
    let builder = std::thread::Builder::new().name(format!("weft-{}", F::NAME));
    match without_signals(|| builder.spawn(run)) {
        Ok(_) => true,
        Err(why) => {
            log::error!("no thread that makes progress: {why}");
            false
        }
    }
}

fn serve<F: Face>(slot: &'static Slot<F>, generation: u32, bells: &Bells) {
    let mut seen = (0, 0);
    loop {
        let Some(mut inside) = lock::serve(slot, generation) else { return };
        if let Some(call) = inside.find().and_then(|seat| seat.face.next_call()) {
            drop(inside);
            F::run(call);
            continue;
        }
        let nap = inside.choose(&mut seen);
        drop(inside);
        match nap {
            Nap::None => continue,
            Nap::Bell(time) => bell::wait(&[bells.service.fd()], time),
            Nap::Endpoint(fd) => bell::wait(&[fd, bells.service.fd()], None),
        }
        bells.service.hush();
        let Some(mut inside) = lock::serve(slot, generation) else { return };
        let Some(seat) = inside.find().filter(|seat| seat.leader == Leader::Service) else {
            continue;
        };
        seat.leader = Leader::Nobody;
        seat.face.endpoint().waiting().finish();
        let _closed = inside.progress();
    }
}

impl<F: Face> Inside<F> {
    /// Chooses the next sleep of the thread; makes progress first, if nobody else does.
    fn choose(&mut self, seen: &mut (u64, u64)) -> Nap {
        let Some(seat) = self.find() else { return Nap::None };
        let before = std::mem::replace(seen, (seat.calls, seat.rounds));
        let (called, progressed) = (before.0 != seat.calls, before.1 != seat.rounds);
        if matches!(seat.leader, Leader::Program { .. }) {
            seat.stands_by = !called;
            return Nap::Bell(called.then_some(TICK));
        }
        if called && !seat.face.has_handlers() {
            // A program may call without making progress.
            let _closed = (!progressed).then(|| self.progress());
            return Nap::Bell(Some(TICK));
        }
        if self.progress().unwrap_or(true) {
            return Nap::None;
        }
        let Some(seat) = self.find() else { return Nap::None };
        if seat.face.is_call_due() || !seat.prepare_wait() {
            return Nap::None;
        }
        let Some(fd) = seat.face.endpoint().waiting().fd().map(|fd| fd.as_raw_fd()) else {
            seat.face.endpoint().waiting().finish();
            return Nap::Bell(Some(TICK));
        };
        seat.leader = Leader::Service;
        Nap::Endpoint(fd)
    }
}
