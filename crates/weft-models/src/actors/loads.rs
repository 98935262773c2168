//! Measured loads of objects, and messages between them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cost of messages between ranks, for the strategy that counts them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Time of a message, in s.
    pub message: f64,
    /// Time of a byte, in s.
    pub byte: f64,
}

impl Default for Costs {
    /// Returns the costs that Charm++ 6 assumes for a network of its time: 35 us for a message, and
    /// 8.5 ns for a byte.
    fn default() -> Costs {
        Costs { message: 3.5e-5, byte: 8.5e-9 }
    }
}

/// An object's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The rank at which the object is.
    pub rank: usize,
    /// Time of its turns, in s.
    pub seconds: f64,
}

/// Messages from an object to another one, by their places in [`Loads::objects`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// The number of messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The measured loads of all objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// The number of ranks.
    pub ranks: usize,
    /// Objects, ordered by array and index.
    pub objects: Vec<Load>,
    /// Messages between different objects.
    pub edges: Vec<Edge>,
}

/// The result of a balance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balanced {
    /// Objects that moved.
    pub moved: u64,
    /// The greatest load of a rank by the mean, before and, as far as loads stay the same,
    /// afterwards.
    pub before: f64,
    /// See `before`.
    pub after: f64,
}

/// A rank's report about an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reported {
    pub array: u16,
    pub element: u32,
    pub rank: u32,
    pub moves: u32,
    /// Time of turns, in ns.
    pub load: u64,
    /// Messages to objects: array, object, number, bytes.
    pub sends: Vec<(u16, u32, u32, u64)>,
}

impl Loads {
    /// Returns the greatest load of a rank by the mean, if objects have these ranks; 1 without any
    /// load.
    pub fn imbalance(&self, ranks: impl IntoIterator<Item = usize>) -> f64 {
        let mut sums = vec![0.0; self.ranks];
        for (load, rank) in self.objects.iter().zip(ranks) {
            sums[rank] += load.seconds;
        }
        let mean = sums.iter().sum::<f64>() / self.ranks.max(1) as f64;
        let greatest = sums.into_iter().fold(0.0, f64::max);
        if mean > 0.0 {
            greatest / mean
        } else {
            1.0
        }
    }

    pub(super) fn of(ranks: usize, reported: &[Reported]) -> Loads {
        let places: BTreeMap<_, _> =
            reported.iter().enumerate().map(|(at, r)| ((r.array, r.element), at)).collect();
        let load = |r: &Reported| Load { rank: r.rank as usize, seconds: r.load as f64 * 1e-9 };
        let mut edges = Vec::new();
        for (from, r) in reported.iter().enumerate() {
            for &(array, element, messages, bytes) in &r.sends {
                let to = places.get(&(array, element)).copied().filter(|to| *to != from);
                let messages = u64::from(messages);
                edges.extend(to.map(|to| Edge { from, to, messages, bytes }));
            }
        }
        Loads { ranks, objects: reported.iter().map(load).collect(), edges }
    }
}
