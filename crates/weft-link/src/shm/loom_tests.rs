//! Checks the ring with the model checker loom: every interleaving and every allowed reordering.
//! `RUSTFLAGS="--cfg loom" cargo test -p weft-link --release --lib loom`
//!
//! The model of the doorbell has a fence on both sides. With `membarrier(2)`, the barrier of the
//! sleeping side acts as the producer's fence on the producer's core.
#![allow(non_snake_case)]

use super::ring::{Area, Consumer, ConsumerLine, Producer, ProducerLine, Sizes, Slot, UNIT};
use crate::Bytes;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// Sizes smaller than a real segment may have, so that positions wrap soon.
const SIZES: Sizes = Sizes { slots: 4, units: 4, mtu: 256 };

struct Model {
    slots: Vec<Slot>,
    consumer: ConsumerLine,
    producer: ProducerLine,
    /// Represents the units of the data area: loom reports a write that is concurrent to another
    /// access.
    data: Vec<UnsafeCell<()>>,
    /// The doorbell: a flag like an eventfd.
    bell: Mutex<bool>,
    rung: Condvar,
}

impl Area for Model {
    fn slot(&self, pos: u32) -> &Slot {
        &self.slots[(pos & (SIZES.slots - 1)) as usize]
    }

    fn consumer(&self) -> &ConsumerLine {
        &self.consumer
    }

    fn producer(&self) -> &ProducerLine {
        &self.producer
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        for unit in offset / UNIT..(offset + bytes.len()).div_ceil(UNIT) {
            self.data[unit].with_mut(|_| ());
        }
    }

    fn get(&self, offset: usize, len: usize) -> Bytes<'_> {
        for unit in offset / UNIT..(offset + len).div_ceil(UNIT) {
            self.data[unit].with(|_| ());
        }
        Bytes::from_slice(&[0; 256][..len])
    }

    fn own(&self, offset: usize, len: usize) {
        for unit in offset / UNIT..(offset + len).div_ceil(UNIT) {
            self.data[unit].with_mut(|_| ());
        }
    }
}

impl Model {
    fn new() -> Arc<Model> {
        Arc::new(Model {
            slots: (0..SIZES.slots).map(|_| Slot::default()).collect(),
            consumer: ConsumerLine::default(),
            producer: ProducerLine::default(),
            data: (0..SIZES.units).map(|_| UnsafeCell::new(())).collect(),
            bell: Mutex::new(false),
            rung: Condvar::new(),
        })
    }

    fn ring(&self) {
        *self.bell.lock().unwrap() = true;
        self.rung.notify_one();
    }

    fn sleep(&self) {
        let mut bell = self.bell.lock().unwrap();
        while !*bell {
            bell = self.rung.wait(bell).unwrap();
        }
        *bell = false;
    }
}

/// Makes a packet in which every word depends on its number.
fn packet(n: u64) -> [u8; 32] {
    let mut out = [0; 32];
    for word in out.chunks_exact_mut(8) {
        word.copy_from_slice(&n.to_le_bytes());
    }
    out
}

fn pop(rx: &mut Consumer, model: &Model) -> Option<u64> {
    let len = rx.peek(model).expect("no lie")?;
    let mut got = 0;
    rx.pop(model, len, |header, payload| {
        got = u64::from_le_bytes(header[..8].try_into().unwrap());
        assert_eq!((header, payload.len()), (&packet(got)[..], 0), "torn or early");
    });
    Some(got)
}

#[test]
fn loom__slots_are_whole_and_in_order() {
    loom::model(|| {
        let model = Model::new();
        let sender = thread::spawn({
            let model = model.clone();
            move || {
                let mut tx = Producer::new(SIZES);
                for n in 0..2 {
                    assert!(tx.push(&*model, &packet(n), &[]).unwrap());
                }
            }
        });
        let mut rx = Consumer::new(SIZES);
        let mut next = 0;
        for _ in 0..2 {
            if let Some(n) = pop(&mut rx, &model) {
                assert_eq!(n, next);
                next += 1;
            }
        }
        sender.join().unwrap();
        while next < 2 {
            assert_eq!(pop(&mut rx, &model), Some(next));
            next += 1;
        }
        assert_eq!(pop(&mut rx, &model), None);
    });
}

/// Checks what follows on a ring of four packets, in all orders of few changes between threads.
fn full(test: impl Fn(Arc<Model>, Producer) + Send + Sync + 'static) {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(3);
    bounded.check(move || {
        let model = Model::new();
        let mut tx = Producer::new(SIZES);
        for n in 0..4 {
            assert!(tx.push(&*model, &packet(n), &[]).unwrap());
        }
        test(model, tx);
    });
}

#[test]
fn loom__a_slot_is_not_reused_before_it_was_read() {
    full(|model, mut tx| {
        let receiver = thread::spawn({
            let model = model.clone();
            move || {
                let mut rx = Consumer::new(SIZES);
                for n in 0..4 {
                    assert_eq!(pop(&mut rx, &model), Some(n));
                }
                rx
            }
        });
        let mut sent = 4;
        for _ in 0..3 {
            sent += u64::from(tx.push(&*model, &packet(sent), &[]).unwrap());
        }
        let mut rx = receiver.join().unwrap();
        for n in 4..sent {
            assert_eq!(pop(&mut rx, &model), Some(n));
        }
        assert_eq!(pop(&mut rx, &model), None);
    });
}

#[test]
fn loom__data_is_not_overwritten_before_it_was_read() {
    loom::model(|| {
        let model = Model::new();
        let receiver = thread::spawn({
            let model = model.clone();
            move || {
                let mut rx = Consumer::new(SIZES);
                for _ in 0..2 {
                    if let Some(len) = rx.peek(&*model).unwrap() {
                        rx.pop(&*model, len, |_, payload| assert_eq!(payload.len(), 128));
                    }
                }
            }
        });
        let mut tx = Producer::new(SIZES);
        let sent = (0..4).filter(|&n| tx.push(&*model, &packet(n), &[0; 128]).unwrap()).count();
        assert!(sent >= 2);
        receiver.join().unwrap();
    });
}

#[test]
fn loom__no_wake_up_is_lost() {
    loom::model(|| {
        let model = Model::new();
        let sender = thread::spawn({
            let model = model.clone();
            move || {
                let mut tx = Producer::new(SIZES);
                for n in 0..2 {
                    assert!(tx.push(&*model, &packet(n), &[]).unwrap());
                    if tx.must_ring(&*model) {
                        model.ring();
                    }
                }
            }
        });
        let mut rx = Consumer::new(SIZES);
        let mut next = 0;
        while next < 2 {
            if let Some(n) = pop(&mut rx, &model) {
                assert_eq!(n, next);
                next += 1;
                continue;
            }
            rx.announce_sleep(&*model);
            crate::sync::fence(crate::sync::Ordering::SeqCst);
            if rx.peek(&*model).unwrap().is_none() {
                model.sleep();
            }
            rx.awake(&*model);
        }
        sender.join().unwrap();
    });
}

#[test]
fn loom__a_blocked_sender_is_woken() {
    full(|model, mut tx| {
        let receiver = thread::spawn({
            let model = model.clone();
            move || {
                let mut rx = Consumer::new(SIZES);
                for n in 0..2 {
                    assert_eq!(pop(&mut rx, &model), Some(n));
                    if rx.must_ring(&*model) {
                        model.ring();
                    }
                }
            }
        });
        while !tx.push(&*model, &packet(4), &[]).unwrap() {
            if tx.prepare_wait(&*model).unwrap() {
                model.sleep();
            }
        }
        receiver.join().unwrap();
    });
}
