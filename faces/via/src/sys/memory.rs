//! Registered memory.

use crate::calls::{call, memory as calls};
use crate::code::Code;
use crate::handle::Handle;
use crate::raw::MemAttributes;
use crate::region::Memory;
use std::ffi::c_ulong;
use weft_ffi::given::Place;

weft_ffi::exports! { call -> Code;
    /// Registers memory, which stays until `VipDeregisterMem`, or until the interface is closed.
    unsafe fn VipRegisterMem(
        nic: Handle, start: *mut u8, len: c_ulong, attributes: Place<MemAttributes>,
        memory: Place<u32>,
    ) {
        // SAFETY: promised by the caller.
        let bytes = unsafe { Memory::new(start, len as usize) };
        calls::register(nic, bytes, attributes, memory)
    }

    /// Ends the registration of memory.
    fn VipDeregisterMem(nic: Handle, start: usize, memory: u32) {
        calls::deregister(nic, start, memory)
    }

    /// Changes the attributes of registered memory.
    fn VipSetMemAttributes(
        nic: Handle, start: usize, memory: u32, attributes: Place<MemAttributes>,
    ) {
        calls::set(nic, start, memory, attributes)
    }

    /// Stores the attributes of registered memory.
    fn VipQueryMem(nic: Handle, start: usize, memory: u32, attributes: Place<MemAttributes>) {
        calls::query(nic, start, memory, attributes)
    }
}
