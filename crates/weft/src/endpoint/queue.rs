//! A completion queue: operations come out in the order in which they end.

use super::{Endpoint, Operation, Status};
use crate::reactor::woken::Woken;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use weft_core::OpError;

/// An operation that has ended.
#[derive(Debug)]
pub struct Completed {
    /// The program's context of the operation.
    pub context: u64,
    /// The result.
    pub result: Result<Status, OpError>,
    /// The operation's buffer.
    pub buffer: Vec<u8>,
}

/// Collects operations in the order in which they end, each with a context of the program. The
/// program bounds the number of operations in the queue, as it bounds its buffers. Dropping the
/// queue drops its operations like futures: a receive that has not matched is cancelled, all others
/// run to their ends.
///
/// The queue needs no executor: [`poll`](Self::poll) makes progress, and a program that waits for
/// other descriptors too sleeps on [`Waiting::fd`](super::Waiting::fd).
///
/// ```
/// use weft::CompletionQueue;
/// # let id = weft::EndpointId(7);
/// # let links: Vec<Box<dyn weft_link::Link>> = vec![Box::new(weft::SelfLink::new(id))];
/// # let (config, clock) = (weft::Config::default(), weft::Clock::system());
/// # let endpoint = weft::Endpoint::with_links(config, id, clock, links);
/// # let peer = endpoint.connect(&endpoint.address())?;
///
/// let mut queue = CompletionQueue::new(&endpoint);
/// for tag in 0..10 {
///     // The last argument is a number of the program's, which comes back with the operation.
///     queue.push(endpoint.recv(Some(peer), tag, 0, vec![0; 8]), tag);
///     queue.push(endpoint.send(peer, tag, vec![tag as u8; 8]), 100 + tag);
/// }
/// while let Some(done) = queue.wait(None) {
///     let status = done.result?;
///     if done.context < 100 {
///         assert_eq!((status.tag, done.buffer), (done.context, vec![done.context as u8; 8]));
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CompletionQueue {
    endpoint: Endpoint,
    running: HashMap<u64, (Operation, u64, Waker)>,
    ended: VecDeque<Completed>,
    pushed: u64,
    news: Woken,
}

impl CompletionQueue {
    /// Makes an empty queue of operations of `endpoint`.
    pub fn new(endpoint: &Endpoint) -> CompletionQueue {
        CompletionQueue {
            endpoint: endpoint.clone(),
            running: HashMap::new(),
            ended: VecDeque::new(),
            pushed: 0,
            news: Woken::default(),
        }
    }

    /// Returns the number of operations in the queue: running, or ended and not taken out.
    pub fn len(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// True if no operation is in the queue, so no call will return one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an operation, which has started: it comes out when it has ended, with its buffer and
    /// this context.
    pub fn push(&mut self, operation: Operation, context: u64) {
        self.pushed += 1;
        let waker = self.news.waker(self.pushed);
        self.poll_one(self.pushed, (operation, context, waker));
    }

    /// Polls an operation, and stores its result, or the operation itself.
    fn poll_one(&mut self, number: u64, (mut operation, context, waker): (Operation, u64, Waker)) {
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
        while let Some(number) = self.news.pop() {
            if let Some(running) = self.running.remove(&number) {
                self.poll_one(number, running);
            }
        }
    }

    /// Returns the next ended operation, if there is one; makes progress if there was none.
    pub fn poll(&mut self) -> Option<Completed> {
        self.collect();
        if self.ended.is_empty() {
            self.endpoint.progress();
            self.collect();
        }
        self.ended.pop_front()
    }

    /// Waits for the next operation that ends, for at most `timeout`. `None` after the timeout, and
    /// at once if the queue is empty.
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
