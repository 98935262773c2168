//! Elements of regions.

/// A value of which a region has many: numbers, arrays of them, and types of the program.
pub trait Item: Copy + Default + 'static {
    /// Bytes of the value in a message.
    const SIZE: usize;

    /// Returns the name of the type, the same on all ranks: a region is of one type.
    fn name() -> String;

    /// Appends the value's bytes, [`SIZE`](Item::SIZE) of them.
    fn put(&self, to: &mut Vec<u8>);

    /// Returns the value of so many bytes.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Item for $number {
            const SIZE: usize = size_of::<$number>();

            fn name() -> String {
                stringify!($number).to_string()
            }

            #[inline]
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn get(bytes: &[u8]) -> Self {
                // The caller gives as many bytes as the type has.
                bytes.try_into().map(<$number>::from_le_bytes).unwrap_or_default()
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl<T: Item, const N: usize> Item for [T; N]
where
    [T; N]: Default,
{
    const SIZE: usize = N * T::SIZE;

    fn name() -> String {
        format!("[{}; {N}]", T::name())
    }

    fn put(&self, to: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(to));
    }

    fn get(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        let each = bytes.chunks_exact(T::SIZE.max(1));
        all.iter_mut().zip(each).for_each(|(item, bytes)| *item = T::get(bytes));
        all
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Item__values_come_back() {
        let all = [[1.5f64, -2.0], [f64::MAX, 0.0]];
        let mut bytes = Vec::new();
        all.put(&mut bytes);
        assert_eq!((bytes.len(), <[[f64; 2]; 2]>::SIZE), (32, 32));
        assert_eq!(<[[f64; 2]; 2]>::get(&bytes), all);
        assert_eq!(<[[f64; 2]; 2]>::name(), "[[f64; 2]; 2]");
        assert_eq!(u16::get(&[1, 2]), 0x201);
    }
}
