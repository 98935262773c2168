//! Connections that are not a peer's, and peers that misbehave.

use super::*;

const CHILD: &str = "WEFT_TCP_FEW_DESCRIPTORS";

/// Connects to a link as somebody who does not know the key.
fn stranger(link: &TcpLink) -> TcpStream {
    let stream = TcpStream::connect(link.local_addrs()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    stream
}

/// True if the other side has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(0) => true,
        Ok(_) => panic!("a stranger was answered"),
        Err(e) => {
            let open = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
            !open.contains(&e.kind())
        }
    }
}

fn until_closed(link: &mut TcpLink, stream: &mut TcpStream, mut send: impl FnMut(&mut TcpStream)) {
    let (mut keep, start) = (Keep::default(), Instant::now());
    while !is_closed(stream) {
        send(stream);
        link.recv(64, &mut keep);
        assert!(start.elapsed() < LONG, "never closed");
    }
    assert_eq!((keep.tags.len(), link.streams()), (0, 0));
}

fn impatient() -> TcpConfig {
    TcpConfig { proof: Duration::from_millis(100), ..here() }
}

#[test]
fn stranger__that_sends_nothing_or_little_is_closed_in_time() {
    let (_, mut b) = pair_of([&here(), &impatient()]);
    let mut silent = stranger(&b);
    until_closed(&mut b, &mut silent, |_| {});
    let mut slow = stranger(&b);
    let frame = [&frame::prefix(1000)[..], &eager(TO_B, 1), &[0; 984]].concat();
    let mut bytes = frame.iter();
    until_closed(&mut b, &mut slow, |s| {
        bytes.next().into_iter().for_each(|byte| _ = s.write(&[*byte]));
    });
    let mut half = stranger(&b);
    half.write_all(&frame[..500]).unwrap();
    until_closed(&mut b, &mut half, |_| {});
    assert_eq!((count(&b, "accepts"), count(&b, "strangers_silent")), (3, 3));
}

#[test]
fn stranger__with_garbage_or_without_the_key_is_closed_at_once() {
    let mut b = open(&here(), B);
    let of_other_job = {
        let mut a = TcpLink::new(here(), security(A, Mode::Auth, 2)).unwrap();
        let known = info(P, TO_A, B, address_of(&b, B));
        a.connect(&known).unwrap();
        let header = eager(TO_B, 3);
        let trailer = a.secure.seal(P, &header, b"forged").unwrap();
        [&frame::prefix(header.len() + 6 + 16)[..], &header, b"forged", &trailer].concat()
    };
    let a = address_of(&open(&here(), A), A);
    b.connect(&info(P, TO_B, A, a)).unwrap();
    let garbage: [&[u8]; 5] =
        [b"GET / HTTP/1.0\r\n\r\n", b"SSH-2.0-x\r\n", &[0; 4], &[0xff; 9000], &[22, 3, 1, 2, 0]];
    for bytes in garbage {
        let mut stream = stranger(&b);
        stream.write_all(bytes).unwrap();
        until_closed(&mut b, &mut stream, |_| {});
    }
    assert_eq!(count(&b, "garbage"), garbage.len() as u64);
    let mut stream = stranger(&b);
    stream.write_all(&of_other_job).unwrap();
    until_closed(&mut b, &mut stream, |_| {});
    assert_eq!((count(&b, "auth_failed"), count(&b, "received")), (1, 0));
    // A port scan: connected and gone.
    for _ in 0..100 {
        drop(stranger(&b));
    }
    let mut stream = stranger(&b);
    stream.write_all(b"last").unwrap();
    until_closed(&mut b, &mut stream, |_| {});
}

#[test]
fn stranger__too_many_do_not_keep_a_peer_out() {
    let (mut a, mut b) = pair_of([&here(), &TcpConfig { strangers: 8, ..here() }]);
    let mut held = Vec::new();
    for n in 0..5 {
        held.extend((0..40).map(|_| stranger(&b)));
        deliver(&mut a, &mut b, TO_B, n);
        deliver(&mut b, &mut a, TO_A, n);
        let (mut own, mut keep) = (Keep::default(), Keep::default());
        let all = held.len() as u64;
        work((&mut a, &mut b), (&mut own, &mut keep), |_, b| count(b, "accepts") > all);
        assert!(b.streams() <= 8 + 2, "{}", b.streams());
    }
    assert!(count(&b, "strangers_over") >= 200 - 8);
    assert_eq!(count(&a, "streams_broken"), 0);
}

#[test]
fn replay__the_frames_of_a_peer_open_no_connection() {
    let (mut a, mut b) = pair();
    deliver(&mut a, &mut b, TO_B, 0);
    let header = eager(TO_B, 1);
    let trailer = a.secure.seal(P, &header, b"x").unwrap();
    let frame = [&frame::prefix(header.len() + 1 + 16)[..], &header, b"x", &trailer].concat();
    let id = a.peers.get(P).unwrap().outlet.unwrap();
    a.streams.get(id).unwrap().socket.send(&[io::IoSlice::new(&frame)]).unwrap();
    let (mut own, mut keep) = (Keep::default(), Keep::default());
    work((&mut a, &mut b), (&mut own, &mut keep), |_, b| count(b, "received") >= 2);
    let mut again = stranger(&b);
    again.write_all(&frame).unwrap();
    let start = Instant::now();
    while !is_closed(&mut again) {
        b.recv(64, &mut keep);
        assert!(start.elapsed() < LONG);
    }
    assert_eq!((count(&b, "replayed"), keep.tags), (1, vec![1]));
    deliver(&mut b, &mut a, TO_A, 5);
}

#[test]
fn peer__that_stops_reading_is_busy_and_loses_nothing() {
    let (mut a, mut b) = pair();
    deliver(&mut a, &mut b, TO_B, 0);
    let (payload, mut sent, start) = (vec![3; 50_000], 0, Instant::now());
    while a.send(&[Frame { peer: P, header: &eager(TO_B, sent), payload: &payload }]) == 1 {
        sent += 1;
        assert!(start.elapsed() < LONG && sent < 4000, "it takes everything");
    }
    assert!(count(&a, "send_full") == 1 && sent > 0);
    let (mut own, mut keep) = (Keep::default(), Keep::default());
    work((&mut a, &mut b), (&mut own, &mut keep), |_, b| count(b, "received") > sent);
    assert!(keep.tags.iter().copied().eq(0..sent));
    assert_eq!(keep.bytes as u64, sent * 50_000);
}

/// Serves until a peer asks for the end, with few descriptors.
#[test]
fn accept__more_connections_than_descriptors() {
    if std::env::var_os(CHILD).is_some() {
        return few_descriptors();
    }
    let name = "tcp::tests::hostile::accept__more_connections_than_descriptors";
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" --exact --nocapture \"$1\""]);
    command.arg(std::env::current_exe().unwrap()).arg(name);
    command.env(CHILD, "1").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = start(&mut command).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = loop {
        let line = lines.next().expect("the child says its address").unwrap();
        if let Some(at) = line.find("serves at ") {
            break line[at + 10..].trim().parse::<SocketAddr>().unwrap();
        }
    };
    let mut a = open(&here(), A);
    let to_b = Address { endpoint: B, host: 1, tcp: vec![address], ..Address::default() };
    a.connect(&info(P, TO_A, B, to_b)).unwrap();
    let (mut keep, start) = (Keep::default(), Instant::now());
    let mut held = std::collections::VecDeque::new();
    let mut made = 0;
    while made < 5000 {
        made += u64::from(TcpStream::connect(address).map(|s| held.push_back(s)).is_ok());
        if held.len() > 200 {
            held.pop_front();
        }
        a.recv(64, &mut keep);
        assert!(start.elapsed() < LONG, "{made} connections");
    }
    while keep.tags.is_empty() {
        a.send(&[Frame { peer: P, header: &eager(TO_B, 1), payload: b"end" }]);
        a.recv(64, &mut keep);
        std::thread::yield_now();
        assert!(start.elapsed() < LONG, "no answer");
    }
    assert!(child.wait().unwrap().success());
}

fn few_descriptors() {
    // Enough strangers are let in that descriptors run out.
    let mut b = open(&TcpConfig { strangers: 1000, streams: 1000, ..impatient() }, B);
    let a = Address { endpoint: A, host: 1, tcp: b.local_addrs(), ..Address::default() };
    b.connect(&info(P, TO_B, A, a)).unwrap();
    println!("serves at {}", b.local_addrs()[0]);
    let (mut keep, start) = (Keep::default(), Instant::now());
    while keep.tags.is_empty() {
        b.recv(64, &mut keep);
        assert!(start.elapsed() < LONG);
    }
    assert!(count(&b, "strangers_over") > 0, "descriptors never ran out");
    let header = eager(TO_A, 2);
    while b.send(&[Frame { peer: P, header: &header, payload: b"x" }]) == 0 {
        b.recv(64, &mut keep);
    }
}
