//! Tests with the pointers that programs may give.
#![allow(non_snake_case)]

use super::*;
use crate::fault::WEFT_ARGUMENT;

#[test]
fn new__a_place_that_is_null_or_misaligned_is_refused() {
    let mut places = [7u64; 2];
    let start = places.as_mut_ptr();
    let (null, odd) = (std::ptr::null_mut::<u64>(), start.wrapping_byte_add(1));
    // SAFETY: null, misaligned, or places of this test.
    unsafe {
        for wrong in [null, odd] {
            assert_eq!(Out::new(wrong).err().map(|fault| fault.0), Some(WEFT_ARGUMENT));
        }
        assert!(Out::optional(null).is_ok_and(|place| place.is_none()));
        assert!(Out::optional(odd).is_err());
        Out::new(start).ok().unwrap().store(9);
    }
    assert_eq!(places, [9, 7]);
}

#[test]
fn handle__is_null_until_one_is_given() {
    let mut handle = std::ptr::dangling_mut::<u32>();
    // SAFETY: a place of this test.
    let place = unsafe { Out::handle(&raw mut handle) }.ok().unwrap();
    assert!(handle.is_null());
    place.give(Box::new(5));
    // SAFETY: just given.
    assert_eq!(*unsafe { Box::from_raw(handle) }, 5);
}

#[test]
fn values__are_checked_only_where_some_are_needed() {
    let few = [1u32, 2, 3];
    let (start, null) = (few.as_ptr(), std::ptr::null());
    let odd = start.wrapping_byte_add(1);
    // SAFETY: as many as there are, or refused.
    let of = |at, count| unsafe { Given::new(at) }.values("few", count);
    assert_eq!(of(start, 3).ok().map(|few| few.as_slice().to_vec()), Some(few.to_vec()));
    for at in [start, odd, null] {
        assert_eq!(of(at, 0).ok().map(|none| none.len()), Some(0));
    }
    let wrong =
        [(odd, 1), (null, 1), (start, usize::MAX), (start, usize::MAX / 4), (start, 1 << 40)];
    for (at, count) in wrong {
        assert_eq!(of(at, count).err().map(|fault| fault.0), Some(WEFT_ARGUMENT), "{at:p} {count}");
    }
}

#[test]
fn put__stores_as_many_as_there_is_room_for() {
    let mut few = [0u16; 4];
    // SAFETY: values of this test.
    let values = unsafe { Given::new(few.as_mut_ptr()) }.values("few", 3).ok().unwrap();
    values.put(1, &[1, 2, 3, 4]);
    values.put(3, &[5]);
    values.put(usize::MAX, &[6]);
    assert_eq!(few, [0, 1, 2, 0]);
}

#[test]
fn text__null_and_bytes_that_are_no_text_are_refused() {
    // SAFETY: null or strings.
    unsafe {
        assert_eq!(text(c"solver:1".as_ptr()).ok(), Some("solver:1"));
        assert!(text(std::ptr::null()).is_err() && text(c"\xff".as_ptr()).is_err());
        assert_eq!(optional_text(std::ptr::null()).ok(), Some(None));
        assert!(optional_text(c"\xff".as_ptr()).is_err());
    }
}
