//! Long waits: a rank says for which object it waits, and who else does.

use super::entry::{Blocked, Entry, Where};
use super::runtime::{Inner, Objects};
use crate::net::Net;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

impl<N: Net> Objects<N> {
    /// Describes the objects that operations wait for, one a line, for people.
    pub fn describe(&self) -> String {
        let all = self.inner.directory.all();
        all.iter().filter(|entry| entry.is_awaited()).map(|entry| entry.describe() + "\n").collect()
    }
}

impl<N: Net> Entry<N> {
    fn is_awaited(&self) -> bool {
        !self.blocked.borrow().is_empty() || !self.wakers.borrow().is_empty()
    }

    /// Describes an object and the operations that wait for it here.
    fn describe(&self) -> String {
        let at = match self.place.get() {
            Where::Everywhere => "on every rank".to_string(),
            Where::At(rank) => format!("at rank {rank}"),
            Where::Leaving => "on its way to every rank".to_string(),
            Where::Lost(rank) => format!("lost with rank {rank}"),
        };
        let mut text = format!("object {:#x} ({}), {at}", self.number, self.name);
        let blocked = self.blocked.borrow();
        let mut ranks: Vec<usize> = blocked
            .iter()
            .map(|blocked| match blocked {
                Blocked::Ordered { from, .. } => *from,
                Blocked::Called { request, .. } => request.from(),
            })
            .collect();
        if !ranks.is_empty() {
            ranks.sort_unstable();
            text += &format!(": guards do not hold for operations of ranks {ranks:?}");
        }
        let reads = self.wakers.borrow().len();
        if reads > 0 {
            text += &format!(", {reads} operations here wait for a change");
        }
        text
    }
}

impl<N: Net> Inner<N> {
    /// Waits for an operation, and says so once when that takes long.
    pub async fn patiently<R>(&self, entry: &Rc<Entry<N>>, work: impl Future<Output = R>) -> R {
        let (mut work, warn_after) = (pin!(work), self.net.warn_after());
        let mut timer = None;
        let mut said = warn_after.is_zero();
        poll_fn(|cx| {
            if let Poll::Ready(result) = work.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if !said {
                let timer = timer.get_or_insert_with(|| Box::pin(self.net.sleep(warn_after)));
                if timer.as_mut().poll(cx).is_ready() {
                    said = true;
                    let (rank, what) = (self.net.rank(), entry.describe());
                    let after = warn_after.as_secs_f64();
                    weft::telling::warn!(
                        "rank {rank} waits for {after:.1} s for an operation on {what}"
                    );
                }
            }
            Poll::Pending
        })
        .await
    }
}
