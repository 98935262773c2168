//! The name service, and the search for hosts.

use crate::calls::{call, names};
use crate::code::Code;
use crate::handle::Handle;
use crate::raw::{AutodiscoveryList, RawAddress};
use std::ffi::c_ulong;
use weft_ffi::given::{Place, Text};

weft_ffi::exports! { call -> Code;
    /// Opens the name service: `info` is null, or the path of a file in the form of hosts(5).
    fn VipNSInit(nic: Handle, info: Text) {
        names::init(nic, info)
    }

    /// Stores an address of a host, without a discriminator.
    fn VipNSGetHostByName(nic: Handle, name: Text, out: RawAddress, index: c_ulong) {
        names::by_name(nic, name, out, index)
    }

    /// Stores the name of a host, with its final 0, and its length without that.
    unsafe fn VipNSGetHostByAddr(
        nic: Handle, at: RawAddress, name: Place<u8>, len: Place<c_ulong>,
    ) {
        // SAFETY: promised by the caller.
        let name = unsafe { name.list(len.read().unwrap_or_default() as usize) };
        names::by_address(nic, at, name, len)
    }

    /// Closes the name service.
    fn VipNSShutdown(nic: Handle) {
        names::shut_down(nic)
    }

    /// Searches for hosts: those that the program's file of names has, and this one.
    fn VipQuerySystemManagementInfo(nic: Handle, kind: c_ulong, info: Place<AutodiscoveryList>) {
        names::search(nic, kind, info)
    }
}
