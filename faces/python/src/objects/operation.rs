//! Operations of Python and their results, as [`weft_models::objects`] ships them.
//!
//! An operation that leaves this rank has its arguments as bytes. The result of one whose author is
//! this rank stays an object of Python: it is kept under the token of the operation until the
//! author takes it.

use super::encode::{self, Value};
use super::tools::Tools;
use crate::fault::{Fault, Kind};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The operation that returns the exception with which an object at a rank could not be made there.
pub const MADE: &str = "\0made";
/// The operation that deletes an object.
pub const DELETE: &str = "\0delete";

/// The exception that an operation gets in the middle of its bytes.
pub type Failure = Rc<RefCell<Option<PyErr>>>;

/// The arguments of an operation.
pub enum Arguments {
    /// Arguments of a call of this rank; an exception that their pickling has raised.
    Given { args: Py<PyTuple>, names: Py<PyDict>, failure: Failure },
    /// Arguments that came from another rank: a tuple, or a pickle of a tuple and a dictionary.
    Came(Vec<u8>),
}

/// The arguments as a method takes them.
pub type Made<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

/// An operation.
pub struct Operation {
    pub method: String,
    pub arguments: Arguments,
    /// The rank that has called it.
    pub author: usize,
    /// The author's number for it; 0: nobody waits for its result.
    pub token: u64,
}

/// The bytes of an operation, or of a result.
struct Raw<T>(T);

impl<T: AsRef<[u8]>> Serialize for Raw<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(self.0.as_ref())
    }
}

impl<'de> Deserialize<'de> for Raw<Vec<u8>> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Raw<Vec<u8>>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Raw<Vec<u8>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Raw<Vec<u8>>, E> {
                Ok(Raw(bytes.to_vec()))
            }
        }
        from.deserialize_byte_buf(Bytes)
    }
}

/// Writes bytes as one value.
pub fn write_bytes<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Reads what [`write_bytes`] has written.
pub fn read_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    Raw::<Vec<u8>>::deserialize(from).map(|raw| raw.0)
}

/// Returns the bytes of arguments.
///
/// # Errors
/// The arguments cannot be pickled.
pub fn encode_arguments(
    py: Python<'_>,
    args: &Bound<'_, PyTuple>,
    names: &Bound<'_, PyDict>,
) -> PyResult<Vec<u8>> {
    let mut bytes = Vec::with_capacity(64);
    if !names.is_empty() || !encode::append(args.as_any(), &mut bytes) {
        let both = (args, names).into_pyobject(py)?;
        encode::append_pickle(Tools::get(py)?.pickle(both.as_any())?.as_bytes(), &mut bytes);
    }
    Ok(bytes)
}

fn decode_arguments<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Made<'py>> {
    match encode::value(py, bytes) {
        Some(Value::Made(made)) => Ok((made.cast_into::<PyTuple>()?, None)),
        Some(Value::Pickled(pickle)) => {
            let both = Tools::get(py)?.unpickle(py, pickle)?;
            let (made, names) = both.extract::<(Bound<'_, PyTuple>, Bound<'_, PyDict>)>()?;
            Ok((made, Some(names).filter(|names| !names.is_empty())))
        }
        None => Err(Fault::new(Kind::Operation, "they are no arguments").raise(py)),
    }
}

impl Arguments {
    /// Returns the arguments for a call here. With `by_value`, those of this rank are copies, as if
    /// they came from another one.
    ///
    /// # Errors
    /// The arguments cannot be read.
    pub fn made<'py>(&self, py: Python<'py>, by_value: bool) -> PyResult<Made<'py>> {
        match self {
            Arguments::Came(bytes) => decode_arguments(py, bytes),
            Arguments::Given { args, names, .. } => {
                let (args, names) = (args.bind(py), names.bind(py));
                if by_value {
                    return decode_arguments(py, &encode_arguments(py, args, names)?);
                }
                Ok((args.clone(), Some(names.clone()).filter(|names| !names.is_empty())))
            }
        }
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut parts = to.serialize_tuple(4)?;
        parts.serialize_element(&(self.author as u32))?;
        parts.serialize_element(&self.token)?;
        parts.serialize_element(&self.method)?;
        match &self.arguments {
            Arguments::Came(bytes) => parts.serialize_element(&Raw(bytes))?,
            Arguments::Given { args, names, failure } => {
                let encoded =
                    Python::attach(|py| encode_arguments(py, args.bind(py), names.bind(py)));
                match encoded {
                    Ok(bytes) => parts.serialize_element(&Raw(bytes))?,
                    Err(error) => {
                        failure.replace(Some(error));
                        return Err(S::Error::custom("arguments that cannot be pickled"));
                    }
                }
            }
        }
        parts.end()
    }
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Operation, D::Error> {
        let (author, token, method, bytes) = <(u32, u64, String, Raw<Vec<u8>>)>::deserialize(from)?;
        let arguments = Arguments::Came(bytes.0);
        Ok(Operation { method, arguments, author: author as usize, token })
    }
}

/// The end of an operation: true and its result, or false and its exception.
type End = (bool, Py<PyAny>);

/// Results of this rank's operations that wait for their author; `None` before they are there.
static KEPT: Mutex<Option<HashMap<u64, Option<End>>>> = Mutex::new(None);
static TOKENS: AtomicU64 = AtomicU64::new(0);

fn kept() -> MutexGuard<'static, Option<HashMap<u64, Option<End>>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place for the result of an operation of this rank, until dropped.
pub struct Place(pub u64);

impl Place {
    pub fn new() -> Place {
        let token = TOKENS.fetch_add(1, Ordering::Relaxed) + 1;
        kept().get_or_insert_default().insert(token, None);
        Place(token)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The destructor of the object runs without the lock.
        let left = kept().as_mut().and_then(|all| all.remove(&self.0));
        drop(left);
    }
}

/// The result of an operation.
pub enum Reply {
    /// Of one that was executed here.
    Made {
        ok: bool,
        value: Py<PyAny>,
        /// The token, if its author is this rank.
        own: Option<u64>,
        /// True if its author waits at another rank, for the object of this name.
        wanted: Option<String>,
    },
    /// The result is kept under this token.
    Kept(u64),
    /// The result came from another rank.
    Came { ok: bool, bytes: Vec<u8> },
    /// Nobody wants it.
    Nothing,
}

const NOTHING: u8 = 0;
const KEPT_HERE: u8 = 1;
const RETURNED: u8 = 2;
const RAISED: u8 = 3;

/// Returns the bytes of a result for another rank, and true if it returned.
fn encode_result(ok: bool, value: &Bound<'_, PyAny>, name: &str) -> PyResult<(bool, Vec<u8>)> {
    let (tools, mut bytes) = (Tools::get(value.py())?, Vec::with_capacity(64));
    if !ok {
        tools.note(value, name)?;
    }
    if ok && encode::append(value, &mut bytes) {
        return Ok((ok, bytes));
    }
    let (ok, pickle) = tools.pickle_result(ok, value)?;
    encode::append_pickle(pickle.as_bytes(), &mut bytes);
    Ok((ok, bytes))
}

impl Reply {
    fn parts(&self) -> PyResult<(u8, u64, Vec<u8>)> {
        Ok(match self {
            Reply::Made { ok, value, own: Some(token), .. } => {
                let value = Python::attach(|py| value.clone_ref(py));
                let before = match kept().as_mut().and_then(|all| all.get_mut(token)) {
                    Some(place) => place.replace((*ok, value)),
                    // Its author has given it up.
                    None => Some((*ok, value)),
                };
                drop(before);
                (KEPT_HERE, *token, Vec::new())
            }
            Reply::Made { ok, value, wanted: Some(name), .. } => {
                let (ok, bytes) = Python::attach(|py| encode_result(*ok, value.bind(py), name))?;
                (if ok { RETURNED } else { RAISED }, 0, bytes)
            }
            Reply::Made { .. } | Reply::Nothing => (NOTHING, 0, Vec::new()),
            Reply::Kept(token) => (KEPT_HERE, *token, Vec::new()),
            Reply::Came { ok, bytes } => (if *ok { RETURNED } else { RAISED }, 0, bytes.clone()),
        })
    }

    /// Returns the result of an operation of this rank, or the exception that it has raised.
    ///
    /// # Errors
    /// The exception.
    pub fn result(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let (ok, value) = match self {
            Reply::Made { ok, value, .. } => (ok, value),
            Reply::Kept(token) => {
                let end = kept().as_mut().and_then(|all| all.get_mut(&token)?.take());
                end.ok_or_else(|| unread(py))?
            }
            Reply::Came { ok, bytes } => match encode::value(py, &bytes) {
                Some(Value::Made(value)) => (ok, value.unbind()),
                Some(Value::Pickled(pickle)) => {
                    (ok, Tools::get(py)?.unpickle(py, pickle)?.unbind())
                }
                None => return Err(unread(py)),
            },
            Reply::Nothing => return Err(unread(py)),
        };
        match ok {
            true => Ok(value),
            false => Err(PyErr::from_value(value.into_bound(py))),
        }
    }
}

fn unread(py: Python<'_>) -> PyErr {
    Fault::new(Kind::Operation, "an answer that cannot be read").raise(py)
}

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (kind, token, bytes) =
            self.parts().map_err(|_| S::Error::custom("a result that cannot be sent"))?;
        (kind, token, Raw(bytes)).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Reply {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Reply, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Reply;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a result")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Reply, A::Error> {
                let short = || A::Error::custom("too short");
                let kind: u8 = all.next_element()?.ok_or_else(short)?;
                let token: u64 = all.next_element()?.ok_or_else(short)?;
                let bytes: Raw<Vec<u8>> = all.next_element()?.ok_or_else(short)?;
                Ok(match kind {
                    KEPT_HERE => Reply::Kept(token),
                    RETURNED | RAISED => Reply::Came { ok: kind == RETURNED, bytes: bytes.0 },
                    _ => Reply::Nothing,
                })
            }
        }
        from.deserialize_tuple(3, Parts)
    }
}
