//! The XDP program, assembled here (`docs/adr/0007-xdp-program.md` says why).
//!
//! ```text
//! if the frame is shorter than Ethernet header and shim, or not of weft's EtherType: pass
//! if its slot is not one of AF_XDP, or its queue is beyond QUEUES: pass
//! redirect to the socket at (slot - XDP) * QUEUES + queue; if there is none: pass
//! ```
//!
//! Pass means that the frame goes its way through the network stack as if there were no program:
//! other protocols see no difference, and a packet socket may be waiting for that slot.

use super::sys::Insn;
use crate::ether::{EtherAddr, EtherHead, EtherType};
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;

/// Queues of an interface that can be served.
pub const QUEUES: u32 = 16;
/// Slots of an interface: endpoints that can be told apart.
pub const SLOTS: u32 = 4096;
/// Entries of the map: a socket for each slot and queue.
pub const ENTRIES: u32 = SLOTS * QUEUES;

/// Key of a socket in the map; `slot` counts from [`EtherAddr::XDP`].
pub const fn key(slot: u16, queue: u32) -> u32 {
    (slot - EtherAddr::XDP) as u32 * QUEUES + queue
}

/// Verdict of an XDP program: let the frame pass (`enum xdp_action`).
pub(super) const XDP_PASS: i32 = 2;

/// Offsets in the program's context (`struct xdp_md`).
pub(super) const MD_DATA: i16 = 0;
pub(super) const MD_DATA_END: i16 = 4;
const MD_RX_QUEUE: i16 = 16;

/// Number of the helper `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// Registers by their role: arguments of helpers are 1 to 5, results 0.
pub(super) const R0: u8 = 0;
pub(super) const R1: u8 = 1;
pub(super) const R2: u8 = 2;
pub(super) const R3: u8 = 3;
pub(super) const R4: u8 = 4;
pub(super) const R5: u8 = 5;
/// Kept over calls of helpers.
pub(super) const R6: u8 = 6;
pub(super) const R7: u8 = 7;
pub(super) const R8: u8 = 8;
/// End of the stack.
pub(super) const STACK: u8 = 10;

/// Width of a load.
#[derive(Clone, Copy)]
pub(super) enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// Builds a program instruction by instruction (instruction set: RFC 9669). Jumps lead forward to
/// labels.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<Insn>,
    /// Jumps whose distance is still to be filled in, by label.
    open: BTreeMap<&'static str, Vec<usize>>,
}

impl Assembler {
    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.code.push(Insn::new(code, dst, src, off, imm));
    }

    /// `dst = imm`
    pub(super) fn set(&mut self, dst: u8, imm: i32) {
        self.push(0xb7, dst, 0, 0, imm);
    }

    /// `dst = src`
    pub(super) fn copy(&mut self, dst: u8, src: u8) {
        self.push(0xbf, dst, src, 0, 0);
    }

    /// `dst += imm`
    pub(super) fn add(&mut self, dst: u8, imm: i32) {
        self.push(0x07, dst, 0, 0, imm);
    }

    /// `dst += src`
    pub(super) fn add_reg(&mut self, dst: u8, src: u8) {
        self.push(0x0f, dst, src, 0, 0);
    }

    /// `dst *= imm`
    fn multiply(&mut self, dst: u8, imm: i32) {
        self.push(0x27, dst, 0, 0, imm);
    }

    /// `dst = *(src + off)`
    pub(super) fn load(&mut self, width: Width, dst: u8, src: u8, off: i16) {
        self.push(0x61 | width as u8, dst, src, off, 0);
    }

    /// `*(dst + off) = src`
    pub(super) fn store(&mut self, width: Width, dst: u8, off: i16, src: u8) {
        self.push(0x63 | width as u8, dst, src, off, 0);
    }

    /// `src = *(dst + off); *(dst + off) += src` of 64 bits, in one step that none comes between.
    pub(super) fn fetch_add(&mut self, dst: u8, off: i16, src: u8) {
        const ADD_AND_FETCH: i32 = 0x01;
        self.push(0xdb, dst, src, off, ADD_AND_FETCH);
    }

    /// `dst` holds a little-endian number of so many bits: brings it into the order of the host, or
    /// back.
    pub(super) fn swap_le(&mut self, dst: u8, bits: i32) {
        self.push(0xd4, dst, 0, 0, bits);
    }

    /// `dst` holds a big-endian number of 16 bits: brings it into the order of the host.
    pub(super) fn swap_be16(&mut self, dst: u8) {
        self.push(0xdc, dst, 0, 0, 16);
    }

    /// `if a > b goto label`, unsigned
    pub(super) fn if_greater(&mut self, a: u8, b: u8, label: &'static str) {
        self.jump(label);
        self.push(0x2d, a, b, 0, 0);
    }

    /// `if a > imm goto label`, unsigned
    pub(super) fn if_greater_than(&mut self, a: u8, imm: i32, label: &'static str) {
        self.jump(label);
        self.push(0x25, a, 0, 0, imm);
    }

    /// `if a == imm goto label`
    pub(super) fn if_equal_to(&mut self, a: u8, imm: i32, label: &'static str) {
        self.jump(label);
        self.push(0x15, a, 0, 0, imm);
    }

    /// `if a == b goto label`
    pub(super) fn if_equal(&mut self, a: u8, b: u8, label: &'static str) {
        self.jump(label);
        self.push(0x1d, a, b, 0, 0);
    }

    /// `goto label`
    pub(super) fn go(&mut self, label: &'static str) {
        self.jump(label);
        self.push(0x05, 0, 0, 0, 0);
    }

    /// `if a != imm goto label`
    pub(super) fn if_not(&mut self, a: u8, imm: i32, label: &'static str) {
        self.jump(label);
        self.push(0x55, a, 0, 0, imm);
    }

    fn jump(&mut self, label: &'static str) {
        self.open.entry(label).or_default().push(self.code.len());
    }

    /// Here is where the jumps to `name` lead.
    pub(super) fn label(&mut self, name: &'static str) {
        for at in self.open.remove(name).unwrap_or_default() {
            self.code[at].off = (self.code.len() - at - 1) as i16;
        }
    }

    /// `dst = the map behind this descriptor`
    pub(super) fn map(&mut self, dst: u8, fd: i32) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.push(0x18, dst, PSEUDO_MAP_FD, 0, fd);
        self.push(0, 0, 0, 0, 0);
    }

    /// `r0 = helper(r1, ...)`
    pub(super) fn call(&mut self, helper: i32) {
        self.push(0x85, 0, 0, 0, helper);
    }

    /// `return r0`
    pub(super) fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }

    pub(super) fn finish(self) -> Vec<Insn> {
        assert!(self.open.is_empty(), "jumps without a label: {:?}", self.open.keys());
        self.code
    }
}

/// The program, with the descriptor of the map of sockets.
pub(super) fn assemble(map: &impl AsRawFd, kind: EtherType) -> Vec<Insn> {
    const TYPE_AT: i16 = 12;
    const SLOT_AT: i16 = EtherHead::SLOT as i16;
    let mut asm = Assembler::default();
    asm.load(Width::Word, R2, R1, MD_DATA_END);
    asm.load(Width::Word, R3, R1, MD_DATA);
    asm.load(Width::Word, R5, R1, MD_RX_QUEUE);
    asm.set(R0, XDP_PASS);
    asm.copy(R4, R3);
    asm.add(R4, EtherHead::LEN as i32);
    asm.if_greater(R4, R2, "out");
    asm.load(Width::Half, R4, R3, TYPE_AT);
    asm.swap_be16(R4);
    asm.if_not(R4, i32::from(kind.get()), "out");
    asm.if_greater_than(R5, QUEUES as i32 - 1, "out");
    asm.load(Width::Half, R2, R3, SLOT_AT);
    asm.swap_le(R2, 16);
    // A smaller slot becomes a very large number.
    asm.add(R2, -i32::from(EtherAddr::XDP));
    asm.if_greater_than(R2, SLOTS as i32 - 1, "out");
    asm.multiply(R2, QUEUES as i32);
    asm.add_reg(R2, R5);
    asm.map(R1, map.as_raw_fd());
    asm.set(R3, XDP_PASS);
    asm.call(REDIRECT_MAP);
    asm.label("out");
    asm.exit();
    asm.finish()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn assemble__jumps_lead_to_the_end() {
        let code = assemble(&std::io::stdin(), EtherType::default());
        let jumps = code.iter().enumerate().filter(|(_, insn)| insn.code & 7 == 5 && insn.off != 0);
        let targets: Vec<_> = jumps.map(|(at, insn)| at + 1 + insn.off as usize).collect();
        assert_eq!(targets, [code.len() - 1; 4]);
        assert_eq!(code.last().map(|insn| insn.code), Some(0x95));
    }

    #[test]
    fn key__every_slot_and_queue_has_its_own() {
        assert_eq!(key(EtherAddr::XDP, QUEUES - 1) + 1, key(EtherAddr::XDP + 1, 0));
        assert_eq!(key(EtherAddr::XDP + SLOTS as u16 - 1, QUEUES - 1) + 1, ENTRIES);
    }
}
