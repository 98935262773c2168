//! Waiting for two things at once.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::Poll;

/// Drives both futures until both are done.
///
/// A rank must receive while its own sends are under way: with large rows a send ends only when the
/// neighbour receives, and the neighbour may be sending to us.
pub(crate) async fn join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(move |cx| {
        if left.is_none() {
            if let Poll::Ready(value) = a.as_mut().poll(cx) {
                left = Some(value);
            }
        }
        if right.is_none() {
            if let Poll::Ready(value) = b.as_mut().poll(cx) {
                right = Some(value);
            }
        }
        match (left.take(), right.take()) {
            (Some(l), Some(r)) => Poll::Ready((l, r)),
            (l, r) => {
                (left, right) = (l, r);
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::cell::Cell;
    use std::task::{Context, Waker};

    #[test]
    fn join__each_side_may_need_the_other() {
        let (a_done, b_done) = (Cell::new(false), Cell::new(false));
        let wait = |flag: &Cell<bool>| if flag.get() { Poll::Ready(()) } else { Poll::Pending };
        let a = async {
            a_done.set(true);
            poll_fn(|_| wait(&b_done)).await;
            1
        };
        let b = async {
            poll_fn(|_| wait(&a_done)).await;
            b_done.set(true);
            2
        };
        let mut both = pin!(join(a, b));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(both.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(both.as_mut().poll(&mut cx), Poll::Ready((1, 2)));
    }
}
