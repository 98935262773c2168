//! One message after another between two endpoints of one process, for counting instructions:
//! `valgrind --tool=callgrind --toggle-collect='instructions::message' instructions [LINKS]`; with
//! `packet` behind the links, of the packet interface (`instructions::packet`).

use weft::packets::Packets;
use weft::{job::open_endpoint, Config, Endpoint, Links, PeerId};

#[inline(never)]
fn message(
    (a, to_b): (&Endpoint, PeerId),
    (b, to_a): (&Endpoint, PeerId),
    buffer: &mut [u8],
    network: bool,
) {
    a.send_blocking(to_b, 1, &[7; 8]).unwrap();
    // Over a network messages need the sender's progress too.
    if network {
        while b.probe(Some(to_a), 1, 0).is_none() {
            a.progress();
            b.progress();
        }
    }
    b.recv_blocking(Some(to_a), 1, 0, buffer).unwrap();
}

#[inline(never)]
fn packet((a, to_b): (&Packets, PeerId), (b, to_a): (&Packets, PeerId), buffer: &mut [u8]) {
    a.send(to_b, 1, 0, &[7; 8]).unwrap();
    b.receive(Some(to_a), 1, buffer).unwrap();
}

fn main() {
    let links = std::env::args().nth(1).unwrap_or_else(|| "shm".into());
    let network = links != "shm";
    let links = Links::parse(&links).unwrap();
    let open = || open_endpoint(Config::default(), links, [1; 32]).unwrap();
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
    if std::env::args().nth(2).is_some_and(|what| what == "packet") {
        let (a, b) = (Packets::new(&a).unwrap(), Packets::new(&b).unwrap());
        b.mailbox(1);
        for _ in 0..1000 {
            packet((&a, to_b), (&b, to_a), &mut buffer);
        }
        return;
    }
    for _ in 0..1000 {
        message((&a, to_b), (&b, to_a), &mut buffer, network);
    }
}
