//! The tasks of a node.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks that have been woken, in order.
#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    fn with<R>(&self, change: impl FnOnce(&mut VecDeque<u64>) -> R) -> R {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Woken {
    ready: Arc<Ready>,
    task: u64,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.ready.with(|ready| {
            if !ready.contains(&self.task) {
                ready.push_back(self.task);
            }
        });
    }
}

/// Tasks that run in turn.
#[derive(Default)]
pub(super) struct Tasks {
    works: RefCell<BTreeMap<u64, (Work, Waker)>>,
    ready: Arc<Ready>,
    next: Cell<u64>,
}

impl Tasks {
    /// Adds a task; it runs with the next ones that are ready.
    pub fn add(&self, work: Work) {
        let task = self.next.replace(self.next.get() + 1);
        let waker = Waker::from(Arc::new(Woken { ready: Arc::clone(&self.ready), task }));
        self.works.borrow_mut().insert(task, (work, waker.clone()));
        waker.wake();
    }

    /// True if a task may go on.
    pub fn has_ready(&self) -> bool {
        self.ready.with(|ready| !ready.is_empty())
    }

    /// Runs the tasks that are ready now, and those that they begin.
    pub fn run_ready(&self) {
        let (mut left, first_new) = (self.ready.with(|ready| ready.len()), self.next.get());
        while let Some(task) = self.ready.with(VecDeque::pop_front) {
            let Some((mut work, waker)) = self.works.borrow_mut().remove(&task) else { continue };
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.works.borrow_mut().insert(task, (work, waker));
            }
            // One that woke itself waits for the next turn; a new one does not.
            left = left.saturating_sub(usize::from(task < first_new));
            let goes_on = self.ready.with(|ready| ready.front().is_some_and(|at| *at >= first_new));
            if left == 0 && !goes_on {
                break;
            }
        }
    }

    /// Drops all tasks.
    pub fn clear(&self) {
        let works = self.works.take();
        drop(works);
    }
}
