//! The program that adds to counters.
//!
//! ```text
//! if the frame is too short, or not a datagram for this address: pass
//! if it is of another version or not a request: drop
//! if there is no such client, its tag is wrong, or the client may not add to the counter: drop
//! if it asks for the number of the client's last request: answer with that number
//! if it repeats the client's last request: answer with the stored value, once it is there
//! if it is older than that, or another processor has just taken a request: drop
//! add, store value and number, answer with the value
//! answer: swap the addresses, tag it, send it back
//! ```

use super::request::{ADD, ANSWER, LAST, VERSION_NOW};
use super::request::{CLIENT, COUNTER, KIND, LEN, NUMBER, TAG, TAGGED, VALUE, VERSION};
use crate::sip::siphash;
use std::net::SocketAddrV4;
use std::os::fd::AsRawFd;
use weft_link::xdp::assembler::{
    Assembler, Width, IP_AT, R0, R1, R2, R3, R4, R5, R6, R7, R8, UDP_DATA, XDP_DROP, XDP_TX,
};
use weft_link::xdp::bpf::Insn;

/// The words of a client's entry, by index: number of the request taken last, number of the request
/// answered last, its answer; initial hash state of the client's key; the first counter and the
/// number of counters of the client.
pub(super) const TAKEN: usize = 0;
pub(super) const DONE: usize = 1;
pub(super) const ANSWERED: usize = 2;
pub(super) const STATE: usize = 3;
pub(super) const FIRST: usize = 7;
pub(super) const COUNT: usize = 8;
pub(super) const WORDS: usize = 9;

/// Returns the offset of a word in an entry.
fn word(at: usize) -> i16 {
    (8 * at) as i16
}

/// Returns the offset in the frame of a field of the request.
fn field(at: usize) -> i16 {
    (UDP_DATA + at) as i16
}

/// Makes the program, with the arrays of clients and counters.
pub(super) fn assemble(
    clients: &impl AsRawFd,
    counters: &impl AsRawFd,
    address: SocketAddrV4,
) -> Vec<Insn> {
    let mut asm = Assembler::default();
    asm.only_udp(address, UDP_DATA + LEN);
    asm.set(R0, XDP_DROP);
    asm.load(Width::Byte, R3, R6, field(VERSION));
    asm.if_not(R3, i32::from(VERSION_NOW), "out");
    asm.load(Width::Byte, R3, R6, field(KIND));
    asm.if_greater_than(R3, i32::from(ADD), "out");
    asm.load(Width::Half, R3, R6, field(CLIENT));
    asm.swap_le(R3, 16);
    asm.entry(clients, "drop");
    asm.copy(R7, R0);
    hash(&mut asm);
    asm.load(Width::Double, R2, R6, field(TAG));
    asm.swap_le(R2, 64);
    asm.if_equal(R1, R2, "good");
    asm.go("drop");
    asm.label("good");
    asm.load(Width::Word, R3, R6, field(COUNTER));
    asm.swap_le(R3, 32);
    asm.load(Width::Double, R2, R7, word(COUNT));
    asm.if_greater(R2, R3, "its own");
    asm.go("drop");
    asm.label("its own");
    asm.load(Width::Double, R2, R7, word(FIRST));
    asm.add_reg(R3, R2);
    asm.entry(counters, "drop");
    asm.copy(R8, R0);
    asm.load(Width::Double, R2, R7, word(DONE));
    asm.load(Width::Byte, R3, R6, field(KIND));
    asm.if_equal_to(R3, i32::from(LAST), "answer");
    add(&mut asm);
    asm.label("answer");
    asm.swap_le(R2, 64);
    asm.store(Width::Double, R6, field(VALUE), R2);
    send_back(&mut asm);
    asm.label("drop");
    asm.set(R0, XDP_DROP);
    asm.label("out");
    asm.exit();
    asm.finish()
}

/// `r2` = the answer to a request to add to the word at `r8`.
fn add(asm: &mut Assembler) {
    asm.load(Width::Double, R3, R6, field(NUMBER));
    asm.swap_le(R3, 64);
    asm.load(Width::Double, R0, R7, word(TAKEN));
    asm.if_equal(R3, R0, "again");
    asm.if_greater(R0, R3, "drop");
    // Only one processor takes the request; the agent may have ended the client meanwhile.
    asm.copy(R5, R0);
    asm.compare_exchange(R7, word(TAKEN), R3);
    asm.if_equal(R0, R5, "taken");
    asm.go("drop");
    asm.label("taken");
    asm.load(Width::Double, R2, R6, field(VALUE));
    asm.swap_le(R2, 64);
    asm.fetch_add(R8, 0, R2);
    asm.store(Width::Double, R7, word(ANSWERED), R2);
    asm.copy(R4, R3);
    asm.exchange(R7, word(DONE), R4);
    asm.go("answer");
    asm.label("again");
    asm.load(Width::Double, R4, R7, word(DONE));
    asm.if_equal(R4, R3, "kept");
    asm.go("drop");
    asm.label("kept");
    asm.load(Width::Double, R2, R7, word(ANSWERED));
}

/// `r1` = the tag under the key of the client at `r7`.
fn hash(asm: &mut Assembler) {
    let words = ((TAG - TAGGED) / 8) as i16;
    siphash(asm, (R7, word(STATE)), (R6, field(TAGGED)), words);
}

/// Turns the request into its answer and sends it to its sender.
fn send_back(asm: &mut Assembler) {
    // A swap does not change the checksums of IP; UDP over IPv4 works without a checksum.
    const MAC: [(i16, i16); 3] = [(0, 6), (2, 8), (4, 10)];
    const IP: [(i16, i16); 2] = [(IP_AT + 12, IP_AT + 16), (IP_AT + 14, IP_AT + 18)];
    const PORT: [(i16, i16); 1] = [(IP_AT + 20, IP_AT + 22)];
    const SUM: i16 = IP_AT + 26;
    asm.set(R3, i32::from(ANSWER));
    asm.store(Width::Byte, R6, field(KIND), R3);
    for &(a, b) in MAC.iter().chain(&IP).chain(&PORT) {
        asm.load(Width::Half, R3, R6, a);
        asm.load(Width::Half, R4, R6, b);
        asm.store(Width::Half, R6, a, R4);
        asm.store(Width::Half, R6, b, R3);
    }
    asm.set(R3, 0);
    asm.store(Width::Half, R6, SUM, R3);
    hash(asm);
    asm.swap_le(R1, 64);
    asm.store(Width::Double, R6, field(TAG), R1);
    asm.set(R0, XDP_TX);
    asm.go("out");
}
