//! Tasks of shared objects: futures that go on when they are woken, under the lock of objects.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// The numbers of tasks that have been woken.
#[derive(Default)]
struct Woken(Mutex<Vec<u64>>);

struct Call {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.woken.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

struct Task {
    work: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

/// The tasks of a rank.
#[derive(Default)]
pub struct Tasks {
    tasks: RefCell<HashMap<u64, Task>>,
    woken: Arc<Woken>,
    begun: Cell<u64>,
}

impl Tasks {
    /// Begins a task, which runs at once as far as it can.
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let waker = Waker::from(Arc::new(Call { number, woken: Arc::clone(&self.woken) }));
        self.go_on(number, Task { work: Box::pin(work), waker });
    }

    fn go_on(&self, number: u64, mut task: Task) {
        let mut cx = Context::from_waker(&task.waker);
        if task.work.as_mut().poll(&mut cx).is_pending() {
            self.tasks.borrow_mut().insert(number, task);
        }
    }

    /// Goes on with those that have been woken.
    pub fn run(&self) {
        loop {
            let woken = {
                let mut woken = self.woken.0.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *woken)
            };
            if woken.is_empty() {
                return;
            }
            for number in woken {
                let task = self.tasks.borrow_mut().remove(&number);
                if let Some(task) = task {
                    self.go_on(number, task);
                }
            }
        }
    }

    /// Drops all tasks.
    pub fn end(&self) {
        let all = self.tasks.take();
        drop(all);
    }
}
