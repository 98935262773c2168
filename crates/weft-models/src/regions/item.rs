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

    /// Appends the bytes of many values.
    fn put_all(items: &[Self], to: &mut Vec<u8>) {
        items.iter().for_each(|item| item.put(to));
    }

    /// Sets values to those of just as many bytes.
    fn get_all(items: &mut [Self], bytes: &[u8]) {
        let each = bytes.chunks_exact(Self::SIZE.max(1));
        items.iter_mut().zip(each).for_each(|(item, bytes)| *item = Self::get(bytes));
    }
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

            // With room for all of them first: then the loop is a copy.
            fn put_all(items: &[Self], to: &mut Vec<u8>) {
                let begun = to.len();
                to.resize(begun + size_of_val(items), 0);
                let room = to[begun..].as_chunks_mut::<{ size_of::<$number>() }>().0;
                room.iter_mut().zip(items).for_each(|(to, item)| *to = item.to_le_bytes());
            }

            fn get_all(items: &mut [Self], bytes: &[u8]) {
                let each = bytes.as_chunks::<{ size_of::<$number>() }>().0;
                let each = each.iter().copied().map(<$number>::from_le_bytes);
                items.iter_mut().zip(each).for_each(|(item, value)| *item = value);
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

    fn put_all(items: &[Self], to: &mut Vec<u8>) {
        T::put_all(items.as_flattened(), to);
    }

    fn get_all(items: &mut [Self], bytes: &[u8]) {
        T::get_all(items.as_flattened_mut(), bytes);
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
        let mut again = [[[0f64; 2]; 2]; 1];
        <[[f64; 2]; 2]>::get_all(&mut again, &bytes);
        let mut twice = Vec::new();
        <[[f64; 2]; 2]>::put_all(&again, &mut twice);
        assert_eq!((again, &twice), ([all], &bytes));
        let (numbers, mut back) = ([1.5f32, -0.0, 7e9], [0f32; 3]);
        let (mut each, mut bulk) = (vec![9], vec![9]);
        numbers.iter().for_each(|number| number.put(&mut each));
        f32::put_all(&numbers, &mut bulk);
        f32::get_all(&mut back, &bulk[1..]);
        assert_eq!((each, numbers), (bulk, back));
    }
}
