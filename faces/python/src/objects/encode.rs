//! The bytes of calls of objects, and of their answers.
//!
//! A call: the number of messages of the order that its author has executed (8 bytes), the lengths
//! of the object's name and of the operation's (4 each), both names, the arguments. An answer: that
//! number (8 bytes), its [`Status`] (1), the result or the exception. A change of a replicated
//! object is a message of the order: the letter `C`, and a call with its author's token in place of
//! the number; other messages of the order are pickles. Numbers are little-endian.
//!
//! `None`, truth values, integers of 64 bits, floating-point numbers, texts, bytes, and tuples of
//! them have bytes of their own, a letter first: pickling them takes longer than the call. All else
//! is pickled. A class that is made from one of these types is pickled, too.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// The letter before a pickle.
const PICKLE: u8 = b'P';
/// The letter of a change. No pickle begins so.
const CHANGE: u8 = b'C';
/// Most bytes without a pickle.
const LONG: usize = 64 << 10;
/// Most elements of a tuple without a pickle, and the depth of tuples.
const WIDE: usize = 255;
const DEEP: usize = 4;
/// Bytes of a call before the names.
const CALL_HEAD: usize = 16;
/// Bytes of an answer before its value.
const ANSWER_HEAD: usize = 9;

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The object has moved: the operation was not executed, and is to be tried again.
    Moved,
    /// It returned.
    Returned,
    /// It raised an exception.
    Raised,
}

/// A value as it came.
pub enum Value<'py, 'a> {
    Made(Bound<'py, PyAny>),
    Pickled(&'a [u8]),
}

/// A call as it came.
pub struct Asked<'a> {
    pub name: &'a str,
    pub method: &'a str,
    /// The arguments: a tuple, or a pickle of a tuple and a dictionary.
    pub arguments: &'a [u8],
}

impl Status {
    fn of(byte: u8) -> Option<Status> {
        [Status::Moved, Status::Returned, Status::Raised].get(usize::from(byte)).copied()
    }
}

/// Writes a value. False, with some bytes written, if it is to be pickled.
fn put(value: &Bound<'_, PyAny>, to: &mut Vec<u8>, depth: usize) -> bool {
    if value.is_none() {
        to.push(b'N');
    } else if let Ok(value) = value.cast_exact::<PyBool>() {
        to.push(if value.is_true() { b'T' } else { b'F' });
    } else if let Ok(value) = value.cast_exact::<PyInt>() {
        let Ok(value) = value.extract::<i64>() else { return false };
        to.push(b'I');
        to.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = value.cast_exact::<PyFloat>() {
        to.push(b'D');
        to.extend_from_slice(&value.value().to_le_bytes());
    } else if let Ok(value) = value.cast_exact::<PyString>() {
        // One with halves of surrogate pairs has no UTF-8.
        return value.to_str().is_ok_and(|text| put_bytes(b'S', text.as_bytes(), to));
    } else if let Ok(value) = value.cast_exact::<PyBytes>() {
        return put_bytes(b'B', value.as_bytes(), to);
    } else if let Ok(value) = value.cast_exact::<PyTuple>() {
        return put_tuple(value, to, depth);
    } else {
        return false;
    }
    true
}

fn put_bytes(letter: u8, bytes: &[u8], to: &mut Vec<u8>) -> bool {
    if bytes.len() > LONG {
        return false;
    }
    to.push(letter);
    to.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    to.extend_from_slice(bytes);
    true
}

fn put_tuple(tuple: &Bound<'_, PyTuple>, to: &mut Vec<u8>, depth: usize) -> bool {
    if depth == DEEP || tuple.len() > WIDE {
        return false;
    }
    to.extend_from_slice(&[b'(', tuple.len() as u8]);
    let end = to.len() + LONG;
    tuple.iter_borrowed().all(|value| put(&value, to, depth + 1) && to.len() <= end)
}

/// Takes so many bytes.
fn split<'a>(from: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (first, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(first)
}

fn word(from: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(split(from, 4)?.try_into().ok()?))
}

fn long(from: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(split(from, 8)?.try_into().ok()?))
}

/// Reads a value that was written by [`put`]. `None`: it was not.
fn take<'py>(py: Python<'py>, from: &mut &[u8], depth: usize) -> Option<Bound<'py, PyAny>> {
    let letter = split(from, 1)?[0];
    let value = match letter {
        b'N' => py.None().into_bound(py),
        b'T' | b'F' => PyBool::new(py, letter == b'T').to_owned().into_any(),
        b'I' => (long(from)? as i64).into_pyobject(py).ok()?.into_any(),
        b'D' => PyFloat::new(py, f64::from_bits(long(from)?)).into_any(),
        b'S' | b'B' => {
            let len = word(from)? as usize;
            let bytes = split(from, len)?;
            match letter {
                b'S' => PyString::new(py, std::str::from_utf8(bytes).ok()?).into_any(),
                _ => PyBytes::new(py, bytes).into_any(),
            }
        }
        b'(' if depth < DEEP => {
            let count = usize::from(split(from, 1)?[0]);
            let mut values = Vec::with_capacity(count);
            for _ in 0..count {
                values.push(take(py, from, depth + 1)?);
            }
            PyTuple::new(py, values).ok()?.into_any()
        }
        _ => return None,
    };
    Some(value)
}

/// Appends a value. False: it has no bytes of its own, and is to be pickled.
pub fn append(value: &Bound<'_, PyAny>, to: &mut Vec<u8>) -> bool {
    let before = to.len();
    let done = put(value, to, 0);
    if !done {
        to.truncate(before);
    }
    done
}

/// Appends a pickle.
pub fn append_pickle(pickle: &[u8], to: &mut Vec<u8>) {
    to.reserve(1 + pickle.len());
    to.push(PICKLE);
    to.extend_from_slice(pickle);
}

/// Reads a value, all of these bytes. `None`: they are none.
pub fn value<'py, 'a>(py: Python<'py>, bytes: &'a [u8]) -> Option<Value<'py, 'a>> {
    if let Some((&PICKLE, pickle)) = bytes.split_first() {
        return Some(Value::Pickled(pickle));
    }
    let mut rest = bytes;
    let made = take(py, &mut rest, 0)?;
    rest.is_empty().then_some(Value::Made(made))
}

/// Begins a call: its number of executed messages is set later.
pub fn call(name: &str, method: &str) -> Vec<u8> {
    begin(Vec::with_capacity(CALL_HEAD + name.len() + method.len() + 64), 0, name, method)
}

/// Begins a change.
pub fn change(token: u64, name: &str, method: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + CALL_HEAD + name.len() + method.len() + 64);
    bytes.push(CHANGE);
    begin(bytes, token, name, method)
}

fn begin(mut bytes: Vec<u8>, number: u64, name: &str, method: &str) -> Vec<u8> {
    bytes.extend_from_slice(&number.to_le_bytes());
    for part in [name, method] {
        bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
    }
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(method.as_bytes());
    bytes
}

/// Begins an answer.
pub fn answer(executed: u64, status: Status) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&executed.to_le_bytes());
    bytes.push(status as u8);
    bytes
}

/// Sets the number of executed messages of a call.
pub fn set_executed(bytes: &mut [u8], executed: u64) {
    if let Some(place) = bytes.first_chunk_mut() {
        *place = executed.to_le_bytes();
    }
}

/// Returns the number of executed messages of a call or an answer.
pub fn executed(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Reads a call. `None`: it is none.
pub fn read_call(bytes: &[u8]) -> Option<Asked<'_>> {
    let mut rest = bytes.get(8..)?;
    let (name, method) = (word(&mut rest)?, word(&mut rest)?);
    let name = std::str::from_utf8(split(&mut rest, name as usize)?).ok()?;
    let method = std::str::from_utf8(split(&mut rest, method as usize)?).ok()?;
    Some(Asked { name, method, arguments: rest })
}

/// Reads a change: its token, and the call. `None`: the message is another one.
pub fn read_change(bytes: &[u8]) -> Option<(u64, Asked<'_>)> {
    let call = bytes.strip_prefix(&[CHANGE])?;
    Some((executed(call), read_call(call)?))
}

/// Reads an answer: its status and its value. `None`: it is none.
pub fn read_answer(bytes: &[u8]) -> Option<(Status, &[u8])> {
    let (head, value) = bytes.split_at_checked(ANSWER_HEAD)?;
    Some((Status::of(head[ANSWER_HEAD - 1])?, value))
}
