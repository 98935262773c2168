//! Indices of one to three dimensions, and the shapes of arrays.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The place of an object in its array: one to three whole numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Index {
    at: [u32; 3],
    dims: u8,
}

/// The lengths of an array in one to three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    lens: [u32; 3],
    dims: u8,
}

/// Returns a number for a place in memory; one that is too large is beyond every array.
fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Index {
    fn new<const D: usize>(numbers: [usize; D]) -> Index {
        let mut at = [0; 3];
        at.iter_mut().zip(numbers).for_each(|(at, number)| *at = short(number));
        Index { at, dims: D as u8 }
    }

    /// Returns the number in the first dimension.
    pub fn x(&self) -> usize {
        self.at[0] as usize
    }

    /// Returns the number in the second dimension; 0 if there is none.
    pub fn y(&self) -> usize {
        self.at[1] as usize
    }

    /// Returns the number in the third dimension; 0 if there is none.
    pub fn z(&self) -> usize {
        self.at[2] as usize
    }
}

impl Shape {
    fn new<const D: usize>(numbers: [usize; D]) -> Shape {
        let mut lens = [1; 3];
        lens.iter_mut().zip(numbers).for_each(|(len, number)| *len = short(number));
        Shape { lens, dims: D as u8 }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> u64 {
        self.lens.iter().map(|len| u64::from(*len)).fold(1, u64::saturating_mul)
    }

    /// True if the array has no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the index of an object by its number, from 0, the last dimension first.
    pub fn index(&self, number: u32) -> Index {
        let [_, y, z] = self.lens.map(|len| len.max(1));
        let at = [number / z / y, number / z % y, number % z];
        Index { at, dims: self.dims }
    }

    /// Returns the number of an object; `None` if the array has no such index.
    pub(super) fn number(&self, index: Index) -> Option<u32> {
        let is_in = index.at.iter().zip(self.lens).all(|(at, len)| *at < len);
        let [x, y, z] = index.at;
        (is_in && index.dims == self.dims)
            .then(|| (x * self.lens[1] + y).wrapping_mul(self.lens[2]).wrapping_add(z))
    }

    /// Returns the rank at which an object begins, and which always knows where it is.
    pub(super) fn home(&self, number: u32, ranks: usize) -> usize {
        (u64::from(number) * ranks as u64 / self.len().max(1)) as usize
    }

    /// Returns the objects that begin at a rank.
    pub(super) fn homed(&self, rank: usize, ranks: usize) -> std::ops::Range<u32> {
        let first = |rank: usize| (rank as u64 * self.len()).div_ceil(ranks as u64) as u32;
        first(rank)..first(rank + 1)
    }
}

macro_rules! from {
    ($($dims:literal)*) => {$(
        impl From<[usize; $dims]> for Index {
            fn from(numbers: [usize; $dims]) -> Index {
                Index::new(numbers)
            }
        }

        impl From<[usize; $dims]> for Shape {
            fn from(numbers: [usize; $dims]) -> Shape {
                Shape::new(numbers)
            }
        }
    )*};
}

from!(1 2 3);

impl From<usize> for Index {
    fn from(number: usize) -> Index {
        Index::new([number])
    }
}

impl From<usize> for Shape {
    fn from(number: usize) -> Shape {
        Shape::new([number])
    }
}

fn list(numbers: &[u32], dims: u8, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_list().entries(&numbers[..usize::from(dims).min(3)]).finish()
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(&self.at, self.dims, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(&self.lens, self.dims, f)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn number__comes_back_as_the_index_in_each_dimension() {
        for shape in [Shape::from(7), Shape::from([3, 5]), Shape::from([2, 3, 4])] {
            for number in 0..shape.len() as u32 {
                assert_eq!(shape.number(shape.index(number)), Some(number), "{shape}");
            }
        }
        let shape = Shape::from([3, 5]);
        assert_eq!(shape.number(Index::from([2, 4])), Some(14));
        assert_eq!(shape.index(7).to_string(), "[1, 2]");
        for wrong in [Index::from([3, 0]), Index::from([0, 5]), Index::from(2)] {
            assert_eq!(shape.number(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn homed__all_objects_once_by_their_homes() {
        for (len, ranks) in [(8, 2), (7, 3), (2, 5), (0, 3), (1000, 64)] {
            let shape = Shape::from(len);
            let all: Vec<u32> = (0..ranks).flat_map(|rank| shape.homed(rank, ranks)).collect();
            assert!(all.iter().copied().eq(0..len as u32), "{len} on {ranks}: {all:?}");
            for rank in 0..ranks {
                assert!(shape.homed(rank, ranks).all(|number| shape.home(number, ranks) == rank));
            }
        }
    }
}
