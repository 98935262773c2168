//! The program that adds.
//!
//! ```text
//! if the frame is too short, or no request for this interface: pass
//! if it is of another version or no request, or client or counter do not exist: drop
//! if it asks for the number of the client's last request: answer with that
//! if it is the client's last request: answer with the value kept
//! if it is one from before that: drop
//! add, keep number and value, answer with the value
//! answer: swap the addresses, put the client's slot, send back
//! ```

use super::super::program::{
    Assembler, Width, MD_DATA, MD_DATA_END, R0, R1, R2, R3, R4, R6, R7, R8, STACK, XDP_PASS,
};
use super::super::sys::Insn;
use super::SLOT;
use crate::ether::{EtherHead, EtherType, Mac};
use std::os::fd::AsRawFd;

/// Offsets in a request.
pub(super) const VERSION: usize = EtherHead::LEN;
pub(super) const KIND: usize = VERSION + 1;
pub(super) const CLIENT: usize = VERSION + 2;
pub(super) const REPLY: usize = VERSION + 4;
pub(super) const COUNTER: usize = VERSION + 6;
pub(super) const NUMBER: usize = VERSION + 10;
pub(super) const VALUE: usize = VERSION + 18;
/// Length of a request.
pub(super) const LEN: usize = VALUE + 8;

/// Kinds of request and answer.
pub(super) const LAST: u8 = 0;
pub(super) const ADD: u8 = 1;
pub(super) const ANSWER: u8 = 2;
pub(super) const VERSION_NOW: u8 = 1;

/// Verdicts (`enum xdp_action`).
const XDP_DROP: i32 = 1;
const XDP_TX: i32 = 3;
/// Number of the helper `bpf_map_lookup_elem`.
const MAP_LOOKUP: i32 = 1;
/// Where an index is put for it.
const KEY: i16 = -4;
/// In a client's entry: number of its last request, and what was answered.
const LAST_NUMBER: i16 = 0;
const LAST_VALUE: i16 = 8;
const TYPE_AT: i16 = 12;

/// The program, with the descriptors of the arrays of clients and counters.
pub(super) fn assemble(
    clients: &impl AsRawFd,
    counters: &impl AsRawFd,
    kind: EtherType,
    mac: Mac,
) -> Vec<Insn> {
    let mut asm = Assembler::default();
    is_request(&mut asm, kind, mac);
    asm.set(R0, XDP_DROP);
    asm.load(Width::Byte, R3, R6, VERSION as i16);
    asm.if_not(R3, i32::from(VERSION_NOW), "out");
    asm.load(Width::Byte, R3, R6, KIND as i16);
    asm.if_greater_than(R3, i32::from(ADD), "out");
    asm.load(Width::Half, R3, R6, CLIENT as i16);
    asm.swap_le(R3, 16);
    entry(&mut asm, clients);
    asm.copy(R7, R0);
    asm.load(Width::Word, R3, R6, COUNTER as i16);
    asm.swap_le(R3, 32);
    entry(&mut asm, counters);
    asm.copy(R8, R0);
    asm.load(Width::Double, R2, R7, LAST_NUMBER);
    asm.load(Width::Byte, R3, R6, KIND as i16);
    asm.if_equal_to(R3, i32::from(LAST), "answer");
    asm.load(Width::Double, R3, R6, NUMBER as i16);
    asm.swap_le(R3, 64);
    asm.if_equal(R3, R2, "again");
    asm.if_greater(R2, R3, "drop");
    asm.load(Width::Double, R2, R6, VALUE as i16);
    asm.swap_le(R2, 64);
    asm.fetch_add(R8, 0, R2);
    asm.store(Width::Double, R7, LAST_VALUE, R2);
    asm.store(Width::Double, R7, LAST_NUMBER, R3);
    asm.label("again");
    asm.load(Width::Double, R2, R7, LAST_VALUE);
    asm.label("answer");
    asm.swap_le(R2, 64);
    asm.store(Width::Double, R6, VALUE as i16, R2);
    send_back(&mut asm);
    asm.label("drop");
    asm.set(R0, XDP_DROP);
    asm.label("out");
    asm.exit();
    asm.finish()
}

/// Lets pass what is no request for this interface: a bridge may flood those for others.
fn is_request(asm: &mut Assembler, kind: EtherType, mac: Mac) {
    let [a, b, c, d, e, f] = mac.0;
    asm.load(Width::Word, R2, R1, MD_DATA_END);
    asm.load(Width::Word, R6, R1, MD_DATA);
    asm.set(R0, XDP_PASS);
    asm.copy(R4, R6);
    asm.add(R4, LEN as i32);
    asm.if_greater(R4, R2, "out");
    asm.load(Width::Half, R4, R6, TYPE_AT);
    asm.swap_be16(R4);
    asm.if_not(R4, i32::from(kind.get()), "out");
    asm.load(Width::Half, R4, R6, EtherHead::SLOT as i16);
    asm.swap_le(R4, 16);
    asm.if_not(R4, i32::from(SLOT), "out");
    for (at, part) in [(0, [a, b]), (2, [c, d]), (4, [e, f])] {
        asm.load(Width::Half, R4, R6, at);
        asm.if_not(R4, i32::from(u16::from_ne_bytes(part)), "out");
    }
}

/// `r0` = the entry of number `r3` in an array; dropped if there is none.
fn entry(asm: &mut Assembler, array: &impl AsRawFd) {
    asm.store(Width::Word, STACK, KEY, R3);
    asm.map(R1, array.as_raw_fd());
    asm.copy(R2, STACK);
    asm.add(R2, i32::from(KEY));
    asm.call(MAP_LOOKUP);
    asm.if_equal_to(R0, 0, "drop");
}

/// Makes the request its answer and sends it where it came from.
fn send_back(asm: &mut Assembler) {
    asm.set(R3, i32::from(ANSWER));
    asm.store(Width::Byte, R6, KIND as i16, R3);
    asm.load(Width::Half, R3, R6, REPLY as i16);
    asm.store(Width::Half, R6, EtherHead::SLOT as i16, R3);
    for at in [0, 2, 4] {
        asm.load(Width::Half, R3, R6, at);
        asm.load(Width::Half, R4, R6, at + 6);
        asm.store(Width::Half, R6, at, R4);
        asm.store(Width::Half, R6, at + 6, R3);
    }
    asm.set(R0, XDP_TX);
    asm.go("out");
}
