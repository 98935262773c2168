//! Receives of messages whose length is not known before: they claim the message when it is there.

use super::{Endpoint, Operation, Status};
use std::task::{Context, Poll};
use weft_core::event::Probed;
use weft_core::{OpError, PeerId};

impl Endpoint {
    /// Receives a message whose length is not known before, of at most `max_len` bytes.
    pub async fn recv_sized(
        &self,
        from: Option<PeerId>,
        tag: u64,
        ignore: u64,
        max_len: usize,
    ) -> Result<(Status, Vec<u8>), OpError> {
        let mut watch = None;
        let always = || true;
        self.recv_sized_unless((from, tag, ignore), max_len, always, |_| {
            if watch.is_none() {
                watch = from.and_then(|peer| self.peer(peer).watch());
            }
            let peer = from?;
            Some(OpError::Peer { peer, failure: self.peer(peer).failure()? })
        })
        .await
    }

    /// Receives a message whose length is not known before; waits until `may` is true (no earlier
    /// receive may get the message), and gives up when `hopeless` returns a reason. `hopeless` is
    /// asked while there is no message, whenever something happened: a packet came, a peer failed,
    /// or `hopeless` itself had the waker called.
    pub(crate) async fn recv_sized_unless(
        &self,
        of: (Option<PeerId>, u64, u64),
        max_len: usize,
        may: impl Fn() -> bool,
        hopeless: impl FnMut(&mut Context<'_>) -> Option<OpError>,
    ) -> Result<(Status, Vec<u8>), OpError> {
        let (result, buffer) = self.recv_once_there(of, max_len, may, hopeless).await?.await;
        result.map(|status| (status, buffer))
    }

    /// True if a message has arrived that has met no receive.
    pub(crate) fn has_arrived(&self) -> bool {
        self.reactor.engine().matching().has_unexpected()
    }

    /// Returns the oldest message with these match bits that has arrived and met no receive.
    pub(crate) fn arrived(&self, tag: u64) -> Option<Probed> {
        self.reactor.engine().matching().probe(None, tag, 0)
    }

    /// Receives all messages with these match bits that have arrived, and drops their bytes. Their
    /// senders get their credit back, and sends that wait for a receive end.
    pub(crate) fn discard_arrived(&self, tag: u64) {
        loop {
            let found = self.reactor.engine_mut().matching_mut().claim(None, tag, 0);
            let Some((claimed, _)) = found else { break };
            drop(self.recv_claimed(claimed, Vec::new()));
        }
    }

    /// Waits for a message of a peer, and begins to receive it.
    pub(crate) async fn recv_announced(
        &self,
        from: PeerId,
        tag: u64,
        max_len: usize,
    ) -> Result<Operation, OpError> {
        let mut watch = None;
        let hopeless = |_: &mut Context<'_>| {
            if watch.is_none() {
                watch = self.peer(from).watch();
            }
            Some(OpError::Peer { peer: from, failure: self.peer(from).failure()? })
        };
        self.recv_once_there((Some(from), tag, 0), max_len, || true, hopeless).await
    }

    async fn recv_once_there(
        &self,
        (from, tag, ignore): (Option<PeerId>, u64, u64),
        max_len: usize,
        may: impl Fn() -> bool,
        mut hopeless: impl FnMut(&mut Context<'_>) -> Option<OpError>,
    ) -> Result<Operation, OpError> {
        let mut probing = None;
        let (claimed, found) = std::future::poll_fn(|cx| {
            let claim = || self.reactor.engine_mut().matching_mut().claim(from, tag, ignore);
            if let Some(hit) = may().then(claim).flatten() {
                return Poll::Ready(Ok(hit));
            }
            probing.get_or_insert_with(|| self.reactor.probing(from, tag, ignore));
            // Registered first: the call of `hopeless` may find the failure that ends this wait.
            self.reactor.borrow_mut().receiver.outcome.arrivals.push(cx.waker().clone());
            let hopeless = hopeless(cx).or_else(|| self.waiting().end_error());
            hopeless.map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
        })
        .await?;
        let buffer = vec![0; (found.len as usize).min(max_len)];
        Ok(self.recv_claimed(claimed, buffer))
    }
}
