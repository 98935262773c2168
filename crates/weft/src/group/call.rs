//! One collective operation: its messages, which carry the word of `agree`, and its end.

use super::agree::{differ, differed, text, whole_len, What};
use super::notices::{report, Stray, UnderWay, Verdict};
use super::sys::{Field, Part, Slots};
use super::{Group, GroupError, COLLECTIVE, POSTED_MAX};
use crate::endpoint::Operation;
use std::cell::RefCell;
use std::future::{poll_fn, Future};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weft_core::engine::types::SendArgs;
use weft_core::matching::RecvSpec;
use weft_core::{OpError, PeerFailure, PeerId};

/// The text for the operation of a message without a word.
const ANOTHER_BUILD: &str = "an operation of another build of weft";

/// Shortest buffer of a receive: it shows how long another operation is.
const SHOWN: usize = 8;

/// A message on its way to a peer.
pub(super) struct Sent(PeerId, Operation);

/// A message of at most `len` bytes whose receive is posted.
pub(super) struct Expected {
    from: usize,
    peer: PeerId,
    operation: Operation,
    len: usize,
}

/// A message into a part of a field.
pub(super) struct Incoming<'f> {
    from: usize,
    peer: PeerId,
    field: &'f Field<'f>,
    range: Range<usize>,
    part: Part<'f>,
}

/// Most memory that a group keeps for its next operations, in bytes, and in pieces.
const KEPT: (usize, usize) = (16 << 20, 4);

/// A collective operation of this rank.
pub(super) struct Call {
    pub group: Group,
    tag: u64,
    under_way: Rc<UnderWay>,
    /// True if the caller does nothing else until the end.
    pub is_awaited: bool,
    /// The text about a rank that takes part in another operation.
    differs: Rc<RefCell<String>>,
}

impl Call {
    /// Begins the next operation of a group; `bytes` is the length that ranks give alike, if this
    /// rank knows it.
    pub fn new(group: &Group, what: What, bytes: Option<u64>) -> Call {
        let inner = &group.inner;
        let number = inner.begun.count.get().wrapping_add(1);
        inner.begun.count.set(number);
        let (here, word) = (group.here(), what.word(inner.list));
        let under_way = inner.notices.begin(&inner.port, here, (number, word, bytes));
        let tag = group.tag(COLLECTIVE, number);
        Call { group: group.clone(), tag, under_way, is_awaited: false, differs: Rc::default() }
    }

    /// Returns the operation as one whose caller does nothing else until its end.
    pub fn awaited(self) -> Call {
        Call { is_awaited: true, ..self }
    }

    pub fn rank(&self) -> usize {
        self.group.rank()
    }

    pub fn size(&self) -> usize {
        self.group.size()
    }

    /// Starts a message to a rank.
    pub fn post(&self, to: usize, data: Vec<u8>) -> Result<Sent, OpError> {
        self.post_by(to, data, false)
    }

    /// Starts an empty message. To a rank that has not answered yet, it ends only when it has been
    /// received: else it would still wait for the answer when it ends, and stop with its process.
    pub fn post_met(&self, to: usize) -> Result<Sent, OpError> {
        let ready = self.group.inner.endpoint.peer(self.group.find_peer(to)?).is_ready();
        self.post_by(to, Vec::new(), !ready)
    }

    fn post_by(&self, to: usize, data: Vec<u8>, sync: bool) -> Result<Sent, OpError> {
        let (endpoint, peer) = (&self.group.inner.endpoint, self.group.find_peer(to)?);
        let word = Some(self.under_way.word);
        Ok(Sent(peer, endpoint.send_with(peer, self.tag, data, word, sync)))
    }

    /// Waits for the ends of messages.
    pub async fn await_sends(&self, all: impl IntoIterator<Item = Sent>) -> Result<(), OpError> {
        for Sent(peer, operation) in all {
            self.under_way.awaits.set(Some(peer));
            operation.await.0?;
        }
        Ok(())
    }

    /// Takes a message of at most `len` bytes.
    pub async fn take(&self, from: usize, len: usize) -> Result<Vec<u8>, OpError> {
        if len <= POSTED_MAX {
            return self.receive(self.expect(from, len)?).await;
        }
        let (endpoint, peer) = (&self.group.inner.endpoint, self.group.find_peer(from)?);
        self.under_way.awaits.set(Some(peer));
        let operation = endpoint.recv_announced(peer, self.tag, len).await?;
        self.receive(Expected { from, peer, operation, len }).await
    }

    /// Posts the receive of a message of at most `len` bytes, with memory for all of them.
    pub fn expect(&self, from: usize, len: usize) -> Result<Expected, OpError> {
        let (endpoint, peer) = (&self.group.inner.endpoint, self.group.find_peer(from)?);
        let operation = endpoint.recv(Some(peer), self.tag, 0, vec![0; len.max(SHOWN)]);
        Ok(Expected { from, peer, operation, len })
    }

    /// Waits for an expected message.
    pub async fn receive(&self, expected: Expected) -> Result<Vec<u8>, OpError> {
        let Expected { from, peer, operation, len } = expected;
        self.under_way.awaits.set(Some(peer));
        let (error, status, mut data) = operation.whole().await;
        let sent = match error {
            None => status.len as u64,
            Some(OpError::Truncated { sent }) => sent,
            Some(other) => return Err(other),
        };
        data.truncate(status.len);
        if status.data != Some(self.under_way.word.into()) {
            return Err(self.mismatch(from, status.data, sent, &data));
        }
        match sent > len as u64 {
            true => Err(OpError::Truncated { sent }),
            false => Ok(data),
        }
    }

    /// Sends a part of a field to a rank.
    pub fn outgoing<'f>(
        &'f self,
        field: &'f Field<'f>,
        to: usize,
        range: Range<usize>,
        class: u64,
    ) -> Result<(PeerId, Part<'f>), OpError> {
        let (endpoint, peer) = (&self.group.inner.endpoint, self.group.find_peer(to)?);
        let args = SendArgs {
            data: Some(self.under_way.word.into()),
            ..SendArgs::new(peer, self.tag | class, 0)
        };
        Ok((peer, field.send(endpoint, args, range)))
    }

    /// Posts the receive of a message that is as long as a part of a field.
    pub fn incoming<'f>(
        &'f self,
        field: &'f Field<'f>,
        from: usize,
        range: Range<usize>,
        class: u64,
    ) -> Result<Incoming<'f>, OpError> {
        let (endpoint, peer) = (&self.group.inner.endpoint, self.group.find_peer(from)?);
        let spec = RecvSpec { source: Some(peer), tag: self.tag | class, ignore: 0 };
        let part = field.recv(endpoint, spec, range.clone());
        Ok(Incoming { from, peer, field, range, part })
    }

    /// Takes a message that is as long as a part of a field, of which no receive was posted.
    pub async fn take_vector(
        &self,
        field: &Field<'_>,
        from: usize,
        range: Range<usize>,
    ) -> Result<(), OpError> {
        if !self.is_awaited {
            return self.end_vector(self.incoming(field, from, range, COLLECTIVE)?).await;
        }
        let (endpoint, peer) = (&self.group.inner.endpoint, self.group.find_peer(from)?);
        let spec = RecvSpec { source: Some(peer), tag: self.tag, ignore: 0 };
        let part = field.recv_polled(endpoint, spec, range.clone());
        self.end_vector(Incoming { from, peer, field, range, part }).await
    }

    /// Waits until a part has been sent.
    pub async fn end_send(&self, (peer, part): (PeerId, Part<'_>)) -> Result<(), OpError> {
        self.under_way.awaits.set(Some(peer));
        let (error, _) = part.end().await;
        error.map_or(Ok(()), Err)
    }

    /// Waits for a part that comes from a rank, which is as long as this rank expects.
    pub async fn end_vector(&self, incoming: Incoming<'_>) -> Result<(), OpError> {
        let Incoming { from, peer, field, range, part } = incoming;
        self.under_way.awaits.set(Some(peer));
        let (error, status) = part.end().await;
        let given = match error {
            None => status.len as u64,
            Some(OpError::Truncated { sent }) => sent,
            Some(other) => return Err(other),
        };
        if status.data != Some(self.under_way.word.into()) {
            let shown = range.start..range.start + status.len.min(SHOWN);
            return Err(field.read(shown, |data| self.mismatch(from, status.data, given, data)));
        }
        let wanted = range.len() as u64;
        match given == wanted {
            true => Ok(()),
            false => Err(OpError::Uneven { rank: from as u32, given, wanted }),
        }
    }

    /// Returns a field of at least so many bytes.
    pub fn slots(&self, len: usize) -> Slots {
        let mut memory = self.group.inner.begun.scratch.borrow_mut().pop().unwrap_or_default();
        if memory.len() < len {
            memory.resize(len, 0);
        }
        Slots::new(memory)
    }

    /// Keeps the memory of a field for later operations.
    pub fn keep(&self, slots: Slots) {
        let mut kept = self.group.inner.begun.scratch.borrow_mut();
        let memory = slots.into_memory();
        if memory.len() <= KEPT.0 && kept.len() < KEPT.1 {
            kept.push(memory);
        }
    }

    #[cold]
    fn mismatch(&self, from: usize, theirs: Option<u64>, sent: u64, data: &[u8]) -> OpError {
        let of = (self.size(), self.group.inner.list);
        let says = match theirs.and_then(|word| u32::try_from(word).ok()) {
            Some(word) => text(word, whole_len(word, sent, data), of),
            None => ANOTHER_BUILD.to_owned(),
        };
        let ours = text(self.under_way.word, self.under_way.bytes, of);
        *self.differs.borrow_mut() = differ((from, &says), (self.rank(), &ours));
        OpError::Mismatch { rank: from as u32 }
    }

    /// Runs the work of this operation to its end, and ends it early if another rank has. If this
    /// rank ends it with an error, all others learn of that.
    pub fn run<T, F>(
        self,
        work: impl FnOnce(Call) -> F,
    ) -> impl Future<Output = Result<T, GroupError>>
    where
        F: Future<Output = Result<T, OpError>>,
    {
        let (group, differs) = (self.group.clone(), Rc::clone(&self.differs));
        let running = Running { group, under_way: Rc::clone(&self.under_way) };
        let work = work(self);
        async move {
            let mut work = pin!(work);
            let mut begun = false;
            let result = poll_fn(|cx| {
                let verdict = running.under_way.verdict(cx.waker());
                // Its own result comes first, unless others have ended before it began.
                begun |= verdict.is_none();
                if begun {
                    if let Poll::Ready(result) = work.as_mut().poll(cx) {
                        let result =
                            result.and_then(|value| running.done(&differs).map(|()| value));
                        return Poll::Ready(result.map_err(Ok));
                    }
                }
                verdict.map_or(Poll::Pending, |verdict| Poll::Ready(Err(Err(verdict))))
            });
            result.await.map_err(|error| match error {
                Ok(cause) => running.fail(cause, differs.take()),
                Err(verdict) => running.learn(verdict),
            })
        }
    }
}

/// An operation that is under way, until this is dropped.
struct Running {
    group: Group,
    under_way: Rc<UnderWay>,
}

impl Running {
    /// Notes that the operation has ended well here.
    ///
    /// # Errors
    /// A rank has called another operation, this time or before.
    fn done(&self, differs: &RefCell<String>) -> Result<(), OpError> {
        let (group, inner) = (&self.group, &self.group.inner);
        match inner.notices.done(&inner.port, &self.under_way) {
            None => Ok(()),
            Some(Stray { ago, ours: (word, bytes), message }) => {
                let of = (group.size(), inner.list);
                let says = match message.data.and_then(|word| u32::try_from(word).ok()) {
                    Some(word) => text(word, whole_len(word, message.len, &[]), of),
                    None => ANOTHER_BUILD.to_owned(),
                };
                let from = group.find_rank(message.source).unwrap_or(usize::MAX);
                let ours = text(word, bytes, of);
                *differs.borrow_mut() = differed(ago, (from, &says), (group.rank(), &ours));
                Err(OpError::Mismatch { rank: from as u32 })
            }
        }
    }

    /// Returns the error of this rank, and tells it to all others.
    fn fail(&self, cause: OpError, differs: String) -> GroupError {
        let group = &self.group;
        let mut error = group.error(cause, None);
        if matches!(cause, OpError::Mismatch { .. }) {
            error = error.with_text(differs);
        }
        let failed = matches!(cause, OpError::Peer { .. });
        let rank = Some(error.rank().unwrap_or(group.rank()));
        let text = format!("rank {} reports: {error}", group.rank());
        self.report(Verdict { failed, rank, text, is_news: true });
        error
    }

    /// Returns the error that another rank has noticed.
    fn learn(&self, verdict: Verdict) -> GroupError {
        let error = self.group.reported(&verdict);
        self.report(verdict);
        error
    }

    /// Tells the error to the other ranks, if they do not know it, and to those that ask.
    fn report(&self, why: Verdict) {
        let (group, inner) = (&self.group, &self.group.inner);
        if why.is_news {
            for rank in (0..group.size()).filter(|&rank| rank != group.rank()) {
                let Ok(peer) = group.find_peer(rank) else { continue };
                if inner.endpoint.peer(peer).failure().is_none() {
                    report(&inner.port, peer, &self.under_way, &why);
                }
            }
            inner.port.flush();
        }
        inner.notices.failed(&inner.port, &self.under_way, why);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let inner = &self.group.inner;
        inner.notices.end(&inner.port, &self.under_way);
    }
}

impl Group {
    /// Returns the error of an operation that another rank has ended.
    fn reported(&self, verdict: &Verdict) -> GroupError {
        let rank = verdict.rank.filter(|&rank| rank < self.size());
        let cause = match verdict.failed {
            true => {
                let known = |rank: usize| self.inner.peers.borrow()[rank];
                let peer = rank.and_then(known).unwrap_or(PeerId(u32::MAX));
                OpError::Peer { peer, failure: PeerFailure::Reported }
            }
            false => OpError::Mismatch { rank: rank.unwrap_or(usize::MAX) as u32 },
        };
        self.error(cause, rank).with_text(verdict.text.clone())
    }
}
