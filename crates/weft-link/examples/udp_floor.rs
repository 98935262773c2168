//! Compares the UDP link alone with bare sockets, between two addresses (two hosts or network
//! namespaces).
//!
//! ```text
//! udp_floor cost                     cost of authentication per packet
//! udp_floor serve  MINE THEIRS MODE  run first, on one side
//! udp_floor bulk   MINE THEIRS MODE  bandwidth to the server
//! udp_floor ping   MINE THEIRS MODE  one-way time of 16 bytes, echoed by the server
//! ```
//! `MINE` and `THEIRS` are `ip:port`; MODE is `auth`, `encrypt`, `none` or `bare` (no link, ping
//! only). With `PLACE=1` the server receives bulk data directly into its destination; `BATCH=n`
//! sets the frames per send call.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use weft_core::wire::{emit, Common, Data, Eager, Packet, PacketType};
use weft_core::{EndpointId, PeerId};
use weft_link::secure::{measure_cost_on, Backend, JobKey, Mode, Security};
use weft_link::udp::{UdpConfig, UdpLink};
use weft_link::{Address, Bytes, Frame, Link, PeerInfo, Prediction, Sink};

const P: PeerId = PeerId(0);
const RUN: Duration = Duration::from_secs(2);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["cost"] => {
            for backend in Backend::available() {
                for len in [40, 64, 256, 1456, 8956] {
                    let c = measure_cost_on(backend, len);
                    let (name, len) = (backend.name(), c.packet_len);
                    println!("{name} {len} B: seal {:.0} ns, open {:.0} ns", c.seal_ns, c.open_ns);
                }
            }
        }
        [role, mine, theirs, mode] => {
            let (mine, theirs) = (mine.parse().unwrap(), theirs.parse().unwrap());
            match (role, mode) {
                ("serve", "bare") => bare_serve(mine),
                ("ping", "bare") => bare_ping(mine, theirs),
                ("serve", _) => serve(link(mine, theirs, mode).0),
                ("bulk", _) => bulk(link(mine, theirs, mode)),
                ("ping", _) => ping(link(mine, theirs, mode).0),
                _ => panic!("unknown role"),
            }
        }
        _ => panic!("see the top of the file for usage"),
    }
}

fn link(mine: SocketAddr, theirs: SocketAddr, mode: &str) -> (UdpLink, usize) {
    let id = |a: SocketAddr| EndpointId(u64::from(a.port()));
    let IpAddr::V4(ip) = mine.ip() else { panic!("IPv4 only") };
    let mode = match mode {
        "auth" => Mode::Auth,
        "encrypt" => Mode::Encrypt,
        _ => Mode::None,
    };
    let job_key = JobKey::from_bytes(&[3; 16]).unwrap();
    let config = UdpConfig {
        v4: Some(ip),
        v6: None,
        ports: weft_link::Ports::one(mine.port()),
        ..Default::default()
    };
    let mut link = UdpLink::new(config, Security { mode, job_key, me: id(mine) }).unwrap();
    let address = Address { endpoint: id(theirs), udp: vec![theirs], ..Default::default() };
    let peer = PeerInfo { peer: P, session: 1 << 20, endpoint: id(theirs), address };
    let caps = link.connect(&peer).unwrap();
    (link, caps.mtu as usize)
}

fn header(packet: Packet) -> Vec<u8> {
    let common = Common { session: 1 << 20, ..Default::default() };
    emit(&common, &packet).as_slice().to_vec()
}

/// Answers small packets at once, assembles bulk data.
struct Server {
    memory: Vec<u8>,
    next: usize,
    total: u64,
    small: usize,
    stop: bool,
    place: bool,
}

impl Sink for Server {
    fn frame(&mut self, _: Option<PeerId>, header: &[u8], payload: Bytes<'_>) {
        match header[1] {
            8 => {
                let at = u64::from_le_bytes(header[24..32].try_into().unwrap()) as usize;
                payload.copy_to(&mut self.memory[at..at + payload.len()]);
                self.next = (at + payload.len()) % self.memory.len();
                self.total += payload.len() as u64;
            }
            3 => self.small += 1,
            _ => self.stop = true,
        }
    }

    fn predict(&mut self) -> Option<Prediction<'_>> {
        let (memory, offset) = (&mut self.memory[self.next..], self.next as u64);
        self.place.then_some(Prediction {
            memory,
            kind: PacketType::Data,
            session: 1 << 20,
            imm: 0,
            offset,
        })
    }

    fn run(&mut self, header: &[u8], _count: u32, len: u64) -> bool {
        let at = u64::from_le_bytes(header[24..32].try_into().unwrap());
        self.next = ((at + len) % self.memory.len() as u64) as usize;
        self.total += len;
        true
    }
}

fn serve(mut link: UdpLink) {
    let mut server = Server {
        memory: vec![0; 1440 * 44 * 64],
        next: 0,
        total: 0,
        small: 0,
        stop: false,
        place: std::env::var_os("PLACE").is_some(),
    };
    let answer = header(Packet::Eager(Eager { tag: 0 }));
    let (mut start, mut end) = (None, Instant::now());
    while !server.stop {
        let before = server.total;
        link.recv(64, &mut server);
        for _ in 0..std::mem::take(&mut server.small) {
            link.send(&[Frame { peer: P, header: &answer, payload: &[0; 16] }]);
        }
        if server.total > before {
            end = Instant::now();
            start.get_or_insert(end);
        }
    }
    if let Some(start) = start {
        let rate = server.total as f64 / (end - start).as_secs_f64() / 1e9;
        print!("received {rate:.2} GB/s of payload;");
        link.counters(&mut |name, value| {
            if value > 0 {
                print!(" {name} {value}");
            }
        });
        println!();
    }
}

fn stop(link: &mut UdpLink) {
    let bye = header(Packet::Bye(weft_core::wire::Bye { reason: 0 }));
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        link.send(&[Frame { peer: P, header: &bye, payload: &[] }]);
    }
}

fn bulk((mut link, mtu): (UdpLink, usize)) {
    let payload_len = mtu - 32;
    let message = vec![5u8; payload_len * 44 * 64];
    let headers: Vec<Vec<u8>> = (0..44 * 64u64)
        .map(|i| header(Packet::Data(Data { offset: i * payload_len as u64 })))
        .collect();
    let frames: Vec<Frame> = headers
        .iter()
        .zip(message.chunks(payload_len))
        .map(|(header, payload)| Frame { peer: P, header, payload })
        .collect();
    let batch = std::env::var("BATCH").ok().and_then(|b| b.parse().ok()).unwrap_or(44);
    let (start, mut total, mut at) = (Instant::now(), 0u64, 0);
    while start.elapsed() < RUN {
        let end = (at + batch).min(frames.len());
        let n = link.send(&frames[at..end]);
        total += (n * payload_len) as u64;
        at = (at + n) % frames.len();
    }
    let rate = total as f64 / start.elapsed().as_secs_f64() / 1e9;
    println!("sent {rate:.2} GB/s of payload in packets of {mtu}");
    stop(&mut link);
}

struct Count(usize);

impl Sink for Count {
    fn frame(&mut self, _: Option<PeerId>, _: &[u8], _: Bytes<'_>) {
        self.0 += 1;
    }
}

fn ping(mut link: UdpLink) {
    let ask = header(Packet::Eager(Eager { tag: 0 }));
    report("link", || {
        let mut got = Count(0);
        link.send(&[Frame { peer: P, header: &ask, payload: &[0; 16] }]);
        while got.0 == 0 {
            link.recv(16, &mut got);
        }
    });
    stop(&mut link);
}

fn report(name: &str, mut turn: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..40 {
        let start = Instant::now();
        (0..1000).for_each(|_| turn());
        best = best.min(start.elapsed());
    }
    println!("{name}: {:.0} ns one way", best.as_nanos() as f64 / 2000.0);
}

fn bare_serve(mine: SocketAddr) {
    let socket = UdpSocket::bind(mine).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2048];
    loop {
        if let Ok((n, from)) = socket.recv_from(&mut buffer) {
            if n == 1 {
                return;
            }
            socket.send_to(&buffer[..n], from).unwrap();
        }
    }
}

fn bare_ping(mine: SocketAddr, theirs: SocketAddr) {
    let socket = UdpSocket::bind(mine).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut buffer = [0; 2048];
    report("bare", || {
        socket.send_to(&[0; 16], theirs).unwrap();
        while socket.recv_from(&mut buffer).is_err() {}
    });
    socket.send_to(&[0], theirs).unwrap();
}
