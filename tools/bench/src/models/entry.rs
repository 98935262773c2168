//! Messages between two objects that messages drive, one at each rank.

use super::bytes::Bytes;
use super::two::models;
use crate::rank::{Outcome, Rank, Task};
use crate::volley::warm_up;
use anyhow::{ensure, Result};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use weft_models::actors::{Actor, Turn};

/// The number of the array of a task; each has one of its own.
const FIRST: u16 = 1;

/// The course of a task at a rank.
#[derive(Default)]
struct Course {
    begun: Cell<Option<Instant>>,
    /// Seconds of all that were counted.
    took: Cell<Option<f64>>,
}

/// An object that sends each message back, as often as it is to.
#[derive(Serialize, Deserialize)]
struct Echo {
    left: u64,
    counted: u64,
}

impl Actor for Echo {
    type Message = Bytes;
    type Value = ();
    type Shared = Rc<Course>;

    fn receive(&mut self, bytes: Bytes, turn: &mut Turn<'_, Echo>) {
        let me = turn.index().x();
        if me == 0 {
            if self.left == self.counted {
                turn.shared().begun.set(Some(Instant::now()));
            }
            if self.left == 0 {
                let begun = turn.shared().begun.get();
                let took = begun.map(|begun| begun.elapsed().as_secs_f64());
                return turn.shared().took.set(took);
            }
            self.left -= 1;
        }
        turn.send(1 - me, bytes);
    }
}

/// Measures a message of `size` bytes to an object at the other rank, and one back.
pub fn entry(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let models = models(rank)?;
    let number = FIRST + models.arrays.replace(models.arrays.get() + 1);
    let course = Rc::<Course>::default();
    let warm = warm_up(task.iters);
    let make = |_| Echo { left: warm + task.iters, counted: task.iters };
    let pair = models.actors.array_with(number, 2, Rc::clone(&course), make);
    rank.sync()?;
    if rank.me == 0 {
        pair.send(0, vec![1; task.size].into())?;
    }
    models.actors.run_blocking()?;
    if rank.me == 1 {
        return Ok(Outcome::Elsewhere);
    }
    ensure!(course.took.get().is_some(), "the objects have stopped");
    let took = course.took.get().unwrap_or_default();
    Ok(Outcome::Value(took / task.iters.max(1) as f64))
}
