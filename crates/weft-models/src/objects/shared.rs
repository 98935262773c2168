//! Operations of this rank.

use super::adapt::TELL_READS;
use super::entry::{Entry, Executed, Typed, Where};
use super::runtime::{Ended, Inner, Running};
use super::wire::{call_head, note_message, op_message, parse_reply, Note, Status, METHOD};
use super::{Object, ObjectCause, ObjectError, ObjectId, Read, BYTES_MAX};
use crate::net::{Blocking, Net};
use crate::order::OrderError;
use crate::rpc::{Call, Cause};
use crate::{park, soon};
use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};

/// Most posts to an object at another rank that are under way at once.
const AT_ONCE: u64 = 64;

/// Most memory for the bytes of an operation or a result that is kept for the next one.
const SPARE_MAX: usize = 64 << 10;

/// The result of an operation elsewhere, after a head.
struct Reply {
    bytes: Vec<u8>,
    head: usize,
}

/// A handle of a shared object. Clones are the same object.
pub struct Shared<N: Net, T> {
    inner: Rc<Inner<N>>,
    entry: Rc<Entry<N>>,
    typed: Rc<Typed<T>>,
}

impl<N: Net, T> Clone for Shared<N, T> {
    fn clone(&self) -> Shared<N, T> {
        let (inner, entry) = (Rc::clone(&self.inner), Rc::clone(&self.entry));
        Shared { inner, entry, typed: Rc::clone(&self.typed) }
    }
}

impl<N: Net, T: Object> Shared<N, T> {
    pub(super) fn new(
        inner: &Rc<Inner<N>>,
        entry: Rc<Entry<N>>,
        typed: Rc<Typed<T>>,
    ) -> Shared<N, T> {
        Shared { inner: Rc::clone(inner), entry, typed }
    }

    /// Returns the identity of the object, to pass to other ranks ([`Class::get`]).
    ///
    /// [`Class::get`]: super::Class::get
    pub fn id(&self) -> ObjectId {
        ObjectId { number: self.entry.number, after: self.inner.stamp.get() }
    }

    /// Returns the rank that has the object; `None` if every rank has it.
    pub fn at(&self) -> Option<usize> {
        match self.entry.place.get() {
            Where::Everywhere => None,
            Where::Leaving => Some(self.inner.net.rank()),
            Where::At(rank) | Where::Lost(rank) => Some(rank),
        }
    }

    /// Does an operation: here if it is a read and the state is here, else by a broadcast or a
    /// call. The operation begins when the future is first polled; dropping it gives up an
    /// operation that waits for its guard.
    ///
    /// # Errors
    /// The object is lost with its rank or broken by a panic, this rank is cut off, or the
    /// operation is longer than [`BYTES_MAX`]. If the object is at another rank and the result is
    /// too long, the operation has been done.
    pub async fn call(&self, op: T::Op) -> Result<T::Reply, ObjectError> {
        if let Some(reply) = self.read_here(&op) {
            poll_fn(|cx| self.inner.net.poll_attend(cx)).await;
            return reply;
        }
        self.inner.settled().await.map_err(|error| self.error(ObjectCause::Group(error)))?;
        let done = self.inner.patiently(&self.entry, self.run(op)).await;
        done.map_err(|cause| self.error(cause))
    }

    /// Posts an operation whose result nobody wants: it is on its way when this returns, and is
    /// done after all that this rank has posted before. A failure is logged. Later calls of
    /// this rank wait until it is done. While an operation waits for its guard, later posts may be
    /// done before it.
    ///
    /// # Errors
    /// Too many posts are not done, or 1 MiB of them ([`Objects::flush`] waits), or the operation
    /// cannot be sent, or is longer than [`BYTES_MAX`].
    ///
    /// [`Objects::flush`]: super::Objects::flush
    pub fn post(&self, op: &T::Op) -> Result<(), ObjectError> {
        let inner = &self.inner;
        let bytes = postcard::to_allocvec(op)
            .map_err(|why| self.error(ObjectCause::Unreadable(why.to_string())))?;
        if bytes.len() > BYTES_MAX {
            return Err(self.error(ObjectCause::TooLong { len: bytes.len() }));
        }
        if inner.posts.are_too_many(bytes.len()) || !inner.order.has_room() {
            return Err(self.error(ObjectCause::Group(OrderError::Busy)));
        }
        let alone = inner.posts.may_pipe();
        if alone && self.entry.place.get() == Where::Everywhere && !self.entry.adaptive {
            let serial = inner.new_serial();
            inner.posts.pipe();
            inner
                .running
                .borrow_mut()
                .insert(serial, Running { posted: true, ..Running::default() });
            drop(inner.order.send(op_message(self.entry.number, serial, 0, &bytes)));
            return Ok(());
        }
        if inner.posts.push(&self.entry, bytes) {
            inner.net.spawn(do_posts(Rc::downgrade(inner)));
        }
        Ok(())
    }

    /// Deletes the object on all ranks, at one place in the order of operations: memory of all its
    /// replicas is free, and operations that come later, or wait for their guards, fail with
    /// [`ObjectCause::NoObject`]. It ends when the object is deleted here. An object that is broken
    /// or lost can be deleted, too.
    ///
    /// # Errors
    /// The object has been deleted before, or this rank's part in the group has ended.
    pub async fn delete(self) -> Result<(), ObjectError> {
        let (inner, entry) = (&self.inner, &self.entry);
        let is_deleted = || *entry.broken.borrow() == Some(ObjectCause::NoObject);
        if is_deleted() {
            return Err(self.error(ObjectCause::NoObject));
        }
        let group = |error| self.error(ObjectCause::Group(error));
        inner.settled().await.map_err(group)?;
        inner.order.room().await.map_err(group)?;
        drop(inner.order.send(note_message(&Note::Delete { object: entry.number })));
        inner.until(|| is_deleted().then_some(())).await.map_err(group)
    }

    /// Looks at the state without an operation, if it is here and this rank has posted nothing that
    /// is not done.
    pub fn peek<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        if !self.inner.posts.are_done() {
            return None;
        }
        let state = self.typed.state.borrow();
        let found = state.as_ref().map(look);
        if found.is_some() {
            self.note_read();
        }
        found
    }

    /// Does an operation at once, if it is a read whose state is here.
    #[inline]
    fn read_here(&self, op: &T::Op) -> Option<Result<T::Reply, ObjectError>> {
        let (inner, entry) = (&self.inner, &self.entry);
        let is_here = match entry.place.get() {
            Where::Everywhere => true,
            Where::At(rank) => rank == inner.net.rank(),
            Where::Leaving | Where::Lost(_) => false,
        };
        if !is_here || !inner.posts.are_done() || entry.broken.borrow().is_some() {
            return None;
        }
        match self.typed.try_read(op) {
            Ok(Read::Value(reply)) => {
                self.note_read();
                inner.adapt_here(entry, inner.net.rank(), false);
                Some(Ok(reply))
            }
            Ok(_) => None,
            Err(executed) => Some(Err(self.error(panicked(&executed)))),
        }
    }

    fn error(&self, cause: ObjectCause) -> ObjectError {
        ObjectError { object: self.entry.number, class: self.entry.name, cause }
    }

    async fn run(&self, mut op: T::Op) -> Result<T::Reply, ObjectCause> {
        let (inner, entry) = (&self.inner, &self.entry);
        let mut bytes = Vec::new();
        loop {
            if let Some(cause) = entry.broken.borrow().clone() {
                return Err(cause);
            }
            let seen = entry.version.get();
            let place = entry.place.get();
            let here = place == Where::At(inner.net.rank());
            if here || place == Where::Everywhere {
                match self.typed.try_read(&op).map_err(|executed| panicked(&executed))? {
                    Read::Value(reply) => {
                        self.note_read();
                        inner.adapt_here(entry, inner.net.rank(), false);
                        return Ok(reply);
                    }
                    Read::Wait => {
                        inner.changed_since(entry, seen).await?;
                        continue;
                    }
                    Read::Write => {}
                }
            }
            if here {
                match self.typed.try_apply(op) {
                    Ok(Ok(reply)) => {
                        inner.changed(entry);
                        inner.adapt_here(entry, inner.net.rank(), true);
                        return Ok(reply);
                    }
                    Ok(Err(blocked)) => op = blocked,
                    Err(executed) => {
                        let cause = panicked(&executed);
                        if let ObjectCause::Broken(text) = &cause {
                            inner.broke(entry, text);
                        }
                        return Err(cause);
                    }
                }
                inner.changed_since(entry, seen).await?;
                continue;
            }
            if bytes.is_empty() {
                bytes = postcard::to_extend(&op, inner.spare.take())
                    .map_err(|why| ObjectCause::Unreadable(why.to_string()))?;
            }
            if let Some(reply) = inner.do_elsewhere(entry, &bytes).await? {
                inner.set_spare(bytes);
                return postcard::from_bytes(&reply.bytes[reply.head..])
                    .map_err(|why| ObjectCause::Unreadable(why.to_string()));
            }
        }
    }

    fn note_read(&self) {
        if !self.entry.adaptive || self.entry.place.get() != Where::Everywhere {
            return;
        }
        let reads = self.entry.reads.get() + 1;
        self.entry.reads.set(reads);
        if reads >= TELL_READS {
            self.entry.reads.set(0);
            let note = Note::Reads { object: self.entry.number, reads };
            drop(self.inner.order.send(note_message(&note)));
        }
    }
}

impl<N: Blocking, T: Object> Shared<N, T> {
    /// Does an operation, with progress meanwhile.
    ///
    /// # Errors
    /// The errors of [`call`](Shared::call).
    pub fn call_blocking(&self, op: T::Op) -> Result<T::Reply, ObjectError> {
        if let Some(reply) = self.read_here(&op) {
            self.inner.net.attend();
            return reply;
        }
        let (inner, entry) = (&self.inner, &self.entry);
        inner.net.may_wait().map_err(|why| self.error(ObjectCause::Inside(why)))?;
        let mut work = pin!(async {
            inner.settled().await.map_err(ObjectCause::Group)?;
            self.run(op).await
        });
        let done = soon(&inner.net, work.as_mut());
        let done = done.unwrap_or_else(|| inner.net.block_on(inner.patiently(entry, work)));
        done.map_err(|cause| self.error(cause))
    }
}

impl<N: Blocking, T: Object> Shared<N, T> {
    /// Deletes the object, with progress meanwhile.
    ///
    /// # Errors
    /// The errors of [`delete`](Shared::delete).
    pub fn delete_blocking(self) -> Result<(), ObjectError> {
        let net = self.inner.net.clone();
        net.may_wait().map_err(|why| self.error(ObjectCause::Inside(why)))?;
        net.block_on(self.delete())
    }
}

fn panicked(executed: &Executed) -> ObjectCause {
    match executed {
        Executed::Broken(text) => ObjectCause::Broken(text.clone()),
        Executed::Panicked(text) => ObjectCause::Panicked(text.clone()),
        _ => ObjectCause::NoObject,
    }
}

impl<N: Net> Inner<N> {
    /// Keeps memory for the bytes of the next operation or result.
    pub fn set_spare(&self, mut bytes: Vec<u8>) {
        if bytes.capacity() <= SPARE_MAX {
            bytes.clear();
            self.spare.replace(bytes);
        }
    }

    /// Waits until the state or the place of an object is another.
    async fn changed_since(&self, entry: &Entry<N>, seen: u64) -> Result<(), ObjectCause> {
        let _expecting = self.order.expecting();
        poll_fn(|cx| {
            if entry.version.get() != seen {
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = self.order.ended() {
                return Poll::Ready(Err(ObjectCause::Group(error)));
            }
            park(&mut entry.wakers.borrow_mut(), cx.waker());
            self.order.wake_at_end(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Does an operation by a broadcast or a call. `None` if the object is at another place by now.
    async fn do_elsewhere(
        &self,
        entry: &Rc<Entry<N>>,
        op: &[u8],
    ) -> Result<Option<Reply>, ObjectCause> {
        if op.len() > BYTES_MAX {
            return Err(ObjectCause::TooLong { len: op.len() });
        }
        let seen = entry.version.get();
        match entry.place.get() {
            Where::Everywhere => self.do_ordered(entry, op).await,
            Where::At(rank) if rank == self.net.rank() => Ok(None),
            Where::At(rank) => self.do_called_at(entry, rank, op).await,
            Where::Leaving => self.changed_since(entry, seen).await.map(|()| None),
            Where::Lost(rank) => Err(ObjectCause::Lost { rank }),
        }
    }

    async fn do_ordered(
        &self,
        entry: &Rc<Entry<N>>,
        op: &[u8],
    ) -> Result<Option<Reply>, ObjectCause> {
        self.order.room().await.map_err(ObjectCause::Group)?;
        let serial = self.new_serial();
        self.running.borrow_mut().insert(serial, Running::default());
        let giving_up = GivingUp { inner: self, object: entry.number, serial };
        drop(self.order.send(op_message(entry.number, serial, entry.reads.take(), op)));
        let _expecting = self.order.expecting();
        let end = poll_fn(|cx| {
            let mut running = self.running.borrow_mut();
            let op = running.entry(serial).or_default();
            if let Some(end) = op.end.take() {
                running.remove(&serial);
                return Poll::Ready(Ok(end));
            }
            if let Some(error) = self.order.ended() {
                return Poll::Ready(Err(ObjectCause::Group(error)));
            }
            op.waker = Some(cx.waker().clone());
            self.order.wake_at_end(cx.waker());
            Poll::Pending
        })
        .await;
        drop(giving_up);
        match end? {
            Ended::Done(bytes) => Ok(Some(Reply { bytes, head: 0 })),
            Ended::Moved => Ok(None),
            Ended::Failed(cause) => Err(cause),
        }
    }

    async fn do_called_at(
        &self,
        entry: &Rc<Entry<N>>,
        rank: usize,
        op: &[u8],
    ) -> Result<Option<Reply>, ObjectCause> {
        let head = call_head(entry.number, self.stamp.get());
        let call = self.rpc.call_parts(rank, METHOD, &[&head, op]);
        let reply = self.answer_of(rank, call).await?;
        let Some((stamp, status, rest)) = parse_reply(&reply) else {
            return Err(ObjectCause::Unreadable("a result without a head".to_string()));
        };
        // The owner has processed these messages, and its result may depend on them. If the owner
        // fails, they may be lost with it.
        self.reach(stamp, rank).await?;
        if !self.is_member(rank) {
            // Its result may depend on messages that it had alone, however many there were since.
            return Err(ObjectCause::Lost { rank });
        }
        let text = || String::from_utf8_lossy(rest).into_owned();
        match status {
            Status::Done => {
                let head = reply.len() - rest.len();
                Ok(Some(Reply { bytes: reply, head }))
            }
            Status::Moved => Ok(None),
            Status::NoObject => Err(ObjectCause::NoObject),
            Status::Broken => Err(ObjectCause::Broken(text())),
            Status::Panicked => Err(ObjectCause::Panicked(text())),
            Status::Unreadable => Err(ObjectCause::Unreadable(text())),
        }
    }

    /// Waits for the answer of a rank, while it and this rank are in the group: a rank that is cut
    /// off may wait for messages that this one has, and will never have them.
    async fn answer_of(&self, rank: usize, call: Call<N>) -> Result<Vec<u8>, ObjectCause> {
        let mut call = pin!(call);
        poll_fn(|cx| {
            if let Poll::Ready(reply) = call.as_mut().poll(cx) {
                return Poll::Ready(reply.map_err(|error| match error.cause {
                    // The objects of that rank have ended, and the group is about to tell so.
                    Cause::NoService | Cause::Unanswered => ObjectCause::Lost { rank },
                    _ => ObjectCause::Call(error),
                }));
            }
            if cx.waker().will_wake(Waker::noop()) {
                // The future is polled again soon.
                return Poll::Pending;
            }
            if let Some(error) = self.order.ended() {
                return Poll::Ready(Err(ObjectCause::Group(error)));
            }
            if !self.is_member(rank) {
                return Poll::Ready(Err(ObjectCause::Lost { rank }));
            }
            self.park(cx.waker());
            Poll::Pending
        })
        .await
    }

    /// Does an operation of whatever type, also here.
    async fn do_bytes(self: &Rc<Self>, entry: &Rc<Entry<N>>, op: &[u8]) -> Result<(), ObjectCause> {
        loop {
            if let Some(cause) = entry.broken.borrow().clone() {
                return Err(cause);
            }
            if entry.place.get() != Where::At(self.net.rank()) {
                match self.do_elsewhere(entry, op).await? {
                    Some(_) => return Ok(()),
                    None => continue,
                }
            }
            let seen = entry.version.get();
            match entry.replica.execute(op, Vec::new()) {
                Executed::Done(_, changed) => {
                    if changed {
                        self.changed(entry);
                    }
                    self.adapt_here(entry, self.net.rank(), changed);
                    return Ok(());
                }
                Executed::Blocked => self.changed_since(entry, seen).await?,
                Executed::Broken(text) => {
                    self.broke(entry, &text);
                    return Err(ObjectCause::Broken(text));
                }
                Executed::Panicked(text) => return Err(ObjectCause::Panicked(text)),
                Executed::Unreadable(why) => return Err(ObjectCause::Unreadable(why)),
            }
        }
    }
}

/// An operation in the order. If this is dropped before its end, the operation is given up.
struct GivingUp<'a, N: Net> {
    inner: &'a Inner<N>,
    object: u64,
    serial: u64,
}

impl<N: Net> Drop for GivingUp<'_, N> {
    fn drop(&mut self) {
        if self.inner.running.borrow_mut().remove(&self.serial).is_some() {
            let note = Note::Cancel { object: self.object, serial: self.serial };
            let order = self.inner.order.clone();
            self.inner.net.spawn(async move {
                if order.room().await.is_ok() {
                    drop(order.send(note_message(&note)));
                }
            });
        }
    }
}

/// Does the posts that cannot go into the order at once: those to one object at another rank follow
/// each other without waiting, as calls of a rank come in order; all others are done one after the
/// other.
async fn do_posts<N: Net>(inner: Weak<Inner<N>>) {
    // The object whose posts are under way, and their number.
    let (mut object, under_way) = (None, Rc::new(Cell::new(0)));
    while let Some(inner) = inner.upgrade() {
        let next = inner.posts.next_object();
        let fixed = next.as_ref().and_then(|entry| inner.fixed_elsewhere(entry));
        let number = next.as_ref().map(|entry| entry.number).filter(|_| fixed.is_some());
        let most = if number.is_some() && number == object { AT_ONCE } else { 1 };
        // Posts that are in the order come first.
        let free = || !inner.posts.are_piped() && under_way.get() < most;
        let more = || next.is_none() && inner.posts.are_waiting();
        let ended = inner.until(|| (free() || more()).then_some(())).await.is_err();
        if more() && !ended {
            continue;
        }
        object = number;
        let next = if ended { None } else { inner.posts.pop() };
        let Some((entry, op)) = next else {
            inner.posts.end_task();
            return inner.wake();
        };
        let Some(rank) = fixed else {
            inner.do_post(&entry, &op).await;
            continue;
        };
        inner.rpc.room(rank).await;
        under_way.set(under_way.get() + 1);
        let (posts, under_way) = (Rc::clone(&inner), Rc::clone(&under_way));
        // The task sends the call at once, before the next post.
        inner.net.spawn(async move {
            posts.do_post(&entry, &op).await;
            under_way.set(under_way.get() - 1);
            posts.wake();
        });
    }
}

impl<N: Net> Inner<N> {
    /// Returns the rank that has an object which stays there, if it is another one.
    fn fixed_elsewhere(&self, entry: &Entry<N>) -> Option<usize> {
        match entry.place.get() {
            Where::At(rank) if !entry.adaptive && rank != self.net.rank() => Some(rank),
            _ => None,
        }
    }

    /// Does a posted operation; a failure is logged.
    async fn do_post(self: &Rc<Self>, entry: &Rc<Entry<N>>, op: &[u8]) {
        if let Err(cause) = self.do_bytes(entry, op).await {
            let error = ObjectError { object: entry.number, class: entry.name, cause };
            weft::telling::error!("an operation that was posted has failed: {error}");
        }
        self.posts.end(op.len());
        self.wake();
    }
}
