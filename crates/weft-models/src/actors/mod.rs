//! Objects that messages drive: arrays of many small objects, which ranks exchange to balance load.
//!
//! An [`Actor`] is a type of the program: a state that can be serialised, and messages that it
//! takes. An [`Array`] has such objects with indices of one to three dimensions, many more than
//! there are ranks. An object sends messages to others by their indices and goes on; nobody waits
//! for an answer. When a message comes, the object has its turn ([`Actor::receive`]), one at a time
//! at each rank. [`Actors::run`] ends when no message is left at any rank.
//!
//! Objects move between ranks with their states: by [`Turn::move_to`], or all by
//! [`Actors::balance`] with a [`Strategy`](balance::Strategy) that knows the measured times of
//! turns and the messages between objects. Messages follow an object that moves: its old rank
//! forwards them, and senders learn the new one. This is the model of Charm++ (Kalé and Krishnan,
//! OOPSLA 1993).
//!
//! # Order
//! Each message has its turn once. Between two objects that stay where they are, messages of one
//! priority keep the order in which they were sent, and so do those of a rank's program; a
//! [`balance`](Actors::balance) in between does not change that. A message that was forwarded after
//! an object which moved by itself may come behind a later one.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use weft_models::actors::{Actor, Actors, Turn};
//! use weft_models::net::{Live, Net};
//!
//! /// A place of a ring, which counts how often the token has passed.
//! #[derive(Serialize, Deserialize)]
//! struct Place(u64);
//!
//! impl Actor for Place {
//!     type Message = u64;
//!     type Value = u64;
//!     type Shared = ();
//!
//!     fn receive(&mut self, left: u64, turn: &mut Turn<'_, Place>) {
//!         self.0 += 1;
//!         match left {
//!             0 => turn.broadcast(&u64::MAX),
//!             u64::MAX => turn.contribute(self.0 - 1),
//!             _ => turn.send((turn.index().x() + 1) % 8, left - 1),
//!         }
//!     }
//!
//!     fn combine(sum: &mut u64, other: u64) {
//!         *sum += other;
//!     }
//! }
//!
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let actors = Actors::open(&net);
//! let ring = actors.array(1, 8, |_| Place(0));
//! if net.rank() == 0 {
//!     ring.send(0, 99)?;
//! }
//! actors.run_blocking()?;
//! println!("rank {}: the token has passed {:?} times", net.rank(), ring.result());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod array;
pub mod balance;
mod casting;
mod casts;
mod checkpoint;
mod entry;
mod error;
mod index;
mod loads;
mod moves;
mod queue;
mod rebalance;
mod reduce;
mod reducing;
mod run;
mod runtime;
mod store;
mod turn;
mod wire;

pub use array::Array;
pub use checkpoint::CHECKPOINT_VERSION;
pub use error::{ActorCause, ActorError};
pub use index::{Index, Shape};
pub use runtime::Actors;
pub use turn::Turn;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// An object that messages drive: its state, which goes with it when it moves.
pub trait Actor: Serialize + DeserializeOwned + 'static {
    /// Messages, with their arguments.
    type Message: Serialize + DeserializeOwned + 'static;
    /// Values of reductions; `()` where there are none.
    type Value: Serialize + DeserializeOwned + 'static;
    /// Values that all objects of an array read at a rank, and that stay there; `()` for none.
    type Shared: 'static;

    /// Version of the state: a checkpoint of another one is refused.
    const VERSION: u32 = 0;

    /// Returns the name of what an array has, for errors and checkpoints: that of the type, unless
    /// one type stands for many.
    fn name(shared: &Self::Shared) -> Cow<'_, str> {
        let _ = shared;
        Cow::Borrowed(std::any::type_name::<Self>())
    }

    /// Takes a message. It must not wait; what it sends is on its way when it returns.
    ///
    /// If it panics, the run ends on all ranks with an error that names the object.
    fn receive(&mut self, message: Self::Message, turn: &mut Turn<'_, Self>)
    where
        Self: Sized;

    /// Combines two values of a reduction. The order of values depends on time and place, so this
    /// has to be associative and commutative.
    fn combine(all: &mut Self::Value, other: Self::Value) {
        let _ = (all, other);
    }

    /// Takes the result of a reduction of a section, or of the whole array ([`Section::ALL`]).
    fn reduced(&mut self, section: Section, value: Self::Value, turn: &mut Turn<'_, Self>)
    where
        Self: Sized,
    {
        let _ = (section, value, turn);
    }
}

/// Some objects of an array, for broadcasts and reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Section(u16);

impl Section {
    /// The whole array.
    pub const ALL: Section = Section(0);

    /// Returns the section that [`Array::section`] has made with this number; 0: the whole array.
    pub fn of(number: u16) -> Section {
        Section(number)
    }

    /// Returns its number.
    pub fn number(self) -> u16 {
        self.0
    }
}

/// The name of an array of `A`, which messages may have in them.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ArrayId<A> {
    number: u16,
    of: PhantomData<fn(A)>,
}

impl<A> ArrayId<A> {
    fn new(number: u16) -> ArrayId<A> {
        ArrayId { number, of: PhantomData }
    }
}

impl<A> Clone for ArrayId<A> {
    fn clone(&self) -> ArrayId<A> {
        *self
    }
}

impl<A> Copy for ArrayId<A> {}

impl<A> fmt::Debug for ArrayId<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "array {}", self.number)
    }
}
