//! Checks both ends of a direction with the model checker loom: every interleaving and every
//! allowed reordering. `RUSTFLAGS="--cfg loom" cargo test -p weft-streams --release --lib loom`
//!
//! A lost wake-up is a deadlock, which loom reports; a lost, doubled or reordered byte fails the
//! comparison; a byte of the ring that is written while it is read is a concurrent access.
#![allow(non_snake_case)]

use crate::count::Count;
use crate::holding::Holding;
use crate::leaving::Leaving;
use crate::receiver::{Next, Receiver};
use crate::sender::{Sender, Way};
use crate::words::{Words, RING};
use loom::cell::UnsafeCell;
use loom::sync::atomic::fence;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};

/// A byte of the ring: loom reports a write that is concurrent to another access.
#[derive(Default)]
struct Cell {
    access: UnsafeCell<()>,
    value: AtomicU8,
}

/// One direction: the words, the ring, and TCP.
struct Direction {
    words: Words,
    ring: Vec<Cell>,
    tcp: Mutex<VecDeque<u8>>,
    arrived: Condvar,
}

impl Direction {
    fn new() -> Arc<Direction> {
        Arc::new(Direction {
            words: Words::default(),
            ring: (0..RING).map(|_| Cell::default()).collect(),
            tcp: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
        })
    }

    fn cell(&self, at: u64) -> &Cell {
        &self.ring[at as usize % RING]
    }

    /// Sends bytes, each by the way that the sender names.
    fn send(&self, sender: &Sender, bytes: std::ops::Range<u8>) {
        for byte in bytes {
            if let Way::Ring { at, switch, .. } = sender.way(&self.words).unwrap() {
                let cell = self.cell(at);
                cell.access.with_mut(|_| cell.value.store(byte, Ordering::Relaxed));
                if sender.publish(&self.words, 1, switch).unwrap() {
                    continue;
                }
            }
            let call = sender.by_tcp(Some(&self.words));
            self.tcp.lock().unwrap().push_back(byte);
            self.arrived.notify_one();
            call.done(1);
        }
    }

    /// Waits for TCP and reads at most so many bytes from it.
    fn recv(&self, most: usize, got: &mut Vec<u8>) -> u64 {
        let mut tcp = self.tcp.lock().unwrap();
        while tcp.is_empty() {
            tcp = self.arrived.wait(tcp).unwrap();
        }
        let n = most.min(tcp.len());
        got.extend(tcp.drain(..n));
        n as u64
    }

    /// Receives until there are so many bytes, as a blocking call would.
    fn receive(&self, receiver: &Receiver, want: usize) -> Vec<u8> {
        let mut got = Vec::new();
        while got.len() < want {
            match receiver.next(&self.words).unwrap() {
                Next::Ring { at, len } => {
                    for i in 0..len as u64 {
                        let cell = self.cell(at + i);
                        got.push(cell.access.with(|_| cell.value.load(Ordering::Relaxed)));
                    }
                    receiver.take(&self.words, len);
                }
                Next::Tcp(left) => {
                    let call = receiver.tcp.call();
                    let n = self.recv(left as usize, &mut got);
                    call.done(n);
                }
                Next::Open => {
                    if !receiver.sleep(&self.words).unwrap() {
                        continue;
                    }
                    let call = receiver.tcp.call();
                    let n = self.recv(usize::MAX, &mut got);
                    call.done(n);
                    receiver.wake(&self.words);
                }
            }
        }
        got
    }
}

/// Two senders of one stream cannot be told apart by its receiver, so the bytes are numbers.
fn check(bytes: u8, awake: bool) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let direction = Direction::new();
        let (sender, receiver) = (Sender::default(), Receiver::default());
        if awake {
            assert!(receiver.wake(&direction.words));
        }
        let other = Arc::clone(&direction);
        let thread = thread::spawn(move || other.send(&sender, 0..bytes));
        let got = direction.receive(&receiver, usize::from(bytes));
        assert_eq!(got, (0..bytes).collect::<Vec<_>>());
        thread.join().unwrap();
    });
}

#[test]
fn loom__bytes_come_in_order_from_an_awake_start() {
    check(4, true);
}

#[test]
fn loom__bytes_come_in_order_from_a_sleeping_start() {
    check(4, false);
}

#[test]
fn loom__a_wait_for_several_connections_loses_no_wake_up() {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(|| {
        let direction = Direction::new();
        let (sender, receiver) = (Sender::default(), Receiver::default());
        receiver.wake(&direction.words);
        let other = Arc::clone(&direction);
        let thread = thread::spawn(move || other.send(&sender, 0..2));
        let mut got = Vec::new();
        while got.len() < 2 {
            // A poll: it waits until something can be read, then a read that does not block.
            receiver.wait_begins();
            if receiver.sleep(&direction.words).unwrap() {
                let mut tcp = direction.tcp.lock().unwrap();
                while tcp.is_empty() {
                    tcp = direction.arrived.wait(tcp).unwrap();
                }
            }
            receiver.wait_ends();
            match receiver.next(&direction.words).unwrap() {
                Next::Ring { .. } => {
                    got.extend(direction.receive(&receiver, 1));
                    receiver.make_inactive(&direction.words);
                }
                Next::Tcp(_) => got.extend(direction.receive(&receiver, 1)),
                Next::Open if receiver.sleep(&direction.words).unwrap() => {
                    let call = receiver.tcp.call();
                    let n = direction.recv(usize::MAX, &mut got);
                    call.done(n);
                    receiver.wake(&direction.words);
                }
                Next::Open => {}
            }
        }
        assert_eq!(got, [0, 1]);
        thread.join().unwrap();
    });
}

/// A thread that owns a count reads, another one has the connection share memory meanwhile: a
/// reader that the other one does not know sleeps where bytes of the ring do not wake it.
#[test]
fn loom__a_call_of_the_owner_is_known_after_the_barrier() {
    loom::model(|| {
        let count = Arc::new(Count::default());
        let asleep = Arc::new(AtomicBool::new(false));
        count.adopt(1);
        let (of_owner, sleeps) = (Arc::clone(&count), Arc::clone(&asleep));
        let owner = thread::spawn(move || {
            let mut own = 0;
            for _ in 0..2 {
                let Some(call) = of_owner.own_call(1) else { break };
                sleeps.store(true, Relaxed);
                sleeps.store(false, Relaxed);
                call.done(3);
                own += 3;
            }
            own
        });
        count.share();
        fence(SeqCst);
        let known = count.calls() > 0;
        let bytes = count.bytes();
        assert!(known || !asleep.load(Relaxed));
        let own = owner.join().unwrap();
        assert!(known || bytes == own);
        assert_eq!((count.calls(), count.bytes()), (0, own));
        assert!(count.own_call(1).is_none());
    });
}

#[test]
fn loom__no_connection_is_joined_behind_the_look_of_a_start() {
    loom::model(|| {
        let all = Arc::new((Leaving::default(), Mutex::new(()), AtomicBool::new(false)));
        let other = Arc::clone(&all);
        let joins = thread::spawn(move || {
            let (leaving, lock, is_joined) = &*other;
            let _held = lock.lock().unwrap();
            if leaving.allows() {
                is_joined.store(true, Relaxed);
            }
        });
        let (leaving, lock, is_joined) = &*all;
        leaving.begin(|| drop(lock.lock().unwrap()));
        let seen = is_joined.load(Relaxed);
        joins.join().unwrap();
        assert_eq!(is_joined.load(Relaxed), seen);
    });
}

#[test]
fn loom__the_marks_of_a_new_process_stay_when_two_clear_those_of_an_ended_one() {
    loom::model(|| {
        let all = Arc::new((Holding::default(), AtomicBool::new(true)));
        all.0.is_of(7);
        let other = Arc::clone(&all);
        let clears = thread::spawn(move || other.0.ends(7, || other.1.store(false, SeqCst)));
        let (place, is_marked) = &*all;
        place.ends(7, || is_marked.store(false, SeqCst));
        let is_made = place.take();
        if is_made {
            is_marked.store(true, SeqCst);
        }
        clears.join().unwrap();
        assert_eq!(is_marked.load(SeqCst), is_made);
    });
}
