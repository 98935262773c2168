//! The failures of other ranks, without whose parts no vector becomes whole.

use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use weft_apps::Failure;
use weft_models::net::{Net, RankFailure};
use weft_models::objects::ObjectError;

/// The first failure, and the program that waits for an operation meanwhile.
#[derive(Default)]
struct Lost {
    first: Option<RankFailure>,
    waker: Option<Waker>,
}

/// Notices the failure and the silence of all other ranks until it is dropped. The object lives on
/// without a rank that has failed, but its guards would never hold again.
pub(crate) struct Watch<N: Net> {
    net: N,
    /// The ranks whose silence it notices.
    expected: Vec<usize>,
    lost: Rc<RefCell<Lost>>,
}

impl<N: Net> Watch<N> {
    pub fn new(net: &N) -> Watch<N> {
        let lost = Rc::<RefCell<Lost>>::default();
        let weak = Rc::downgrade(&lost);
        net.on_failure(move |failure| {
            if let Some(lost) = weak.upgrade() {
                let mut lost = lost.borrow_mut();
                lost.first.get_or_insert(failure);
                lost.waker.take().into_iter().for_each(Waker::wake);
            }
        });
        let others = || (0..net.size()).filter(|rank| *rank != net.rank());
        // Failures before this were told to nobody.
        let failed = others().find_map(|rank| net.failure(rank));
        lost.borrow_mut().first = failed;
        let expected = others().filter(|rank| net.expect(*rank)).collect();
        Watch { net: net.clone(), expected, lost }
    }

    /// Waits for an operation, as long as all ranks live.
    pub async fn until<T>(
        &self,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, Failure> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done.map_err(Failure::Object));
            }
            let mut lost = self.lost.borrow_mut();
            if let Some(failure) = &lost.first {
                return Poll::Ready(Err(Failure::Rank(failure.clone())));
            }
            lost.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<N: Net> Drop for Watch<N> {
    fn drop(&mut self) {
        self.expected.iter().for_each(|rank| self.net.unexpect(*rank));
    }
}
