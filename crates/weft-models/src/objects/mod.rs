//! Shared objects: typed state that all ranks use by operations, without a server.
//!
//! An object is a type of the program: its state, and operations as values of another type. An
//! operation reads ([`Object::read`]) or changes the state ([`Object::apply`]); a guard
//! ([`Object::guard`]) lets it wait until the state is as it wants. Each operation is indivisible.
//!
//! The [`Placement`] of an object is a matter of speed alone. A *replicated* object is on every
//! rank: reads take no message, and changes are shipped to all ranks in one order. An object *at* a
//! rank is used by calls. *Adaptive* objects move between the two, by the reads and writes that are
//! counted. Operations of all ranks on all objects together are sequentially consistent: they look
//! as if they were done one after the other, those of each rank in its program's order.
//!
//! ```no_run
//! use serde::{Deserialize, Serialize};
//! use weft_models::net::{Blocking, Live, Net};
//! use weft_models::objects::{Object, Objects, Placement, Read};
//!
//! /// A queue from which ranks take jobs, and wait while there is none.
//! #[derive(Default, Serialize, Deserialize)]
//! struct Jobs(std::collections::VecDeque<u64>);
//!
//! #[derive(Serialize, Deserialize)]
//! enum Op {
//!     Put(u64),
//!     Take,
//!     Len,
//! }
//!
//! impl Object for Jobs {
//!     type Op = Op;
//!     type Reply = u64;
//!
//!     fn read(&self, op: &Op) -> Read<u64> {
//!         match op {
//!             Op::Len => Read::Value(self.0.len() as u64),
//!             _ => Read::Write,
//!         }
//!     }
//!
//!     fn guard(&self, op: &Op) -> bool {
//!         !matches!(op, Op::Take) || !self.0.is_empty()
//!     }
//!
//!     fn apply(&mut self, op: Op) -> u64 {
//!         match op {
//!             Op::Put(job) => self.0.push_back(job),
//!             Op::Take => return self.0.pop_front().unwrap_or(0),
//!             Op::Len => {}
//!         }
//!         self.0.len() as u64
//!     }
//! }
//!
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let objects = Objects::open(&net);
//! let class = objects.class::<Jobs>(1);
//! let jobs = net.block_on(class.open(0, Placement::Replicated, Jobs::default))?;
//! if net.rank() == 0 {
//!     for number in 0..net.size() as u64 {
//!         net.block_on(jobs.call(Op::Put(number)))?;
//!     }
//! }
//! println!("rank {} has job {}", net.rank(), net.block_on(jobs.call(Op::Take))?);
//! job.world().barrier_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod adapt;
mod class;
mod directory;
mod entry;
mod error;
mod owner;
mod posts;
mod runtime;
mod shared;
mod strange;
mod waits;
mod wire;

pub use adapt::{Better, Uses, TELL_READS};
pub use class::Class;
pub use error::{ObjectCause, ObjectError};
pub use runtime::Objects;
pub use shared::Shared;

use crate::channel::MESSAGE_MAX;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Most bytes of an operation, and of a state that goes to other ranks: a message has a head
/// besides.
pub const BYTES_MAX: usize = MESSAGE_MAX - 64;

/// Greatest number of a class.
pub const CLASS_MAX: u32 = (1 << 31) - 1;

/// The state of a shared object, and the meaning of its operations.
///
/// The three functions run on several ranks and must have the same results there: they depend on
/// nothing but state and operation. `read` and `guard` change nothing, and no state has interior
/// mutability (`Cell`, `Mutex`, atomics) that they use: such a change would be on one rank alone.
pub trait Object: Serialize + DeserializeOwned + 'static {
    /// Operations, with their arguments.
    type Op: Serialize + DeserializeOwned + 'static;
    /// Results of operations.
    type Reply: Serialize + DeserializeOwned + 'static;

    /// Version of state and operations; ranks with different versions refuse the object.
    const VERSION: u32 = 0;

    /// Does an operation as a read, if it is one in this state.
    fn read(&self, op: &Self::Op) -> Read<Self::Reply> {
        let _ = op;
        Read::Write
    }

    /// True if an operation that changes the state may do so now; otherwise it waits, and is asked
    /// again after each change.
    fn guard(&self, op: &Self::Op) -> bool {
        let _ = op;
        true
    }

    /// Does an operation that changes the state. If it panics, the object is broken on all ranks.
    fn apply(&mut self, op: Self::Op) -> Self::Reply;
}

/// An operation tried as a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<R> {
    /// The operation is a read, and this is its result.
    Value(R),
    /// The operation is a read that has to wait until the state is another.
    Wait,
    /// The operation is no read in this state.
    Write,
}

/// The place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// On every rank: reads are local, changes go to all.
    Replicated,
    /// At one rank, which all others call. If the rank fails, the object is lost.
    At(usize),
    /// On every rank or at one, by the reads and writes of the ranks.
    Adaptive,
}

/// The identity of an object, by which ranks pass it to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    number: u64,
    /// Messages of the group after which it exists.
    after: u64,
}

impl ObjectId {
    /// Returns the number of the object.
    pub fn number(&self) -> u64 {
        self.number
    }
}
