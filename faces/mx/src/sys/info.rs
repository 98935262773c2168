//! Boards, names of hosts, and properties of the library.

use crate::calls::call;
use crate::calls::info::{self, HOSTNAME_MAX};
use crate::code::Return;
use weft_ffi::given::{Place, Text};

weft_ffi::exports! { call -> Return;
    /// Stores the number of a network interface by the name of its board.
    fn mx_hostname_to_nic_id(name: Text, nic: Place<u64>) {
        info::nic_of_name(name, nic)
    }

    /// Stores the name of the board of a network interface, which has room for 80 bytes.
    unsafe fn mx_nic_id_to_hostname(nic: u64, name: Place<u8>) {
        // SAFETY: promised by the caller.
        info::name_of_nic(nic, unsafe { name.list(HOSTNAME_MAX) })
    }

    /// Stores the number of the network interface of a board.
    fn mx_board_number_to_nic_id(board: u32, nic: Place<u64>) {
        info::nic_of_board(board, nic)
    }

    /// Stores the number of the board that a network interface is.
    fn mx_nic_id_to_board_number(nic: u64, board: Place<u32>) {
        info::board_of_nic(nic, board)
    }

    /// Stores a property of the library, of an endpoint or of a board.
    unsafe fn mx_get_info[endpoint](
        key: u32, from: Place<u8>, from_len: u32, to: Place<u8>, to_len: u32,
    ) {
        // SAFETY: promised by the caller; no key takes more than four bytes.
        let (from, to) = unsafe { (from.list(from_len.min(4) as usize), to.list(to_len as usize)) };
        info::get(endpoint, key, from, to)
    }
}
