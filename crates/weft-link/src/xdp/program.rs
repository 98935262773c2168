//! The XDP program (`docs/adr/0007-xdp-program.md` tells why it is assembled here).
//!
//! ```text
//! if the frame is shorter than Ethernet header and shim, or not of weft's EtherType: pass
//! if its slot is not one of AF_XDP, or its queue is beyond QUEUES: pass
//! redirect to the socket at (slot - XDP) * QUEUES + queue; if there is none: pass
//! ```
//!
//! Pass means that the frame continues through the network stack as if there were no program: other
//! protocols see no difference, and a packet socket may be waiting for that slot.

use super::assembler::{
    Assembler, Width, MD_DATA, MD_DATA_END, MD_RX_QUEUE, R0, R1, R2, R3, R4, R5, REDIRECT_MAP,
    TYPE_AT, XDP_PASS,
};
use super::sys::Insn;
use crate::ether::{EtherAddr, EtherHead, EtherType};
use std::os::fd::AsRawFd;

/// Highest number of queues of an interface that can be served.
pub const QUEUES: u32 = 16;
/// Number of slots of an interface, one for each endpoint.
pub const SLOTS: u32 = 4096;
/// Entries of the map: a socket for each slot and queue.
pub const ENTRIES: u32 = SLOTS * QUEUES;

/// Returns the key of a socket in the map; slots count from [`EtherAddr::XDP`].
pub const fn key(slot: u16, queue: u32) -> u32 {
    (slot - EtherAddr::XDP) as u32 * QUEUES + queue
}

/// Makes the program, with the descriptor of the map of sockets.
pub(super) fn assemble(map: &impl AsRawFd, kind: EtherType) -> Vec<Insn> {
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
