//! Numbers that reductions combine.

use super::number::{Bf16, Complex, F16};
use super::sys;

/// An operation of a reduction on two values. All are commutative, and associative up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Product,
    /// The smaller; if a floating-point value is no number, so is the result.
    Min,
    /// The larger; if a floating-point value is no number, so is the result.
    Max,
    /// Bits set in both; integers and truth values only, as the next two.
    And,
    /// Bits set in at least one.
    Or,
    /// Bits set in exactly one.
    Xor,
    /// The sum, divided by the number of ranks; floating-point and complex numbers only.
    Average,
}

/// A number with a fixed little-endian form.
pub trait Element: Copy + 'static {
    /// Size in bytes.
    const SIZE: usize;
    /// The name of the type, by which ranks that combine values compare their types.
    const NAME: &'static str;
    /// Appends the little-endian form.
    fn put(self, out: &mut Vec<u8>);
    /// Reads the little-endian form of `SIZE` bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Combines values with those encoded in `bytes`, position by position. Never called with an
    /// `op` that `takes` refuses.
    fn fold(all: &mut [Self], bytes: &[u8], op: Op);
    /// True if values of this type can be combined by `op`. [`Op::Average`] needs
    /// [`divide`](Self::divide).
    fn takes(op: Op) -> bool {
        op != Op::Average
    }
    /// Returns the value divided by a number of ranks, for [`Op::Average`].
    fn divide(self, ranks: usize) -> Self {
        let _one = ranks;
        self
    }
    /// Divides encoded values by a number of ranks.
    fn divide_bytes(all: &mut [u8], ranks: usize) {
        let mut one = Vec::with_capacity(Self::SIZE);
        for raw in all.chunks_exact_mut(Self::SIZE) {
            one.clear();
            Self::get(raw).divide(ranks).put(&mut one);
            raw.copy_from_slice(&one);
        }
    }
    /// Combines encoded values with others, position by position.
    fn fold_bytes(all: &mut [u8], bytes: &[u8], op: Op) {
        let mut values: Vec<Self> = decode(all);
        Self::fold(&mut values, bytes, op);
        all.copy_from_slice(&encode(&values));
    }
    /// Returns the values' memory, where it has the little-endian form: operations then use the
    /// memory itself in the place of encoded copies.
    fn bytes(values: &[Self]) -> Option<&[u8]> {
        let _encoded = values;
        None
    }
    /// Returns the values' memory to be written, where any bytes are valid values in the
    /// little-endian form.
    fn bytes_mut(values: &mut [Self]) -> Option<&mut [u8]> {
        let _encoded = values;
        None
    }
}

/// Combines values of `N` bytes one by one. The loop stands alone, so that it becomes vector
/// instructions.
#[inline(always)]
pub(super) fn each<const N: usize>(
    all: &mut [u8],
    bytes: &[u8],
    with: impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    let (all, bytes) = (all.as_chunks_mut::<N>().0, bytes.as_chunks::<N>().0);
    for (one, other) in all.iter_mut().zip(bytes) {
        *one = with(*one, *other);
    }
}

/// Combines values that are no bytes of memory: encodes them, and reads the result.
fn fold_encoded<T: Element>(all: &mut [T], bytes: &[u8], op: Op) {
    if let Some(own) = T::bytes_mut(all) {
        return T::fold_bytes(own, bytes, op);
    }
    let mut own = encode(all);
    T::fold_bytes(&mut own, bytes, op);
    store(all, &own);
}

/// Defines the parts of an element that has a form of `N` bytes in memory.
macro_rules! plain {
    ($ty:ty, $name:expr) => {
        const SIZE: usize = size_of::<$ty>();
        const NAME: &'static str = $name;

        fn put(self, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.to_le_bytes());
        }

        fn get(bytes: &[u8]) -> $ty {
            let mut raw = [0; size_of::<$ty>()];
            raw.copy_from_slice(bytes);
            <$ty>::from_le_bytes(raw)
        }

        fn fold(all: &mut [$ty], bytes: &[u8], op: Op) {
            fold_encoded(all, bytes, op);
        }

        fn bytes(values: &[$ty]) -> Option<&[u8]> {
            sys::plain::bytes(values)
        }

        fn bytes_mut(values: &mut [$ty]) -> Option<&mut [u8]> {
            sys::plain::bytes_mut(values)
        }
    };
}

/// Returns a function on encoded values.
macro_rules! encoded {
    ($ty:ty, $with:expr) => {
        |a, b| {
            let with: fn($ty, $ty) -> $ty = $with;
            with(<$ty>::from_le_bytes(a), <$ty>::from_le_bytes(b)).to_le_bytes()
        }
    };
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Element for $ty {
            plain!($ty, stringify!($ty));

            fn fold_bytes(all: &mut [u8], bytes: &[u8], op: Op) {
                match op {
                    Op::Sum | Op::Average => {
                        each(all, bytes, encoded!($ty, |a, b| a.wrapping_add(b)))
                    }
                    Op::Product => each(all, bytes, encoded!($ty, |a, b| a.wrapping_mul(b))),
                    Op::Min => each(all, bytes, encoded!($ty, |a, b| a.min(b))),
                    Op::Max => each(all, bytes, encoded!($ty, |a, b| a.max(b))),
                    Op::And => each(all, bytes, encoded!($ty, |a, b| a & b)),
                    Op::Or => each(all, bytes, encoded!($ty, |a, b| a | b)),
                    Op::Xor => each(all, bytes, encoded!($ty, |a, b| a ^ b)),
                }
            }
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);

/// The smaller of two floating-point values, alike in whichever order they are given: of two zeros
/// the negative one, and one fixed value if either is no number.
macro_rules! least {
    ($ty:ty) => {
        encoded!($ty, |a, b| match a.is_nan() || b.is_nan() {
            true => <$ty>::NAN,
            false => match b < a || b == a && b.is_sign_negative() {
                true => b,
                false => a,
            },
        })
    };
}

/// The larger of two, as above.
macro_rules! most {
    ($ty:ty) => {
        encoded!($ty, |a, b| match a.is_nan() || b.is_nan() {
            true => <$ty>::NAN,
            false => match b > a || b == a && b.is_sign_positive() {
                true => b,
                false => a,
            },
        })
    };
}

/// Implements the trait for floating-point types.
macro_rules! floats {
    ($($ty:ty, $name:expr;)*) => {$(
        impl Element for $ty {
            plain!($ty, $name);

            fn fold_bytes(all: &mut [u8], bytes: &[u8], op: Op) {
                match op {
                    Op::Product => each(all, bytes, encoded!($ty, |a, b| a * b)),
                    Op::Min => each(all, bytes, least!($ty)),
                    Op::Max => each(all, bytes, most!($ty)),
                    _ => each(all, bytes, encoded!($ty, |a, b| a + b)),
                }
            }

            fn takes(op: Op) -> bool {
                !matches!(op, Op::And | Op::Or | Op::Xor)
            }

            fn divide(self, ranks: usize) -> $ty {
                self.divided_by(ranks)
            }

            fn divide_bytes(all: &mut [u8], ranks: usize) {
                for one in all.as_chunks_mut().0 {
                    *one = <$ty>::from_le_bytes(*one).divided_by(ranks).to_le_bytes();
                }
            }
        }
    )*};
}

/// Division by a number of ranks.
trait Divided {
    fn divided_by(self, ranks: usize) -> Self;
}

impl Divided for f32 {
    fn divided_by(self, ranks: usize) -> f32 {
        self / ranks as f32
    }
}

impl Divided for f64 {
    fn divided_by(self, ranks: usize) -> f64 {
        self / ranks as f64
    }
}

impl Divided for F16 {
    fn divided_by(self, ranks: usize) -> F16 {
        F16::from_f32(self.to_f32() / ranks as f32)
    }
}

impl Divided for Bf16 {
    fn divided_by(self, ranks: usize) -> Bf16 {
        Bf16::from_f32(self.to_f32() / ranks as f32)
    }
}

floats! {
    f32, "f32";
    f64, "f64";
    F16, "f16";
    Bf16, "bf16";
}

macro_rules! complex {
    ($($ty:ty, $name:expr;)*) => {$(
        impl Element for Complex<$ty> {
            plain!(Complex<$ty>, $name);

            fn fold_bytes(all: &mut [u8], bytes: &[u8], op: Op) {
                match op {
                    Op::Product => each(all, bytes, encoded!(Complex<$ty>, |a, b| a * b)),
                    // The parts are added one by one.
                    _ => <$ty>::fold_bytes(all, bytes, Op::Sum),
                }
            }

            fn takes(op: Op) -> bool {
                matches!(op, Op::Sum | Op::Product | Op::Average)
            }

            fn divide(self, ranks: usize) -> Complex<$ty> {
                Complex { re: self.re.divided_by(ranks), im: self.im.divided_by(ranks) }
            }

            fn divide_bytes(all: &mut [u8], ranks: usize) {
                <$ty>::divide_bytes(all, ranks);
            }
        }
    )*};
}

complex! {
    f32, "complex of f32";
    f64, "complex of f64";
}

/// Truth values: the sum and the larger are "or", the product and the smaller are "and".
impl Element for bool {
    const SIZE: usize = 1;
    const NAME: &'static str = "bool";

    fn put(self, out: &mut Vec<u8>) {
        out.push(u8::from(self));
    }

    fn get(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|&byte| byte != 0)
    }

    fn fold(all: &mut [bool], bytes: &[u8], op: Op) {
        fold_encoded(all, bytes, op);
    }

    fn fold_bytes(all: &mut [u8], bytes: &[u8], op: Op) {
        let truth = |[byte]: [u8; 1]| u8::from(byte != 0);
        match op {
            Op::Product | Op::Min | Op::And => each(all, bytes, |a, b| [truth(a) & truth(b)]),
            Op::Xor => each(all, bytes, |a, b| [truth(a) ^ truth(b)]),
            _ => each(all, bytes, |a, b| [truth(a) | truth(b)]),
        }
    }

    fn bytes(values: &[bool]) -> Option<&[u8]> {
        sys::plain::bytes(values)
    }
}

/// Returns the little-endian form of a slice.
pub(super) fn encode<T: Element>(values: &[T]) -> Vec<u8> {
    if let Some(bytes) = T::bytes(values) {
        return bytes.to_vec();
    }
    let mut out = Vec::with_capacity(values.len() * T::SIZE);
    values.iter().for_each(|v| v.put(&mut out));
    out
}

/// Reads values from their little-endian form into a slice of their number.
pub(super) fn store<T: Element>(values: &mut [T], bytes: &[u8]) {
    for (value, raw) in values.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
        *value = T::get(raw);
    }
}

/// Reads values from their little-endian form.
pub(super) fn decode<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::SIZE).map(T::get).collect()
}
