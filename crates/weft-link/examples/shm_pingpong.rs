//! Latency and message rate of the shared-memory link beside the floor: one bare cache line that
//! moves back and forth between the same two threads.
//!
//! Floor and figure are measured alternately, a few milliseconds each. The program prints the
//! median of each and the median of their ratios, because a virtual machine may move between cores.
//!
//! `cargo run --release -p weft-link --example shm_pingpong [slices] [slots] [data bytes]`

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weft_core::{EndpointId, PeerId};
use weft_link::{Address, Bytes, Frame, Link, LinkEvent, PeerInfo, ShmConfig, ShmLink, Sink};

const PEER: PeerId = PeerId(0);
/// First header byte: tells the other side how to handle the packet.
const ECHO: u8 = 0;
const DROP: u8 = 1;
const BARE: u8 = 2;
const SLICE: Duration = Duration::from_millis(4);

/// Parses the header and copies the payload to its destination, as an engine would.
struct Place {
    kind: u8,
    tag: u64,
    payload: Vec<u8>,
    len: usize,
}

impl Place {
    fn new() -> Place {
        Place { kind: 0, tag: 0, payload: vec![0; 1 << 16], len: 0 }
    }
}

impl Sink for Place {
    #[inline]
    fn frame(&mut self, _from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.kind = header[0];
        self.tag = header[24..32].iter().rev().fold(0, |tag, &b| tag << 8 | u64::from(b));
        self.len = payload.len();
        payload.copy_to(&mut self.payload[..payload.len()]);
    }
}

fn open(config: &ShmConfig, id: u64) -> (ShmLink, Address) {
    let endpoint = EndpointId(id);
    let link = ShmLink::new(ShmConfig { endpoint, ..config.clone() }).expect("shared memory");
    let mut address = Address { endpoint, ..Address::default() };
    link.advertise(&mut address);
    (link, address)
}

fn connect(link: &mut ShmLink, address: Address) {
    let info = PeerInfo { peer: PEER, session: 0, endpoint: address.endpoint, address };
    link.connect(&info).expect("connected");
}

fn send(link: &mut ShmLink, header: &[u8], payload: &[u8]) {
    while link.send(&[Frame { peer: PEER, header, payload }]) == 0 {
        spin_loop();
    }
}

#[repr(align(128))]
struct Line(AtomicU64);

static LINES: [Line; 2] = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];

/// Runs the far side: echoes packets, drops them, or answers the bare line, as the header tells.
fn far(link: &mut ShmLink) {
    let mut place = Place::new();
    loop {
        while link.recv(16, &mut place) == 0 {
            if link.poll_event() == Some(LinkEvent::PeerGone(PEER)) {
                return;
            }
        }
        match place.kind {
            ECHO => {
                let mut header = [ECHO; 32];
                header[24..].copy_from_slice(&place.tag.to_le_bytes());
                send(link, &header, &place.payload[..place.len]);
            }
            BARE => bounce(),
            _ => {}
        }
    }
}

fn bounce() {
    let mut expected = 1;
    loop {
        match LINES[0].0.load(Ordering::Acquire) {
            u64::MAX => break LINES[1].0.store(0, Ordering::Release),
            n if n == expected => {
                LINES[1].0.store(n, Ordering::Release);
                expected += 1;
            }
            _ => {}
        }
    }
}

/// Measures the one-way time of a bare cache line, in nanoseconds.
fn floor(link: &mut ShmLink) -> f64 {
    LINES[0].0.store(0, Ordering::Release);
    send(link, &[BARE; 32], &[]);
    let bounce = |n| {
        LINES[0].0.store(n, Ordering::Release);
        while LINES[1].0.load(Ordering::Acquire) != n {}
    };
    bounce(1);
    let (start, mut n) = (Instant::now(), 1);
    while start.elapsed() < SLICE {
        for _ in 0..200 {
            n += 1;
            bounce(n);
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / (n - 1) as f64 / 2.0;
    LINES[0].0.store(u64::MAX, Ordering::Release);
    while LINES[1].0.load(Ordering::Acquire) != 0 {}
    ns
}

/// Measures the one-way time of `len` bytes, in nanoseconds.
fn latency(link: &mut ShmLink, place: &mut Place, len: usize) -> f64 {
    let payload = vec![7; len];
    let (start, mut rounds) = (Instant::now(), 0_u32);
    while start.elapsed() < SLICE {
        for _ in 0..50 {
            send(link, &[ECHO; 32], &payload);
            while link.recv(16, place) == 0 {}
        }
        rounds += 50;
    }
    start.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0
}

/// Measures the time for each message of `len` bytes in one direction, with `burst` messages in a
/// call, in nanoseconds.
fn gap(link: &mut ShmLink, place: &mut Place, len: usize, burst: usize) -> f64 {
    let payload = vec![7; len];
    let frames = vec![Frame { peer: PEER, header: &[DROP; 32], payload: &payload }; burst];
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < SLICE {
        let mut here = 0;
        while here < 500 {
            here += link.send(&frames);
        }
        sent += here;
    }
    send(link, &[ECHO; 32], &payload);
    while link.recv(16, place) == 0 {}
    start.elapsed().as_nanos() as f64 / sent as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<u32>().expect("a number"));
    let slices = arguments.next().unwrap_or(30);
    let mut config = ShmConfig::new(EndpointId(0));
    config.slots = arguments.next().unwrap_or(config.slots);
    config.data_bytes = arguments.next().unwrap_or(config.data_bytes);
    let (mut link, near) = open(&config, 1);
    let (give, take) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let (mut link, address) = open(&config, 2);
        give.send(address).expect("main waits");
        connect(&mut link, near);
        far(&mut link);
    });
    connect(&mut link, take.recv().expect("address"));
    let mut place = Place::new();
    println!("                      ns     floor   of the floor");
    let mut report = |name: &str, run: &mut dyn FnMut(&mut ShmLink, &mut Place) -> f64| {
        run(&mut link, &mut place);
        let pairs: Vec<(f64, f64)> =
            (0..slices).map(|_| (run(&mut link, &mut place), floor(&mut link))).collect();
        let ns = median(&mut pairs.iter().map(|p| p.0).collect::<Vec<_>>());
        let bare = median(&mut pairs.iter().map(|p| p.1).collect::<Vec<_>>());
        let ratio = median(&mut pairs.iter().map(|p| p.0 / p.1).collect::<Vec<_>>());
        println!("{name:16} {ns:9.1} {bare:9.1} {ratio:9.2}");
        ns
    };
    for len in [8, 24, 64, 1024, 4096, 32 * 1024] {
        report(&format!("{len} B one way"), &mut |l, p| latency(l, p, len));
    }
    for burst in [1, 16] {
        let ns = report(&format!("8 B gap, by {burst}"), &mut |l, p| gap(l, p, 8, burst));
        println!("    {:.2} million messages a second", 1e3 / ns);
    }
    let bulk = 32 * 1024;
    let ns = report("32 KiB gap", &mut |l, p| gap(l, p, bulk, 1));
    println!("    {:.2} GB/s", bulk as f64 / ns);
    link.counters(&mut |name, value| println!("# {name} {value}"));
    drop(link);
    thread.join().expect("far side");
}
