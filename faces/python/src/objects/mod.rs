//! Shared objects: those of [`weft_models::objects`], whose states are objects of Python.
//!
//! An operation calls the interpreter, which must not happen under the job's lock. So the objects
//! are outside of it, under a lock of their own (`work`), and have a net of their own (`outside`).
//! `weft/_objects.py` has the decorators and the handles.

mod actors;
mod driven;
mod encode;
mod operation;
mod outside;
mod registry;
mod state;
mod tasks;
mod thing;
mod tools;
mod work;
mod world;

pub use driven::PyActors;
pub use thing::{PyMessages, PyThing};
pub use work::Worker;
