//! Calls that a panic of the program unwinds: the memory they borrowed is free again, and other
//! calls go on.
#![forbid(unsafe_code)]
#![allow(non_snake_case)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Instant;
use weft::choices::Receipt;
use weft::{
    Cancel, Clock, Config, Endpoint, EndpointId, Links, OpError, PeerId, Rights, SharedEndpoint,
};
use weft_link::secure::{JobKey, Mode, Security};
use weft_link::{Link, ShmConfig, ShmLink, UdpConfig, UdpLink};
use weft_packets::Packets;

/// The handler that panics.
const PANICS: u32 = 1;

struct Pair {
    a: Endpoint,
    b: Endpoint,
    to_b: PeerId,
    to_a: PeerId,
}

fn link(id: u64, name: &str) -> Box<dyn Link> {
    if name == "shm" {
        return Box::new(ShmLink::new(ShmConfig::new(EndpointId(id))).unwrap());
    }
    let config = UdpConfig { host: weft_link::shm::host().unwrap(), ..UdpConfig::default() };
    let job_key = JobKey::from_bytes(&[7; 32]).unwrap();
    let security = Security { mode: Mode::Auth, job_key, me: EndpointId(id) };
    Box::new(UdpLink::new(config, security).unwrap())
}

/// Returns two endpoints whose session is open; A has a handler that panics.
fn pair(name: &str) -> Pair {
    let open = || {
        let id = weft_link::random_u64();
        Endpoint::with_links(
            Config::default(),
            EndpointId(id),
            Clock::system(),
            vec![link(id, name)],
        )
    };
    let (a, b) = (open(), open());
    let to_b = a.connect(&b.address()).unwrap();
    let to_a = b.connect(&a.address()).unwrap();
    a.active().handle(PANICS, |_, _| panic!("a fault of the handler"));
    let pair = Pair { a, b, to_b, to_a };
    let sent = pair.b.send(to_a, 1, vec![1]);
    pair.run(pair.a.recv(Some(to_b), 1, 0, vec![0])).0.unwrap();
    pair.run(sent).0.unwrap();
    pair
}

impl Pair {
    fn progress(&self) {
        self.a.progress();
        self.b.progress();
    }

    fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        let start = Instant::now();
        loop {
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                return out;
            }
            self.progress();
            assert!(start.elapsed().as_secs() < 300, "stuck: {:?}", self.a.stats());
        }
    }

    /// Makes progress until both endpoints have nothing to do.
    fn settle(&self) {
        let start = Instant::now();
        let mut quiet = 0;
        while quiet < 2000 {
            let did = self.a.progress() | self.b.progress();
            quiet = if did { 0 } else { quiet + 1 };
            assert!(start.elapsed().as_secs() < 300, "never quiet");
        }
    }

    /// Makes A's next waiting call unwind.
    fn provoke(&self) {
        self.b.active().send(self.to_a, PANICS, 0, b"x").unwrap();
        self.b.progress();
    }
}

fn unwinds<R>(f: impl FnOnce() -> R) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err(), "it did not unwind");
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn recv_blocking__what_comes_later_does_not_touch_its_buffer() {
    for name in ["shm", "udp"] {
        for len in [8, 600, 100_000, 2_000_000] {
            let p = pair(name);
            p.provoke();
            let mut buffer = vec![0x55; len];
            unwinds(|| p.a.recv_blocking(Some(p.to_b), 7, 0, &mut buffer));
            let sent = p.b.send(p.to_a, 7, vec![0x41; len]);
            p.settle();
            assert!(buffer.iter().all(|&b| b == 0x55), "{name} {len}");
            // The message did not match the call that has ended.
            let (status, got) = p.run(p.a.recv(Some(p.to_b), 7, 0, vec![0; len]));
            assert_eq!(status.unwrap().len, len, "{name}");
            assert!(got.iter().all(|&b| b == 0x41), "{name} {len}");
            p.run(sent).0.unwrap();
        }
    }
}

#[test]
fn recv_blocking__a_message_that_is_coming_stops_at_once() {
    for name in ["shm", "udp"] {
        let p = pair(name);
        let len = 4_000_000;
        let sent = p.b.send(p.to_a, 7, vec![0x41; len]);
        p.provoke();
        let mut buffer = vec![0x55; len];
        // A finds B in a wait, and asks it to copy the other half.
        p.b.waiting().prepare();
        unwinds(|| p.a.recv_blocking(Some(p.to_b), 7, 0, &mut buffer));
        p.b.waiting().finish();
        let before = buffer.clone();
        p.settle();
        assert!(buffer == before, "{name}: written to after the call has ended");
        // The sender is not left waiting, and both go on.
        p.run(sent).0.unwrap();
        let again = p.b.send(p.to_a, 8, bytes(len));
        let (status, got) = p.run(p.a.recv(Some(p.to_b), 8, 0, vec![0; len]));
        assert!(status.is_ok() && got == bytes(len), "{name}");
        p.run(again).0.unwrap();
    }
}

#[test]
fn send_blocking__the_peer_gets_what_was_sent_and_nothing_else() {
    for name in ["shm", "udp"] {
        for len in [100_000, 2_000_000, 20_000_000] {
            let p = pair(name);
            p.provoke();
            let mut data = bytes(len);
            unwinds(|| p.a.send_blocking(p.to_b, 7, &data));
            data.fill(0xee);
            let (status, got) = p.run(p.b.recv(Some(p.to_a), 7, 0, vec![0; len]));
            assert_eq!(status.unwrap().len, len, "{name}");
            assert!(got == bytes(len), "{name} {len}: other memory than was sent");
            p.settle();
        }
    }
}

#[test]
fn rcpy__what_was_put_comes_whole() {
    for name in ["shm", "udp"] {
        let p = pair(name);
        let packets = [Packets::new(&p.a).unwrap(), Packets::new(&p.b).unwrap()];
        let len = 8_000_000;
        let exported = packets[1].exports().make(len).unwrap();
        // The first copy makes B answer with translations.
        p.run(packets[0].rcpy_async(p.to_b, exported.key, 0, &vec![1; len])).unwrap();
        let mut data = bytes(len);
        p.provoke();
        let copy = || packets[0].rcpy(p.to_b, exported.key, 0, &data);
        // If A writes the bytes itself, the call does not wait and does not unwind.
        let waited = catch_unwind(AssertUnwindSafe(copy)).is_err();
        assert!(waited || name == "shm", "{name}");
        data.fill(0xee);
        if !waited {
            unwinds(|| p.a.progress());
        }
        p.settle();
        let mut there = vec![0; len];
        assert!(packets[1].exports().read(exported, 0, &mut there));
        assert!(there == bytes(len), "{name}");
    }
}

#[test]
fn handle__upcalls_behind_one_that_panics_are_made() {
    let p = pair("shm");
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    p.a.active().handle(2, move |_, message| log.borrow_mut().push(message.argument));
    for n in 0..3 {
        p.b.active().send(p.to_a, 2, n, b"").unwrap();
        p.b.active().send(p.to_a, PANICS, 0, b"").unwrap();
    }
    p.b.progress();
    let mut panics = 0;
    let start = Instant::now();
    while panics < 3 {
        panics += u32::from(catch_unwind(AssertUnwindSafe(|| p.a.progress())).is_err());
        assert!(start.elapsed().as_secs() < 300, "lost: {:?}", seen.borrow());
    }
    p.settle();
    assert_eq!(*seen.borrow(), [0, 1, 2]);
}

#[test]
fn handle_at_once__a_message_whose_work_panics_is_not_handled_again() {
    for name in ["shm", "udp"] {
        let p = pair(name);
        let calls = Rc::new(Cell::new(0));
        let count = Rc::clone(&calls);
        p.a.active().handle_at_once(9, move |_, _, _| {
            count.set(count.get() + 1);
            panic!("a fault of the work");
        });
        p.b.active().send(p.to_a, 9, 0, b"x").unwrap();
        let behind = p.b.send(p.to_a, 3, vec![3]);
        p.b.progress();
        let start = Instant::now();
        while catch_unwind(AssertUnwindSafe(|| p.a.progress())).is_ok() {
            p.b.progress();
            assert!(start.elapsed().as_secs() < 300, "the panic was lost");
        }
        let (status, got) = p.run(p.a.recv(Some(p.to_b), 3, 0, vec![0]));
        assert!(status.is_ok() && got == [3], "{name}");
        p.run(behind).0.unwrap();
        assert_eq!(calls.get(), 1, "{name}");
    }
}

#[test]
fn waker__that_panics_leaves_the_endpoint_whole() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a fault of the waker");
        }
    }
    for name in ["shm", "udp"] {
        let p = pair(name);
        let mut first = p.a.recv(Some(p.to_b), 3, 0, vec![0; 8]);
        let waker = Waker::from(Arc::new(Panics));
        let polled = std::pin::Pin::new(&mut first).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let sends = [3, 4].map(|tag| p.b.send(p.to_a, tag, vec![tag as u8; 8]));
        let (status, got) = p.run(p.a.recv(Some(p.to_b), 4, 0, vec![0; 8]));
        assert!(status.is_ok() && got == [4; 8], "{name}");
        assert_eq!(p.run(first).1, [3; 8], "{name}");
        for send in sends {
            p.run(send).0.unwrap();
        }
        assert!(p.a.probe(None, 0, !0).is_none(), "{name}: a message came twice");
    }
}

#[test]
fn drop__a_peer_asked_to_copy_does_not_when_the_endpoint_is_gone() {
    let Pair { a, b, to_b, to_a } = pair("shm");
    // Short enough that the allocator keeps the memory mapped, so the kernel would not refuse the
    // copy.
    let len = 120_000;
    let sent = b.send(to_a, 7, vec![0x41; len]);
    b.progress();
    let recv = a.recv(Some(to_b), 7, 0, vec![0x55; len]);
    // A finds B in a wait, and asks it to copy the other half.
    b.waiting().prepare();
    a.progress();
    b.waiting().finish();
    drop(recv);
    drop(a);
    let direct = |e: &Endpoint| e.stats().direct_bytes;
    let before = direct(&b);
    let start = Instant::now();
    while b.peer(to_a).failure().is_none() {
        b.progress();
        assert!(start.elapsed().as_secs() < 300);
    }
    assert_eq!(direct(&b), before, "it wrote to memory that is free");
    assert!(b.block_on(sent).0.is_err());
}

/// Returns two locked endpoints over shared memory whose session is open; A has a handler that
/// panics.
fn shared(config: Config) -> (SharedEndpoint, SharedEndpoint, PeerId, PeerId) {
    let links = Links { udp: false, ..Links::AUTO };
    let open = |config| SharedEndpoint::open(config, links, [7; 32]).unwrap();
    let (a, b) = (open(config), open(Config::default()));
    let (to_b, to_a) = (a.connect(&b.address()).unwrap(), b.connect(&a.address()).unwrap());
    a.handle(PANICS, |_, _| panic!("a fault of the handler"));
    let waits = receive(&a, to_b, 1);
    b.send(to_a, 1, b"12345678").unwrap();
    serve(&b, &waits.0);
    assert_eq!(waits.1.recv().unwrap(), Some(8));
    (a, b, to_b, to_a)
}

/// Starts a thread that receives, and gives its result; `None` after a panic.
fn receive(
    a: &SharedEndpoint,
    from: PeerId,
    tag: u64,
) -> (JoinHandle<()>, Receiver<Option<usize>>) {
    let (a, (tell, told)) = (a.clone(), channel());
    let thread = std::thread::spawn(move || {
        let mut buffer = vec![0; 4096];
        let received = catch_unwind(AssertUnwindSafe(|| {
            a.recv(Some(from), tag, 0, &mut buffer).map(|status| status.len)
        }));
        tell.send(received.ok().map(Result::unwrap)).unwrap();
    });
    (thread, told)
}

/// Makes progress for `b` until the thread has ended.
fn serve(b: &SharedEndpoint, thread: &JoinHandle<()>) {
    let start = Instant::now();
    while !thread.is_finished() {
        b.poll();
        assert!(start.elapsed().as_secs() < 300, "it sleeps for ever");
        std::thread::yield_now();
    }
}

#[test]
fn shared__another_thread_leads_when_the_leader_has_panicked() {
    let (a, b, to_b, to_a) = shared(Config::default());
    let all: Vec<_> = (0..4).map(|n| receive(&a, to_b, 10 + n)).collect();
    // The leader panics, in whatever order the threads have begun.
    b.send_active(to_a, PANICS, 0, b"x").unwrap();
    let start = Instant::now();
    while !all.iter().any(|(thread, _)| thread.is_finished()) {
        b.poll();
        assert!(start.elapsed().as_secs() < 300, "nobody leads");
        std::thread::yield_now();
    }
    let mut panicked = 0;
    for (n, (thread, told)) in (0..).zip(all) {
        if !thread.is_finished() {
            b.send(to_a, 10 + n, &[1; 100]).unwrap();
        }
        serve(&b, &thread);
        panicked += u32::from(told.recv().unwrap().is_none());
    }
    assert_eq!(panicked, 1);
    // A later call ends in the same way.
    let (thread, told) = receive(&a, to_b, 20);
    b.send(to_a, 20, &[1; 100]).unwrap();
    serve(&b, &thread);
    assert_eq!(told.recv().unwrap(), Some(100));
}

#[test]
fn shared__calls_on_remote_memory_and_cancels_unwind_too() {
    let (a, b, to_b, to_a) = shared(Config::default());
    let key = b.register(1 << 20, Rights::ALL).unwrap();
    let data = bytes(1 << 20);
    let mut buffer = vec![0x55; 1 << 20];
    let cancel = Cancel::default();
    let provoke = || {
        b.send_active(to_a, PANICS, 0, b"x").unwrap();
        b.poll();
    };
    // B does not answer until the call has ended.
    provoke();
    unwinds(|| a.put(to_b, key, 0, &data));
    provoke();
    unwinds(|| a.get(to_b, key, 0, &mut buffer));
    provoke();
    unwinds(|| a.recv_or_cancel(Some(to_b), 5, 0, &mut [0; 8], &cancel));
    let start = Instant::now();
    while a.stats().messages_sent > 0 && b.with_region(key, |r| r != &data[..]).unwrap() {
        a.poll();
        b.poll();
        assert!(start.elapsed().as_secs() < 300, "what was put does not come");
    }
    for _ in 0..1000 {
        a.poll();
        b.poll();
    }
    assert!(buffer.iter().all(|&byte| byte == 0x55));
    // The handle has no receive any more: the cancel is kept for the next receive.
    assert!(a.cancel(&cancel));
    let next = a.recv_or_cancel(Some(to_b), 5, 0, &mut [0; 8], &cancel);
    assert_eq!(next.unwrap_err(), OpError::Cancelled);
}

#[test]
fn watchdog__goes_on_after_a_handler_has_panicked() {
    let config = Config { receipt: Receipt::Watchdog, watchdog_us: 100, ..Config::default() };
    let (a, b, _, to_a) = shared(config);
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    a.handle(2, move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let start = Instant::now();
    for round in 1..=3 {
        b.send_active(to_a, PANICS, 0, b"x").unwrap();
        b.send_active(to_a, 2, 0, b"x").unwrap();
        while seen.load(Ordering::SeqCst) < round {
            b.poll();
            assert!(start.elapsed().as_secs() < 300, "the watchdog is gone");
        }
    }
}
