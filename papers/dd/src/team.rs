//! The ranks that solve together, or one alone: borders, sums and rows that move.

use crate::balance::Division;
use crate::part::Change;
use std::ops::Range;
use std::time::{Duration, Instant};
use weft::{Group, GroupError, Op, Started};

/// Tag of border rows that go to the rank above, and to that below.
const TO_ABOVE: u32 = 0xdd_00;
const TO_BELOW: u32 = 0xdd_01;
/// Tag of rows that change their owner.
const MOVED: u32 = 0xdd_02;

/// The ranks, or none beside this one.
pub(crate) struct Team<'a> {
    world: Option<&'a Group>,
    /// The time of an exponential in a simulation, in nanoseconds.
    ns_per_unit: Option<f64>,
    /// The time since the start; virtual time in a simulation.
    clock: Box<dyn Fn() -> Duration + 'a>,
}

/// Borders under way.
#[derive(Default)]
pub(crate) struct Borders {
    receives: Vec<(usize, Started<Vec<u8>>)>,
    sends: Vec<Started<()>>,
}

fn bytes(row: &[f64]) -> Vec<u8> {
    row.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn put(to: &mut [f64], bytes: &[u8]) {
    for (value, bytes) in to.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = f64::from_le_bytes(bytes.try_into().expect("chunks of 8 bytes"));
    }
}

impl<'a> Team<'a> {
    pub fn new(world: Option<&'a Group>, ns_per_unit: Option<f64>) -> Team<'a> {
        let clock: Box<dyn Fn() -> Duration + 'a> = match world {
            Some(world) => {
                let start = world.endpoint().now();
                Box::new(move || world.endpoint().now().since(start))
            }
            None => {
                let start = Instant::now();
                Box::new(move || start.elapsed())
            }
        };
        Team { world, ns_per_unit, clock }
    }

    pub fn rank(&self) -> usize {
        self.world.map_or(0, Group::rank)
    }

    pub fn size(&self) -> usize {
        self.world.map_or(1, Group::size)
    }

    /// Returns the time since the start; virtual time in a simulation.
    pub fn elapsed(&self) -> Duration {
        (self.clock)()
    }

    /// Returns the time of an exponential in a simulation, in nanoseconds, where the time of work
    /// is counted and not measured.
    pub fn ns_per_unit(&self) -> Option<f64> {
        self.ns_per_unit
    }

    /// Lets the time of work pass in a simulation; otherwise lets messages progress.
    pub async fn worked(&self, units: u64) {
        let Some(world) = self.world else { return };
        match self.ns_per_unit {
            Some(ns) => {
                let time = Duration::from_nanos((units as f64 * ns) as u64);
                world.endpoint().sleep(time).await;
            }
            None => world.endpoint().yield_now().await,
        }
    }

    /// Sends the first and the last owned row of a field to the ranks beside this one, and asks for
    /// theirs.
    pub fn begin_borders(&self, field: &[f64], cols: usize, rows: &Range<usize>) -> Borders {
        let Some(world) = self.world else { return Borders::default() };
        let row = |row: usize| bytes(&field[row * cols..][..cols]);
        let mut borders = Borders::default();
        let space = || vec![0; cols * 8];
        if let Some(above) = world.rank().checked_sub(1) {
            let come = world.recv_into(above, TO_BELOW, space());
            borders.receives.push((rows.start - 1, come));
            borders.sends.push(world.send(above, TO_ABOVE, row(rows.start)));
        }
        let below = world.rank() + 1;
        if below < world.size() {
            borders.receives.push((rows.end, world.recv_into(below, TO_ABOVE, space())));
            borders.sends.push(world.send(below, TO_BELOW, row(rows.end - 1)));
        }
        borders
    }

    /// Waits for the rows of the ranks beside this one, and puts them into the field.
    pub async fn end_borders(
        &self,
        borders: Borders,
        field: &mut [f64],
        cols: usize,
    ) -> Result<(), GroupError> {
        for (row, come) in borders.receives {
            put(&mut field[row * cols..][..cols], &come.await?);
        }
        for sent in borders.sends {
            sent.await?;
        }
        Ok(())
    }

    /// Exchanges the borders of a field.
    pub async fn borders(
        &self,
        field: &mut [f64],
        cols: usize,
        rows: &Range<usize>,
    ) -> Result<(), GroupError> {
        let borders = self.begin_borders(field, cols, rows);
        self.end_borders(borders, field, cols).await
    }

    /// Returns the largest of each of two figures over all ranks.
    pub async fn largest(&self, figures: [f64; 2]) -> Result<[f64; 2], GroupError> {
        let Some(world) = self.world else { return Ok(figures) };
        let all = world.allreduce(figures.to_vec(), Op::Max).await?;
        Ok([all[0], all[1]])
    }

    /// Returns the sums of figures over all ranks.
    pub async fn sum(&self, figures: Vec<f64>) -> Result<Vec<f64>, GroupError> {
        match self.world {
            Some(world) => world.allreduce(figures, Op::Sum).await,
            None => Ok(figures),
        }
    }

    /// Returns the sum of whole numbers over all ranks; it wraps.
    pub async fn sum_whole(&self, figures: Vec<u64>) -> Result<Vec<u64>, GroupError> {
        match self.world {
            Some(world) => world.allreduce(figures, Op::Sum).await,
            None => Ok(figures),
        }
    }

    /// Returns the largest change over all ranks, and its node; the first of several equal ones.
    pub async fn worst(&self, own: Change) -> Result<Change, GroupError> {
        let (rank, size) = (self.rank(), self.size());
        let mut all = vec![0.0; 2 * size];
        (all[2 * rank], all[2 * rank + 1]) = (own.size, own.node as f64);
        let all = self.sum(all).await?;
        let pairs = all.chunks_exact(2);
        Ok(pairs.fold(Change::NONE, |largest, pair| largest.or(pair[0], pair[1] as usize)))
    }

    /// Gathers the rows of fields at rank 0, which gets all of them.
    pub async fn gather(
        &self,
        mut fields: [&mut Vec<f64>; 3],
        cols: usize,
        division: &Division,
    ) -> Result<(), GroupError> {
        let Some(world) = self.world else { return Ok(()) };
        let nodes = |rank: usize| {
            let rows = division.rows(rank);
            rows.start * cols..rows.end * cols
        };
        let own = nodes(self.rank());
        let own = fields.iter().flat_map(|field| bytes(&field[own.clone()])).collect();
        let Some(all) = world.gather(0, own).await? else { return Ok(()) };
        for (rank, bytes) in all.iter().enumerate() {
            let nodes = nodes(rank);
            for (field, bytes) in fields.iter_mut().zip(bytes.chunks_exact(nodes.len() * 8)) {
                put(&mut field[nodes.clone()], bytes);
            }
        }
        Ok(())
    }

    /// Moves rows of fields from their old owners to their new ones. Returns how many rows moved.
    pub async fn move_rows(
        &self,
        mut fields: [&mut Vec<f64>; 3],
        cols: usize,
        (old, new): (&Division, &Division),
    ) -> Result<u64, GroupError> {
        let Some(world) = self.world else { return Ok(0) };
        let (me, rows) = (world.rank(), old.rows(old.ranks() - 1).end);
        let moves = (0..rows).map(|row| (row, old.owner(row), new.owner(row)));
        let moves: Vec<_> = moves.filter(|(_, from, to)| from != to).collect();
        let mut sends = Vec::new();
        for (row, _, to) in moves.iter().filter(|(_, from, _)| *from == me) {
            let of = |field: &Vec<f64>| bytes(&field[row * cols..][..cols]);
            sends.push(world.send(*to, MOVED, fields.iter().flat_map(|field| of(field)).collect()));
        }
        for (row, from, _) in moves.iter().filter(|(_, _, to)| *to == me) {
            let come = world.recv(*from, MOVED, 3 * cols * 8).await?;
            for (field, bytes) in fields.iter_mut().zip(come.chunks_exact(cols * 8)) {
                put(&mut field[row * cols..][..cols], bytes);
            }
        }
        for sent in sends {
            sent.await?;
        }
        Ok(moves.len() as u64)
    }
}
