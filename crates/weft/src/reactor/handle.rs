//! A handle of a reactor, by which clients have progress made, are called in it, and sleep.

use super::waiter::Sleeper;
use super::{polling, Call, Reactor, RECV_BUDGET};
use crate::clock::Clock;
use crate::counters::Page;
use std::cell::{BorrowMutError, Ref, RefCell, RefMut};
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use weft_core::{Config, EndpointId, Engine, Instant};
use weft_link::Link;

/// A handle of a reactor. Clones are of the same reactor; it belongs to one thread and takes no
/// lock.
#[derive(Clone)]
pub(crate) struct Handle(Rc<RefCell<Reactor>>);

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Marks a client as busy with a message, until this is dropped: also by a panic.
struct Busy<'a>(&'a Handle, usize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.borrow_mut().receiver.ports.ended(self.1);
    }
}

impl Handle {
    /// Makes a reactor over the given links, best first.
    pub fn new(config: Config, id: EndpointId, clock: Clock, links: Vec<Box<dyn Link>>) -> Handle {
        Handle(Rc::new(RefCell::new(Reactor::new(config, id, clock, links))))
    }

    /// True if no other handle of this reactor exists.
    pub fn is_sole(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Borrows the reactor.
    #[inline]
    pub fn borrow(&self) -> Ref<'_, Reactor> {
        self.0.borrow()
    }

    /// Borrows the reactor alone.
    #[inline]
    pub fn borrow_mut(&self) -> RefMut<'_, Reactor> {
        self.0.borrow_mut()
    }

    /// Borrows the reactor alone, unless it is borrowed.
    pub fn try_borrow_mut(&self) -> Result<RefMut<'_, Reactor>, BorrowMutError> {
        self.0.try_borrow_mut()
    }

    /// Borrows the engine.
    #[inline]
    pub fn engine(&self) -> Ref<'_, Engine> {
        Ref::map(self.0.borrow(), |reactor| &reactor.receiver.engine)
    }

    /// Borrows the engine alone.
    #[inline]
    pub fn engine_mut(&self) -> RefMut<'_, Engine> {
        RefMut::map(self.0.borrow_mut(), |reactor| &mut reactor.receiver.engine)
    }

    /// Returns the time now, by the reactor's clock.
    pub fn now(&self) -> Instant {
        self.borrow().receiver.time.clock.now()
    }

    /// Does all work that is possible now, without waiting. True if anything happened.
    pub fn progress(&self) -> bool {
        self.progress_by(RECV_BUDGET)
    }

    /// Does the work of `progress`, with at most `budget` packets from each link inside the host: a
    /// program that waits for one message can post the receive of the next before the link is
    /// polled for it.
    #[inline]
    pub fn progress_by(&self, budget: usize) -> bool {
        let mut reactor = self.borrow_mut();
        let did = reactor.progress(budget);
        reactor.count(did);
        self.call_back(reactor, did)
    }

    /// Polls links directly between two rounds of a wait: see [`Reactor::poll_closely`].
    #[inline]
    pub fn poll_closely(&self, budget: usize) -> bool {
        let mut reactor = self.borrow_mut();
        reactor.poll_closely(polling::CLOSE_ROUNDS, budget) && self.call_back(reactor, true)
    }

    /// Calls clients, and tasks, for arrived messages. True if there were any, or if `did` is.
    #[inline]
    pub fn call_back<'a>(&'a self, reactor: RefMut<'a, Reactor>, did: bool) -> bool {
        if !reactor.above && reactor.receiver.ports.is_idle() {
            return did;
        }
        drop(reactor);
        let called = self.run_clients();
        let news = self.borrow().tasks.has_events();
        news && self.run_tasks() || called || did
    }

    /// Makes all calls of clients that are due. True if there was any.
    fn run_clients(&self) -> bool {
        let mut did = false;
        loop {
            let next = {
                let ports = &mut self.borrow_mut().receiver.ports;
                if let Some(panic) = ports.panicked() {
                    std::panic::resume_unwind(panic);
                }
                ports.next_call()
            };
            let Some((at, number, client, call)) = next else { break };
            did = true;
            let busy = matches!(call, Call::Arrived(_)).then(|| Busy(self, at));
            client.upcall(self, number, call);
            drop(busy);
        }
        let reactor = &mut *self.borrow_mut();
        if reactor.receiver.has_work() {
            // The clients' calls may have taken long.
            reactor.receiver.tick();
            reactor.flush();
        }
        did
    }

    /// Announces that a thread is about to sleep. False if there is work.
    pub fn prepare(&self, sleeper: Sleeper) -> bool {
        let reactor = &mut *self.borrow_mut();
        reactor.leave_if_copied();
        if reactor.coalesced.deferred_round
            || reactor.absence.unreported
            || reactor.tasks.has_events()
        {
            return false;
        }
        reactor.note_sleep();
        reactor.waiter.sync(sleeper, reactor.links.iter().map(|link| &**link));
        if reactor.receiver.engine.output().blocked() {
            // A full link does not report when it has room again, so the sleep is short.
            let now = reactor.receiver.time.clock.now();
            reactor.waiter.arm(now, Some(now + Duration::from_micros(100)));
        } else {
            reactor.receiver.engine.refine_timeout();
            let timeout = reactor.next_timeout();
            let page = reactor.published.page.as_mut().and_then(Page::note_wait);
            let until = timeout.into_iter().chain(page).min();
            reactor.waiter.arm(reactor.receiver.time.clock.now(), until);
        }
        let links = &mut reactor.links;
        let idle = links.iter_mut().all(|l| l.prepare_wait());
        if !idle {
            links.iter_mut().for_each(|l| l.finish_wait(false));
        }
        reactor.absence.watched = idle;
        reactor.waiter.note_sleep();
        idle
    }

    /// Sets the wake-up of a thread that sleeps on the descriptor, for operations that other
    /// threads have begun. With `at_once` it wakes now.
    pub fn rearm(&self, at_once: bool) {
        let reactor = &mut *self.borrow_mut();
        reactor.receiver.engine.refine_timeout();
        let now = reactor.receiver.time.clock.now();
        let until = if at_once { Some(now) } else { reactor.next_timeout() };
        reactor.waiter.arm(now, until);
    }

    /// Runs a future to its end, and makes progress meanwhile.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut cx = Context::from_waker(&waker);
        let mut at_once = true;
        loop {
            if flag.0.swap(false, Ordering::Relaxed) {
                if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                    if at_once {
                        self.attend();
                    }
                    return out;
                }
                at_once = false;
                if flag.0.load(Ordering::Relaxed) {
                    self.progress();
                    continue;
                }
            }
            // A future may wait for a time, or for another thread.
            self.wait_by(None, RECV_BUDGET, None);
        }
    }
}
