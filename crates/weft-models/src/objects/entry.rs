//! One object at this rank: its state, if it is here, and the operations that wait.

use super::adapt::Uses;
use super::{Object, ObjectCause, Read};
use crate::net::Net;
use crate::rpc::Request;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::task::Waker;

/// The end of an operation on the state.
pub(super) enum Executed {
    /// The result, and true if the state may have changed.
    Done(Vec<u8>, bool),
    /// The guard does not hold.
    Blocked,
    /// The operation has panicked while it could change the state.
    Broken(String),
    /// The operation has panicked as a read: the state is as before.
    Panicked(String),
    /// The operation is of another type.
    Unreadable(String),
}

/// The state of an object, whatever its type.
pub(super) trait Replica {
    /// Executes an operation; the bytes of its result are appended to `into`.
    fn execute(&self, op: &[u8], into: Vec<u8>) -> Executed;
    /// Returns the state as bytes; `None` if it is not here.
    fn save(&self) -> Option<Vec<u8>>;
    fn load(&self, bytes: &[u8]) -> Result<(), String>;
    fn clear(&self);
    fn as_any(self: Rc<Self>) -> Rc<dyn Any>;
}

/// The state of an object of a type.
pub(super) struct Typed<T> {
    pub state: RefCell<Option<T>>,
}

impl<T: Object> Replica for Typed<T> {
    fn execute(&self, op: &[u8], into: Vec<u8>) -> Executed {
        let op = match postcard::from_bytes(op) {
            Ok(op) => op,
            Err(why) => return Executed::Unreadable(why.to_string()),
        };
        let (reply, changed) = match self.try_read(&op) {
            Ok(Read::Value(reply)) => (reply, false),
            Ok(Read::Wait) => return Executed::Blocked,
            Ok(Read::Write) => match self.try_apply(op) {
                Ok(Ok(reply)) => (reply, true),
                Ok(Err(_)) => return Executed::Blocked,
                Err(executed) => return executed,
            },
            Err(executed) => return executed,
        };
        match postcard::to_extend(&reply, into) {
            Ok(reply) => Executed::Done(reply, changed),
            Err(why) => Executed::Unreadable(why.to_string()),
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        self.state.borrow().as_ref().and_then(|state| postcard::to_allocvec(state).ok())
    }

    fn load(&self, bytes: &[u8]) -> Result<(), String> {
        let state = postcard::from_bytes(bytes).map_err(|why| why.to_string())?;
        self.state.replace(Some(state));
        Ok(())
    }

    fn clear(&self) {
        self.state.replace(None);
    }

    fn as_any(self: Rc<Self>) -> Rc<dyn Any> {
        self
    }
}

impl<T: Object> Typed<T> {
    /// Does an operation that is no read, if its guard holds; gives it back if not.
    pub fn try_apply(&self, op: T::Op) -> Result<Result<T::Reply, T::Op>, Executed> {
        let state = &mut *self.state.borrow_mut();
        let Some(state) = state else { return Ok(Err(op)) };
        let run = || match state.guard(&op) {
            true => Ok(state.apply(op)),
            false => Err(op),
        };
        catch_unwind(AssertUnwindSafe(run))
            .map_err(|panic| Executed::Broken(crate::panic_text(&*panic)))
    }

    /// Does an operation as a read, if it is one.
    pub fn try_read(&self, op: &T::Op) -> Result<Read<T::Reply>, Executed> {
        let state = self.state.borrow();
        let Some(state) = &*state else { return Ok(Read::Wait) };
        catch_unwind(AssertUnwindSafe(|| state.read(op)))
            .map_err(|panic| Executed::Panicked(crate::panic_text(&*panic)))
    }
}

/// The place of an object now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// On every rank.
    Everywhere,
    /// At a rank.
    At(usize),
    /// At this rank, which has sent its state to all: its operations wait.
    Leaving,
    /// At a rank that has failed.
    Lost(usize),
}

/// An operation that waits for its guard.
pub(super) enum Blocked<N: Net> {
    /// An operation in the order, of a rank and with its number.
    Ordered { from: usize, serial: u64, op: Vec<u8> },
    /// A call to this rank.
    Called { request: Request<N>, op: Vec<u8> },
}

impl<N: Net> Blocked<N> {
    /// True if nobody waits for the operation any more. One in the order is given up there.
    fn is_given_up(&self) -> bool {
        matches!(self, Blocked::Called { request, .. } if request.is_cancelled())
    }
}

pub(super) struct Entry<N: Net> {
    pub number: u64,
    pub name: &'static str,
    pub adaptive: bool,
    pub place: Cell<Where>,
    pub replica: Rc<dyn Replica>,
    pub blocked: RefCell<VecDeque<Blocked<N>>>,
    /// Changes of the state or of the place, and the futures of this rank that wait for one.
    pub version: Cell<u64>,
    pub wakers: RefCell<Vec<Waker>>,
    pub uses: RefCell<Uses>,
    /// Reads of this rank that others do not know of.
    pub reads: Cell<u32>,
    /// True while this rank is about to take the object.
    pub taking: Cell<bool>,
    /// The panic that broke the object, or the reason why it cannot be used here.
    pub broken: RefCell<Option<ObjectCause>>,
}

impl<N: Net> Entry<N> {
    /// Forgets calls whose callers have given them up: they must not be executed.
    pub fn forget_given_up(&self) {
        self.blocked.borrow_mut().retain(|blocked| !blocked.is_given_up());
    }

    /// Notes a change.
    pub fn wake(&self) {
        self.version.set(self.version.get() + 1);
        if !self.wakers.borrow().is_empty() {
            let wakers = self.wakers.take();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}
