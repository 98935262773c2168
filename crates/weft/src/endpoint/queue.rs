//! A completion queue: operations of which whichever ends first is dealt with first.

use super::{Endpoint, Operation, Status};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use weft_core::OpError;

/// An operation that has ended.
#[derive(Debug)]
pub struct Completed {
    /// What the program gave it, to know it by.
    pub context: u64,
    /// How it ended.
    pub result: Result<Status, OpError>,
    /// Its buffer.
    pub buffer: Vec<u8>,
}

/// Numbers of operations of which there is news. Shared with wakers, which may go anywhere.
type News = Arc<Mutex<VecDeque<u64>>>;

struct Notice {
    number: u64,
    news: News,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.number);
    }
}

/// Collects operations in the order in which they end, each with a context of the program's. It
/// holds as many as are pushed: the program bounds them, as it bounds its buffers. Those that are
/// in it when it is dropped are dropped as futures are: a receive that has not matched is
/// cancelled, all others run to their ends.
///
/// The queue needs no executor: [`poll`](Self::poll) makes progress, and a program that waits for
/// other descriptors too sleeps on [`Endpoint::wait_fd`].
pub struct CompletionQueue {
    endpoint: Endpoint,
    running: HashMap<u64, (Operation, u64, Waker)>,
    ended: VecDeque<Completed>,
    pushed: u64,
    news: News,
}

impl CompletionQueue {
    /// An empty queue of operations of `endpoint`.
    pub fn new(endpoint: &Endpoint) -> CompletionQueue {
        CompletionQueue {
            endpoint: endpoint.clone(),
            running: HashMap::new(),
            ended: VecDeque::new(),
            pushed: 0,
            news: News::default(),
        }
    }

    /// Operations in it: running, or ended and not taken out.
    pub fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// Whether nothing is in it: no call will give anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes over an operation, which has started: it comes out when it has ended, with its buffer
    /// and this context.
    pub fn push(&mut self, operation: Operation, context: u64) {
        self.pushed += 1;
        let news = Arc::clone(&self.news);
        let waker = Waker::from(Arc::new(Notice { number: self.pushed, news }));
        self.look(self.pushed, (operation, context, waker));
    }

    /// Asks an operation for its result, and keeps either.
    fn look(&mut self, number: u64, (mut operation, context, waker): (Operation, u64, Waker)) {
        match Pin::new(&mut operation).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready((result, buffer)) => {
                self.ended.push_back(Completed { context, result, buffer });
            }
            Poll::Pending => {
                self.running.insert(number, (operation, context, waker));
            }
        }
    }

    fn collect(&mut self) {
        loop {
            let next = self.news.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(number) = next else { return };
            if let Some(running) = self.running.remove(&number) {
                self.look(number, running);
            }
        }
    }

    /// The next operation that has ended, if one has; makes progress where none had.
    pub fn poll(&mut self) -> Option<Completed> {
        self.collect();
        if self.ended.is_empty() {
            self.endpoint.progress();
            self.collect();
        }
        self.ended.pop_front()
    }

    /// Waits for the next operation that ends, for at most `timeout`. `None` when there was none,
    /// at once when nothing is in the queue.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Option<Completed> {
        let until = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let next = self.poll();
            if next.is_some() || self.is_empty() {
                return next;
            }
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            self.endpoint.wait(left);
        }
    }
}
