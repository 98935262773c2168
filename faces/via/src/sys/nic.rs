//! Network interfaces: opening, closing, attributes, errors.

use crate::calls::{call, nic as calls};
use crate::code::Code;
use crate::handle::Handle;
use crate::open;
use crate::raw::{ErrorHandler, NicAttributes};
use weft_ffi::given::{Place, Text};

weft_ffi::exports! { call -> Code;
    /// Opens a network interface.
    fn VipOpenNic(name: Text, nic: Place<Handle>) {
        calls::open(name, nic)
    }

    /// Closes a network interface, with all its objects.
    fn VipCloseNic(nic: Handle) {
        open::close(nic)
    }

    /// Stores the attributes of a network interface.
    fn VipQueryNic(nic: Handle, attributes: Place<NicAttributes>) {
        calls::query(nic, attributes)
    }

    /// Sets the handler of asynchronous errors; null is the default one, which logs them.
    fn VipErrorCallback(nic: Handle, context: usize, handler: Option<ErrorHandler>) {
        calls::on_error(nic, context, handler)
    }
}
