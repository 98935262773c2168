//! Compares the ring with a queue as its model, by random operations.
#![allow(non_snake_case)]

use super::ring::{Area, Consumer, FrameLengths, Producer, Sizes};
use super::sys::map::{self, Half};
use super::tests::Random;
use crate::sync::Ordering;
use std::collections::VecDeque;

fn area(sizes: Sizes) -> Half {
    let [half, _] = map::map(&map::create(sizes.segment_len()).unwrap(), sizes).unwrap();
    half
}

fn packet(random: &mut Random, mtu: usize) -> (Vec<u8>, Vec<u8>) {
    let header = 24 + random.below(105);
    let most = if random.below(3) == 0 { mtu - header } else { 64 };
    let payload = random.below(most.min(mtu - header) + 1);
    let byte = random.next() as u8;
    let fill = |len: usize| (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
    (fill(header), fill(payload))
}

fn pop(consumer: &mut Consumer, area: &Half) -> Option<(Vec<u8>, Vec<u8>)> {
    let len = consumer.peek(area).unwrap()?;
    let mut got = None;
    consumer.pop(area, len, |h, p| got = Some((h.to_vec(), p.to_vec())));
    got
}

#[test]
fn ring__behaves_as_a_bounded_queue() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let slots = 8 << random.below(4);
        let units = 64 << random.below(4);
        let sizes = Sizes { slots, units, mtu: units * 16 };
        sizes.check().unwrap();
        let area = area(sizes);
        let (mut tx, mut rx) = (Producer::new(sizes), Consumer::new(sizes));
        let mut model = VecDeque::new();
        for _ in 0..4000 {
            if random.below(2 + (seed as usize & 1)) != 0 {
                let (header, payload) = packet(&mut random, sizes.mtu as usize);
                if tx.push(&area, &header, &payload).unwrap() {
                    model.push_back((header, payload));
                    assert!(model.len() <= slots as usize);
                } else {
                    assert!(!model.is_empty(), "an empty ring takes every packet");
                }
            } else {
                assert_eq!(pop(&mut rx, &area), model.pop_front());
            }
        }
        while let Some(expected) = model.pop_front() {
            assert_eq!(pop(&mut rx, &area), Some(expected));
        }
        assert_eq!(pop(&mut rx, &area), None);
    }
}

#[test]
fn ring__drained_takes_the_longest_packet() {
    // There is always room for one packet, also for space that is not returned as credit yet.
    let sizes = Sizes { slots: 8, units: 64, mtu: 1024 };
    for first in 0..1000 {
        let area = area(sizes);
        let (mut tx, mut rx) = (Producer::new(sizes), Consumer::new(sizes));
        for len in [first, (first * 7) % 1000, (first * 3) % 1000] {
            assert!(tx.push(&area, &[1; 24], &vec![2; len]).unwrap());
            assert!(pop(&mut rx, &area).is_some());
        }
        assert!(tx.push(&area, &[1; 24], &[3; 1000]).unwrap(), "{first}");
        assert_eq!(pop(&mut rx, &area).unwrap().1.len(), 1000);
    }
}

#[test]
fn ring__counters_wrap() {
    let sizes = Sizes { slots: 8, units: 64, mtu: 1024 };
    let area = area(sizes);
    let (mut tx, mut rx) = (Producer::new(sizes), Consumer::new(sizes));
    let start = u32::MAX - 20;
    let data = u32::MAX - 63 - 64 * 3;
    tx.start_at(start, data);
    rx.start_at(start, data);
    area.consumer().credits.store(u64::from(data) << 32 | u64::from(start), Ordering::Relaxed);
    for back in 0..8 {
        let pos = start.wrapping_sub(back);
        let stale = pos.wrapping_sub(sizes.slots).wrapping_add(1);
        area.slot(pos.wrapping_add(8))
            .word
            .store(u64::from(stale.wrapping_add(8)), Ordering::Relaxed);
    }
    let mut model = VecDeque::new();
    for n in 0..400 {
        let payload = vec![n as u8; n % 1000];
        if tx.push(&area, &[0; 24], &payload).unwrap() {
            model.push_back(payload);
        }
        if n % 3 != 0 {
            assert_eq!(pop(&mut rx, &area).map(|p| p.1), model.pop_front());
        }
    }
}

#[test]
fn peek__reports_lengths_without_taking() {
    let sizes = Sizes { slots: 8, units: 64, mtu: 1024 };
    let area = area(sizes);
    let (mut tx, rx) = (Producer::new(sizes), Consumer::new(sizes));
    assert_eq!(rx.peek(&area), Ok(None));
    tx.push(&area, &[0; 24], &[0; 500]).unwrap();
    for _ in 0..2 {
        assert_eq!(rx.peek(&area), Ok(Some(FrameLengths { header: 24, payload: 500 })));
    }
}
