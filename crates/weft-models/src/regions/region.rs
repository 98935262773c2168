//! Handles of regions, and the guards of their operations.

use super::entry::{Entry, Typed};
use super::item::Item;
use super::runtime::Inner;
use super::wire::{method, Number};
use super::{Access, RegionCause, RegionError, RegionId};
use crate::net::{Blocking, Net};
use crate::soon;
use std::any::Any;
use std::cell::{Ref, RefMut};
use std::future::{poll_fn, Future};
use std::ops::{Deref, DerefMut};
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::task::{Context, Poll};

/// Long waits that are kept.
const COMPLAINTS: usize = 64;

/// A region that this rank has mapped. Clones are the same region; when the last is dropped, the
/// copy stays in the cache while there is room.
pub struct Region<N: Net, T: Item> {
    inner: Rc<Inner<N>>,
    entry: Rc<Entry>,
    typed: Rc<Typed<T>>,
}

impl<N: Net, T: Item> Clone for Region<N, T> {
    fn clone(&self) -> Region<N, T> {
        Region::new(&self.inner, &self.entry, &self.typed)
    }
}

impl<N: Net, T: Item> Drop for Region<N, T> {
    fn drop(&mut self) {
        self.inner.unmapped(&self.entry);
    }
}

impl<N: Net, T: Item> Region<N, T> {
    pub(super) fn new(inner: &Rc<Inner<N>>, entry: &Rc<Entry>, typed: &Rc<Typed<T>>) -> Self {
        inner.mapped(entry);
        Region { inner: Rc::clone(inner), entry: Rc::clone(entry), typed: Rc::clone(typed) }
    }

    /// Returns the name of the region, to pass to other ranks.
    pub fn id(&self) -> RegionId {
        self.entry.id
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.typed.count
    }

    /// True if the region has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins to read: waits until this rank has a copy, and no other rank writes. Others may read
    /// at the same time.
    ///
    /// # Errors
    /// The region is lost with its home, or with the rank that had the only copy, or is deleted.
    pub async fn read(&self) -> Result<ReadGuard<'_, N, T>, RegionError> {
        let held = self.begin(Access::Read).await?;
        Ok(ReadGuard { items: self.typed.items.borrow(), _held: held })
    }

    /// Begins to write: waits until no other rank has a copy.
    ///
    /// # Errors
    /// The errors of [`read`](Region::read).
    pub async fn write(&self) -> Result<WriteGuard<'_, N, T>, RegionError> {
        let held = self.begin(Access::Write).await?;
        Ok(WriteGuard { items: self.typed.items.borrow_mut(), _held: held })
    }

    /// Does what [`read`](Region::read) and [`write`](Region::write) do, for a program that ends
    /// the operation elsewhere than in the scope of a guard.
    ///
    /// # Errors
    /// The errors of [`read`](Region::read).
    pub async fn begin_to(&self, access: Access) -> Result<Operation<N, T>, RegionError> {
        // The operation that is returned ends it.
        std::mem::forget(self.begin(access).await?);
        Ok(Operation { region: self.clone(), access })
    }

    /// Returns the address of this rank's copy, which stays the same while the region is mapped.
    /// `None` while a guard of this rank uses it.
    ///
    /// The items may be read there during an operation of this rank, and written during one that
    /// writes.
    pub fn address(&self) -> Option<*mut T> {
        self.typed.items.try_borrow_mut().ok().map(|mut items| items.as_mut_ptr())
    }

    /// Returns a handle of the memory at [`address`](Region::address): it is there as long as this.
    pub fn memory(&self) -> Rc<dyn Any> {
        Rc::clone(&self.typed) as Rc<dyn Any>
    }

    /// Asks for a copy to read, which may be here when it is read.
    pub fn prefetch(&self) {
        self.ask_early(Access::Read);
    }

    /// Asks for the only copy, which may be here when it is written.
    pub fn prefetch_to_write(&self) {
        self.ask_early(Access::Write);
    }

    /// Gives this rank's copy back to the home, so that others find it there. While it is in use,
    /// nothing happens.
    pub fn flush(&self) {
        self.inner.flush(&self.entry);
    }

    /// Deletes the region: waits until no operation uses it, and has later ones refused. It ends
    /// when the ranks that have mapped the region know, so that they map it no more.
    ///
    /// # Errors
    /// The errors of [`read`](Region::read).
    pub async fn delete(self) -> Result<(), RegionError> {
        let (inner, entry) = (&self.inner, &self.entry);
        let held = self.begin(Access::Write).await?;
        if entry.home.is_none() {
            // This rank has the only copy, so nobody else uses it when its home deletes it.
            let call =
                inner.rpc.call(entry.id.home(), method::DELETE, &Number::new(entry.id.number));
            let answer =
                call.await.map_err(|failed| self.error(inner.call_failed(entry.id, failed)))?;
            if answer.first() != Some(&1) {
                return Err(self.error(RegionCause::NoRegion));
            }
        }
        drop(held);
        inner.delete(entry, inner.net.rank()).await;
        Ok(())
    }

    /// Returns the error that operations end with, if this rank knows that the region is deleted or
    /// lost.
    ///
    /// # Errors
    /// The errors of [`read`](Region::read).
    pub fn check(&self) -> Result<(), RegionError> {
        self.entry.check()
    }

    fn ask_early(&self, access: Access) {
        {
            let mut local = self.entry.local.borrow_mut();
            if local.copy >= Some(access) || local.asked.is_some() {
                return;
            }
            local.asked = Some(access);
        }
        self.inner.ask(&self.entry, access);
    }

    fn error(&self, cause: RegionCause) -> RegionError {
        RegionError { region: self.entry.id, cause }
    }

    async fn begin(&self, access: Access) -> Result<Held<'_, N>, RegionError> {
        patiently(&self.inner, &self.entry, access, pin!(self.begin_bare(access))).await
    }

    /// Begins an operation, and says nothing however long that takes.
    async fn begin_bare(&self, access: Access) -> Result<Held<'_, N>, RegionError> {
        let (inner, entry) = (&*self.inner, &self.entry);
        loop {
            entry.check()?;
            if !entry.local.borrow_mut().try_begin(access) {
                let ticket = entry.local.borrow_mut().wait(access);
                let mut waits = Waits { inner, entry, access, ticket, over: false };
                inner.advance(entry);
                poll_fn(|cx| waits.poll(cx)).await.map_err(|cause| self.error(cause))?;
            }
            let held = Held { inner, entry, access };
            poll_fn(|cx| inner.net.poll_attend(cx)).await;
            if !inner.is_doubtful(entry) {
                return Ok(held);
            }
            // The home may want the copy meanwhile.
            drop(held);
            inner.confirm(entry).await.map_err(|cause| self.error(cause))?;
        }
    }
}

/// Waits for an operation to begin, and says once who holds it up when that takes long.
async fn patiently<N: Net, F: Future>(
    inner: &Inner<N>,
    entry: &Rc<Entry>,
    access: Access,
    mut work: Pin<&mut F>,
) -> F::Output {
    let mut complaint: Option<Pin<Box<dyn Future<Output = ()> + '_>>> = None;
    let warn_after = inner.net.warn_after();
    poll_fn(|cx| {
        if let Poll::Ready(begun) = work.as_mut().poll(cx) {
            return Poll::Ready(begun);
        }
        if !warn_after.is_zero() {
            let say = complaint.get_or_insert_with(|| Box::pin(complain(inner, entry, access)));
            if say.as_mut().poll(cx).is_ready() {
                complaint = Some(Box::pin(std::future::pending()));
            }
        }
        Poll::Pending
    })
    .await
}

/// Says after a while for which region this rank waits, who holds it up, and what it holds itself.
async fn complain<N: Net>(inner: &Inner<N>, entry: &Rc<Entry>, access: Access) {
    let warn_after = inner.net.warn_after();
    inner.net.sleep(warn_after).await;
    let ranks = holders(inner, entry.id).await;
    let held: Vec<String> = inner.held().iter().map(RegionId::to_string).collect();
    let rank = inner.net.rank();
    let (what, id) = (if access == Access::Read { "read" } else { "write" }, entry.id);
    let after = warn_after.as_secs_f64();
    let text = format!(
        "rank {rank} waits for {after:.1} s to {what} region {id}, which ranks {ranks:?} use, and \
         holds regions [{}]",
        held.join(", ")
    );
    weft::telling::warn!("{text}");
    let mut complaints = inner.complaints.borrow_mut();
    if complaints.len() < COMPLAINTS {
        complaints.push(text);
    }
}

async fn holders<N: Net>(inner: &Inner<N>, id: RegionId) -> Vec<u32> {
    let number = Number::new(id.number);
    let answer = inner.rpc.call(id.home(), method::HOLDERS, &number).await.unwrap_or_default();
    answer.as_chunks::<4>().0.iter().map(|rank| u32::from_le_bytes(*rank)).collect()
}

/// An operation that waits; if this is dropped before its end, the operation is given up.
struct Waits<'a, N: Net> {
    inner: &'a Inner<N>,
    entry: &'a Rc<Entry>,
    access: Access,
    ticket: u64,
    over: bool,
}

impl<N: Net> Waits<'_, N> {
    fn poll(&mut self, cx: &Context<'_>) -> Poll<Result<(), RegionCause>> {
        if self.entry.local.borrow_mut().has_begun(self.ticket, cx.waker()) {
            self.over = true;
            return Poll::Ready(Ok(()));
        }
        let lost = self.entry.lost.borrow().clone();
        lost.map_or(Poll::Pending, |cause| Poll::Ready(Err(cause)))
    }
}

impl<N: Net> Drop for Waits<'_, N> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        {
            let mut local = self.entry.local.borrow_mut();
            if local.give_up(self.ticket) {
                local.end(self.access);
            }
        }
        self.inner.advance(self.entry);
    }
}

/// An operation in progress.
struct Held<'a, N: Net> {
    inner: &'a Inner<N>,
    entry: &'a Rc<Entry>,
    access: Access,
}

impl<N: Net> Drop for Held<'_, N> {
    fn drop(&mut self) {
        self.entry.local.borrow_mut().end(self.access);
        self.inner.advance(self.entry);
    }
}

/// An operation of this rank on a region, which ends when this is dropped.
pub struct Operation<N: Net, T: Item> {
    region: Region<N, T>,
    access: Access,
}

impl<N: Net, T: Item> Operation<N, T> {
    /// Returns the region.
    pub fn region(&self) -> &Region<N, T> {
        &self.region
    }

    /// True if the operation may write.
    pub fn is_write(&self) -> bool {
        self.access == Access::Write
    }
}

impl<N: Net, T: Item> Drop for Operation<N, T> {
    fn drop(&mut self) {
        self.region.entry.local.borrow_mut().end(self.access);
        self.region.inner.advance(&self.region.entry);
    }
}

/// The items of a region while they are read. Dropping it ends the operation.
pub struct ReadGuard<'a, N: Net, T> {
    // The items are let go before the operation ends.
    items: Ref<'a, Vec<T>>,
    _held: Held<'a, N>,
}

impl<N: Net, T> Deref for ReadGuard<'_, N, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// The items of a region while they are written. Dropping it ends the operation.
pub struct WriteGuard<'a, N: Net, T> {
    items: RefMut<'a, Vec<T>>,
    _held: Held<'a, N>,
}

impl<N: Net, T> Deref for WriteGuard<'_, N, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<N: Net, T> DerefMut for WriteGuard<'_, N, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<N: Blocking, T: Item> Region<N, T> {
    /// Begins to read, with progress meanwhile.
    ///
    /// # Errors
    /// The errors of [`read`](Region::read).
    pub fn read_blocking(&self) -> Result<ReadGuard<'_, N, T>, RegionError> {
        let held = self.begin_blocking(Access::Read)?;
        Ok(ReadGuard { items: self.typed.items.borrow(), _held: held })
    }

    /// Begins to write, with progress meanwhile.
    ///
    /// # Errors
    /// The errors of [`write`](Region::write).
    pub fn write_blocking(&self) -> Result<WriteGuard<'_, N, T>, RegionError> {
        let held = self.begin_blocking(Access::Write)?;
        Ok(WriteGuard { items: self.typed.items.borrow_mut(), _held: held })
    }

    /// Does what [`begin_to`](Region::begin_to) does, with progress meanwhile.
    ///
    /// # Errors
    /// The errors of [`read`](Region::read).
    pub fn begin_to_blocking(&self, access: Access) -> Result<Operation<N, T>, RegionError> {
        std::mem::forget(self.begin_blocking(access)?);
        Ok(Operation { region: self.clone(), access })
    }

    fn begin_blocking(&self, access: Access) -> Result<Held<'_, N>, RegionError> {
        let (net, mut work) = (&self.inner.net, pin!(self.begin_bare(access)));
        net.may_wait().map_err(|why| self.error(RegionCause::Inside(why)))?;
        soon(net, work.as_mut())
            .unwrap_or_else(|| net.block_on(patiently(&self.inner, &self.entry, access, work)))
    }
}
