//! Behaviour of every link. Each case gets a fresh pair.

use super::{pattern, sys, End, Ends, Log, HEADER, TIMEOUT, TRIES};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weft_core::wire::HEADER_MAX;
use weft_core::PeerId;
use weft_link::{Frame, Link, LinkError, LinkEvent};

/// Number of a peer that was never connected.
const STRANGER: PeerId = PeerId(4000);

fn logs() -> [Log; 2] {
    Default::default()
}

/// Checks that capabilities make sense, and that a path promises no more than its link carries.
pub fn caps(ends: &mut Ends) {
    for end in [&ends.a, &ends.b] {
        let link = end.link.caps();
        assert!(!link.name.is_empty());
        assert!(link.name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
        assert!(link.mtu as usize > HEADER_MAX, "an mtu of {} carries no payload", link.mtu);
        assert!(end.caps.mtu as usize > HEADER_MAX && end.caps.mtu <= link.mtu);
        assert!(link.latency_ns > 0 && link.bytes_per_us > 0, "inputs of the cost model");
        assert_eq!(end.caps.name, link.name);
    }
}

/// Sends payloads from no byte to the largest.
pub fn sizes(ends: &mut Ends) {
    let max = ends.payload_max();
    let mut sizes: Vec<usize> = (0..=72.min(max)).collect();
    let powers = (7..32).map(|i| 1_usize << i).take_while(|p| *p <= max);
    sizes.extend(powers.flat_map(|p| [p - 1, p, p + 1, p - HEADER]));
    sizes.extend(max - 9..=max);
    sizes.retain(|s| *s <= max);
    let mut logs = logs();
    for (number, len) in sizes.iter().enumerate() {
        ends.deliver(&mut logs, number as u32, *len);
    }
    logs[1].check(&ends.a.caps, sizes.len() as u32);
}

/// Sends bursts of one to many frames, small and large.
pub fn bursts(ends: &mut Ends) {
    let mut logs = logs();
    let mut next = 0;
    for len in [0, 100, ends.payload_max()] {
        for burst in [1, 2, 3, 17, 64, 65, 200] {
            ends.send_all(&mut logs, next..next + burst, len);
            next += burst;
            ends.until(&mut logs, |logs| logs[1].numbers.len() as u32 == next);
        }
    }
    logs[1].check(&ends.a.caps, next);
    assert!(!logs[1].numbers.is_empty());
    assert!(logs[0].numbers.is_empty(), "a packet came back to its sender");
}

/// Lets both ends send and receive in turn, a few packets at a time.
pub fn both_directions(ends: &mut Ends) {
    const COUNT: usize = 500;
    let len = 300.min(ends.payload_max());
    let mut logs = logs();
    let mut sent = [0; 2];
    let end = Instant::now() + TIMEOUT;
    while sent != [COUNT; 2] {
        assert!(Instant::now() < end, "stuck after {sent:?} packets");
        for (end, sent) in [&mut ends.a, &mut ends.b].into_iter().zip(&mut sent) {
            let upto = COUNT.min(*sent + 7);
            let packets: Vec<_> = (*sent..upto).map(|n| end.packet(n as u32, len)).collect();
            let frames: Vec<_> = packets.iter().map(|p| p.frame(end.peer)).collect();
            *sent += end.link.send(&frames);
        }
        let [log_a, log_b] = &mut logs;
        ends.a.link.recv(5, log_a);
        ends.b.link.recv(5, log_b);
    }
    ends.until(&mut logs, |logs| logs.iter().all(|l| l.numbers.len() >= COUNT));
    logs[0].check(&ends.b.caps, COUNT as u32);
    logs[1].check(&ends.a.caps, COUNT as u32);
}

/// Checks a link whose peer does not receive: it refuses packets or, if it may, loses them; later
/// it accepts packets again, and keeps those it accepted.
pub fn backpressure(ends: &mut Ends) {
    const MOST: u32 = 3000;
    let len = 1000.min(ends.payload_max());
    let mut accepted = 0;
    while accepted < MOST {
        let packet = ends.a.packet(accepted, len);
        if ends.a.link.send(&[packet.frame(ends.a.peer)]) == 0 {
            break;
        }
        accepted += 1;
    }
    assert!(accepted > 0, "an idle link is full");
    let mut logs = logs();
    ends.until(&mut logs, |logs| logs[1].numbers.len() as u32 >= accepted);
    ends.drain(&mut logs);
    logs[1].check(&ends.a.caps, accepted);
    ends.deliver(&mut logs, accepted, len);
    logs[1].check(&ends.a.caps, accepted + 1);
}

/// Checks that a frame to a peer that was never connected counts as sent and is dropped.
pub fn strangers(ends: &mut Ends) {
    let packet = ends.a.packet(0, 10);
    assert_eq!(ends.a.link.send(&[packet.frame(STRANGER), packet.frame(STRANGER)]), 2);
    ends.a.link.disconnect(STRANGER);
    let mut logs = logs();
    ends.deliver(&mut logs, 1, 10);
    assert!(!logs[1].has(0), "a frame to a stranger arrived");
}

/// Sends a burst of no frames.
pub fn nothing(ends: &mut Ends) {
    assert_eq!(ends.a.link.send(&[]), 0);
    let mut logs = logs();
    ends.deliver(&mut logs, 0, 10);
}

/// Checks that `recv` delivers no more than its budget, and returns the number.
pub fn budget(ends: &mut Ends) {
    let mut logs = logs();
    ends.send_all(&mut logs, 0..20, 10);
    let end = Instant::now() + TIMEOUT;
    let mut seen = logs[1].numbers.len();
    while seen < 20 && Instant::now() < end {
        assert_eq!(ends.b.link.recv(0, &mut logs[1]), 0);
        let n = ends.b.link.recv(3, &mut logs[1]);
        assert!(n <= 3);
        assert_eq!(logs[1].numbers.len(), seen + n, "recv returned another number");
        seen += n;
        if n == 0 && !ends.until(&mut logs, |logs| logs[1].numbers.len() > seen) {
            break;
        }
        seen = logs[1].numbers.len();
    }
    logs[1].check(&ends.a.caps, 20);
}

/// Checks that a link that names the sender of a packet names the right one.
pub fn sender(ends: &mut Ends) {
    let mut logs = logs();
    ends.deliver(&mut logs, 0, 10);
    assert!(logs[1].from.is_none_or(|from| from == ends.b.peer));
}

/// Checks that frames to a forgotten peer count as sent and are dropped, also if forgotten twice.
pub fn disconnect(ends: &mut Ends) {
    let mut logs = logs();
    ends.deliver(&mut logs, 0, 10);
    ends.a.link.disconnect(ends.a.peer);
    ends.a.link.disconnect(ends.a.peer);
    let packet = ends.a.packet(1, 10);
    assert_eq!(ends.a.link.send(&[packet.frame(ends.a.peer)]), 1);
    ends.drain(&mut logs);
    assert!(!logs[1].has(1), "a frame to a forgotten peer arrived");
    ends.b.link.disconnect(ends.b.peer);
}

/// Checks that after the end of the other side sending does not block, and that the end is reported
/// at most once.
pub fn gone(ends: &mut Ends) {
    let mut log = Log::default();
    {
        let mut logs = logs();
        ends.deliver(&mut logs, 0, 10);
    }
    let End { link, peer, .. } = &mut ends.b;
    link.disconnect(*peer);
    *link = Box::new(NoLink);
    let packets: Vec<_> = (0..3000).map(|n| ends.a.packet(n, 500)).collect();
    let frames: Vec<_> = packets.iter().map(|p| p.frame(ends.a.peer)).collect();
    let mut left = &frames[..];
    let mut news = 0;
    let end = Instant::now() + TIMEOUT;
    while !left.is_empty() {
        assert!(Instant::now() < end, "full for ever: its peer is gone");
        left = &left[ends.a.link.send(left)..];
        ends.a.link.recv(16, &mut log);
        while let Some(event) = ends.a.link.poll_event() {
            if let LinkEvent::PeerGone(peer) = event {
                assert_eq!(peer, ends.a.peer);
                news += 1;
            }
        }
    }
    assert!(news <= 1, "the end of a peer was told {news} times");
}

/// Replaces a link that was dropped.
struct NoLink;

impl Link for NoLink {
    fn caps(&self) -> weft_core::LinkCaps {
        weft_core::LinkCaps::memory("none", 0)
    }
    fn advertise(&self, _: &mut weft_link::Address) {}
    fn connect(&mut self, _: &weft_link::PeerInfo) -> Result<weft_core::LinkCaps, LinkError> {
        Err(LinkError::Unsupported)
    }
    fn disconnect(&mut self, _: PeerId) {}
    fn send(&mut self, frames: &[Frame<'_>]) -> usize {
        frames.len()
    }
    fn recv(&mut self, _: usize, _: &mut dyn weft_link::Sink) -> usize {
        0
    }
    fn wait_fds(&self, _: &mut Vec<weft_link::WaitFd>) {}
}

/// Checks that a poll at the shortest interval takes a packet, where a poll costs no system call.
pub fn close_poll(ends: &mut Ends) {
    if !ends.b.link.caps().polled {
        return;
    }
    let mut logs = logs();
    for attempt in 0.. {
        ends.send_all(&mut logs, 0..1, 10);
        let limit = if ends.reliable() { TIMEOUT } else { super::SILENCE };
        let end = Instant::now() + limit;
        while logs[1].numbers.is_empty() && Instant::now() < end {
            ends.a.link.recv(16, &mut logs[0]);
            ends.b.link.recv_soon(16, 16, &mut logs[1]);
        }
        if !logs[1].numbers.is_empty() {
            return;
        }
        assert!(attempt < TRIES && !ends.reliable(), "the packet was not found");
    }
}

/// Lets `b` prepare to sleep.
fn fall_asleep(ends: &mut Ends, logs: &mut [Log; 2]) {
    let end = Instant::now() + TIMEOUT;
    while !ends.b.link.prepare_wait() {
        assert!(Instant::now() < end, "the link never lets its driver sleep");
        let [log_a, log_b] = logs;
        ends.a.link.recv(64, log_a);
        ends.b.link.recv(64, log_b);
    }
}

/// Checks that a packet sent after `prepare_wait` returned true makes a descriptor readable.
pub fn wake_after_prepare(ends: &mut Ends) {
    let mut logs = logs();
    for number in 0..100 {
        wake_up(ends, &mut logs, number);
    }
}

/// Lets `b` sleep and wakes it with packet `number`.
fn wake_up(ends: &mut Ends, logs: &mut [Log; 2], number: u32) {
    let before = logs[1].numbers.len();
    for attempt in 0.. {
        fall_asleep(ends, logs);
        let packet = ends.a.packet(number, 10);
        assert_eq!(ends.a.link.send(&[packet.frame(ends.a.peer)]), 1);
        let woken = woken(ends, &mut logs[0]);
        ends.b.link.finish_wait(true);
        assert!(woken || attempt < TRIES && !ends.reliable(), "wake-up {number} was lost");
        if woken && ends.until(logs, |logs| logs[1].numbers.len() > before) {
            return;
        }
        assert!(attempt < TRIES && !ends.reliable(), "woken for nothing");
    }
}

/// Returns true if a descriptor of `b` becomes readable while `a` goes on working.
fn woken(ends: &mut Ends, log: &mut Log) -> bool {
    let fds = ends.b.fds();
    let limit = if ends.reliable() { TIMEOUT } else { super::SILENCE };
    let end = Instant::now() + limit;
    while Instant::now() < end {
        ends.a.link.recv(16, log);
        if sys::readable(&fds, Duration::from_millis(2)) {
            return true;
        }
    }
    false
}

/// Checks that `prepare_wait` returns false for a packet that came before it.
pub fn wake_before_prepare(ends: &mut Ends) {
    let mut logs = logs();
    for number in 0..100 {
        for attempt in 0.. {
            ends.send_all(&mut logs, number..number + 1, 10);
            if logs[1].has(number) {
                break;
            }
            let may_sleep = ends.b.link.prepare_wait();
            let seen = !may_sleep || woken(ends, &mut logs[0]);
            if may_sleep {
                ends.b.link.finish_wait(true);
            }
            assert!(seen || !ends.reliable(), "slept through packet {number}");
            if ends.until(&mut logs, |logs| logs[1].has(number)) {
                break;
            }
            assert!(attempt < TRIES && !ends.reliable(), "packet {number} was lost");
        }
    }
}

/// Checks that descriptors stay silent without packets: an idle rank uses no processor.
pub fn idle(ends: &mut Ends) {
    let mut logs = logs();
    wake_up(ends, &mut logs, 0);
    ends.drain(&mut logs);
    for _ in 0..TRIES {
        fall_asleep(ends, &mut logs);
        let quiet = !sys::readable(&ends.b.fds(), Duration::ZERO);
        ends.b.link.finish_wait(true);
        if quiet {
            return;
        }
        ends.b.link.recv(64, &mut logs[1]);
    }
    panic!("descriptors of an idle link stay readable");
}

/// Checks that direct copies work where offered, refuse unmapped memory, and are refused where not
/// offered.
pub fn direct(ends: &mut Ends) {
    let mut logs = logs();
    ends.deliver(&mut logs, 0, 10);
    const LEN: usize = 10_000;
    let mut theirs = pattern(1, LEN);
    let at = std::hint::black_box(theirs.as_mut_ptr()) as u64;
    let mut mine = vec![0; LEN];
    let (link, peer) = (ends.a.link.memory(), ends.a.peer);
    if !ends.a.caps.direct {
        let Some(link) = link else { return };
        assert!(matches!(link.read_direct(peer, at, &mut mine), Err(LinkError::Unsupported)));
        assert!(matches!(link.write_direct(peer, at, &mine), Err(LinkError::Unsupported)));
        return;
    }
    let link = link.expect("a link that copies directly reaches memory");
    link.read_direct(peer, at, &mut mine).expect("a mapped range of the peer");
    assert!(mine == pattern(1, LEN));
    link.write_direct(peer, at, &pattern(2, LEN)).expect("a mapped range of the peer");
    assert!(std::hint::black_box(&theirs) == &pattern(2, LEN));
    assert!(link.read_direct(peer, 8, &mut mine).is_err(), "read of page zero");
    assert!(link.write_direct(peer, 8, &mine).is_err(), "write to page zero");
    assert!(link.read_direct(STRANGER, at, &mut mine).is_err(), "read from a stranger");
}

/// Checks that counters have names of one form, each once, and never decrease.
pub fn counters(ends: &mut Ends) {
    let before: BTreeMap<_, _> = ends.a.counters().into_iter().collect();
    let mut logs = logs();
    for number in 0..20 {
        ends.deliver(&mut logs, number, 100);
    }
    let after = ends.a.counters();
    let names: BTreeMap<_, _> = after.iter().copied().collect();
    assert_eq!(names.len(), after.len(), "a name stands twice");
    assert!(names.keys().eq(before.keys()), "the names change");
    assert!(after.iter().any(|(name, v)| *v > before[name]), "traffic that no counter shows");
    for (name, _) in after {
        let plain = name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
        assert!(plain && !name.is_empty(), "counter name `{name}`");
    }
}
