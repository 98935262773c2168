//! The types of elements and the operations of reductions, as Python names them.

use crate::fault::Fault;
use weft::{Number, Op};

/// Returns the type of elements of this name, which is torch's.
///
/// # Errors
/// No reduction combines elements of this type.
pub fn number(name: &str) -> Result<Number, Fault> {
    Ok(match name {
        "bool" => Number::Bool,
        "uint8" => Number::U8,
        "int8" => Number::I8,
        "uint16" => Number::U16,
        "int16" => Number::I16,
        "uint32" => Number::U32,
        "int32" => Number::I32,
        "uint64" => Number::U64,
        "int64" => Number::I64,
        "float16" => Number::F16,
        "bfloat16" => Number::Bf16,
        "float32" => Number::F32,
        "float64" => Number::F64,
        "complex64" => Number::ComplexF32,
        "complex128" => Number::ComplexF64,
        other => {
            let text = format!("reductions do not combine elements of type torch.{other}");
            return Err(Fault::argument(text));
        }
    })
}

/// Returns the operation of this name, which is torch's.
///
/// # Errors
/// There is none of this name, or not for elements of this type.
pub fn op(name: &str, of: Number) -> Result<Op, Fault> {
    let op = match name {
        "SUM" => Op::Sum,
        "AVG" => Op::Average,
        "PRODUCT" => Op::Product,
        "MIN" => Op::Min,
        "MAX" => Op::Max,
        "BAND" => Op::And,
        "BOR" => Op::Or,
        "BXOR" => Op::Xor,
        other => return Err(Fault::argument(format!("there is no reduction by ReduceOp.{other}"))),
    };
    // The sum and the product of truth values are those of logic.
    let op = match (of, op) {
        (Number::Bool, Op::Sum) => Op::Or,
        (Number::Bool, Op::Product) => Op::And,
        (_, op) => op,
    };
    match of.takes(op) {
        true => Ok(op),
        false => Err(Fault::argument(format!("elements of type {of:?} have no ReduceOp.{name}"))),
    }
}
