#![allow(non_snake_case)]

mod congestion;
mod credit;
mod recv_window;
mod rtt;
mod send_window;
mod windows;

use super::*;
use crate::{Instant, Seq};
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

const US: u64 = 1_000;

struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

fn at(us: u64) -> Instant {
    Instant(us * US)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Makes a window with packets 0..n sent at time 0 under the given mode.
fn sent(mode: Reliability, n: u32) -> SendWindow<u32> {
    let mut window = SendWindow::new(mode, MAX_SELECTIVE, Seq(0));
    for i in 0..n {
        window.push(at(0), i);
    }
    window
}

fn sack(bits: &[u32]) -> SackMap {
    let mut map = SackMap::default();
    for &bit in bits {
        map.0[bit as usize / 64] |= 1 << (bit % 64);
    }
    map
}

fn resent(window: &mut SendWindow<u32>, now: Instant) -> Vec<u32> {
    core::iter::from_fn(|| window.next_retransmit(now)).map(|(_, item)| item).collect()
}

#[test]
fn reliability__names_round_trip() {
    for mode in [Reliability::None, Reliability::GoBackN, Reliability::Selective] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    assert!("GBN".parse::<Reliability>().is_err());
}

#[test]
fn sack_map__iterates_what_it_contains() {
    let bits = [0, 1, 63, 64, 130, 255];
    let map = sack(&bits);
    assert!(map.iter().eq(bits));
    assert!((0..300).filter(|&i| map.contains(i)).eq(bits));
}
