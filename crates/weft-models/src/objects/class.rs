//! Classes of objects: the types that ranks know by number.

use super::entry::{Replica, Typed};
use super::runtime::{Inner, Objects};
use super::wire::{note_message, Note};
use super::{Object, ObjectCause, ObjectError, ObjectId, Placement, Shared, BYTES_MAX, CLASS_MAX};
use crate::net::Net;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

/// A type of objects whose number all ranks know.
pub struct Class<N: Net, T> {
    inner: Rc<Inner<N>>,
    number: u32,
    types: PhantomData<fn(T)>,
}

/// Bit of the numbers of objects that all ranks open by a number of theirs.
const KNOWN: u64 = 1 << 63;

/// True for an object that all ranks open by a number of theirs.
pub(super) fn is_known(object: u64) -> bool {
    object & KNOWN != 0
}

impl<N: Net> Objects<N> {
    /// Returns the class of a number, whose objects have states of type `T`. All ranks call this
    /// with the same numbers and types, before they use objects. Numbers go to
    /// [`CLASS_MAX`].
    ///
    /// # Panics
    /// The number is greater.
    pub fn class<T: Object>(&self, number: u32) -> Class<N, T> {
        assert!(number <= CLASS_MAX, "number {number} of a class: the greatest is {CLASS_MAX}");
        let make = || Rc::new(Typed::<T> { state: RefCell::new(None) }) as Rc<dyn Replica>;
        let name = std::any::type_name::<T>();
        self.inner.register(number, name, T::VERSION, Rc::new(make));
        Class { inner: Rc::clone(&self.inner), number, types: PhantomData }
    }
}

impl<N: Net, T: Object> Class<N, T> {
    /// Opens the object that all ranks know by a number of the class. All ranks call this with the
    /// same arguments; the state is that which the lowest rank makes, or the next one if that has
    /// left or failed before.
    ///
    /// # Errors
    /// This rank's part in the group of all ranks has ended, the class's versions differ, the state
    /// of the lowest rank is longer than [`BYTES_MAX`], or the object has been deleted: its number
    /// is not used again.
    pub async fn open(
        &self,
        number: u32,
        placement: Placement,
        state: impl FnOnce() -> T,
    ) -> Result<Shared<N, T>, ObjectError> {
        let object = KNOWN | u64::from(self.number) << 32 | u64::from(number);
        let has_to_make = self.inner.has_to_make(self.number, object).await;
        if has_to_make.map_err(|cause| self.error(object, cause))? {
            let made = self.make(object, placement, &state()).await;
            if let Err(ObjectError { cause: ObjectCause::TooLong { len }, .. }) = made {
                // The others wait for the object.
                let note = Note::TooLong { object, len: len as u64 };
                drop(self.inner.order.send(note_message(&note)));
            }
            made?;
        }
        self.when_there(ObjectId { number: object, after: 0 }).await
    }

    /// Makes a new object. Other ranks get it by its identity ([`Shared::id`], [`Class::get`]).
    ///
    /// # Errors
    /// Returns the errors of [`open`](Class::open).
    pub async fn create(
        &self,
        placement: Placement,
        state: &T,
    ) -> Result<Shared<N, T>, ObjectError> {
        let object = self.inner.new_number();
        self.make(object, placement, state).await?;
        self.when_there(ObjectId { number: object, after: 0 }).await
    }

    /// Returns an object that another rank has made.
    ///
    /// # Errors
    /// There is no such object of this class; otherwise as [`open`](Class::open).
    pub async fn get(&self, id: ObjectId) -> Result<Shared<N, T>, ObjectError> {
        self.when_there(id).await
    }

    fn error(&self, object: u64, cause: ObjectCause) -> ObjectError {
        ObjectError { object, class: std::any::type_name::<T>(), cause }
    }

    async fn make(&self, object: u64, placement: Placement, state: &T) -> Result<(), ObjectError> {
        let state = postcard::to_allocvec(state)
            .map_err(|why| self.error(object, ObjectCause::Unreadable(why.to_string())))?;
        if state.len() > BYTES_MAX {
            return Err(self.error(object, ObjectCause::TooLong { len: state.len() }));
        }
        if self.inner.strange.borrow().is_dropped(self.number) {
            return Err(self.error(object, ObjectCause::Late { class: self.number }));
        }
        let room = self.inner.order.room().await;
        room.map_err(|error| self.error(object, ObjectCause::Group(error)))?;
        let (class, version) = (self.number, T::VERSION);
        let note = Note::Create { object, class, version, placement, state };
        drop(self.inner.order.send(note_message(&note)));
        Ok(())
    }

    async fn when_there(&self, id: ObjectId) -> Result<Shared<N, T>, ObjectError> {
        let found =
            self.inner.find(self.number, id).await.map_err(|cause| self.error(id.number, cause))?;
        let replica = Rc::clone(&found.replica).as_any();
        match replica.downcast::<Typed<T>>() {
            Ok(typed) => Ok(Shared::new(&self.inner, found, typed)),
            Err(_) => Err(self.error(id.number, ObjectCause::NoObject)),
        }
    }
}
