//! The program that keeps and forwards packets, and answers.
//!
//! ```text
//! if the frame is too short, or of no chain of this interface: pass
//! if its group has no member here: pass, the process of a root may wait for answers
//! if it is of another version: drop
//! if it is data for another position in the chain, or an answer and this is not the root: drop
//! if its tag is wrong: drop
//! an answer: store its fields for the root's process, drop
//! lower the limit in the frame to the room of this member
//! if it is the next packet: keep it, or answer that there is no room
//! if a packet before it is missing: answer the number of that packet
//! the last member: answer the number up to which it has all packets
//! the others: forward it
//! ```

use super::frame::{
    ACK, CHECK, DATA, FULL, GROUP, HEAD, HOP, KIND, LIMIT, MISSING, NUMBER, TAG, TAGGED,
    TAGGED_WORDS, VERSION, VERSION_NOW,
};
use super::node::{self, BUSY, RING, SLOT_DATA, SLOT_HEAD};
use super::{FRAME, SLOT};
use crate::sip::siphash;
use std::os::fd::AsRawFd;
use weft_link::ether::{EtherHead, EtherType, Mac};
use weft_link::xdp::assembler::{
    Assembler, Width, MD_DATA, MD_DATA_END, R0, R1, R2, R3, R4, R6, R7, R8, R9, STACK, XDP_DROP,
    XDP_PASS, XDP_TX,
};
use weft_link::xdp::bpf::Insn;

/// Numbers of helpers: `bpf_xdp_adjust_tail`, `bpf_ringbuf_output`, `bpf_xdp_load_bytes`.
const ADJUST_TAIL: i32 = 65;
const RINGBUF_OUTPUT: i32 = 130;
const LOAD_BYTES: i32 = 189;
/// Wakes sleepers even if the ring contains records already (`BPF_RB_FORCE_WAKEUP`).
const FORCE_WAKEUP: i32 = 2;
/// Position on the stack of the type of an answer until it is written.
const KIND_KEPT: i16 = -16;
/// Position on the stack of a record for the bell.
const RECORD: i16 = -24;
/// Returns the offset of a word of a node.
const fn at(word: usize) -> i16 {
    (8 * word) as i16
}

/// Register and offset of the hash state of a node.
const KEY: (u8, i16) = (R7, at(node::KEY));

/// Makes the program of an interface, with the arrays of nodes and of slots, and the bells.
pub(super) fn assemble(
    (nodes, slots, bells): (&impl AsRawFd, &impl AsRawFd, &impl AsRawFd),
    (kind, mac): (EtherType, Mac),
) -> Vec<Insn> {
    let mut asm = Assembler::default();
    asm.copy(R9, R1);
    asm.only((kind, SLOT, mac), FRAME);
    field(&mut asm, R3, GROUP, 16);
    asm.entry(nodes, "pass");
    asm.copy(R7, R0);
    asm.load(Width::Double, R3, R7, at(node::PLACE));
    asm.if_equal_to(R3, 0, "pass");
    asm.load(Width::Byte, R4, R6, VERSION as i16);
    asm.if_not(R4, i32::from(VERSION_NOW), "drop");
    asm.load(Width::Byte, R4, R6, KIND as i16);
    asm.if_not(R4, i32::from(DATA), "answer is for the root");
    field(&mut asm, R2, HOP, 16);
    asm.if_equal(R2, R3, "check");
    asm.go("drop");
    asm.label("answer is for the root");
    asm.if_greater_than(R4, i32::from(MISSING), "drop");
    asm.if_not(R3, node::ROOT as i32, "drop");
    asm.label("check");
    siphash(&mut asm, KEY, (R6, TAGGED as i16), TAGGED_WORDS);
    field(&mut asm, R2, TAG, 64);
    asm.if_equal(R1, R2, "good");
    count(&mut asm, node::FORGED);
    asm.go("drop");
    asm.label("good");
    asm.load(Width::Byte, R4, R6, KIND as i16);
    asm.if_not(R4, i32::from(DATA), "note");
    keep(&mut asm, slots, bells);
    forward(&mut asm, mac);
    answer(&mut asm, mac);
    note(&mut asm);
    asm.label("drop");
    asm.set(R0, XDP_DROP);
    asm.go("out");
    asm.label("pass");
    asm.set(R0, XDP_PASS);
    asm.label("out");
    asm.exit();
    asm.finish()
}

/// `dst` = a field of the frame, in the host's byte order.
fn field(asm: &mut Assembler, dst: u8, offset: usize, bits: i32) {
    let width = match bits {
        16 => Width::Half,
        _ => Width::Double,
    };
    asm.load(width, dst, R6, offset as i16);
    asm.swap_le(dst, bits);
}

/// Sets a field of 64 bits of the frame to `src`, which then has the frame's byte order.
fn put(asm: &mut Assembler, offset: usize, src: u8) {
    asm.swap_le(src, 64);
    asm.store(Width::Double, R6, offset as i16, src);
}

/// Adds one to a counter of this node. Uses `r1`.
fn count(asm: &mut Assembler, word: usize) {
    asm.set(R1, 1);
    asm.fetch_add(R7, at(word), R1);
}

/// Lowers the frame's limit, and keeps its payload if it is the next packet. Falls through if the
/// frame is to be forwarded. Otherwise jumps to "drop", or to "answer with r4" with the type in
/// `r4` and the number in `r8`.
fn keep(asm: &mut Assembler, slots: &impl AsRawFd, bells: &impl AsRawFd) {
    asm.load(Width::Double, R3, R7, at(node::TAKEN));
    asm.add(R3, RING as i32);
    field(asm, R2, LIMIT, 64);
    asm.if_greater(R3, R2, "limit is lower");
    asm.copy(R2, R3);
    put(asm, LIMIT, R2);
    asm.label("limit is lower");
    field(asm, R8, NUMBER, 64);
    asm.load(Width::Double, R2, R7, at(node::NEXT));
    asm.copy(R4, R2);
    asm.shift_right(R4, BUSY as i32);
    asm.if_not(R4, 0, "drop");
    asm.if_greater(R8, R2, "missing");
    asm.if_greater(R2, R8, "repeated");
    asm.if_greater(R3, R8, "room");
    count(asm, node::NO_ROOM);
    asm.set(R4, i32::from(FULL));
    asm.go("answer with r4");
    asm.label("missing");
    count(asm, node::AHEAD);
    asm.copy(R8, R2);
    asm.set(R4, i32::from(MISSING));
    asm.go("answer with r4");
    asm.label("room");
    // The processor that sets the busy bit of the number keeps the packet; others may run at once.
    asm.copy(R0, R8);
    asm.set_wide(R3, 1 << BUSY);
    asm.or_reg(R3, R8);
    asm.compare_exchange(R7, at(node::NEXT), R3);
    asm.if_equal(R0, R8, "ours");
    asm.go("drop");
    asm.label("ours");
    field(asm, R3, GROUP, 16);
    asm.multiply(R3, RING as i32);
    asm.copy(R4, R8);
    asm.and(R4, RING as i32 - 1);
    asm.add_reg(R3, R4);
    asm.entry(slots, "undo");
    asm.copy(R8, R0);
    field(asm, R4, EtherHead::LENGTH, 16);
    asm.add(R4, -((HEAD - EtherHead::LEN) as i32));
    asm.if_greater_than(R4, SLOT_DATA as i32, "undo");
    asm.if_equal_to(R4, 0, "undo");
    asm.store(Width::Double, R8, 0, R4);
    field(asm, R3, CHECK, 64);
    asm.store(Width::Double, R8, 8, R3);
    asm.copy(R1, R9);
    asm.set(R2, HEAD as i32);
    asm.copy(R3, R8);
    asm.add(R3, SLOT_HEAD as i32);
    asm.call(LOAD_BYTES);
    asm.if_not(R0, 0, "undo");
    field(asm, R3, NUMBER, 64);
    asm.add(R3, 1);
    asm.exchange(R7, at(node::NEXT), R3);
    wake(asm, bells);
    asm.go("on");
    asm.label("undo");
    field(asm, R3, NUMBER, 64);
    asm.exchange(R7, at(node::NEXT), R3);
    asm.go("drop");
    asm.label("repeated");
    count(asm, node::REPEATED);
    asm.label("on");
}

/// Wakes the process if it sleeps; otherwise jumps to "on".
fn wake(asm: &mut Assembler, bells: &impl AsRawFd) {
    asm.load(Width::Double, R3, R7, at(node::SLEEPS));
    asm.if_equal_to(R3, 0, "on");
    asm.set(R3, 0);
    asm.exchange(R7, at(node::SLEEPS), R3);
    asm.if_equal_to(R3, 0, "on");
    asm.store(Width::Double, STACK, RECORD, R3);
    field(asm, R3, GROUP, 16);
    asm.entry(bells, "on");
    asm.copy(R1, R0);
    asm.copy(R2, STACK);
    asm.add(R2, i32::from(RECORD));
    asm.set(R3, 8);
    asm.set(R4, FORCE_WAKEUP);
    asm.call(RINGBUF_OUTPUT);
}

/// Forwards the frame to the next member; the last member continues with an answer.
fn forward(asm: &mut Assembler, mac: Mac) {
    asm.load(Width::Double, R3, R7, at(node::LAST));
    asm.if_not(R3, 0, "all have it");
    field(asm, R3, HOP, 16);
    asm.add(R3, 1);
    asm.swap_le(R3, 16);
    asm.store(Width::Half, R6, HOP as i16, R3);
    send(asm, node::NEXT_MAC, mac);
}

/// Turns the frame into an answer of the type in `r4` with the number in `r8`.
fn answer(asm: &mut Assembler, mac: Mac) {
    asm.label("all have it");
    asm.load(Width::Double, R8, R7, at(node::NEXT));
    asm.copy(R4, R8);
    asm.shift_right(R4, BUSY as i32);
    asm.if_not(R4, 0, "drop");
    asm.set(R4, i32::from(ACK));
    asm.label("answer with r4");
    asm.store(Width::Double, STACK, KIND_KEPT, R4);
    // An answer consists of the header only.
    asm.load(Width::Word, R3, R9, MD_DATA_END);
    asm.load(Width::Word, R2, R9, MD_DATA);
    asm.subtract_reg(R2, R3);
    asm.add(R2, FRAME as i32);
    asm.copy(R1, R9);
    asm.call(ADJUST_TAIL);
    asm.if_not(R0, 0, "drop");
    asm.load(Width::Word, R2, R9, MD_DATA_END);
    asm.load(Width::Word, R6, R9, MD_DATA);
    asm.copy(R4, R6);
    asm.add(R4, FRAME as i32);
    asm.if_greater(R4, R2, "drop");
    asm.set(R3, (HEAD - EtherHead::LEN) as i32);
    asm.swap_le(R3, 16);
    asm.store(Width::Half, R6, EtherHead::LENGTH as i16, R3);
    asm.load(Width::Double, R3, STACK, KIND_KEPT);
    asm.store(Width::Byte, R6, KIND as i16, R3);
    put(asm, NUMBER, R8);
    send(asm, node::ROOT_MAC, mac);
}

/// Tags the frame and sends it from this interface to the address in a word of the node.
fn send(asm: &mut Assembler, to: usize, mac: Mac) {
    let [a, b, c, d, e, f] = mac.0;
    asm.load(Width::Word, R3, R7, at(to));
    asm.store(Width::Word, R6, 0, R3);
    asm.load(Width::Half, R3, R7, at(to) + 4);
    asm.store(Width::Half, R6, 4, R3);
    for (offset, part) in [(6, [a, b]), (8, [c, d]), (10, [e, f])] {
        asm.set(R3, i32::from(u16::from_ne_bytes(part)));
        asm.store(Width::Half, R6, offset, R3);
    }
    siphash(asm, KEY, (R6, TAGGED as i16), TAGGED_WORDS);
    put(asm, TAG, R1);
    asm.set(R0, XDP_TX);
    asm.go("out");
}

/// Stores the fields of an answer for the process, at the root.
fn note(asm: &mut Assembler) {
    asm.label("note");
    field(asm, R2, NUMBER, 64);
    asm.if_equal_to(R4, i32::from(ACK), "acknowledged");
    // The number of the packet and the position of the member, in one word.
    field(asm, R3, HOP, 16);
    asm.shift_left(R2, 16);
    asm.or_reg(R2, R3);
    asm.if_equal_to(R4, i32::from(FULL), "slow");
    asm.store(Width::Double, R7, at(node::MISSED), R2);
    asm.go("noted");
    asm.label("slow");
    asm.store(Width::Double, R7, at(node::SLOW), R2);
    asm.go("noted");
    asm.label("acknowledged");
    raise(asm, node::NEXT, "older");
    field(asm, R2, LIMIT, 64);
    raise(asm, node::TAKEN, "lower");
    asm.label("noted");
    count(asm, node::ANSWERS);
}

/// Sets a word of the node to `r2`, if `r2` is greater.
fn raise(asm: &mut Assembler, word: usize, less: &'static str) {
    asm.load(Width::Double, R3, R7, at(word));
    asm.if_greater(R3, R2, less);
    asm.store(Width::Double, R7, at(word), R2);
    asm.label(less);
}
