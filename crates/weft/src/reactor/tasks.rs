//! Tasks that the endpoint's progress runs, also if no call waits for them: operations of groups
//! that consist of several operations of the endpoint.

use super::woken::Woken;
use super::{Handle, Reactor};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    /// `None` while it runs.
    work: Option<Work>,
    waker: Waker,
    /// True if it was woken while it ran in an outer call.
    again: bool,
}

/// Tasks of an endpoint.
#[derive(Default)]
pub(super) struct Tasks {
    running: BTreeMap<u64, Task>,
    begun: u64,
    news: Woken,
}

impl Tasks {
    fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// True if a task was woken.
    pub fn has_events(&self) -> bool {
        !self.is_empty() && !self.news.is_empty()
    }

    /// Takes the next woken task.
    fn next(&mut self) -> Option<(u64, Work, Waker)> {
        loop {
            let number = self.news.pop()?;
            let Some(task) = self.running.get_mut(&number) else { continue };
            match task.work.take() {
                Some(work) => return Some((number, work, task.waker.clone())),
                None => task.again = true,
            }
        }
    }

    /// Stores a task that is not done. Returns it if it was ended meanwhile.
    fn put_back(&mut self, number: u64, work: Work) -> Option<Work> {
        let Some(task) = self.running.get_mut(&number) else { return Some(work) };
        task.work = Some(work);
        if std::mem::take(&mut task.again) {
            self.news.push(number);
        }
        None
    }
}

impl Reactor {
    /// Records if tasks or clients need a check in each round of progress.
    fn note_tasks(&mut self) {
        self.above = self.receiver.ports.polled || !self.tasks.is_empty();
    }

    /// Records that a client of the port is to be polled in each round of progress.
    pub fn note_polled(&mut self) {
        self.receiver.ports.polled = true;
        self.above = true;
    }
}

impl Handle {
    /// Begins a task, which runs at once as far as it can, then goes on with progress: also in
    /// calls that do not wait for it. Returns its number.
    pub fn begin_task(&self, work: impl Future<Output = ()> + 'static) -> u64 {
        let number = {
            let reactor = &mut *self.borrow_mut();
            reactor.tasks.begun += 1;
            let number = reactor.tasks.begun;
            let waker = reactor.tasks.news.waker(number);
            reactor.tasks.running.insert(number, Task { work: None, waker, again: false });
            reactor.note_tasks();
            number
        };
        let waker = self.borrow().tasks.running[&number].waker.clone();
        self.run_task(number, Box::pin(work), &waker);
        number
    }

    fn run_task(&self, number: u64, mut work: Work, waker: &Waker) {
        let over = Over(self, number);
        let ended = work.as_mut().poll(&mut Context::from_waker(waker)).is_ready();
        if !ended {
            std::mem::forget(over);
            let unwanted = self.borrow_mut().tasks.put_back(number, work);
            drop(unwanted);
        }
    }

    /// Runs woken tasks. True if there was one.
    #[cold]
    pub fn run_tasks(&self) -> bool {
        let mut did = false;
        loop {
            let next = self.borrow_mut().tasks.next();
            let Some((number, work, waker)) = next else { break };
            did = true;
            self.run_task(number, work, &waker);
        }
        did
    }

    /// Wakes all futures that wait for any arrival.
    pub fn wake_arrivals(&self) {
        let all = std::mem::take(&mut self.borrow_mut().receiver.outcome.arrivals);
        all.into_iter().for_each(Waker::wake);
    }

    /// Ends a task before its end.
    pub fn end_task(&self, number: u64) {
        drop(Over(self, number));
    }

    /// Ends all tasks, since no packet is exchanged any more.
    pub fn end_tasks(&self) {
        let all = std::mem::take(&mut self.borrow_mut().tasks.running);
        // Each may use the endpoint when it is dropped.
        drop(all);
        self.borrow_mut().note_tasks();
    }
}

/// Ends a task when dropped, also after a panic.
struct Over<'a>(&'a Handle, u64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let Ok(mut reactor) = self.0.try_borrow_mut() else { return };
        let task = reactor.tasks.running.remove(&self.1);
        reactor.note_tasks();
        drop(reactor);
        drop(task);
    }
}
