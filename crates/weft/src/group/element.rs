//! Numbers that reductions combine.

/// An operation of a reduction on two values. All are commutative, and associative up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sum; integers wrap.
    Sum,
    /// Product; integers wrap.
    Product,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// Bits set in both; integers only, as the next two.
    And,
    /// Bits set in at least one.
    Or,
    /// Bits set in exactly one.
    Xor,
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
    /// True if values of this type can be combined by `op`.
    fn takes(op: Op) -> bool {
        let _any = op;
        true
    }
}

macro_rules! element {
    ($($ty:ty)*, $bits:literal, $sum:expr, $product:expr, $and:expr, $or:expr, $xor:expr) => {$(
        impl Element for $ty {
            const SIZE: usize = size_of::<$ty>();
            const NAME: &'static str = stringify!($ty);

            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(bytes: &[u8]) -> $ty {
                let mut raw = [0; size_of::<$ty>()];
                raw.copy_from_slice(bytes);
                <$ty>::from_le_bytes(raw)
            }

            fn fold(all: &mut [$ty], bytes: &[u8], op: Op) {
                // The choice of the operation stands outside of the loop.
                fn each(all: &mut [$ty], bytes: &[u8], with: impl Fn($ty, $ty) -> $ty) {
                    for (one, raw) in all.iter_mut().zip(bytes.chunks_exact(size_of::<$ty>())) {
                        *one = with(*one, <$ty>::get(raw));
                    }
                }
                match op {
                    Op::Sum => each(all, bytes, $sum),
                    Op::Product => each(all, bytes, $product),
                    Op::Min => each(all, bytes, |a, b| if b < a { b } else { a }),
                    Op::Max => each(all, bytes, |a, b| if b > a { b } else { a }),
                    Op::And => each(all, bytes, $and),
                    Op::Or => each(all, bytes, $or),
                    Op::Xor => each(all, bytes, $xor),
                }
            }

            fn takes(op: Op) -> bool {
                $bits || !matches!(op, Op::And | Op::Or | Op::Xor)
            }
        }
    )*};
}

element! {
    i8 u8 i16 u16 i32 u32 i64 u64, true,
    |a, b| a.wrapping_add(b), |a, b| a.wrapping_mul(b), |a, b| a & b, |a, b| a | b, |a, b| a ^ b
}
element!(f32 f64, false, |a, b| a + b, |a, b| a * b, |a, _| a, |a, _| a, |a, _| a);

/// Returns the little-endian form of a slice.
pub(super) fn encode<T: Element>(values: &[T]) -> Vec<u8> {
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
