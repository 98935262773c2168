//! Addresses that a program in C gives to a function: of places for results, of lists, and of
//! texts.
//!
//! The functions of an interface have these types in place of pointers, which they check at one
//! place: null and misaligned ones are refused. Any other one is memory by the program's promise.

#[allow(unsafe_code)]
mod sys;

pub use sys::{List, Place, Text};

impl<T: Copy> Place<'_, T> {
    /// Returns the place, if it is there.
    ///
    /// # Errors
    /// `wrong`: the pointer is null or misaligned.
    #[inline]
    pub fn or<E>(self, wrong: E) -> Result<Self, E> {
        match self.is_there() {
            true => Ok(self),
            false => Err(wrong),
        }
    }

    /// Stores a value. A place that the program does not want is null.
    ///
    /// # Errors
    /// `wrong`: the pointer is misaligned.
    #[inline]
    pub fn offer<E>(self, value: T, wrong: E) -> Result<(), E> {
        match self.store(value) || self.is_null() {
            true => Ok(()),
            false => Err(wrong),
        }
    }
}

/// Stores a text with its final 0, cut to the places that are there.
pub fn store_text(text: &str, to: List<'_, u8>) {
    let Some(most) = to.count().checked_sub(1) else { return };
    to.store(&[&text.as_bytes()[..text.len().min(most)], &[0]].concat());
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn place__null_and_misaligned_ones_are_refused() {
        let mut value = 7u32;
        let place = Place::of(&mut value);
        assert_eq!((place.read(), place.store(8), place.offer(9, ())), (Some(7), true, Ok(())));
        assert_eq!((place.or(()).is_ok(), value), (true, 9));
        let none = Place::<u32>::NONE;
        assert_eq!((none.read(), none.store(1), none.offer(1, ())), (None, false, Ok(())));
        assert!(none.or(()).is_err() && none.is_null());
    }

    #[test]
    fn list__takes_as_many_values_as_it_has_places() {
        let mut values = [1u8, 2, 3];
        let list = List::of(&mut values);
        list.store(&[4, 5]);
        assert_eq!(list.read(), Some(&[4, 5, 3][..]));
        list.store(&[6; 9]);
        store_text("long", list);
        assert_eq!((list.count(), values), (3, *b"lo\0"));
        store_text("none", List::of(&mut []));
    }

    #[test]
    fn text__one_that_is_too_long_or_no_utf_8_is_none() {
        let of = |text, max| Text::of(text).read(max);
        assert_eq!((of(c"abc", 4), of(c"abc", 3), of(c"\xff", 9)), (Some("abc"), None, None));
        assert!(!Text::of(c"").is_null());
    }
}
