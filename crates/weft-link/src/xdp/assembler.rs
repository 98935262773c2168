//! Builds BPF programs instruction by instruction (instruction set: RFC 9669), and holds the common
//! parts of the programs in this folder.

use super::sys::Insn;
use crate::ether::{EtherHead, EtherType, Mac};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;

/// Verdict of an XDP program (`enum xdp_action`): the frame is dropped.
pub const XDP_DROP: i32 = 1;
/// The frame goes on to the system.
pub const XDP_PASS: i32 = 2;
/// The frame leaves over the interface it came from.
pub const XDP_TX: i32 = 3;

/// Offset in the program's context (`struct xdp_md`) of the start of the frame.
pub const MD_DATA: i16 = 0;
/// End of the frame.
pub const MD_DATA_END: i16 = 4;
/// Number of the queue.
pub const MD_RX_QUEUE: i16 = 16;

/// Number of a helper (`enum bpf_func_id`).
const MAP_LOOKUP_ELEM: i32 = 1;
/// `bpf_redirect_map`.
pub const REDIRECT_MAP: i32 = 51;

/// Position of the EtherType.
pub const TYPE_AT: i16 = 12;
/// Position of the IP header.
pub const IP_AT: i16 = 14;
/// Position of the data of a UDP datagram whose IP header has no options.
pub const UDP_DATA: usize = 42;
/// Position, from the end of the stack, of the index for a map lookup.
const KEY_AT: i16 = -4;

/// Result of a helper.
pub const R0: u8 = 0;
/// Argument 1 of a helper.
pub const R1: u8 = 1;
/// Argument 2 of a helper.
pub const R2: u8 = 2;
/// Argument 3 of a helper.
pub const R3: u8 = 3;
/// Argument 4 of a helper.
pub const R4: u8 = 4;
/// Argument 5 of a helper.
pub const R5: u8 = 5;
/// Preserved by calls of helpers.
pub const R6: u8 = 6;
/// Preserved by calls of helpers.
pub const R7: u8 = 7;
/// Preserved by calls of helpers.
pub const R8: u8 = 8;
/// Preserved by calls of helpers.
pub const R9: u8 = 9;
/// End of the stack.
pub const STACK: u8 = 10;

/// Width of a load.
#[derive(Clone, Copy)]
pub enum Width {
    /// 8 bits.
    Byte = 0x10,
    /// 16 bits.
    Half = 0x08,
    /// 32 bits.
    Word = 0x00,
    /// 64 bits.
    Double = 0x18,
}

/// A program under construction. Jumps lead only forward, to labels.
#[derive(Default)]
pub struct Assembler {
    code: Vec<Insn>,
    /// Jumps whose distance is not known yet, by label.
    open: BTreeMap<&'static str, Vec<usize>>,
}

impl Assembler {
    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.code.push(Insn::new(code, dst, src, off, imm));
    }

    /// `dst = imm`, of 64 bits
    pub fn set_wide(&mut self, dst: u8, imm: u64) {
        self.push(0x18, dst, 0, 0, imm as i32);
        self.push(0, 0, 0, 0, (imm >> 32) as i32);
    }

    /// `dst = imm`
    pub fn set(&mut self, dst: u8, imm: i32) {
        self.push(0xb7, dst, 0, 0, imm);
    }

    /// `dst = src`
    pub fn copy(&mut self, dst: u8, src: u8) {
        self.push(0xbf, dst, src, 0, 0);
    }

    /// `dst += imm`
    pub fn add(&mut self, dst: u8, imm: i32) {
        self.push(0x07, dst, 0, 0, imm);
    }

    /// `dst += src`
    pub fn add_reg(&mut self, dst: u8, src: u8) {
        self.push(0x0f, dst, src, 0, 0);
    }

    /// `dst *= imm`
    pub fn multiply(&mut self, dst: u8, imm: i32) {
        self.push(0x27, dst, 0, 0, imm);
    }

    /// `dst -= src`
    pub fn subtract_reg(&mut self, dst: u8, src: u8) {
        self.push(0x1f, dst, src, 0, 0);
    }

    /// `dst &= imm`
    pub fn and(&mut self, dst: u8, imm: i32) {
        self.push(0x57, dst, 0, 0, imm);
    }

    /// `dst |= src`
    pub fn or_reg(&mut self, dst: u8, src: u8) {
        self.push(0x4f, dst, src, 0, 0);
    }

    /// `dst ^= imm`
    pub fn xor(&mut self, dst: u8, imm: i32) {
        self.push(0xa7, dst, 0, 0, imm);
    }

    /// `dst ^= src`
    pub fn xor_reg(&mut self, dst: u8, src: u8) {
        self.push(0xaf, dst, src, 0, 0);
    }

    /// `dst <<= bits`
    pub fn shift_left(&mut self, dst: u8, bits: i32) {
        self.push(0x67, dst, 0, 0, bits);
    }

    /// `dst >>= bits`, unsigned
    pub fn shift_right(&mut self, dst: u8, bits: i32) {
        self.push(0x77, dst, 0, 0, bits);
    }

    /// `dst = *(src + off)`
    pub fn load(&mut self, width: Width, dst: u8, src: u8, off: i16) {
        self.push(0x61 | width as u8, dst, src, off, 0);
    }

    /// `*(dst + off) = src`
    pub fn store(&mut self, width: Width, dst: u8, off: i16, src: u8) {
        self.push(0x63 | width as u8, dst, src, off, 0);
    }

    /// `src = *(dst + off); *(dst + off) += src`, of 64 bits, atomically.
    pub fn fetch_add(&mut self, dst: u8, off: i16, src: u8) {
        const ADD_AND_FETCH: i32 = 0x01;
        self.push(0xdb, dst, src, off, ADD_AND_FETCH);
    }

    /// Swaps `src` and `*(dst + off)`, of 64 bits, atomically and ordered with all other accesses.
    pub fn exchange(&mut self, dst: u8, off: i16, src: u8) {
        const EXCHANGE: i32 = 0xe1;
        self.push(0xdb, dst, src, off, EXCHANGE);
    }

    /// `if *(dst + off) == r0 then *(dst + off) = src`, of 64 bits, atomically; `r0` = the old
    /// value.
    pub fn compare_exchange(&mut self, dst: u8, off: i16, src: u8) {
        const COMPARE_EXCHANGE: i32 = 0xf1;
        self.push(0xdb, dst, src, off, COMPARE_EXCHANGE);
    }

    /// Converts the little-endian number of `bits` bits in `dst` to the byte order of the host, or
    /// back.
    pub fn swap_le(&mut self, dst: u8, bits: i32) {
        self.push(0xd4, dst, 0, 0, bits);
    }

    /// Converts the big-endian number of 16 bits in `dst` to the byte order of the host.
    pub fn swap_be16(&mut self, dst: u8) {
        self.push(0xdc, dst, 0, 0, 16);
    }

    /// `if a > b goto label`, unsigned
    pub fn if_greater(&mut self, a: u8, b: u8, label: &'static str) {
        self.jump(label);
        self.push(0x2d, a, b, 0, 0);
    }

    /// `if a > imm goto label`, unsigned
    pub fn if_greater_than(&mut self, a: u8, imm: i32, label: &'static str) {
        self.jump(label);
        self.push(0x25, a, 0, 0, imm);
    }

    /// `if a == imm goto label`
    pub fn if_equal_to(&mut self, a: u8, imm: i32, label: &'static str) {
        self.jump(label);
        self.push(0x15, a, 0, 0, imm);
    }

    /// `if a == b goto label`
    pub fn if_equal(&mut self, a: u8, b: u8, label: &'static str) {
        self.jump(label);
        self.push(0x1d, a, b, 0, 0);
    }

    /// `goto label`
    pub fn go(&mut self, label: &'static str) {
        self.jump(label);
        self.push(0x05, 0, 0, 0, 0);
    }

    /// `if a != imm goto label`
    pub fn if_not(&mut self, a: u8, imm: i32, label: &'static str) {
        self.jump(label);
        self.push(0x55, a, 0, 0, imm);
    }

    fn jump(&mut self, label: &'static str) {
        self.open.entry(label).or_default().push(self.code.len());
    }

    /// Marks the destination of the jumps to `name`.
    pub fn label(&mut self, name: &'static str) {
        for at in self.open.remove(name).unwrap_or_default() {
            self.code[at].off = (self.code.len() - at - 1) as i16;
        }
    }

    /// `dst = the map behind this descriptor`
    pub fn map(&mut self, dst: u8, fd: i32) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.push(0x18, dst, PSEUDO_MAP_FD, 0, fd);
        self.push(0, 0, 0, 0, 0);
    }

    /// `r0 = helper(r1, ...)`
    pub fn call(&mut self, helper: i32) {
        self.push(0x85, 0, 0, 0, helper);
    }

    /// Begins a program with `r6` = the frame. Passes on (`r0`, "out") a frame that is shorter than
    /// `len` or of another EtherType.
    fn only_type(&mut self, kind: u16, len: usize) {
        self.load(Width::Word, R2, R1, MD_DATA_END);
        self.load(Width::Word, R6, R1, MD_DATA);
        self.set(R0, XDP_PASS);
        self.copy(R4, R6);
        self.add(R4, len as i32);
        self.if_greater(R4, R2, "out");
        self.load(Width::Half, R4, R6, TYPE_AT);
        self.swap_be16(R4);
        self.if_not(R4, i32::from(kind), "out");
    }

    /// Begins a program with `r6` = the frame. Passes on (`r0`, "out") a frame that is shorter than
    /// `len`, or of another EtherType, slot or interface (a bridge may flood frames for others).
    pub fn only(&mut self, (kind, slot, mac): (EtherType, u16, Mac), len: usize) {
        let [a, b, c, d, e, f] = mac.0;
        self.only_type(kind.get(), len);
        self.load(Width::Half, R4, R6, EtherHead::SLOT as i16);
        self.swap_le(R4, 16);
        self.if_not(R4, i32::from(slot), "out");
        for (at, part) in [(0, [a, b]), (2, [c, d]), (4, [e, f])] {
            self.load(Width::Half, R4, R6, at);
            self.if_not(R4, i32::from(u16::from_ne_bytes(part)), "out");
        }
    }

    /// Begins a program with `r6` = the frame. Passes on (`r0`, "out") a frame that is shorter than
    /// `len` or not a complete UDP datagram for this address.
    pub fn only_udp(&mut self, to: SocketAddrV4, len: usize) {
        const IPV4: u16 = 0x0800;
        const UDP: i32 = 17;
        self.only_type(IPV4, len);
        // Version 4, five words of header; no fragment (the flag "do not fragment" may be set).
        self.load(Width::Byte, R4, R6, IP_AT);
        self.if_not(R4, 0x45, "out");
        self.load(Width::Half, R4, R6, IP_AT + 6);
        self.swap_be16(R4);
        self.and(R4, 0x3fff);
        self.if_not(R4, 0, "out");
        self.load(Width::Byte, R4, R6, IP_AT + 9);
        self.if_not(R4, UDP, "out");
        let [a, b, c, d] = to.ip().octets();
        for (at, part) in [(16, [a, b]), (18, [c, d]), (22, to.port().to_be_bytes())] {
            self.load(Width::Half, R4, R6, IP_AT + at);
            self.if_not(R4, i32::from(u16::from_ne_bytes(part)), "out");
        }
    }

    /// `r0` = entry number `r3` of an array; jumps to `none` if there is no such entry.
    pub fn entry(&mut self, array: &impl AsRawFd, none: &'static str) {
        self.store(Width::Word, STACK, KEY_AT, R3);
        self.map(R1, array.as_raw_fd());
        self.copy(R2, STACK);
        self.add(R2, i32::from(KEY_AT));
        self.call(MAP_LOOKUP_ELEM);
        self.if_equal_to(R0, 0, none);
    }

    /// `return r0`
    pub fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }

    /// Returns the program, with its jumps resolved.
    pub fn finish(self) -> Vec<Insn> {
        assert!(self.open.is_empty(), "jumps without a label: {:?}", self.open.keys());
        self.code
    }
}
