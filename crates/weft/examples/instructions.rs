//! One message after another between two endpoints of one process, for counting instructions:
//! `valgrind --tool=callgrind --toggle-collect='instructions::message' instructions [LINKS
//! [BYTES]]`; above 16 KiB it is `instructions::bulk`; with `packet` behind the links, of the
//! packet interface, `instructions::packet`; with `rate`, `instructions::rate` of 64 messages.

use weft::job::{config_from_env, open_endpoint};
use weft::{Endpoint, Links, PeerId};
use weft_packets::Packets;

#[inline(never)]
fn message((a, to_b): (&Endpoint, PeerId), (b, to_a): (&Endpoint, PeerId), buffer: &mut [u8]) {
    a.send_blocking(to_b, 1, buffer).unwrap();
    b.recv_blocking(Some(to_a), 1, 0, buffer).unwrap();
}

/// Sends a message that the receiver pulls in blocks; both sides make progress in turn.
#[inline(never)]
fn bulk(
    (a, to_b): (&Endpoint, PeerId),
    (b, to_a): (&Endpoint, PeerId),
    buffers: &mut [Vec<u8>; 2],
) {
    let recv = b.recv(Some(to_a), 1, 0, std::mem::take(&mut buffers[1]));
    let send = a.send(to_b, 1, std::mem::take(&mut buffers[0]));
    while !(recv.is_done() && send.is_done()) {
        a.progress();
        b.progress();
    }
    *buffers = [a.block_on(send).1, b.block_on(recv).1];
}

#[inline(never)]
fn packet((a, to_b): (&Packets, PeerId), (b, to_a): (&Packets, PeerId), buffer: &mut [u8]) {
    a.send(to_b, 1, 0, &[7; 8]).unwrap();
    b.receive(Some(to_a), 1, buffer).unwrap();
}

/// Sends 64 messages, which the receiver takes with receives that wait for them.
#[inline(never)]
fn rate((a, to_b): (&Endpoint, PeerId), (b, to_a): (&Endpoint, PeerId)) {
    let recvs: [_; 64] = std::array::from_fn(|_| b.recv(Some(to_a), 1, 0, vec![0; 8]));
    for _ in 0..64 {
        a.send_blocking(to_b, 1, &[7; 8]).unwrap();
    }
    for recv in recvs {
        b.block_on(recv).0.unwrap();
    }
}

fn main() {
    let links = std::env::args().nth(1).unwrap_or_else(|| "shm".into());
    let what = std::env::args().nth(2);
    let len = what.as_ref().and_then(|len| len.parse::<usize>().ok()).unwrap_or(8);
    let links = Links::parse(&links).unwrap();
    let open = || open_endpoint(config_from_env().unwrap(), links, [1; 32]).unwrap();
    let (a, b) = (open(), open());
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    let mut buffer = [0; 8];
    a.send_blocking(to_b, 2, &[1; 8]).unwrap();
    while b.probe(None, 2, 0).is_none() {
        a.progress();
        b.progress();
    }
    b.recv_blocking(Some(to_a), 2, 0, &mut buffer).unwrap();
    if what.as_ref().is_some_and(|what| what == "rate") {
        for _ in 0..20 {
            rate((&a, to_b), (&b, to_a));
            rate((&b, to_a), (&a, to_b));
        }
        return;
    }
    if what.is_some_and(|what| what == "packet") {
        let (a, b) = (Packets::new(&a).unwrap(), Packets::new(&b).unwrap());
        b.mailbox(1);
        for _ in 0..1000 {
            packet((&a, to_b), (&b, to_a), &mut buffer);
        }
        return;
    }
    // A message too long for inject must be acknowledged before its send returns.
    if len > 16 << 10 {
        let mut buffers = [vec![7; len], vec![0; len]];
        for _ in 0..100 {
            bulk((&a, to_b), (&b, to_a), &mut buffers);
        }
        return;
    }
    // In both directions, since an answer acknowledges the message.
    let mut buffer = vec![7; len];
    for _ in 0..500 {
        message((&a, to_b), (&b, to_a), &mut buffer);
        message((&b, to_a), (&a, to_b), &mut buffer);
    }
}
