//! The ranks that solve together, or one alone: borders, sums and rows that move.

use crate::balance::Division;
use crate::part::Change;
use crate::ranks::{Ranks, RanksError};
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};
use weft::{Group, GroupError, Op, Started};

/// Tag of border rows that go to the rank above, and to that below.
const TO_ABOVE: u32 = 0xdd_00;
const TO_BELOW: u32 = 0xdd_01;
/// Tag of rows that change their owner.
const MOVED: u32 = 0xdd_02;
/// Tag of fields that rank 0 gathers.
const GATHERED: u32 = 0xdd_03;

/// The reason why a run ended on this rank.
#[derive(Debug)]
pub enum RunError {
    /// A rank of a group failed.
    Group(GroupError),
    /// A rank that is reached otherwise failed.
    Ranks(RanksError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Group(why) => why.fmt(f),
            RunError::Ranks(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl From<GroupError> for RunError {
    fn from(why: GroupError) -> RunError {
        RunError::Group(why)
    }
}

impl From<RanksError> for RunError {
    fn from(why: RanksError) -> RunError {
        RunError::Ranks(why)
    }
}

/// The ranks that solve together.
#[derive(Clone, Copy)]
pub(crate) enum World<'a> {
    /// There is no rank beside this one.
    Alone,
    Group(&'a Group),
    /// Ranks without weft, for which calls wait.
    Ranks(&'a dyn Ranks),
}

/// The ranks, or none beside this one.
pub(crate) struct Team<'a> {
    world: World<'a>,
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
    /// Rows that are received at the end: row, sender, tag.
    later: Vec<(usize, usize, u32)>,
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
    pub fn new(world: World<'a>, ns_per_unit: Option<f64>) -> Team<'a> {
        let clock: Box<dyn Fn() -> Duration + 'a> = match world {
            World::Group(world) => {
                let start = world.endpoint().now();
                Box::new(move || world.endpoint().now().since(start))
            }
            World::Alone | World::Ranks(_) => {
                let start = Instant::now();
                Box::new(move || start.elapsed())
            }
        };
        Team { world, ns_per_unit, clock }
    }

    pub fn rank(&self) -> usize {
        match self.world {
            World::Alone => 0,
            World::Group(world) => world.rank(),
            World::Ranks(ranks) => ranks.rank(),
        }
    }

    pub fn size(&self) -> usize {
        match self.world {
            World::Alone => 1,
            World::Group(world) => world.size(),
            World::Ranks(ranks) => ranks.size(),
        }
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
        let World::Group(world) = self.world else { return };
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
    ///
    /// # Errors
    /// A rank failed.
    pub fn begin_borders(
        &self,
        field: &[f64],
        cols: usize,
        rows: &Range<usize>,
    ) -> Result<Borders, RunError> {
        let mut borders = Borders::default();
        let row = |row: usize| bytes(&field[row * cols..][..cols]);
        let world = match self.world {
            World::Alone => return Ok(borders),
            World::Group(world) => world,
            World::Ranks(ranks) => {
                if let Some(above) = ranks.rank().checked_sub(1) {
                    ranks.send(above, TO_ABOVE, &row(rows.start))?;
                    borders.later.push((rows.start - 1, above, TO_BELOW));
                }
                let below = ranks.rank() + 1;
                if below < ranks.size() {
                    ranks.send(below, TO_BELOW, &row(rows.end - 1))?;
                    borders.later.push((rows.end, below, TO_ABOVE));
                }
                return Ok(borders);
            }
        };
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
        Ok(borders)
    }

    /// Waits for the rows of the ranks beside this one, and puts them into the field.
    pub async fn end_borders(
        &self,
        borders: Borders,
        field: &mut [f64],
        cols: usize,
    ) -> Result<(), RunError> {
        for (row, come) in borders.receives {
            put(&mut field[row * cols..][..cols], &come.await?);
        }
        for sent in borders.sends {
            sent.await?;
        }
        if let World::Ranks(ranks) = self.world {
            let mut bytes = vec![0; cols * 8];
            for (row, from, tag) in borders.later {
                ranks.recv(from, tag, &mut bytes)?;
                put(&mut field[row * cols..][..cols], &bytes);
            }
        }
        Ok(())
    }

    /// Exchanges the borders of a field.
    pub async fn borders(
        &self,
        field: &mut [f64],
        cols: usize,
        rows: &Range<usize>,
    ) -> Result<(), RunError> {
        let borders = self.begin_borders(field, cols, rows)?;
        self.end_borders(borders, field, cols).await
    }

    /// Returns the largest of each of two figures over all ranks.
    pub async fn largest(&self, figures: [f64; 2]) -> Result<[f64; 2], RunError> {
        match self.world {
            World::Alone => Ok(figures),
            World::Group(world) => {
                let all = world.allreduce(figures.to_vec(), Op::Max).await?;
                Ok([all[0], all[1]])
            }
            World::Ranks(ranks) => {
                let mut all = figures;
                ranks.largest(&mut all)?;
                Ok(all)
            }
        }
    }

    /// Returns the sums of figures over all ranks.
    pub async fn sum(&self, mut figures: Vec<f64>) -> Result<Vec<f64>, RunError> {
        match self.world {
            World::Alone => {}
            World::Group(world) => return Ok(world.allreduce(figures, Op::Sum).await?),
            World::Ranks(ranks) => ranks.sum(&mut figures)?,
        }
        Ok(figures)
    }

    /// Returns the sum of whole numbers over all ranks; it wraps.
    pub async fn sum_whole(&self, mut figures: Vec<u64>) -> Result<Vec<u64>, RunError> {
        match self.world {
            World::Alone => {}
            World::Group(world) => return Ok(world.allreduce(figures, Op::Sum).await?),
            World::Ranks(ranks) => ranks.sum_whole(&mut figures)?,
        }
        Ok(figures)
    }

    /// Returns the largest change over all ranks, and its node; the first of several equal ones.
    pub async fn worst(&self, own: Change) -> Result<Change, RunError> {
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
    ) -> Result<(), RunError> {
        let nodes = |rank: usize| {
            let rows = division.rows(rank);
            rows.start * cols..rows.end * cols
        };
        let own = nodes(self.rank());
        let own: Vec<u8> = fields.iter().flat_map(|field| bytes(&field[own.clone()])).collect();
        let all = match self.world {
            World::Alone => return Ok(()),
            World::Group(world) => world.gather(0, own).await?.unwrap_or_default(),
            World::Ranks(ranks) if ranks.rank() > 0 => return Ok(ranks.send(0, GATHERED, &own)?),
            World::Ranks(ranks) => {
                let mut all = vec![own];
                for rank in 1..ranks.size() {
                    let mut part = vec![0; 3 * 8 * nodes(rank).len()];
                    ranks.recv(rank, GATHERED, &mut part)?;
                    all.push(part);
                }
                all
            }
        };
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
    ) -> Result<u64, RunError> {
        let (me, rows) = (self.rank(), old.rows(old.ranks() - 1).end);
        let moves = (0..rows).map(|row| (row, old.owner(row), new.owner(row)));
        let moves: Vec<_> = moves.filter(|(_, from, to)| from != to).collect();
        let mut sends = Vec::new();
        for (row, _, to) in moves.iter().filter(|(_, from, _)| *from == me) {
            let of = |field: &Vec<f64>| bytes(&field[row * cols..][..cols]);
            let row: Vec<u8> = fields.iter().flat_map(|field| of(field)).collect();
            match self.world {
                World::Alone => {}
                World::Group(world) => sends.push(world.send(*to, MOVED, row)),
                World::Ranks(ranks) => ranks.send(*to, MOVED, &row)?,
            }
        }
        for (row, from, _) in moves.iter().filter(|(_, _, to)| *to == me) {
            let mut come = vec![0; 3 * cols * 8];
            match self.world {
                World::Alone => {}
                World::Group(world) => come = world.recv(*from, MOVED, come.len()).await?,
                World::Ranks(ranks) => ranks.recv(*from, MOVED, &mut come)?,
            }
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
