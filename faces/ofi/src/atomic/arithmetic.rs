//! The operators of `fi_atomic(3)`, applied element by element.

use super::{Datatype, Operator};

/// A number in memory.
trait Number: Copy + PartialEq + Default {
    const SIZE: usize;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn difference(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn one() -> Self;

    /// Returns true for every number but zero, as C does.
    fn is_true(self) -> bool {
        self != Self::default()
    }

    fn truth(truth: bool) -> Self {
        match truth {
            true => Self::one(),
            false => Self::default(),
        }
    }
}

trait Bits: Number + PartialOrd {
    fn or(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
}

/// Implements loading and storing.
macro_rules! in_memory {
    ($t:ty) => {
        const SIZE: usize = size_of::<$t>();

        fn load(bytes: &[u8]) -> Self {
            let mut own = [0; size_of::<$t>()];
            own.copy_from_slice(bytes);
            <$t>::from_ne_bytes(own)
        }

        fn store(self, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.to_ne_bytes());
        }
    };
}

macro_rules! integers {
    ($($t:ty)*) => { $(
        impl Number for $t {
            in_memory!($t);

            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            fn difference(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            fn one() -> Self {
                1
            }
        }

        impl Bits for $t {
            fn or(self, other: Self) -> Self {
                self | other
            }

            fn and(self, other: Self) -> Self {
                self & other
            }

            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            fn not(self) -> Self {
                !self
            }
        }
    )* };
}

macro_rules! floats {
    ($($t:ty)*) => { $(
        impl Number for $t {
            in_memory!($t);

            fn sum(self, other: Self) -> Self {
                self + other
            }

            fn difference(self, other: Self) -> Self {
                self - other
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            fn one() -> Self {
                1.0
            }
        }
    )* };
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64 i128 u128);
floats!(f32 f64);

/// Real and imaginary part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Complex<T>(T, T);

impl<T: Number> Number for Complex<T> {
    const SIZE: usize = 2 * T::SIZE;

    fn load(bytes: &[u8]) -> Self {
        let (real, imaginary) = bytes.split_at(T::SIZE);
        Complex(T::load(real), T::load(imaginary))
    }

    fn store(self, bytes: &mut [u8]) {
        let (real, imaginary) = bytes.split_at_mut(T::SIZE);
        self.0.store(real);
        self.1.store(imaginary);
    }

    fn sum(self, other: Self) -> Self {
        Complex(self.0.sum(other.0), self.1.sum(other.1))
    }

    fn difference(self, other: Self) -> Self {
        Complex(self.0.difference(other.0), self.1.difference(other.1))
    }

    fn product(self, other: Self) -> Self {
        let Complex(a, b) = self;
        let Complex(c, d) = other;
        let real = a.product(c).difference(b.product(d));
        Complex(real, a.product(d).sum(b.product(c)))
    }

    fn one() -> Self {
        Complex(T::one(), T::default())
    }
}

/// Returns the new value, from the value in memory, the operand, and the value to compare with.
type Kernel<T> = fn(T, T, T) -> T;

fn of_any<T: Number>(operator: Operator) -> Option<Kernel<T>> {
    Some(match operator {
        Operator::Sum => |a, b, _| a.sum(b),
        Operator::Difference => |a, b, _| a.difference(b),
        Operator::Product => |a, b, _| a.product(b),
        Operator::LogicalOr => |a, b, _| T::truth(a.is_true() || b.is_true()),
        Operator::LogicalAnd => |a, b, _| T::truth(a.is_true() && b.is_true()),
        Operator::LogicalXor => |a, b, _| T::truth(a.is_true() != b.is_true()),
        Operator::Read => |a, _, _| a,
        Operator::Write => |_, b, _| b,
        Operator::SwapEqual => |a, b, c| if c == a { b } else { a },
        Operator::SwapUnequal => |a, b, c| if c != a { b } else { a },
        _ => return None,
    })
}

fn of_ordered<T: Number + PartialOrd>(operator: Operator) -> Option<Kernel<T>> {
    Some(match operator {
        Operator::Min => |a, b, _| if b < a { b } else { a },
        Operator::Max => |a, b, _| if b > a { b } else { a },
        Operator::SwapLessEqual => |a, b, c| if c <= a { b } else { a },
        Operator::SwapLess => |a, b, c| if c < a { b } else { a },
        Operator::SwapGreaterEqual => |a, b, c| if c >= a { b } else { a },
        Operator::SwapGreater => |a, b, c| if c > a { b } else { a },
        other => return of_any(other),
    })
}

fn of_bits<T: Bits>(operator: Operator) -> Option<Kernel<T>> {
    Some(match operator {
        Operator::BitOr => |a, b, _| a.or(b),
        Operator::BitAnd => |a, b, _| a.and(b),
        Operator::BitXor => |a, b, _| a.xor(b),
        Operator::SwapMasked => |a, b, c| b.and(c).or(a.and(c.not())),
        other => return of_ordered(other),
    })
}

/// Applies a kernel to the elements that are whole in all slices it needs.
fn run<T: Number>(
    kernel: Option<Kernel<T>>,
    target: &mut [u8],
    operand: &[u8],
    compare: Option<&[u8]>,
) {
    let Some(kernel) = kernel else { return };
    let mut compare = compare.map(|c| c.chunks_exact(T::SIZE));
    let operands = operand.chunks_exact(T::SIZE);
    for (place, operand) in target.chunks_exact_mut(T::SIZE).zip(operands) {
        let with = match compare.as_mut().map(Iterator::next) {
            None => T::default(),
            Some(None) => return,
            Some(Some(bytes)) => T::load(bytes),
        };
        kernel(T::load(place), T::load(operand), with).store(place);
    }
}

/// Applies an operation to all elements of `target`. `operand` and, if the operator compares,
/// `compare` are as long as `target`. Does nothing if the type does not have the operator.
pub fn execute(
    datatype: Datatype,
    operator: Operator,
    target: &mut [u8],
    operand: &[u8],
    compare: &[u8],
) {
    let compare = operator.compares().then_some(compare);
    macro_rules! run {
        ($($name:ident $number:ty: $kernels:ident,)*) => {
            match datatype {
                $(Datatype::$name => {
                    run::<$number>($kernels(operator), target, operand, compare);
                })*
            }
        };
    }
    run! {
        Int8 i8: of_bits, Uint8 u8: of_bits, Int16 i16: of_bits, Uint16 u16: of_bits,
        Int32 i32: of_bits, Uint32 u32: of_bits, Int64 i64: of_bits, Uint64 u64: of_bits,
        Int128 i128: of_bits, Uint128 u128: of_bits,
        Float f32: of_ordered, Double f64: of_ordered,
        FloatComplex Complex<f32>: of_any, DoubleComplex Complex<f64>: of_any,
    }
}

#[cfg(test)]
#[path = "arithmetic_tests.rs"]
mod tests;
