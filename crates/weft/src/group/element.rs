//! Numbers that reductions work on.

/// How a reduction combines two values. All are commutative and associative up to rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sum; integers wrap.
    Sum,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

/// A number with a fixed little-endian form.
pub trait Element: Copy + 'static {
    /// Size in bytes.
    const SIZE: usize;
    /// Appends the little-endian form.
    fn put(self, out: &mut Vec<u8>);
    /// From its little-endian form of `SIZE` bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Combines two values.
    fn combine(self, other: Self, op: Op) -> Self;
}

macro_rules! element {
    ($($ty:ty: $sum:expr;)*) => {$(
        impl Element for $ty {
            const SIZE: usize = size_of::<$ty>();

            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(bytes: &[u8]) -> $ty {
                let mut raw = [0; size_of::<$ty>()];
                raw.copy_from_slice(bytes);
                <$ty>::from_le_bytes(raw)
            }

            fn combine(self, other: $ty, op: Op) -> $ty {
                let sum: fn($ty, $ty) -> $ty = $sum;
                match op {
                    Op::Sum => sum(self, other),
                    Op::Min => if other < self { other } else { self },
                    Op::Max => if other > self { other } else { self },
                }
            }
        }
    )*};
}

element! {
    u8: |a, b| a.wrapping_add(b);
    i32: |a, b| a.wrapping_add(b);
    u32: |a, b| a.wrapping_add(b);
    i64: |a, b| a.wrapping_add(b);
    u64: |a, b| a.wrapping_add(b);
    f32: |a, b| a + b;
    f64: |a, b| a + b;
}

/// The little-endian form of a slice.
pub(super) fn encode<T: Element>(values: &[T]) -> Vec<u8> {
    let mut out = Vec::with_capacity(values.len() * T::SIZE);
    values.iter().for_each(|v| v.put(&mut out));
    out
}

/// Combines `values` with those encoded in `bytes`, position by position.
pub(super) fn fold<T: Element>(values: &mut [T], bytes: &[u8], op: Op) {
    for (v, raw) in values.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
        *v = v.combine(T::get(raw), op);
    }
}

/// From the little-endian form.
pub(super) fn decode<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::SIZE).map(T::get).collect()
}
