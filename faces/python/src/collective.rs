//! Arguments and results of collective operations.

use crate::fault::Fault;
use crate::group::PyGroup;
use crate::inside::Outcome;
use crate::number::number;
use crate::request::{Deliver, Pending};
use crate::sys::Export;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};
use weft::{Element, Number, Op, OpError, F16};

/// Returns copies of the buffers of a list.
pub fn each(py: Python<'_>, list: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    let parts = list.try_iter()?.map(|part| Ok(Export::read(&part?)?.to_vec(py)));
    parts.collect()
}

/// The form of a result of one message.
pub fn whole(into: Option<&Bound<'_, PyAny>>) -> PyResult<Deliver> {
    Ok(match into {
        Some(object) => Deliver::Into(Export::write(object)?, object.clone().unbind()),
        None => Deliver::Bytes,
    })
}

/// The form of a result of a message from each rank.
pub fn parts(into: Option<&Bound<'_, PyAny>>) -> PyResult<Deliver> {
    Ok(match into {
        Some(object) => Deliver::PartsInto(Export::write(object)?, object.clone().unbind()),
        None => Deliver::Bytes,
    })
}

/// Numbers to be combined: the letter of their type, as the module `struct` writes it, their bytes,
/// and the place of the result.
pub struct Numbers {
    kind: char,
    bytes: Vec<u8>,
    deliver: Deliver,
}

impl Numbers {
    /// `gets`: this rank gets the result.
    pub fn of(
        values: &Bound<'_, PyAny>,
        into: Option<&Bound<'_, PyAny>>,
        gets: bool,
    ) -> PyResult<Numbers> {
        let py = values.py();
        if values.is_instance_of::<PyInt>() {
            let bytes = number::<i64>(values)?.to_ne_bytes().to_vec();
            return Ok(Numbers { kind: 'q', bytes, deliver: Deliver::Number('q') });
        }
        if values.is_instance_of::<PyFloat>() {
            let bytes = values.extract::<f64>()?.to_ne_bytes().to_vec();
            return Ok(Numbers { kind: 'd', bytes, deliver: Deliver::Number('d') });
        }
        let memory = Export::read(values)?;
        if memory.is_number() && values.hasattr("item")? {
            return Numbers::of(&values.call_method0("item")?, into, gets);
        }
        let (kind, bytes) = (kind_of(&memory).map_err(|fault| fault.raise(py))?, memory.to_vec(py));
        // Its lock ends: the result may go to the same memory.
        drop(memory);
        let deliver = match gets {
            true => whole(Some(into.unwrap_or(values)))?,
            false => Deliver::Nothing,
        };
        Ok(Numbers { kind, bytes, deliver })
    }
}

/// Returns the type of a buffer's numbers as a letter of standard size.
///
/// # Errors
/// The type is none of numbers that can be combined.
fn kind_of(memory: &Export) -> Result<char, Fault> {
    let format = memory.format();
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let letter = format.strip_prefix(['@', '=', native]).unwrap_or(format);
    match letter {
        "b" | "B" | "h" | "H" | "i" | "I" | "q" | "Q" | "f" | "d" | "e" | "?" => {
            Ok(letter.chars().next())
        }
        // 64 bits where the kernel is Linux on a machine of 64 bits, and not in standard sizes.
        "l" if !format.starts_with(['=', native]) => Ok(Some('q')),
        "L" if !format.starts_with(['=', native]) => Ok(Some('Q')),
        "l" => Ok(Some('i')),
        "L" => Ok(Some('I')),
        _ => Err(Fault::argument(format!(
            "numbers of type {format:?} cannot be combined: pass integers of 8 to 64 bits, truth \
             values, or floats of 16, 32 or 64 bits"
        ))),
    }
    .map(|letter| letter.unwrap_or('d'))
}

/// Returns the type of numbers with a letter.
fn number_of(letter: char) -> Number {
    match letter {
        'b' => Number::I8,
        'B' => Number::U8,
        'h' => Number::I16,
        'H' => Number::U16,
        'i' => Number::I32,
        'I' => Number::U32,
        'q' => Number::I64,
        'Q' => Number::U64,
        'e' => Number::F16,
        'f' => Number::F32,
        '?' => Number::Bool,
        _ => Number::F64,
    }
}

/// Turns numbers of this machine's byte order into little-endian ones, or back.
fn turned(mut bytes: Vec<u8>, size: usize) -> Vec<u8> {
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    bytes
}

fn op_of(name: &str) -> Result<Op, Fault> {
    Ok(match name {
        "sum" => Op::Sum,
        "product" => Op::Product,
        "min" => Op::Min,
        "max" => Op::Max,
        "and" => Op::And,
        "or" => Op::Or,
        "xor" => Op::Xor,
        "average" => Op::Average,
        _ => {
            let text = format!("op={name:?}: pass sum, product, min, max, and, or, xor, average");
            return Err(Fault::argument(text));
        }
    })
}

fn decode<T: Element>(bytes: &[u8]) -> Vec<T> {
    let native = |raw: &[u8]| match cfg!(target_endian = "little") {
        true => T::get(raw),
        false => T::get(&raw.iter().rev().copied().collect::<Vec<u8>>()),
    };
    bytes.chunks_exact(T::SIZE).map(native).collect()
}

fn encode<T: Element>(values: Vec<T>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * T::SIZE);
    values.into_iter().for_each(|value| value.put(&mut bytes));
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(T::SIZE).for_each(<[u8]>::reverse);
    }
    bytes
}

impl PyGroup {
    pub(crate) fn start_barrier(&self, py: Python<'_>) -> PyResult<Pending> {
        self.begin(py, weft::Group::barrier, |()| Outcome::Nothing)
    }

    /// Returns the bytes that the root passes; `None` on other ranks.
    ///
    /// # Errors
    /// The root passes none.
    pub(crate) fn given(
        &self,
        py: Python<'_>,
        data: Option<&Bound<'_, PyAny>>,
        root: usize,
    ) -> PyResult<Option<Vec<u8>>> {
        match data {
            Some(data) if self.rank == root => Ok(Some(Export::read(data)?.to_vec(py))),
            None if self.rank == root => Err(Fault::argument("the root passes a buffer").raise(py)),
            _ => Ok(None),
        }
    }

    /// Combines the numbers of all ranks at the root, or everywhere.
    pub(crate) fn combine(
        &self,
        py: Python<'_>,
        numbers: Numbers,
        op: &str,
        root: Option<usize>,
    ) -> PyResult<Py<PyAny>> {
        let op = op_of(op).map_err(|fault| fault.raise(py))?;
        let Numbers { kind, bytes, deliver } = numbers;
        let of = number_of(kind);
        if !of.takes(op) {
            return Err(Fault::argument(OpError::NoSuchOp.to_string()).raise(py));
        }
        let pending = match (root, of) {
            (None, _) => self.begin_combine_all(py, bytes, (of, op)),
            (Some(root), Number::I8) => self.begin_combine::<i8>(py, &bytes, op, root),
            (Some(root), Number::U8) => self.begin_combine::<u8>(py, &bytes, op, root),
            (Some(root), Number::I16) => self.begin_combine::<i16>(py, &bytes, op, root),
            (Some(root), Number::U16) => self.begin_combine::<u16>(py, &bytes, op, root),
            (Some(root), Number::I32) => self.begin_combine::<i32>(py, &bytes, op, root),
            (Some(root), Number::U32) => self.begin_combine::<u32>(py, &bytes, op, root),
            (Some(root), Number::I64) => self.begin_combine::<i64>(py, &bytes, op, root),
            (Some(root), Number::U64) => self.begin_combine::<u64>(py, &bytes, op, root),
            (Some(root), Number::F32) => self.begin_combine::<f32>(py, &bytes, op, root),
            (Some(root), Number::F16) => self.begin_combine::<F16>(py, &bytes, op, root),
            (Some(root), Number::Bool) => self.begin_combine::<bool>(py, &bytes, op, root),
            (Some(root), _) => self.begin_combine::<f64>(py, &bytes, op, root),
        };
        pending?.result(py, &deliver)
    }

    fn begin_combine_all(
        &self,
        py: Python<'_>,
        bytes: Vec<u8>,
        (of, op): (Number, Op),
    ) -> PyResult<Pending> {
        let bytes = turned(bytes, of.size());
        self.begin(
            py,
            |group| group.placed().start_allreduce(bytes, of, op),
            move |got: Vec<u8>| Outcome::Bytes(turned(got, of.size())),
        )
    }

    fn begin_combine<T: Element>(
        &self,
        py: Python<'_>,
        bytes: &[u8],
        op: Op,
        root: usize,
    ) -> PyResult<Pending> {
        let values = decode::<T>(bytes);
        self.begin(
            py,
            |group| group.reduce(root, values, op),
            |got: Option<Vec<T>>| got.map_or(Outcome::Nothing, |v| Outcome::Bytes(encode(v))),
        )
    }
}
