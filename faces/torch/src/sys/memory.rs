//! The memory of tensors.

/// A type that any bytes are a value of.
pub trait Plain: Copy + Default + 'static {}

macro_rules! plain {
    ($($type:ty)*) => {$(impl Plain for $type {})*};
}

plain!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

/// Pieces of memory, one behind the other: those of tensors.
///
/// The package's Python files make it of contiguous tensors, which they keep until the operation
/// has ended; all bytes of a piece are there until then. A program that changes a tensor meanwhile
/// mixes old bytes and new, as over any backend.
#[derive(Clone, Debug, Default)]
pub struct Memory(Vec<(usize, usize)>);

impl Memory {
    /// Makes the memory of pieces: address and length in bytes.
    pub fn new(pieces: Vec<(usize, usize)>) -> Memory {
        Memory(pieces)
    }

    /// Returns the length of all pieces in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.1).sum()
    }

    /// Returns a copy of the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.values()
    }

    /// Returns a copy of the values; bytes that are less than a value are left out.
    pub fn values<T: Plain>(&self) -> Vec<T> {
        let mut values = vec![T::default(); self.len() / size_of::<T>()];
        let mut at = values.as_mut_ptr().cast::<u8>();
        let mut left = values.len() * size_of::<T>();
        for &(address, len) in &self.0 {
            let len = len.min(left);
            if len == 0 {
                continue;
            }
            // SAFETY: `len` bytes are at `address` (see above), and `left` bytes at `at`; the
            // second are this function's own. Any bytes are a value of `T`.
            unsafe {
                std::ptr::copy_nonoverlapping(address as *const u8, at, len);
                at = at.add(len);
            }
            left -= len;
        }
        values
    }

    /// Writes values, as many bytes as fit.
    pub fn fill<T: Plain>(&self, values: &[T]) {
        let mut from = values.as_ptr().cast::<u8>();
        let mut left = size_of_val(values);
        for &(address, len) in &self.0 {
            let len = len.min(left);
            if len == 0 {
                continue;
            }
            // SAFETY: `len` bytes are at `address`, and the caller of the operation gave them to be
            // written; `left` bytes are at `from`. A result is memory of this library, which no
            // tensor shares.
            unsafe {
                std::ptr::copy_nonoverlapping(from, address as *mut u8, len);
                from = from.add(len);
            }
            left -= len;
        }
    }
}
