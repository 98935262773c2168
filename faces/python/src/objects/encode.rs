//! The bytes of arguments and results.
//!
//! `None`, truth values, integers of 64 bits, floating-point numbers, texts, bytes, and tuples of
//! them have bytes of their own, a letter first, little-endian: pickling them takes longer than a
//! call. All else is pickled. A class that is made from one of these types is pickled, too.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple};

/// The letter before a pickle.
const PICKLE: u8 = b'P';
/// Most bytes without a pickle.
const LONG: usize = 64 << 10;
/// Most elements of a tuple without a pickle, and the depth of tuples.
const WIDE: usize = 255;
const DEEP: usize = 4;
/// A value as it came.
pub enum Value<'py, 'a> {
    Made(Bound<'py, PyAny>),
    Pickled(&'a [u8]),
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
