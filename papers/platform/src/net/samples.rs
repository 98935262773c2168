//! Computing and traffic in the course of a run.

use super::super::hardware::{Ps, MICROSECOND};
use std::cell::{Cell, RefCell};

/// Packets and bytes of programs that have come to nodes. A broadcast counts at each node but the
/// sender's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets from node to node.
    pub unicast: u64,
    /// Their bytes, without headers of the packet interface.
    pub unicast_bytes: u64,
    /// Packets of broadcasts.
    pub multicast: u64,
    /// Their bytes.
    pub multicast_bytes: u64,
}

/// The state of a run at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Virtual time since the beginning.
    pub at: Ps,
    /// Computing that programs have asked for, of all nodes.
    pub work: Ps,
    /// Traffic so far, of all nodes.
    pub traffic: Traffic,
}

/// Samples that are kept: when there are more, every second one goes and the interval doubles.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Samples {
    now: Cell<Sample>,
    next: Cell<Ps>,
    /// Interval in microseconds, as a power of two.
    every: Cell<u32>,
    list: RefCell<Vec<Sample>>,
}

impl Samples {
    /// Takes a sample, if one is due.
    pub fn at(&self, now: Ps) {
        if now < self.next.get() {
            return;
        }
        let mut list = self.list.borrow_mut();
        if list.len() == MOST {
            let mut keep = false;
            list.retain(|_| {
                keep = !keep;
                keep
            });
            self.every.set(self.every.get() + 1);
        }
        list.push(Sample { at: now, ..self.now.get() });
        self.next.set(now + (MICROSECOND << self.every.get()));
    }

    /// Returns all samples, the last one at the end of the run.
    pub fn take(&self, end: Ps) -> Vec<Sample> {
        let mut list = self.list.take();
        list.push(Sample { at: end, ..self.now.get() });
        list
    }

    pub fn work(&self) -> Ps {
        self.now.get().work
    }

    pub fn computes(&self, time: Ps) {
        let now = self.now.get();
        self.now.set(Sample { work: now.work + time, ..now });
    }

    pub fn packet(&self, multicast: bool, bytes: usize) {
        let mut now = self.now.get();
        let Traffic { unicast, unicast_bytes, multicast: casts, multicast_bytes } =
            &mut now.traffic;
        let (packets, sum) =
            if multicast { (casts, multicast_bytes) } else { (unicast, unicast_bytes) };
        *packets += 1;
        *sum += bytes as u64;
        self.now.set(now);
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    #[test]
    fn samples__are_bounded_and_the_last_one_is_the_end() {
        let samples = Samples::default();
        for us in 0..3 * MOST as u64 {
            samples.at(us * MICROSECOND);
            samples.computes(5);
            samples.packet(us % 2 == 0, 10);
        }
        let list = samples.take(3 * MOST as u64 * MICROSECOND);
        assert!(list.len() <= MOST + 1 && list.len() > MOST / 2, "{}", list.len());
        assert!(list.windows(2).all(|pair| pair[0].at < pair[1].at));
        let last = list.last().unwrap();
        assert_eq!(last.work, 15 * MOST as u64);
        assert_eq!(last.traffic.unicast + last.traffic.multicast, 3 * MOST as u64);
    }
}
