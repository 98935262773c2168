//! The handle of an array.

use super::entry::Entry;
use super::runtime::{Actors, Inner};
use super::store::{AnyStore, Store};
use super::turn::Action;
use super::wire::Content;
use super::{Actor, ActorCause, ActorError, ArrayId, Index, Section, Shape};
use crate::net::Net;
use std::cell::RefCell;
use std::rc::Rc;

/// An array of objects, at this rank. Clones are the same.
pub struct Array<N: Net, A: Actor> {
    pub(super) inner: Rc<Inner<N>>,
    pub(super) store: Rc<Store<A>>,
    pub(super) entry: Rc<Entry>,
    pub(super) number: u16,
}

impl<N: Net> Actors<N> {
    /// Makes an array of objects: all ranks call this with the same number and shape, in any order.
    /// `make` makes the objects that begin at this rank, in blocks of their numbers. `shared` has
    /// values that the objects read at this rank.
    ///
    /// # Panics
    /// The number is in use, or the array has more than 2^32 - 1 objects.
    pub fn array_with<A: Actor>(
        &self,
        number: u16,
        shape: impl Into<Shape>,
        shared: A::Shared,
        mut make: impl FnMut(Index) -> A,
    ) -> Array<N, A> {
        let shape = shape.into();
        assert!(shape.len() < u64::from(u32::MAX), "an array of shape {shape} is too large");
        let store = Rc::new(Store::<A>::new(number, shape, Rc::new(shared)));
        let (rank, ranks) = (self.inner.net.rank(), self.inner.net.size());
        for element in shape.homed(rank, ranks) {
            store.insert(element, make(shape.index(element)));
        }
        let entry = Rc::new(Entry {
            store: Rc::<Store<A>>::clone(&store),
            shape,
            places: RefCell::default(),
            casts: RefCell::default(),
            rounds: RefCell::default(),
            sections: RefCell::default(),
            results: RefCell::default(),
        });
        let before = self.inner.arrays.borrow_mut().insert(number, Rc::clone(&entry));
        assert!(before.is_none(), "array {number} is there already");
        Array { inner: Rc::clone(&self.inner), store, entry, number }
    }

    /// Makes an array of objects that share no values: see [`array_with`](Actors::array_with).
    ///
    /// # Panics
    /// The number is in use, or the array has more than 2^32 - 1 objects.
    pub fn array<A: Actor<Shared = ()>>(
        &self,
        number: u16,
        shape: impl Into<Shape>,
        make: impl FnMut(Index) -> A,
    ) -> Array<N, A> {
        self.array_with(number, shape, (), make)
    }
}

impl<N: Net, A: Actor> Clone for Array<N, A> {
    fn clone(&self) -> Array<N, A> {
        Array {
            inner: Rc::clone(&self.inner),
            store: Rc::clone(&self.store),
            entry: Rc::clone(&self.entry),
            number: self.number,
        }
    }
}

impl<N: Net, A: Actor> Array<N, A> {
    /// Returns the name of the array, by which objects of other arrays send to it.
    pub fn id(&self) -> ArrayId<A> {
        ArrayId::new(self.number)
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        self.entry.shape
    }

    fn error(&self, text: String) -> ActorError {
        let cause = ActorCause::Fault(text);
        ActorError { rank: self.inner.net.rank(), object: None, cause }
    }

    /// Sends a message to an object. It leaves at once, and has its turn in a run: the one that is
    /// on, or the next one.
    ///
    /// # Errors
    /// There is no such index.
    pub fn send(&self, to: impl Into<Index>, message: A::Message) -> Result<(), ActorError> {
        self.send_at(0, to, message)
    }

    /// Sends a message with a priority: the least number comes first, and 0 is that of others.
    ///
    /// # Errors
    /// There is no such index.
    pub fn send_at(
        &self,
        priority: i32,
        to: impl Into<Index>,
        message: A::Message,
    ) -> Result<(), ActorError> {
        let (to, shape) = (to.into(), self.entry.shape);
        let element = shape.number(to);
        let element = element.ok_or_else(|| {
            let name = self.store.name();
            self.error(format!("a message to index {to} of {name}, an array of shape {shape}"))
        })?;
        let message = Box::new(message);
        self.inner.perform(Action::Message { array: self.number, element, priority, message });
        self.inner.wake();
        Ok(())
    }

    /// Sends a message to all objects of the array.
    ///
    /// # Errors
    /// The message has no bytes.
    pub fn broadcast(&self, message: &A::Message) -> Result<(), ActorError> {
        self.broadcast_to(Section::ALL, message)
    }

    /// Sends a message to all objects of a section.
    ///
    /// # Errors
    /// The message has no bytes.
    pub fn broadcast_to(&self, section: Section, message: &A::Message) -> Result<(), ActorError> {
        let bytes = postcard::to_allocvec(message);
        let bytes = bytes.map_err(|why| self.error(format!("a broadcast has no bytes: {why}")))?;
        self.inner.cast(self.number, section.0, 0, (Content::Message, &bytes));
        self.inner.wake();
        Ok(())
    }

    /// Makes a section of the array: all ranks call this with the same number, from 1, and the same
    /// objects.
    ///
    /// # Errors
    /// There is no such index.
    ///
    /// # Panics
    /// The number is 0.
    pub fn section<I: Into<Index>>(
        &self,
        number: u16,
        objects: impl IntoIterator<Item = I>,
    ) -> Result<Section, ActorError> {
        assert!(number > 0, "sections have numbers from 1");
        let shape = self.entry.shape;
        let number_of = |index: I| {
            let index = index.into();
            let none = || self.error(format!("a section with index {index} of shape {shape}"));
            shape.number(index).ok_or_else(none)
        };
        let mut members = objects.into_iter().map(number_of).collect::<Result<Vec<_>, _>>()?;
        members.sort_unstable();
        members.dedup();
        self.entry.sections.borrow_mut().insert(number, members.into());
        Ok(Section(number))
    }

    /// Returns the result of the last reduction of the array that has come to this rank.
    pub fn result(&self) -> Option<A::Value> {
        self.result_of(Section::ALL)
    }

    /// Returns the result of the last reduction of a section that has come to this rank.
    pub fn result_of(&self, section: Section) -> Option<A::Value> {
        let results = self.entry.results.borrow();
        postcard::from_bytes(results.get(&section.0)?).ok()
    }

    /// Calls a function with each object that is at this rank, between runs.
    pub fn each(&self, mut call: impl FnMut(Index, &A)) {
        let shape = self.entry.shape;
        self.store.each(|element, state| call(shape.index(element), state));
    }

    /// Returns the number of objects at this rank.
    pub fn here(&self) -> usize {
        self.store.len()
    }

    /// Returns the rank at which an object is, as far as this rank knows: exact after a balance.
    pub fn rank_of(&self, object: impl Into<Index>) -> Option<usize> {
        let element = self.entry.shape.number(object.into())?;
        Some(self.inner.route(self.number, element))
    }
}
