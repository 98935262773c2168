//! Boards, names of hosts, and properties of the library.

use crate::boards::{self, ENDPOINTS};
use crate::code::{self, Answer};
use crate::enter::{enter, ready};
use crate::handle::Handle;
use weft_ffi::given::{store_text, List, Place, Text};

/// Longest name of a host, with its 0.
pub const HOSTNAME_MAX: usize = 80;
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
pub fn nic_of_name(name: Text<'_>, nic: Place<'_, u64>) -> Answer {
    ready()?;
    nic.or(code::BAD_HOSTNAME_ARGS)?;
    let name = name.read(HOSTNAME_MAX).ok_or(code::BAD_HOSTNAME_ARGS)?;
    nic.store(boards::find(name).ok_or(code::HOST_NOT_FOUND)?);
    Ok(())
}

/// Stores the name of the board of a network interface.
pub fn name_of_nic(nic: u64, name: List<'_, u8>) -> Answer {
    ready()?;
    if !name.is_there() {
        return Err(code::BAD_HOSTNAME_ARGS);
    }
    store_text(&boards::name_of(nic).ok_or(code::NIC_NOT_FOUND)?, name);
    Ok(())
}

/// Stores the number of the network interface of a board.
pub fn nic_of_board(board: u32, nic: Place<'_, u64>) -> Answer {
    ready()?;
    nic.or(code::BAD_INFO_VAL)?;
    let all = boards::all();
    let found = all.get(board as usize).ok_or(code::BOARD_UNKNOWN)?;
    nic.store(boards::nic_of(found.address));
    Ok(())
}

/// Stores the number of the board that a network interface is.
pub fn board_of_nic(nic: u64, board: Place<'_, u32>) -> Answer {
    ready()?;
    board.or(code::BAD_INFO_VAL)?;
    let is_it = |of: &boards::Board| boards::nic_of(of.address) == nic;
    let at = boards::all().iter().position(is_it);
    board.store(at.ok_or(code::BOARD_UNKNOWN)? as u32);
    Ok(())
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

/// Returns the processors' node of a board: -1, since a board is no card. The number of the board
/// has one byte or four.
fn node(endpoint: Handle, board: List<'_, u8>) -> Answer<Value> {
    if endpoint == 0 {
        let board = match board.read().ok_or(code::BAD_INFO_VAL)? {
            [] => return Err(code::BAD_INFO_LENGTH),
            &[a, b, c, d, ..] => u32::from_ne_bytes([a, b, c, d]),
            &[a, ..] => a.into(),
        };
        boards::all().get(board as usize).ok_or(code::BOARD_UNKNOWN)?;
    }
    Ok(Value::Number(u32::MAX))
}

/// Returns the value of a key.
fn value(endpoint: Handle, key: u32, from: List<'_, u8>) -> Answer<Value> {
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
        14 => node(endpoint, from)?,
        15 => Value::Number(ETHERNET),
        16 => Value::Number(SPEED),
        _ => return Err(code::BAD_INFO_KEY),
    })
}

/// Returns a value that is no text as bytes.
fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::Number(of) => of.to_ne_bytes().to_vec(),
        Value::Numbers(all) => all.iter().flat_map(|of| of.to_ne_bytes()).collect(),
        Value::Nics(all) => all.iter().flat_map(|of| of.to_ne_bytes()).collect(),
        Value::Text(text) => text.bytes().collect(),
        Value::Labels(all) => {
            let mut bytes = vec![0; all.len() * LABEL_MAX];
            for (label, at) in all.iter().zip(bytes.chunks_exact_mut(LABEL_MAX)) {
                let text = &label.as_bytes()[..label.len().min(LABEL_MAX - 1)];
                at[..text.len()].copy_from_slice(text);
            }
            bytes
        }
    }
}

/// Stores a property of the library, of an endpoint or of a board.
pub fn get(endpoint: Handle, key: u32, from: List<'_, u8>, to: List<'_, u8>) -> Answer {
    ready()?;
    if endpoint != 0 {
        enter(endpoint)?;
    }
    if !to.is_there() {
        return Err(code::BAD_INFO_VAL);
    }
    let value = value(endpoint, key, from)?;
    let (bytes, is_text) = (bytes_of(&value), matches!(value, Value::Text(_)));
    let needed = if is_text { 1 } else { bytes.len() };
    if to.count() < needed {
        return Err(code::BAD_INFO_LENGTH);
    }
    match value {
        // A text is cut.
        Value::Text(text) => store_text(text, to),
        _ => to.store(&bytes),
    }
    Ok(())
}
