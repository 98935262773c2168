//! A bounded queue between two futures of one task, and a function that drives both.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A bounded queue with one producer and one consumer in the same thread.
pub(crate) struct Pipe<T> {
    state: RefCell<State<T>>,
    capacity: usize,
}

struct State<T> {
    items: VecDeque<T>,
    /// The side that waits: the consumer of an empty queue or the producer of a full one, never
    /// both.
    waiting: Option<Waker>,
}

impl<T> Pipe<T> {
    /// Makes an empty queue for at most `capacity` items; at least one.
    pub(crate) fn new(capacity: usize) -> Pipe<T> {
        let items = VecDeque::with_capacity(capacity);
        Pipe { state: RefCell::new(State { items, waiting: None }), capacity: capacity.max(1) }
    }

    /// Appends an item, once there is room.
    pub(crate) async fn push(&self, item: T) {
        let mut item = Some(item);
        poll_fn(|cx| {
            let full = self.state.borrow().items.len() == self.capacity;
            self.step(cx, !full, |items| items.extend(item.take()))
        })
        .await
    }

    /// Removes the oldest item, once there is one.
    pub(crate) async fn pop(&self) -> T {
        poll_fn(|cx| {
            let empty = self.state.borrow().items.is_empty();
            self.step(cx, !empty, |items| items.pop_front().expect("not empty"))
        })
        .await
    }

    fn step<R>(
        &self,
        cx: &Context<'_>,
        possible: bool,
        change: impl FnOnce(&mut VecDeque<T>) -> R,
    ) -> Poll<R> {
        let mut state = self.state.borrow_mut();
        if !possible {
            state.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let result = change(&mut state.items);
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
        Poll::Ready(result)
    }
}

/// Drives both futures until both succeed, or until one fails: the other is then dropped, since it
/// may be waiting for the one that failed.
pub(crate) async fn both<E>(
    a: impl Future<Output = Result<(), E>>,
    b: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut a_done, mut b_done) = (false, false);
    poll_fn(move |cx| {
        if !a_done {
            if let Poll::Ready(result) = a.as_mut().poll(cx) {
                result?;
                a_done = true;
            }
        }
        if !b_done {
            if let Poll::Ready(result) = b.as_mut().poll(cx) {
                result?;
                b_done = true;
            }
        }
        if a_done && b_done {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::Arc;
    use std::task::Wake;

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Polls only when woken; a lost wake-up fails the test instead of hanging it.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut future = pin!(future);
        loop {
            assert!(flag.0.swap(false, Ordering::Relaxed), "nobody will wake this task");
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return value;
            }
        }
    }

    #[test]
    fn pipe__passes_everything_in_order_whichever_end_is_polled_first() {
        for capacity in [0, 1, 2, 7] {
            for producer_first in [true, false] {
                let pipe = Pipe::new(capacity);
                let produce = async {
                    for i in 0..100 {
                        pipe.push(i).await;
                    }
                    Ok::<(), ()>(())
                };
                let consume = async {
                    for i in 0..100 {
                        assert!(pipe.state.borrow().items.len() <= capacity.max(1));
                        assert_eq!(pipe.pop().await, i);
                    }
                    Ok(())
                };
                let result = if producer_first {
                    block_on(both(produce, consume))
                } else {
                    block_on(both(consume, produce))
                };
                assert_eq!(result, Ok(()));
            }
        }
    }

    #[test]
    fn both__a_failure_ends_the_side_that_waits() {
        let pipe = Pipe::<u8>::new(1);
        let wait = async {
            pipe.pop().await;
            Ok(())
        };
        assert_eq!(block_on(both(wait, async { Err("failed") })), Err("failed"));
        let wait = async {
            pipe.pop().await;
            Ok(())
        };
        assert_eq!(block_on(both(async { Err("failed") }, wait)), Err("failed"));
    }
}
