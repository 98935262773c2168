//! Boards, names of hosts, and properties of the library.

use crate::boards::{self, ENDPOINTS};
use crate::code::{self, Answer, Return};
use crate::sys::abi::{call, offer, place, ready, text, Handle};
use crate::sys::enter::enter;
use std::ffi::{c_char, c_void};

/// Longest name of a host, with its 0.
const HOSTNAME_MAX: usize = 80;
/// Longest name of a counter, with its 0.
const LABEL_MAX: usize = 128;
/// Bytes of the longest small message.
const PIO_SEND_MAX: u32 = 128;
/// Bytes of the longest message that is copied.
const COPY_SEND_MAX: u32 = 32_768;
/// `MX_NET_ETHER` and `MX_SPEED_OPEN_MX`.
const ETHERNET: u32 = 1;
const SPEED: u32 = 2;

/// Stores the number of a network interface by the name of its board.
///
/// # Safety
/// `name` is null or a text; `nic` is null, misaligned or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn mx_hostname_to_nic_id(name: *const c_char, nic: *mut u64) -> Return {
    call(c"mx_hostname_to_nic_id", 0, || {
        ready()?;
        place(nic, code::BAD_HOSTNAME_ARGS)?;
        // SAFETY: promised by the caller.
        let name = unsafe { text(name, HOSTNAME_MAX) }?;
        let found = boards::find(name).ok_or(code::HOST_NOT_FOUND)?;
        // SAFETY: promised by the caller.
        unsafe { offer(nic, found) };
        Ok(())
    })
}

/// Stores the name of the board of a network interface.
///
/// # Safety
/// `name` is null or has room for 80 bytes.
#[no_mangle]
pub unsafe extern "C" fn mx_nic_id_to_hostname(nic: u64, name: *mut c_char) -> Return {
    call(c"mx_nic_id_to_hostname", 0, || {
        ready()?;
        place(name, code::BAD_HOSTNAME_ARGS)?;
        let found = boards::name_of(nic).ok_or(code::NIC_NOT_FOUND)?;
        // SAFETY: promised by the caller.
        unsafe { store_text(&found, name.cast(), HOSTNAME_MAX) };
        Ok(())
    })
}

/// Stores a text with its 0, cut to the room.
///
/// # Safety
/// `at` has room for `max` bytes.
unsafe fn store_text(text: &str, at: *mut u8, max: usize) {
    let bytes = &text.as_bytes()[..text.len().min(max.saturating_sub(1))];
    if max > 0 {
        // SAFETY: promised by the caller.
        unsafe {
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            at.add(bytes.len()).write(0);
        }
    }
}

/// Stores the number of the network interface of a board.
///
/// # Safety
/// `nic` is null, misaligned or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn mx_board_number_to_nic_id(board: u32, nic: *mut u64) -> Return {
    call(c"mx_board_number_to_nic_id", 0, || {
        ready()?;
        place(nic, code::BAD_INFO_VAL)?;
        let all = boards::all();
        let found = all.get(board as usize).ok_or(code::BOARD_UNKNOWN)?;
        // SAFETY: promised by the caller.
        unsafe { offer(nic, boards::nic_of(found.address)) };
        Ok(())
    })
}

/// Stores the number of the board that a network interface is.
///
/// # Safety
/// `board` is null, misaligned or a place for a number.
#[no_mangle]
pub unsafe extern "C" fn mx_nic_id_to_board_number(nic: u64, board: *mut u32) -> Return {
    call(c"mx_nic_id_to_board_number", 0, || {
        ready()?;
        place(board, code::BAD_INFO_VAL)?;
        let is_it = |host| boards::nic_of(host) == nic;
        let at = boards::all().iter().position(|interface| is_it(interface.address));
        // SAFETY: promised by the caller.
        unsafe { offer(board, at.ok_or(code::BOARD_UNKNOWN)? as u32) };
        Ok(())
    })
}

/// A value of `mx_get_info`.
enum Value {
    Number(u32),
    Numbers(Vec<u32>),
    Nics(Vec<u64>),
    Text(&'static str),
    Labels(Vec<&'static str>),
}

/// Returns the counters of an endpoint; those of none are 0.
fn counters(endpoint: Handle) -> Answer<Vec<(&'static str, u32)>> {
    let of = |stats: &weft::Stats| {
        let names = weft::Stats::NAMES.iter().map(|(name, _)| *name);
        names.zip(stats.values().map(|value| value as u32)).collect()
    };
    match endpoint {
        0 => Ok(of(&weft::Stats::default())),
        endpoint => Ok(of(&enter(endpoint)?.open()?.endpoint().stats())),
    }
}

/// Returns the processors' node of a board: -1, since a board is no card.
///
/// # Safety
/// `from` is null or has `len` bytes.
unsafe fn node(endpoint: Handle, from: *const c_void, len: u32) -> Answer<Value> {
    if endpoint == 0 {
        if from.is_null() {
            return Err(code::BAD_INFO_VAL);
        }
        let board = match len {
            0 => return Err(code::BAD_INFO_LENGTH),
            // SAFETY: promised by the caller.
            1..=3 => u32::from(unsafe { from.cast::<u8>().read() }),
            // SAFETY: as before.
            _ => unsafe { from.cast::<u32>().read_unaligned() },
        };
        boards::all().get(board as usize).ok_or(code::BOARD_UNKNOWN)?;
    }
    Ok(Value::Number(u32::MAX))
}

/// Returns the value of a key.
///
/// # Safety
/// `from` is null or has `len` bytes.
unsafe fn value(endpoint: Handle, key: u32, from: *const c_void, len: u32) -> Answer<Value> {
    Ok(match key {
        1 => Value::Number(boards::all().len() as u32),
        2 => {
            let mut nics: Vec<u64> = boards::all().iter().map(|board| board.nic).collect();
            nics.push(0);
            Value::Nics(nics)
        }
        3 => Value::Number(ENDPOINTS),
        4 => Value::Number(u32::MAX),
        5 => Value::Number(counters(endpoint)?.len() as u32),
        6 => Value::Labels(counters(endpoint)?.into_iter().map(|(name, _)| name).collect()),
        7 => Value::Numbers(counters(endpoint)?.into_iter().map(|(_, value)| value).collect()),
        8..=10 => Value::Text("weft"),
        11 => Value::Number(1),
        12 => Value::Number(PIO_SEND_MAX),
        13 => Value::Number(COPY_SEND_MAX),
        // SAFETY: promised by the caller.
        14 => unsafe { node(endpoint, from, len) }?,
        15 => Value::Number(ETHERNET),
        16 => Value::Number(SPEED),
        _ => return Err(code::BAD_INFO_KEY),
    })
}

/// Returns a value as bytes, and the room that it needs.
fn bytes_of(value: Value) -> (Vec<u8>, usize) {
    let numbers = |all: Vec<u32>| all.iter().flat_map(|of| of.to_ne_bytes()).collect::<Vec<u8>>();
    let bytes = match value {
        Value::Number(of) => of.to_ne_bytes().to_vec(),
        Value::Numbers(all) => numbers(all),
        Value::Nics(all) => all.iter().flat_map(|of| of.to_ne_bytes()).collect(),
        // A text is cut.
        Value::Text(text) => return (text.bytes().chain([0]).collect(), 1),
        Value::Labels(all) => {
            let mut bytes = vec![0; all.len() * LABEL_MAX];
            for (label, at) in all.iter().zip(bytes.chunks_exact_mut(LABEL_MAX)) {
                let text = &label.as_bytes()[..label.len().min(LABEL_MAX - 1)];
                at[..text.len()].copy_from_slice(text);
            }
            bytes
        }
    };
    let needed = bytes.len();
    (bytes, needed)
}

/// Stores a property of the library, of an endpoint or of a board.
///
/// # Safety
/// `from` is null or has `from_len` bytes, `to` is null or has room for `to_len` bytes.
#[no_mangle]
pub unsafe extern "C" fn mx_get_info(
    endpoint: Handle,
    key: u32,
    from: *const c_void,
    from_len: u32,
    to: *mut c_void,
    to_len: u32,
) -> Return {
    call(c"mx_get_info", endpoint, || {
        ready()?;
        if endpoint != 0 {
            enter(endpoint)?;
        }
        place(to.cast::<u8>(), code::BAD_INFO_VAL)?;
        // SAFETY: promised by the caller.
        let (bytes, needed) = bytes_of(unsafe { value(endpoint, key, from, from_len) }?);
        let room = to_len as usize;
        if room < needed {
            return Err(code::BAD_INFO_LENGTH);
        }
        let len = bytes.len().min(room);
        // SAFETY: promised by the caller.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), len) };
        if len < bytes.len() {
            // SAFETY: as before; the room is not empty.
            unsafe { to.cast::<u8>().add(len - 1).write(0) };
        }
        Ok(())
    })
}
