//! Latency and message rate of the shared-memory link between two processes, next to the floor:
//! one cache line bounced between the same two cores.
//!
//! `cargo run --release -p weft-link --example shm_pingpong [seconds per figure]`

use std::hint::spin_loop;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weft_core::{EndpointId, PeerId};
use weft_link::{Address, Bytes, Frame, Link, LinkEvent, PeerInfo, ShmConfig, ShmLink, Sink};

const PEER: PeerId = PeerId(0);
/// First header byte: what the other side does with the packet.
const ECHO: u8 = 0;
const DROP: u8 = 1;

/// Remembers the last packet, as an engine would: header copied, payload copied to its place.
struct Last {
    header: [u8; 32],
    payload: Vec<u8>,
    len: usize,
}

impl Sink for Last {
    #[inline]
    fn frame(&mut self, _from: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        self.header.copy_from_slice(&header[..32]);
        self.len = payload.len();
        payload.copy_to(&mut self.payload[..payload.len()]);
    }
}

fn new_last(mtu: u32) -> Last {
    Last { header: [0; 32], payload: vec![0; mtu as usize], len: 0 }
}

fn open(id: u64) -> (ShmLink, Address) {
    let link = ShmLink::new(ShmConfig::new(EndpointId(id))).expect("shared memory");
    let mut address = Address { endpoint: EndpointId(id), ..Address::default() };
    link.advertise(&mut address);
    (link, address)
}

fn connect(link: &mut ShmLink, address: Address) {
    let info = PeerInfo { peer: PEER, session: 0, endpoint: address.endpoint, address };
    println!("# path {:?}", link.connect(&info).expect("connected"));
}

fn send(link: &mut ShmLink, header: &[u8], payload: &[u8]) {
    while link.send(&[Frame { peer: PEER, header, payload }]) == 0 {
        spin_loop();
    }
}

fn child(parent: &str) {
    let bytes: Vec<u8> = parent.split(',').map(|b| b.parse().expect("byte")).collect();
    let (mut link, address) = open(2);
    println!("{}", text(&address));
    connect(&mut link, Address::decode(&bytes).expect("address"));
    let mut last = new_last(link.caps().mtu);
    loop {
        while link.recv(1, &mut last) == 0 {
            if link.poll_event() == Some(LinkEvent::PeerGone(PEER)) {
                return;
            }
        }
        if last.header[0] == ECHO {
            let Last { header, payload, len } = &last;
            send(&mut link, header, &payload[..*len]);
        }
    }
}

fn text(address: &Address) -> String {
    address.encode().iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

/// Nanoseconds one way for `len` bytes.
fn latency(link: &mut ShmLink, len: usize, time: Duration) -> f64 {
    let mut last = new_last(link.caps().mtu);
    let payload = vec![7; len];
    let (start, mut rounds) = (Instant::now(), 0_u32);
    while start.elapsed() < time {
        for _ in 0..1000 {
            send(link, &[ECHO; 32], &payload);
            while link.recv(1, &mut last) == 0 {}
        }
        rounds += 1000;
    }
    start.elapsed().as_nanos() as f64 / f64::from(rounds) / 2.0
}

/// Messages of `len` bytes per second, one way, `burst` a call.
fn rate(link: &mut ShmLink, len: usize, burst: usize, time: Duration) -> f64 {
    let mut last = new_last(link.caps().mtu);
    let payload = vec![7; len];
    let frame = Frame { peer: PEER, header: &[DROP; 32], payload: &payload };
    let frames = vec![frame; burst];
    let (start, mut sent) = (Instant::now(), 0);
    while start.elapsed() < time {
        let mut here = 0;
        while here < 10_000 {
            here += link.send(&frames);
        }
        sent += here;
    }
    send(link, &[ECHO; 32], &payload);
    while link.recv(1, &mut last) == 0 {}
    sent as f64 / start.elapsed().as_secs_f64()
}

#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds one way of a bare cache line between two threads.
fn floor(time: Duration) -> f64 {
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut expected = 1;
            loop {
                let seen = lines[0].0.load(Ordering::Acquire);
                if seen == u64::MAX {
                    return;
                }
                if seen == expected {
                    lines[1].0.store(expected, Ordering::Release);
                    expected += 1;
                }
            }
        });
        let (start, mut n) = (Instant::now(), 0_u64);
        while start.elapsed() < time {
            for _ in 0..1000 {
                n += 1;
                lines[0].0.store(n, Ordering::Release);
                while lines[1].0.load(Ordering::Acquire) != n {}
            }
        }
        let ns = start.elapsed().as_nanos() as f64 / n as f64 / 2.0;
        lines[0].0.store(u64::MAX, Ordering::Release);
        ns
    })
}

fn main() {
    let argument = std::env::args().nth(1);
    if let Some(parent) = argument.as_ref().filter(|a| a.contains(',')) {
        return child(parent);
    }
    let seconds: f64 = argument.map_or(0.3, |a| a.parse().expect("seconds"));
    let time = Duration::from_secs_f64(seconds);
    let (mut link, address) = open(1);
    let mut other = Command::new(std::env::current_exe().expect("own path"))
        .arg(text(&address))
        .stdout(Stdio::piped())
        .spawn()
        .expect("second process");
    let mut line = String::new();
    let out = other.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("address");
    let bytes: Vec<u8> = line.trim().split(',').map(|b| b.parse().expect("byte")).collect();
    connect(&mut link, Address::decode(&bytes).expect("address"));

    latency(&mut link, 8, time / 4);
    let ns = latency(&mut link, 8, time);
    let rates: Vec<f64> = [1, 16].map(|burst| rate(&mut link, 8, burst, time)).to_vec();
    let bulk = 32 * 1024;
    let bytes = rate(&mut link, bulk, 1, time) * bulk as f64;
    let latencies: Vec<_> =
        [64, 1024, 4096, bulk].iter().map(|&len| (len, latency(&mut link, len, time))).collect();
    link.counters(&mut |name, value| println!("# {name} {value}"));
    drop(link);
    other.wait().expect("second process");
    let floor = floor(time);
    println!("floor, one line   {floor:7.1} ns");
    println!("8 B one way       {ns:7.1} ns   {:.2} of the floor", ns / floor);
    for (len, ns) in latencies {
        println!("{len:5} B one way   {ns:7.1} ns");
    }
    println!("8 B rate          {:7.2} M/s  ({:.2} M/s in bursts of 16)", rates[0] / 1e6, rates[1] / 1e6);
    println!("32 KiB stream     {:7.2} GB/s", bytes / 1e9);
}
