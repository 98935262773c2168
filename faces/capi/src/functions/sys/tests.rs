//! Tests with pointers to no object of this interface.
#![allow(non_snake_case)]

use super::job::{weft_last_error, weft_strerror};
use super::{collective, job, messages, packets};
use crate::entry::{enter, outside};
use crate::fault::{Fault, WEFT_ARGUMENT, WEFT_OK, WEFT_PANIC, WEFT_SIGNAL};

#[test]
fn pointers__null_misaligned_and_foreign_ones_are_refused() {
    let mut junk = [0u64; 64];
    let foreign = junk.as_mut_ptr();
    let misaligned = foreign.cast::<u8>().wrapping_add(1);
    let null = std::ptr::null_mut::<u8>();
    for pointer in [null, misaligned, foreign.cast()] {
        // SAFETY: null, misaligned, or memory larger than any of the objects, as permitted.
        let codes = unsafe {
            [
                job::weft_rank(pointer.cast()),
                job::weft_poll(pointer.cast()),
                job::weft_finish(pointer.cast()),
                packets::weft_packet_release(pointer.cast()),
                packets::weft_packet_source(pointer.cast()),
                packets::weft_buffer_free(pointer.cast()),
                packets::weft_group_free(pointer.cast()),
                packets::weft_group_packet_max(pointer.cast()),
                packets::weft_send(pointer.cast(), 0, 0, 0, null.cast(), 0),
                messages::weft_msg_send(pointer.cast(), 0, 0, null.cast(), 0),
                messages::weft_msg_take(pointer.cast(), null.cast(), 0, null.cast()),
                collective::weft_comm_all(pointer.cast(), null.cast()),
                collective::weft_comm_free(pointer.cast()),
                collective::weft_comm_rank(pointer.cast()),
                collective::weft_comm_barrier(pointer.cast()),
                collective::weft_comm_ibarrier(pointer.cast(), null.cast()),
                messages::weft_cancel(pointer.cast()),
                messages::weft_set_free(pointer.cast()),
                messages::weft_set_wait(pointer.cast(), 0, null.cast(), null.cast()),
            ]
        };
        assert_eq!(codes, [WEFT_ARGUMENT; 19]);
        // SAFETY: as above; the length may be null.
        let data = unsafe { packets::weft_packet_data(pointer.cast(), std::ptr::null_mut()) };
        assert!(data.is_null());
    }
    // SAFETY: the pointer for the result is null, as permitted.
    assert_eq!(unsafe { job::weft_init(std::ptr::null_mut()) }, WEFT_ARGUMENT);
    // SAFETY: both are strings that live on.
    let (why, code) = unsafe {
        let text = |p| std::ffi::CStr::from_ptr(p).to_str().unwrap();
        (text(weft_last_error()), text(weft_strerror(WEFT_ARGUMENT)))
    };
    assert!(why.contains("null") && code.contains("argument"), "{why:?} {code:?}");
}

#[test]
fn enter__a_signal_handler_inside_a_call_gets_a_code_and_an_upcall_may_call() {
    let fails = || enter(|| Err(Fault::argument("the text of the last error")));
    assert_eq!(fails(), WEFT_ARGUMENT);
    let text = weft_last_error();
    let codes = std::cell::Cell::new([0; 3]);
    let code = enter(|| {
        let handler = || enter(|| panic!("the body of a call inside a call"));
        let (before, mut within, mut deeper) = (handler(), 0, 0);
        outside(|| {
            within = enter(|| {
                deeper = handler();
                Ok(WEFT_OK)
            });
        });
        codes.set([before, within, deeper]);
        assert_eq!(handler(), WEFT_SIGNAL, "after the upcall");
        Ok(WEFT_OK)
    });
    assert_eq!((code, codes.get()), (WEFT_OK, [WEFT_SIGNAL, WEFT_OK, WEFT_SIGNAL]));
    assert_eq!(weft_last_error(), text, "no text is stored for it");
    assert_eq!(enter(|| panic!("a fault in weft")), WEFT_PANIC);
    assert_eq!(fails(), WEFT_ARGUMENT, "a panic ends the call too");
}
