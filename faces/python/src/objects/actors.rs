//! Actors: arrays of objects that messages drive, whose states are objects of Python.
//!
//! `weft/_actors.py` gives an object its turn and returns what it has done, as a list of actions:
//! nothing of a turn is kept in the interpreter.

use super::outside::Outside;
use super::tools::Tools;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde::{de, ser, Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use weft_models::actors::balance::Balanced;
use weft_models::actors::{Actor, ActorError, Actors, Array, ArrayId, Index, Section, Turn};

/// The pickle of something.
#[derive(Clone, Debug, Default)]
pub struct Pickle(pub Vec<u8>);

/// An object of Python that has turns.
pub struct Piece(pub Py<PyAny>);

/// The values that all objects of an array share at a rank.
pub struct Common {
    /// The name of their class.
    pub kind: String,
    /// The array as Python has it.
    pub array: Py<PyAny>,
    /// All arrays of the job.
    pub ids: Ids,
}

pub type Ids = Rc<RefCell<BTreeMap<u16, ArrayId<Piece>>>>;

/// The exception by which an object here has ended a run, or by which it could not be sent.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

/// Something that all ranks do together.
pub type Work = Pin<Box<dyn Future<Output = Result<Balanced, ActorError>>>>;

/// Something that all ranks do together, and that this rank has begun.
pub struct Begun {
    pub title: &'static str,
    pub work: Work,
}

/// The arrays of a job at this rank.
pub struct Pieces {
    pub actors: Actors<Outside>,
    pub arrays: RefCell<BTreeMap<u16, Array<Outside, Piece>>>,
    pub ids: Ids,
    /// The call that a signal has ended: the next one goes on with it.
    pub begun: RefCell<Option<Begun>>,
}

/// Something that an object has done in its turn: its kind, the number that goes with it, the
/// numbers of an index, a pickle.
type Did = (Act, u32, Vec<usize>, i32, Vec<u8>);

/// The kinds of what an object does, as Python numbers them.
#[derive(Clone, Copy)]
enum Act {
    /// A message to an object of an array.
    Send,
    /// A message to a section.
    Broadcast,
    /// A contribution to a reduction of a section.
    Contribute,
    /// A move to a rank.
    Move,
}

impl<'py> FromPyObject<'_, 'py> for Act {
    type Error = PyErr;

    fn extract(number: Borrowed<'_, 'py, PyAny>) -> PyResult<Act> {
        const ALL: [Act; 4] = [Act::Send, Act::Broadcast, Act::Contribute, Act::Move];
        let number: usize = number.extract()?;
        ALL.get(number).copied().ok_or_else(|| pyo3::exceptions::PyValueError::new_err("an action"))
    }
}

impl Pieces {
    pub fn open(net: &Outside) -> Pieces {
        Pieces {
            actors: Actors::open(net),
            arrays: RefCell::default(),
            ids: Rc::default(),
            begun: RefCell::default(),
        }
    }

    pub fn array(&self, number: u16) -> Option<Array<Outside, Piece>> {
        self.arrays.borrow().get(&number).cloned()
    }
}

/// Returns an index; `None` if it has not one to three numbers.
pub fn index_of(numbers: &[usize]) -> Option<Index> {
    match *numbers {
        [x] => Some(x.into()),
        [x, y] => Some([x, y].into()),
        [x, y, z] => Some([x, y, z].into()),
        _ => None,
    }
}

/// Returns the numbers of an index of an array of so many dimensions.
pub fn numbers_of(index: Index, dims: usize) -> Vec<usize> {
    [index.x(), index.y(), index.z()][..dims].to_vec()
}

impl Serialize for Pickle {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

/// Reads bytes.
struct Bytes;

impl de::Visitor<'_> for Bytes {
    type Value = Pickle;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pickle")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Pickle, E> {
        Ok(Pickle(bytes.to_vec()))
    }
}

impl<'de> Deserialize<'de> for Pickle {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Pickle, D::Error> {
        from.deserialize_bytes(Bytes)
    }
}

impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let pickle = Python::attach(|py| {
            let pickle = Tools::get(py)?.pickle(self.0.bind(py))?;
            PyResult::Ok(pickle.as_bytes().to_vec())
        });
        let pickle = pickle.map_err(|error| {
            let text = text_of(&error);
            note(error);
            ser::Error::custom(text)
        })?;
        Pickle(pickle).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Piece, D::Error> {
        let Pickle(bytes) = Pickle::deserialize(from)?;
        let state = Python::attach(|py| Ok(Tools::get(py)?.unpickle(py, &bytes)?.unbind()));
        state.map(Piece).map_err(|error: PyErr| de::Error::custom(text_of(&error)))
    }
}

/// Notes the exception that ends a run.
pub fn note(error: PyErr) {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
}

/// Takes the exception that has ended a run.
pub fn raised() -> Option<PyErr> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Returns the class and the text of an exception.
pub fn text_of(error: &PyErr) -> String {
    Python::attach(|py| {
        let text = py.import("weft._objects").and_then(|objects| objects.getattr("_text_of"));
        let text = text.and_then(|text| text.call1((error.value(py),))?.extract::<String>());
        text.unwrap_or_else(|_| "an exception without a text".to_string())
    })
}

impl Piece {
    /// Gives the object a turn: `name` is a method of the array, which returns what was done.
    fn enter(&self, turn: &mut Turn<'_, Piece>, name: &str, (section, bytes): (u16, &[u8])) {
        let common = turn.shared();
        let done = Python::attach(|py| {
            let array = common.array.bind(py);
            let dims: usize = array.getattr("dims")?.extract()?;
            let index = numbers_of(turn.index(), dims);
            let pickle = PyBytes::new(py, bytes);
            let args = (&self.0, index, turn.rank(), section, pickle);
            let did = array.call_method1(name, args)?;
            did.cast_into::<PyList>()?.extract::<Vec<Did>>()
        });
        match done {
            Ok(did) => did.into_iter().for_each(|did| perform(turn, did)),
            Err(error) => {
                let text = text_of(&error);
                note(error);
                // The panic of a turn ends the run on all ranks, with this text.
                resume_unwind(Box::new(text));
            }
        }
    }
}

/// Does what an object has done in its turn.
fn perform(turn: &mut Turn<'_, Piece>, (act, number, index, priority, bytes): Did) {
    let message = Pickle(bytes);
    let short = u16::try_from(number).unwrap_or(u16::MAX);
    match act {
        Act::Send => {
            let id = turn.shared().ids.borrow().get(&short).copied();
            // Python has checked both.
            let (Some(id), Some(index)) = (id, index_of(&index)) else { return };
            turn.send_to_at(id, priority, index, message);
        }
        Act::Broadcast => turn.broadcast_to(Section::of(short), &message),
        Act::Contribute => turn.contribute_to(Section::of(short), message),
        Act::Move => turn.move_to(number as usize),
    }
}

impl Actor for Piece {
    type Message = Pickle;
    type Value = Pickle;
    type Shared = Common;

    fn name(common: &Common) -> Cow<'_, str> {
        Cow::Borrowed(&common.kind)
    }

    fn receive(&mut self, message: Pickle, turn: &mut Turn<'_, Piece>) {
        self.enter(turn, "_receive", (0, &message.0));
    }

    /// Combines two contributions. An exception becomes a value, which the turn of the result
    /// raises.
    fn combine(all: &mut Pickle, other: Pickle) {
        let combined = Python::attach(|py| {
            let combine = py.import("weft._actors")?.getattr("_combine")?;
            let (one, two) = (PyBytes::new(py, &all.0), PyBytes::new(py, &other.0));
            combine.call1((one, two))?.extract::<Vec<u8>>()
        });
        match combined {
            Ok(bytes) => all.0 = bytes,
            // Memory is full, or the interpreter ends.
            Err(error) => resume_unwind(Box::new(text_of(&error))),
        }
    }

    fn reduced(&mut self, section: Section, value: Pickle, turn: &mut Turn<'_, Piece>) {
        self.enter(turn, "_reduced", (section.number(), &value.0));
    }
}
