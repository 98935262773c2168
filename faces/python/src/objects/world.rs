//! The shared objects of a job at this rank, under the lock of objects.

use super::actors::Pieces;
use super::operation::{Operation, Reply};
use super::outside::Outside;
use super::registry::{Ask, Entry, Key, Registry};
use super::state::State;
use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::{pin, Pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use weft_models::net::Net;
use weft_models::objects::{Class, ObjectCause, ObjectError, Objects, Placement, Shared};
use weft_models::order::OrderError;

/// The classes of the names and of the objects of Python.
const NAMES: u32 = 1;
const STATES: u32 = 2;

/// An object of Python.
pub type Thing = Shared<Outside, State>;
type Names = Shared<Outside, Registry>;

/// The reason why an operation has no result.
pub enum Failed {
    Object(ObjectError),
    Raised(PyErr),
}

impl From<ObjectError> for Failed {
    fn from(error: ObjectError) -> Failed {
        Failed::Object(error)
    }
}

/// An object that a rank wants to have.
pub struct Wish {
    pub name: String,
    pub kind: Vec<u8>,
    pub placement: Placement,
}

/// Makes the state of an object, under its key, as bytes.
pub type Make = Box<dyn FnOnce(Key) -> PyResult<Vec<u8>>>;

/// The objects.
pub struct World {
    net: Outside,
    objects: Objects<Outside>,
    names: Class<Outside, Registry>,
    states: Class<Outside, State>,
    registry: RefCell<Option<Names>>,
    things: RefCell<HashMap<Key, Thing>>,
    numbers: Cell<u64>,
    /// The arrays of actors, once there are some.
    pieces: RefCell<Option<Rc<Pieces>>>,
}

/// A name that this rank has taken for an object: it is free again if this is dropped.
struct Taken {
    registry: Names,
    name: String,
    key: Key,
    is_made: bool,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_made {
            // A rank that has no part in the objects any more needs no name.
            _ = self.registry.post(&Ask::Free { name: self.name.clone(), key: self.key });
        }
    }
}

impl World {
    /// Opens the objects of a job. `None`: it was left.
    pub fn open(gate: &Arc<Gate>) -> Option<Rc<World>> {
        let net = Outside::open(gate)?;
        let objects = Objects::open(&net);
        let (names, states) = (objects.class(NAMES), objects.class(STATES));
        Some(Rc::new(World {
            net,
            objects,
            names,
            states,
            registry: RefCell::default(),
            things: RefCell::default(),
            numbers: Cell::default(),
            pieces: RefCell::default(),
        }))
    }

    pub fn net(&self) -> &Outside {
        &self.net
    }

    /// True if no post of this rank is under way.
    pub fn is_settled(&self) -> bool {
        let mut flush = pin!(self.objects.flush());
        flush.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Ends this rank's part.
    pub fn close(&self) {
        let things = self.things.take();
        let (registry, pieces) = (self.registry.take(), self.pieces.take());
        drop((things, registry, pieces));
        self.net.close();
    }

    /// Returns the arrays of actors, which the first call opens: all ranks open them.
    pub fn pieces(&self) -> Rc<Pieces> {
        let mut pieces = self.pieces.borrow_mut();
        Rc::clone(pieces.get_or_insert_with(|| Rc::new(Pieces::open(&self.net))))
    }

    /// Returns an object that this rank has.
    pub fn thing(&self, key: Key) -> Option<Thing> {
        self.things.borrow().get(&key).cloned()
    }

    /// Returns the ranks that messages of the order wait for.
    pub fn slow(&self) -> Vec<usize> {
        self.objects.group().slow()
    }

    /// Returns the ranks that are in the group of all ranks, if there has been a view.
    pub fn members(&self) -> Option<Vec<usize>> {
        self.objects.group().view().map(|view| view.members)
    }

    async fn registry(&self) -> Result<Names, ObjectError> {
        let known = self.registry.borrow().clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let opened = self.names.open(0, Placement::Replicated, Registry::default).await?;
        self.registry.replace(Some(opened.clone()));
        Ok(opened)
    }

    fn new_key(&self) -> Key {
        self.numbers.set(self.numbers.get() + 1);
        Key { rank: self.net.rank(), number: self.numbers.get() }
    }

    /// Returns the object of a name, and has it made by `make` if there is none: the first rank
    /// that asks makes it, or the next one if that fails.
    ///
    /// # Errors
    /// The exception of `make`; those of objects.
    pub async fn share(self: Rc<Self>, wish: Wish, make: Make) -> Result<Entry, Failed> {
        let registry = self.registry().await?;
        let (key, mut instead_of) = (self.new_key(), None);
        loop {
            let Wish { name, kind, placement } = &wish;
            let mine = Entry { key, kind: kind.clone(), placement: *placement, made: None };
            let take = Ask::Take { name: name.clone(), entry: mine, instead_of };
            let mut taken =
                Taken { registry: registry.clone(), name: name.clone(), key, is_made: false };
            let Some(entry) = registry.call(take).await? else { continue };
            if entry.key == key {
                let state = make(key).map_err(Failed::Raised)?;
                let thing = self.states.create(*placement, &State::Saved(state)).await?;
                let made = Ask::Made { name: name.clone(), key, id: thing.id() };
                self.things.borrow_mut().insert(key, thing);
                taken.is_made = true;
                return Ok(registry.call(made).await?.unwrap_or(entry));
            }
            taken.is_made = true;
            if let Some(id) = entry.made {
                match self.find(entry.key, id).await {
                    // The object was deleted meanwhile, after its name had become free.
                    Err(error) if error.cause == ObjectCause::NoObject => {
                        instead_of = None;
                        continue;
                    }
                    found => found?,
                }
                return Ok(entry);
            }
            instead_of = self.until_made(&registry, name, entry.key).await?;
        }
    }

    /// Waits until another rank has made an object, or will not. Returns its key if its rank has
    /// failed.
    async fn until_made(
        &self,
        registry: &Names,
        name: &str,
        key: Key,
    ) -> Result<Option<Key>, ObjectError> {
        let mut made = pin!(registry.call(Ask::Wait { name: name.to_string(), key }));
        let group = self.objects.group();
        let mut gone = pin!(group.view_when(|view| !view.members.contains(&key.rank)));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(made) = made.as_mut().poll(cx) {
                return Poll::Ready(made.map(|_| None));
            }
            // The end of this rank's part ends the other wait, too.
            match gone.as_mut().poll(cx) {
                Poll::Ready(Ok(_)) => Poll::Ready(Ok(Some(key))),
                _ => Poll::Pending,
            }
        })
        .await
    }

    async fn find(&self, key: Key, id: weft_models::objects::ObjectId) -> Result<(), ObjectError> {
        if self.thing(key).is_none() {
            let thing = self.states.get(id).await?;
            self.things.borrow_mut().insert(key, thing);
        }
        Ok(())
    }

    /// Returns the entry of a name whose object is there.
    pub fn look_up(&self, name: &str) -> Option<Entry> {
        let entry = self.registry.borrow().as_ref()?.peek(|names| names.get(name).cloned())??;
        let id = entry.made?;
        let mut find = pin!(self.find(entry.key, id));
        let found = find.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        matches!(found, Poll::Ready(Ok(()))).then_some(entry)
    }

    /// Frees the name of an object; `None` if it has no name any more.
    ///
    /// # Errors
    /// Returns the errors of objects.
    pub async fn free(self: Rc<Self>, name: String, key: Key) -> Result<Option<Entry>, Failed> {
        let registry = self.registry().await?;
        Ok(registry.call(Ask::Free { name, key }).await?)
    }
}

/// An operation under way.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T, Failed>>>>;

/// Begins an operation on an object.
pub fn begin(thing: Thing, op: Operation) -> Work<Reply> {
    Box::pin(async move { Ok(thing.call(op).await?) })
}

/// Deletes an object on all ranks.
pub fn delete(thing: Thing) -> Work<()> {
    Box::pin(async move { Ok(thing.delete().await?) })
}

/// Returns the fault of an operation of this name; `None` if its arguments have the cause.
pub fn fault_of(cause: ObjectCause, title: &str) -> Fault {
    match cause {
        ObjectCause::Group(error) => Fault::new(Kind::Peer, format!("{title}: {error}")),
        ObjectCause::Lost { rank } => {
            let text = format!("rank {rank} has failed or left, and the object with it");
            Fault::of_rank(rank, text).of_operation(title)
        }
        ObjectCause::Call(error) => Fault::of_call(&error).of_operation(title),
        ObjectCause::NoObject => {
            Fault::new(Kind::Operation, format!("{title}: the object has been deleted"))
        }
        ObjectCause::Unreadable(why) => {
            Fault::new(Kind::Operation, format!("{title}: bytes that cannot be read: {why}"))
        }
        ObjectCause::Broken(text) | ObjectCause::Panicked(text) => {
            Fault::new(Kind::Operation, format!("{title}: {text}"))
        }
        other => Fault::new(Kind::Operation, format!("{title}: {other:?}")),
    }
}

/// True if there is no room for a post now.
pub fn is_busy(error: &ObjectError) -> bool {
    error.cause == ObjectCause::Group(OrderError::Busy)
}
