//! Atomic operations on a peer's memory (`fi_atomic(3)`): libfabric's numbers of types and
//! operators, their valid combinations, the arithmetic, and the messages.
//!
//! A request travels as an active message and is executed in order with everything else from that
//! peer, by the one thread that is inside the domain; this makes it atomic. Elements need not be
//! aligned, and are in the byte order of the machines, which must be the same.

mod arithmetic;
mod message;
mod small;

pub use arithmetic::execute;
pub use message::{answer, serve, Memory, Piece, Refusal, Request};
pub use small::hostile;

/// Longest operand of a request, in bytes: two operands and the pieces fit an active message.
pub const LONGEST: usize = 16 << 10;

/// The type of an element (`enum fi_datatype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Datatype {
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float,
    Double,
    FloatComplex,
    DoubleComplex,
    Int128,
    Uint128,
}

impl Datatype {
    /// All types.
    pub const ALL: [Datatype; 14] = [
        Datatype::Int8,
        Datatype::Uint8,
        Datatype::Int16,
        Datatype::Uint16,
        Datatype::Int32,
        Datatype::Uint32,
        Datatype::Int64,
        Datatype::Uint64,
        Datatype::Float,
        Datatype::Double,
        Datatype::FloatComplex,
        Datatype::DoubleComplex,
        Datatype::Int128,
        Datatype::Uint128,
    ];

    /// Returns the type with libfabric's `number`; `None` for types that are not offered: the
    /// format of `long double` differs between machines.
    pub fn from_number(number: i64) -> Option<Datatype> {
        let at = match number {
            0..=11 => number as usize,
            14 | 15 => number as usize - 2,
            _ => return None,
        };
        Some(Datatype::ALL[at])
    }

    /// Returns libfabric's number.
    pub fn number(self) -> u8 {
        match self as u8 {
            at @ 0..=11 => at,
            at => at + 2,
        }
    }

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        match self {
            Datatype::Int8 | Datatype::Uint8 => 1,
            Datatype::Int16 | Datatype::Uint16 => 2,
            Datatype::Int32 | Datatype::Uint32 | Datatype::Float => 4,
            Datatype::Int64 | Datatype::Uint64 | Datatype::Double | Datatype::FloatComplex => 8,
            Datatype::DoubleComplex | Datatype::Int128 | Datatype::Uint128 => 16,
        }
    }

    fn is_complex(self) -> bool {
        matches!(self, Datatype::FloatComplex | Datatype::DoubleComplex)
    }

    fn is_integer(self) -> bool {
        !matches!(self, Datatype::Float | Datatype::Double) && !self.is_complex()
    }
}

/// The operator applied to an element (`enum fi_op`). Compare-and-swap compares the given value
/// with the value in memory, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Min,
    Max,
    Sum,
    Product,
    LogicalOr,
    LogicalAnd,
    BitOr,
    BitAnd,
    LogicalXor,
    BitXor,
    Read,
    Write,
    SwapEqual,
    SwapUnequal,
    SwapLessEqual,
    SwapLess,
    SwapGreaterEqual,
    SwapGreater,
    SwapMasked,
    Difference,
}

impl Operator {
    /// All operators, in the order of libfabric's numbers.
    pub const ALL: [Operator; 20] = [
        Operator::Min,
        Operator::Max,
        Operator::Sum,
        Operator::Product,
        Operator::LogicalOr,
        Operator::LogicalAnd,
        Operator::BitOr,
        Operator::BitAnd,
        Operator::LogicalXor,
        Operator::BitXor,
        Operator::Read,
        Operator::Write,
        Operator::SwapEqual,
        Operator::SwapUnequal,
        Operator::SwapLessEqual,
        Operator::SwapLess,
        Operator::SwapGreaterEqual,
        Operator::SwapGreater,
        Operator::SwapMasked,
        Operator::Difference,
    ];

    /// Returns the operator with libfabric's `number`.
    pub fn from_number(number: i64) -> Option<Operator> {
        usize::try_from(number).ok().and_then(|at| Operator::ALL.get(at)).copied()
    }

    /// Returns libfabric's number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns true if the operator compares first.
    pub fn compares(self) -> bool {
        (Operator::SwapEqual as u8..=Operator::SwapMasked as u8).contains(&self.number())
    }

    fn is_bitwise(self) -> bool {
        use Operator::{BitAnd, BitOr, BitXor, SwapMasked};
        matches!(self, BitOr | BitAnd | BitXor | SwapMasked)
    }

    fn is_ordered(self) -> bool {
        use Operator::{Max, Min, SwapGreater, SwapGreaterEqual, SwapLess, SwapLessEqual};
        matches!(self, Min | Max | SwapLess | SwapLessEqual | SwapGreater | SwapGreaterEqual)
    }
}

/// The values that an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// None (`fi_atomic`).
    Write,
    /// The values before the operation (`fi_fetch_atomic`).
    Fetch,
    /// The values before the comparison (`fi_compare_atomic`).
    Compare,
}

/// Returns true if this operation exists.
pub fn is_valid(form: Form, datatype: Datatype, operator: Operator) -> bool {
    let of_form = match form {
        Form::Write => !operator.compares() && operator != Operator::Read,
        Form::Fetch => !operator.compares(),
        Form::Compare => operator.compares(),
    };
    let of_type = match operator {
        o if o.is_bitwise() => datatype.is_integer(),
        o if o.is_ordered() => !datatype.is_complex(),
        _ => true,
    };
    of_form && of_type
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn from_number__gives_back_what_number_gave() {
        for datatype in Datatype::ALL {
            assert_eq!(Datatype::from_number(i64::from(datatype.number())), Some(datatype));
        }
        for operator in Operator::ALL {
            assert_eq!(Operator::from_number(i64::from(operator.number())), Some(operator));
        }
        for none in [-1, 12, 13, 16, 20, i64::MAX] {
            assert_eq!(Datatype::from_number(none), None);
            assert!((0..20).contains(&none) || Operator::from_number(none).is_none());
        }
    }

    #[test]
    fn is_valid__each_operator_has_its_forms() {
        use Form::{Compare, Fetch, Write};
        let valid = |form, operator| is_valid(form, Datatype::Int32, operator);
        assert!(valid(Write, Operator::Sum) && valid(Fetch, Operator::Sum));
        assert!(!valid(Compare, Operator::Sum));
        assert!(valid(Fetch, Operator::Read) && !valid(Write, Operator::Read));
        assert!(valid(Compare, Operator::SwapMasked) && !valid(Fetch, Operator::SwapEqual));
    }

    #[test]
    fn is_valid__complex_numbers_have_no_order_and_floats_no_bits() {
        let write = |datatype, operator| is_valid(Form::Write, datatype, operator);
        assert!(write(Datatype::FloatComplex, Operator::Product));
        assert!(!write(Datatype::FloatComplex, Operator::Max));
        assert!(write(Datatype::Double, Operator::Max));
        assert!(!write(Datatype::Double, Operator::BitAnd));
        let compare = |datatype, operator| is_valid(Form::Compare, datatype, operator);
        assert!(compare(Datatype::DoubleComplex, Operator::SwapUnequal));
        assert!(!compare(Datatype::DoubleComplex, Operator::SwapLess));
        assert!(!compare(Datatype::Float, Operator::SwapMasked));
    }
}
