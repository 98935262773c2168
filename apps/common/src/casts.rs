//! Broadcasts of any rank to all others, each with a number.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use weft_models::net::{Net, RankFailure};
use weft_models::order::{Options, OrderError, OrderedGroup};

/// The broadcasts that have come and are not taken, and the futures that wait for one.
#[derive(Default)]
struct Come {
    casts: BTreeMap<u64, Vec<u8>>,
    wakers: Vec<Waker>,
}

impl Come {
    fn wake(&mut self) {
        std::mem::take(&mut self.wakers).into_iter().for_each(Waker::wake);
    }
}

/// Broadcasts among all ranks of a net: multicasts without an order among ranks, which their
/// receivers take by number.
pub struct Casts<N: Net> {
    net: N,
    group: OrderedGroup<N>,
    come: Rc<RefCell<Come>>,
}

impl<N: Net> Casts<N> {
    /// Opens the broadcasts of all ranks, which call this with the same number (0 to 6).
    ///
    /// # Errors
    /// The ranks do not find each other.
    pub async fn open(net: &N, number: u16) -> Result<Casts<N>, RankFailure> {
        let all: Vec<usize> = (0..net.size()).collect();
        let group = OrderedGroup::open(net, number, &all, Options::at_once());
        let come = Rc::<RefCell<Come>>::default();
        let into = Rc::clone(&come);
        group.on_cast(move |(_, bytes): (usize, Vec<u8>)| {
            let Some((number, rest)) = bytes.split_first_chunk() else { return };
            let mut come = into.borrow_mut();
            come.casts.insert(u64::from_le_bytes(*number), rest.to_vec());
            come.wake();
        });
        let waits = Rc::clone(&come);
        net.on_failure(move |_| waits.borrow_mut().wake());
        let casts = Casts { net: net.clone(), group, come };
        let view = casts.group.view_when(|_| true).await;
        view.map_err(|error| casts.failure(&error))?;
        Ok(casts)
    }

    /// Sends a broadcast, with a number that no other has.
    ///
    /// # Errors
    /// This rank is cut off from the others.
    pub async fn send(&self, number: u64, bytes: &[u8]) -> Result<(), RankFailure> {
        let message = [&number.to_le_bytes(), bytes].concat();
        loop {
            match self.group.cast(&message) {
                Err(OrderError::Busy) => self.net.yield_now().await,
                other => return other.map_err(|error| self.failure(&error)),
            }
        }
    }

    /// Waits for the broadcast of a number, which rank `from` sends.
    ///
    /// # Errors
    /// The rank has failed.
    pub async fn receive(&self, from: usize, number: u64) -> Result<Vec<u8>, RankFailure> {
        let expects = self.net.expect(from);
        let found = poll_fn(|cx| {
            let mut come = self.come.borrow_mut();
            if let Some(bytes) = come.casts.remove(&number) {
                return Poll::Ready(Ok(bytes));
            }
            if let Some(failure) = self.net.failure(from) {
                return Poll::Ready(Err(failure));
            }
            come.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
        if expects {
            self.net.unexpect(from);
        }
        found
    }

    fn failure(&self, error: &OrderError) -> RankFailure {
        RankFailure { rank: self.net.rank(), certain: false, why: error.to_string() }
    }
}
