//! The program that adds.
//!
//! ```text
//! if the frame is too short, or no request for this interface: pass
//! if it is of another version or no request, or its tag is wrong: drop
//! if client or counter do not exist: drop
//! if it asks for the number of the client's last request: answer with that
//! if it is the client's last request: answer with the value kept
//! if it is one from before that: drop
//! add, keep number and value, answer with the value
//! answer: swap the addresses, put the client's slot, tag it, send back
//! ```

use super::super::assembler::{Assembler, Width, R0, R1, R2, R3, R4, R6, R7, R8, XDP_DROP, XDP_TX};
use super::super::sip::{siphash, SipKey, State};
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
pub(super) const NUMBER: usize = VERSION + 14;
pub(super) const VALUE: usize = VERSION + 22;
pub(super) const TAG: usize = VERSION + 30;
/// What the tag covers, from the shim's length on.
pub(super) const TAGGED: usize = EtherHead::LENGTH;
const TAGGED_WORDS: i16 = ((TAG - TAGGED) / 8) as i16;
/// Length of a request.
pub(super) const LEN: usize = TAG + 8;

/// Kinds of request and answer.
pub(super) const LAST: u8 = 0;
pub(super) const ADD: u8 = 1;
pub(super) const ANSWER: u8 = 2;
pub(super) const VERSION_NOW: u8 = 1;

/// In a client's entry: number of its last request, and what was answered.
const LAST_NUMBER: i16 = 0;
const LAST_VALUE: i16 = 8;

/// The program, with the descriptors of the arrays of clients and counters.
pub(super) fn assemble(
    clients: &impl AsRawFd,
    counters: &impl AsRawFd,
    (kind, mac): (EtherType, Mac),
    key: SipKey,
) -> Vec<Insn> {
    let key = State::Known(key.state());
    let mut asm = Assembler::default();
    asm.only((kind, SLOT, mac), LEN);
    asm.set(R0, XDP_DROP);
    asm.load(Width::Byte, R3, R6, VERSION as i16);
    asm.if_not(R3, i32::from(VERSION_NOW), "out");
    asm.load(Width::Byte, R3, R6, KIND as i16);
    asm.if_greater_than(R3, i32::from(ADD), "out");
    siphash(&mut asm, key, (R6, TAGGED as i16), TAGGED_WORDS);
    asm.load(Width::Double, R2, R6, TAG as i16);
    asm.swap_le(R2, 64);
    asm.if_equal(R1, R2, "good");
    asm.go("drop");
    asm.label("good");
    asm.load(Width::Half, R3, R6, CLIENT as i16);
    asm.swap_le(R3, 16);
    asm.entry(clients, "drop");
    asm.copy(R7, R0);
    asm.load(Width::Word, R3, R6, COUNTER as i16);
    asm.swap_le(R3, 32);
    asm.entry(counters, "drop");
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
    send_back(&mut asm, key);
    asm.label("drop");
    asm.set(R0, XDP_DROP);
    asm.label("out");
    asm.exit();
    asm.finish()
}

/// Makes the request its answer and sends it where it came from.
fn send_back(asm: &mut Assembler, key: State) {
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
    siphash(asm, key, (R6, TAGGED as i16), TAGGED_WORDS);
    asm.swap_le(R1, 64);
    asm.store(Width::Double, R6, TAG as i16, R1);
    asm.set(R0, XDP_TX);
    asm.go("out");
}
