//! Futures side by side in one task.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::Poll;

/// Runs all futures, polled in their order, and returns their results in that order.
/// Every future is polled at each wake-up: meant for tens, not thousands.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, result) in running.iter_mut().zip(&mut results) {
            if result.is_none() {
                if let Poll::Ready(value) = future.as_mut().poll(cx) {
                    *result = Some(value);
                }
            }
        }
        if results.iter().all(Option::is_some) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    results.into_iter().flatten().collect()
}
