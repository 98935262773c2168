//! Work that goes on with the endpoint's progress, whoever waits for it: the operations of groups
//! that are more than one operation of the endpoint.

use super::{Endpoint, Inner};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Numbers of tasks that have something to do. Shared with wakers, which may go anywhere.
type News = Arc<Mutex<VecDeque<u64>>>;

struct Notice {
    number: u64,
    news: News,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        push(&self.news, self.number);
    }
}

fn push(news: &News, number: u64) {
    news.lock().unwrap_or_else(PoisonError::into_inner).push_back(number);
}

struct Task {
    /// `None` while it runs.
    work: Option<Work>,
    waker: Waker,
    /// It was woken while it ran in a call further out.
    again: bool,
}

/// Tasks of an endpoint.
#[derive(Default)]
pub(super) struct Tasks {
    running: BTreeMap<u64, Task>,
    begun: u64,
    news: News,
}

impl Tasks {
    fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a task has something to do.
    pub fn has_news(&self) -> bool {
        !self.is_empty() && !self.news.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The next task that has something to do.
    fn next(&mut self) -> Option<(u64, Work, Waker)> {
        loop {
            let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
            let number = news.pop_front()?;
            let Some(task) = self.running.get_mut(&number) else { continue };
            match task.work.take() {
                Some(work) => return Some((number, work, task.waker.clone())),
                None => task.again = true,
            }
        }
    }

    /// A task has more to do later. Gives it back where nobody wants it any more.
    fn put_back(&mut self, number: u64, work: Work) -> Option<Work> {
        let Some(task) = self.running.get_mut(&number) else { return Some(work) };
        task.work = Some(work);
        if std::mem::take(&mut task.again) {
            push(&self.news, number);
        }
        None
    }
}

impl Inner {
    /// Notes whether anything above the engine is to be looked at in each round of progress.
    fn note_tasks(&mut self) {
        self.above = self.driver.intake.ports.polled || !self.tasks.is_empty();
    }

    /// A client of the port is to be looked at in each round of progress.
    pub(crate) fn note_polled(&mut self) {
        self.driver.intake.ports.polled = true;
        self.above = true;
    }
}

impl Endpoint {
    /// Begins a task, which has done what it can at once when this returns, and goes on with the
    /// endpoint's progress. Its number.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + 'static) -> u64 {
        let number = {
            let inner = &mut *self.inner.borrow_mut();
            inner.tasks.begun += 1;
            let number = inner.tasks.begun;
            let news = Arc::clone(&inner.tasks.news);
            let waker = Waker::from(Arc::new(Notice { number, news }));
            inner.tasks.running.insert(number, Task { work: None, waker, again: false });
            inner.note_tasks();
            number
        };
        let waker = self.inner.borrow().tasks.running[&number].waker.clone();
        self.run_task(number, Box::pin(work), &waker);
        number
    }

    fn run_task(&self, number: u64, mut work: Work, waker: &Waker) {
        let over = Over(self, number);
        let ended = work.as_mut().poll(&mut Context::from_waker(waker)).is_ready();
        if !ended {
            std::mem::forget(over);
            let unwanted = self.inner.borrow_mut().tasks.put_back(number, work);
            drop(unwanted);
        }
    }

    /// Lets tasks go on that have something to do; true if there was one.
    #[cold]
    pub(super) fn run_tasks(&self) -> bool {
        let mut did = false;
        loop {
            let next = self.inner.borrow_mut().tasks.next();
            let Some((number, work, waker)) = next else { break };
            did = true;
            self.run_task(number, work, &waker);
        }
        did
    }

    /// Whoever waits for any arrival looks again.
    pub(crate) fn wake_arrivals(&self) {
        let all = std::mem::take(&mut self.inner.borrow_mut().driver.intake.outcome.arrivals);
        all.into_iter().for_each(Waker::wake);
    }

    /// Ends a task before its end.
    pub(crate) fn end_task(&self, number: u64) {
        drop(Over(self, number));
    }

    /// Ends all tasks: nothing is exchanged any more.
    pub(super) fn end_tasks(&self) {
        let all = std::mem::take(&mut self.inner.borrow_mut().tasks.running);
        // Each may look at the endpoint when it is dropped.
        drop(all);
        self.inner.borrow_mut().note_tasks();
    }
}

/// A task that ends with this, also where it panics.
struct Over<'a>(&'a Endpoint, u64);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let Ok(mut inner) = self.0.inner.try_borrow_mut() else { return };
        let task = inner.tasks.running.remove(&self.1);
        inner.note_tasks();
        drop(inner);
        drop(task);
    }
}
