//! Address sets: the members of a group, in order (`fi_av_set(3)`).

use crate::abi::{err, AvSetAttr, ADDR_NONE};
use libc::c_int;
use std::cell::RefCell;

/// Most members of a set.
pub const MOST: usize = 1 << 16;

/// An address set: numbers of an address vector, in the order of the group's members.
#[derive(Debug, Default)]
pub struct Set(RefCell<Vec<u64>>);

impl Set {
    /// Makes a set of the numbers from one to another, by steps; of none if there is no first.
    ///
    /// # Errors
    /// `FI_EINVAL`: the step is 0, or there are too many.
    pub fn new(attr: &AvSetAttr) -> Result<Set, c_int> {
        let (first, last) = (attr.start_addr, attr.end_addr);
        if first == ADDR_NONE || last == ADDR_NONE || last < first {
            return Ok(Set::default());
        }
        let step = if first == last { 1 } else { attr.stride };
        if step == 0 || (last - first) / step >= MOST as u64 {
            return Err(err::EINVAL);
        }
        let numbers = (0..=(last - first) / step).map(|at| first + at * step);
        Ok(Set(RefCell::new(numbers.collect())))
    }

    /// Returns the members.
    pub fn members(&self) -> Vec<u64> {
        self.0.borrow().clone()
    }

    /// Adds a member behind the others.
    ///
    /// # Errors
    /// `FI_EINVAL`: it is there already. `FI_ENOMEM`: there are too many.
    pub fn insert(&self, number: u64) -> Result<c_int, c_int> {
        let members = &mut *self.0.borrow_mut();
        if members.contains(&number) {
            return Err(err::EINVAL);
        }
        if members.len() >= MOST {
            return Err(err::ENOMEM);
        }
        members.push(number);
        Ok(0)
    }

    /// Removes a member.
    ///
    /// # Errors
    /// `FI_EINVAL`: it is not there.
    pub fn remove(&self, number: u64) -> Result<c_int, c_int> {
        let members = &mut *self.0.borrow_mut();
        let at = members.iter().position(|&one| one == number).ok_or(err::EINVAL)?;
        members.remove(at);
        Ok(0)
    }

    /// Adds the members of another set that are not here.
    pub fn unite(&self, other: &Set) {
        // The other may be this one.
        for number in other.members() {
            let _there = self.insert(number);
        }
    }

    /// Keeps the members that another set has, or has not.
    pub fn keep(&self, other: &Set, common: bool) {
        let others = other.members();
        self.0.borrow_mut().retain(|number| others.contains(number) == common);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn of(start_addr: u64, end_addr: u64, stride: u64) -> Result<Set, c_int> {
        let none = std::ptr::null_mut();
        let (count, comm_key_size, flags) = (0, 0, 0);
        Set::new(&AvSetAttr {
            count,
            start_addr,
            end_addr,
            stride,
            comm_key_size,
            comm_key: none,
            flags,
        })
    }

    #[test]
    fn new__numbers_by_steps_or_none() {
        assert_eq!(of(2, 9, 3).unwrap().members(), [2, 5, 8]);
        assert_eq!(of(4, 4, 0).unwrap().members(), [4]);
        assert!(of(ADDR_NONE, ADDR_NONE, 1).unwrap().members().is_empty());
        assert_eq!(of(0, 5, 0).err(), Some(err::EINVAL));
        assert_eq!(of(0, u64::MAX - 1, 1).err(), Some(err::EINVAL));
    }

    #[test]
    fn sets__are_combined_in_order() {
        let (a, b) = (of(0, 3, 1).unwrap(), of(2, 6, 2).unwrap());
        a.unite(&b);
        assert_eq!(a.members(), [0, 1, 2, 3, 4, 6]);
        a.keep(&b, true);
        assert_eq!(a.members(), [2, 4, 6]);
        assert_eq!(
            (a.insert(4), a.remove(9), a.remove(4)),
            (Err(err::EINVAL), Err(err::EINVAL), Ok(0))
        );
        a.keep(&b, false);
        assert!(a.members().is_empty());
        b.unite(&b);
        assert_eq!(b.members(), [2, 4, 6]);
    }
}
