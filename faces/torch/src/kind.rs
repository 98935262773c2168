//! The types of elements and the operations of reductions, as Python names them.

use crate::fault::Fault;
use weft::Op;

/// A type of elements that reductions combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Kind {
    /// Returns the type of this name, which is torch's.
    ///
    /// # Errors
    /// No reduction combines elements of this type.
    pub fn named(name: &str) -> Result<Kind, Fault> {
        Ok(match name {
            "bool" => Kind::Bool,
            "uint8" => Kind::U8,
            "int8" => Kind::I8,
            "uint16" => Kind::U16,
            "int16" => Kind::I16,
            "uint32" => Kind::U32,
            "int32" => Kind::I32,
            "uint64" => Kind::U64,
            "int64" => Kind::I64,
            "float16" => Kind::F16,
            "bfloat16" => Kind::Bf16,
            "float32" => Kind::F32,
            "float64" => Kind::F64,
            other => {
                let text = format!("reductions do not combine elements of type torch.{other}");
                return Err(Fault::argument(text));
            }
        })
    }
}

/// An operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    pub op: Op,
    /// True if the sum is divided by the number of ranks.
    pub is_average: bool,
}

impl Reduction {
    /// Returns the operation of this name, which is torch's.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn named(name: &str) -> Result<Reduction, Fault> {
        let op = match name {
            "SUM" | "AVG" => Op::Sum,
            "PRODUCT" => Op::Product,
            "MIN" => Op::Min,
            "MAX" => Op::Max,
            "BAND" => Op::And,
            "BOR" => Op::Or,
            "BXOR" => Op::Xor,
            other => {
                return Err(Fault::argument(format!("there is no reduction by ReduceOp.{other}")))
            }
        };
        Ok(Reduction { op, is_average: name == "AVG" })
    }

    /// Returns the operation on bytes that are 0 or 1, for truth values.
    pub fn of_truths(self) -> Op {
        match self.op {
            Op::Sum | Op::Max | Op::Or => Op::Max,
            Op::Product | Op::Min | Op::And => Op::Min,
            Op::Xor => Op::Xor,
        }
    }
}
