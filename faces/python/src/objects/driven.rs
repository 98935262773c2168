//! The arrays of actors of a job, as `weft/_actors.py` uses them.

use super::actors::{
    index_of, note, numbers_of, raised, Begun, Common, Pickle, Piece, Pieces, Work,
};
use super::outside::Outside;
use super::thing::worker_of;
use super::work::Saying;
use super::world::{Failed, World};
use crate::fault::{Fault, Kind};
use crate::gate::Gate;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::future::poll_fn;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use weft_models::actors::balance::{Balanced, Costs, Loads, Strategy};
use weft_models::actors::{ActorCause, ActorError, Actors, Section, Shape};

/// The balance of objects as Python has it: those that moved, the imbalance before and after.
type Moved = (u64, f64, f64);

/// The arrays of actors of a job.
#[pyclass(frozen, module = "weft", name = "_Actors")]
pub struct PyActors {
    pub(crate) gate: Arc<Gate>,
}

fn no_array() -> Fault {
    Fault::argument("there is no such array")
}

fn fault_of(error: &ActorError) -> Fault {
    let text = match (&error.cause, &error.object) {
        (ActorCause::Failed(failure), _) => return Fault::of_rank(failure.rank, error.to_string()),
        // A panic is an exception of Python.
        (ActorCause::Panicked(text), Some((name, index))) => {
            format!("object {index} of {name} at rank {}: {text}", error.rank)
        }
        _ => error.to_string(),
    };
    Fault::new(Kind::Actor, text)
}

/// Makes the exception of a run that has ended so; its cause is that of an object here.
fn raise(error: &ActorError) -> PyErr {
    Python::attach(|py| {
        let made = fault_of(error).raise(py);
        made.set_cause(py, raised());
        made
    })
}

fn strategy_of(name: &str) -> Option<Strategy> {
    let all = [
        Strategy::Greedy,
        Strategy::Refine,
        Strategy::Rotate,
        Strategy::RefineComm(Costs::default()),
    ];
    all.into_iter().find(|strategy| strategy.name() == name)
}

/// Returns the ranks that a function of Python finds for objects, of which it gets ranks and
/// seconds, and the messages between them.
fn plan(function: &Py<PyAny>, loads: &Loads) -> PyResult<Vec<usize>> {
    let objects: Vec<_> = loads.objects.iter().map(|load| (load.rank, load.seconds)).collect();
    let edges = loads.edges.iter().map(|edge| (edge.from, edge.to, edge.messages, edge.bytes));
    let edges: Vec<_> = edges.collect();
    Python::attach(|py| function.call1(py, (loads.ranks, objects, edges))?.extract(py))
}

impl PyActors {
    /// Calls `f` with the arrays of this rank.
    fn with<T>(&self, py: Python<'_>, f: impl FnOnce(&Pieces) -> Result<T, Fault>) -> PyResult<T> {
        let worker = worker_of(py, &self.gate)?;
        let done = worker.posting(py, &self.gate, |world| f(&world.pieces()))?;
        done.map_err(|fault| fault.raise(py))
    }

    /// Does something that all ranks do, to its end. If a signal ends the call, the next one with
    /// this title goes on with it: other ranks wait for its end.
    fn together(
        &self,
        py: Python<'_>,
        title: &'static str,
        begin: impl FnOnce(Actors<Outside>) -> Work,
    ) -> PyResult<Moved> {
        let worker = worker_of(py, &self.gate)?;
        let late = |_: &World, limit: Duration| {
            let limit = limit.as_secs_f64();
            PyTimeoutError::new_err(format!(
                "no end of {title} within {limit} s (Job.timeout): all ranks call it, and it ends \
                 when no object has a message"
            ))
        };
        // A run may be long, and nobody waits in it for nothing.
        let saying = Saying { warn_after: Duration::ZERO, warn: &|_| Ok(()), late: &late };
        let done = worker.block_on(py, &self.gate, (self.gate.limit(), &saying), move |world| {
            let pieces = world.pieces();
            let other = pieces.begun.borrow().as_ref().map(|begun| begun.title);
            if other.is_none() {
                raised();
                let work = begin(pieces.actors.clone());
                pieces.begun.replace(Some(Begun { title, work }));
            }
            Box::pin(async move {
                if let Some(other) = other.filter(|other| *other != title) {
                    let text = format!("a signal has ended {other}: call it again first");
                    let fault = Fault::new(Kind::Operation, text);
                    return Err(Failed::Raised(Python::attach(|py| fault.raise(py))));
                }
                let ended = poll_fn(|cx| {
                    let mut begun = pieces.begun.borrow_mut();
                    match &mut *begun {
                        Some(begun) => begun.work.as_mut().poll(cx),
                        None => Poll::Ready(Ok(Balanced::default())),
                    }
                })
                .await;
                pieces.begun.take();
                ended.map_err(|error| Failed::Raised(raise(&error)))
            })
        })?;
        match done {
            Ok(Balanced { moved, before, after }) => Ok((moved, before, after)),
            Err(Failed::Raised(error)) => Err(error),
            Err(Failed::Object(error)) => Err(Fault::argument(format!("{error:?}")).raise(py)),
        }
    }
}

#[pymethods]
impl PyActors {
    /// Makes an array of this number and shape: `kind` is the name of the class, `array` the array
    /// of Python, `make` makes the object of an index.
    fn array(
        &self,
        py: Python<'_>,
        place: (u16, Vec<usize>),
        kind: String,
        array: Py<PyAny>,
        make: Py<PyAny>,
    ) -> PyResult<()> {
        let (number, lens) = place;
        let shape: Shape = match *lens {
            [x] => x.into(),
            [x, y] => [x, y].into(),
            [x, y, z] => [x, y, z].into(),
            _ => return Err(Fault::argument("a shape has one to three numbers").raise(py)),
        };
        if shape.len() >= u64::from(u32::MAX) {
            return Err(Fault::argument("an array has fewer than 2^32 - 1 objects").raise(py));
        }
        let mut failed = None;
        let made = self.with(py, |pieces| {
            let common = Common { kind, array, ids: Rc::clone(&pieces.ids) };
            let made = pieces.actors.array_with(number, shape, common, |index| {
                let made = make.call1(py, (numbers_of(index, lens.len()),));
                Piece(made.unwrap_or_else(|error| {
                    failed.get_or_insert(error);
                    py.None()
                }))
            });
            pieces.ids.borrow_mut().insert(number, made.id());
            pieces.arrays.borrow_mut().insert(number, made);
            Ok(())
        });
        failed.map_or(made, Err)
    }

    /// Sends the pickle of a message to an object.
    fn send(
        &self,
        py: Python<'_>,
        number: u16,
        index: Vec<usize>,
        priority: i32,
        message: Vec<u8>,
    ) -> PyResult<()> {
        self.with(py, |pieces| {
            let array = pieces.array(number).ok_or_else(no_array)?;
            let index = index_of(&index).ok_or_else(no_array)?;
            let sent = array.send_at(priority, index, Pickle(message));
            sent.map_err(|error| fault_of(&error))
        })
    }

    /// Sends the pickle of a message to all objects of a section.
    fn broadcast(
        &self,
        py: Python<'_>,
        number: u16,
        section: u16,
        message: Vec<u8>,
    ) -> PyResult<()> {
        self.with(py, |pieces| {
            let array = pieces.array(number).ok_or_else(no_array)?;
            let sent = array.broadcast_to(Section::of(section), &Pickle(message));
            sent.map_err(|error| fault_of(&error))
        })
    }

    /// Makes a section of an array.
    fn section(
        &self,
        py: Python<'_>,
        number: u16,
        section: u16,
        objects: Vec<Vec<usize>>,
    ) -> PyResult<()> {
        self.with(py, |pieces| {
            let array = pieces.array(number).ok_or_else(no_array)?;
            let objects: Option<Vec<_>> = objects.iter().map(|index| index_of(index)).collect();
            let made = array.section(section, objects.ok_or_else(no_array)?);
            made.map(|_| ()).map_err(|error| fault_of(&error))
        })
    }

    /// Returns the pickle of the last result of a section's reductions.
    fn result<'py>(
        &self,
        py: Python<'py>,
        number: u16,
        section: u16,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let result = self.with(py, |pieces| {
            let array = pieces.array(number).ok_or_else(no_array)?;
            Ok(array.result_of(Section::of(section)))
        })?;
        Ok(result.map(|Pickle(bytes)| PyBytes::new(py, &bytes)))
    }

    /// Returns the objects of an array that are here, with their indices.
    fn here(
        &self,
        py: Python<'_>,
        number: u16,
        dims: usize,
    ) -> PyResult<Vec<(Vec<usize>, Py<PyAny>)>> {
        self.with(py, |pieces| {
            let array = pieces.array(number).ok_or_else(no_array)?;
            let mut here = Vec::new();
            array.each(|index, piece| {
                here.push((numbers_of(index, dims.min(3)), piece.0.clone_ref(py)));
            });
            Ok(here)
        })
    }

    /// Returns the rank at which an object is, as far as this one knows.
    fn rank_of(&self, py: Python<'_>, number: u16, index: Vec<usize>) -> PyResult<Option<usize>> {
        self.with(py, |pieces| {
            let array = pieces.array(number).ok_or_else(no_array)?;
            Ok(index_of(&index).and_then(|index| array.rank_of(index)))
        })
    }

    /// Begins or ends the counting of loads and messages.
    fn measure(&self, py: Python<'_>, is_wanted: bool) -> PyResult<()> {
        self.with(py, |pieces| {
            pieces.actors.measure(is_wanted);
            Ok(())
        })
    }

    /// Returns the number of turns that objects have had here.
    fn turns(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |pieces| Ok(pieces.actors.turns()))
    }

    /// Gives objects their turns until no message is left at any rank.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        let run = |actors: Actors<Outside>| -> Work {
            Box::pin(async move { actors.run().await.map(|()| Balanced::default()) })
        };
        self.together(py, "Actors.run", run).map(|_| ())
    }

    /// Moves objects by the strategy of a name, or by a function.
    fn balance(&self, py: Python<'_>, how: &Bound<'_, PyAny>) -> PyResult<Moved> {
        if how.is_callable() {
            let function = how.clone().unbind();
            let find = move |loads: &Loads| {
                plan(&function, loads).unwrap_or_else(|error| {
                    note(error);
                    Vec::new()
                })
            };
            return self.together(py, "Actors.balance", |actors| {
                Box::pin(async move { actors.balance_by(find).await })
            });
        }
        let name: String = how.extract()?;
        let strategy = strategy_of(&name).ok_or_else(|| {
            let text = format!(
                "a strategy is \"greedy\", \"refine\", \"refine-comm\", \"rotate\" or a function, \
                 not {name:?}"
            );
            Fault::argument(text).raise(py)
        })?;
        self.together(py, "Actors.balance", |actors| {
            Box::pin(async move { actors.balance(&strategy).await })
        })
    }

    /// Writes all objects to a file at rank 0.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let write = |actors: Actors<Outside>| -> Work {
            Box::pin(async move { actors.checkpoint(&path).await.map(|()| Balanced::default()) })
        };
        self.together(py, "Actors.checkpoint", write).map(|_| ())
    }

    /// Replaces all objects by those of a file at rank 0.
    fn restore(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let read = |actors: Actors<Outside>| -> Work {
            Box::pin(async move { actors.restore(&path).await.map(|()| Balanced::default()) })
        };
        self.together(py, "Actors.restore", read).map(|_| ())
    }
}
