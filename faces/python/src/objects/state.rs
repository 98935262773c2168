//! The state of an object of Python as a type of [`weft_models::objects`]: what it does calls the
//! interpreter.

use super::operation::{self, Arguments, Operation, Reply, DELETE, MADE};
use super::tools::Tools;
use crate::fault::{Fault, Kind};
use pyo3::exceptions::{PyMemoryError, PyRecursionError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weft_models::objects::{Object, Read};

/// A function of a method, with the number of its executions.
struct Counted {
    function: Py<PyAny>,
    executions: Cell<u64>,
    /// For reads of replicas: says which are checked, with those that Python executes by itself.
    turns: Py<PyAny>,
}

/// A marked method.
struct Known {
    function: Counted,
    guard: Option<Counted>,
    writes: bool,
}

/// An object that is at this rank: there alone, or on all ranks.
pub struct Here {
    /// The object of Python that has the state.
    replica: Py<PyAny>,
    /// This state's number: the replica may have another one by now.
    number: u64,
    name: String,
    rank: usize,
    /// True if it is always on all ranks; true if it is always at one.
    is_everywhere: bool,
    stays: bool,
    methods: HashMap<String, Known>,
    /// The exception of a guard, which its operation raises.
    failed: RefCell<Option<PyErr>>,
    is_deleted: bool,
}

/// The state of an object.
pub enum State {
    /// The state is bytes, before it is an object.
    Saved(Vec<u8>),
    Here(Here),
}

fn error(py: Python<'_>, text: String) -> PyErr {
    Fault::new(Kind::Operation, text).raise(py)
}

/// The state and arguments of a call.
struct Call<'py> {
    replica: Bound<'py, PyAny>,
    state: Bound<'py, PyAny>,
    /// All arguments, the state first.
    all: Bound<'py, PyTuple>,
    names: Option<Bound<'py, PyDict>>,
    /// True for a call of this rank that no other rank executes.
    is_own: bool,
}

impl Here {
    /// # Errors
    /// The replica is none of an object.
    fn new(replica: &Bound<'_, PyAny>) -> PyResult<Here> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed) + 1;
        replica.setattr("number", number)?;
        let mut methods = HashMap::new();
        for (name, spec) in replica.getattr("methods")?.cast_into::<PyDict>()? {
            let (turns_of_guard, turns) =
                spec.getattr("turns")?.extract::<(Py<PyAny>, Py<PyAny>)>()?;
            let counted = |function: Bound<'_, PyAny>, turns| Counted {
                function: function.unbind(),
                executions: Cell::new(0),
                turns,
            };
            let guard = spec.getattr("when")?;
            let guard = (!guard.is_none()).then(|| counted(guard, turns_of_guard));
            let function = counted(spec.getattr("function")?, turns);
            let writes = spec.getattr("writes")?.is_truthy()?;
            methods.insert(name.extract()?, Known { function, guard, writes });
        }
        Ok(Here {
            replica: replica.clone().unbind(),
            number,
            name: replica.getattr("name")?.extract()?,
            rank: replica.getattr("rank")?.extract()?,
            is_everywhere: replica.getattr("is_plain")?.is_truthy()?,
            stays: replica.getattr("stays")?.is_truthy()?,
            methods,
            failed: RefCell::default(),
            is_deleted: false,
        })
    }

    fn shown_name(&self) -> String {
        Python::attach(|py| {
            let shown = pyo3::types::PyString::new(py, &self.name).repr();
            shown.map_or_else(|_| self.name.clone(), |text| text.to_string())
        })
    }

    /// Makes the result of an operation.
    fn reply(&self, py: Python<'_>, op: &Operation, result: PyResult<Bound<'_, PyAny>>) -> Reply {
        let is_own = op.author == self.rank;
        if op.token == 0 && is_own {
            if let Err(error) = &result {
                let logged = Tools::get(py)
                    .and_then(|tools| tools.log_post(self.replica.bind(py), &op.method, error));
                if let Err(error) = logged {
                    error.write_unraisable(py, None);
                }
            }
            return Reply::Nothing;
        }
        if !is_own && self.is_everywhere {
            return Reply::Nothing;
        }
        let (ok, value) = match result {
            Ok(value) => (true, value.unbind()),
            Err(error) => (false, error.into_value(py).into_any()),
        };
        let wanted = (!is_own).then(|| self.name.clone());
        Reply::Made { ok, value, own: is_own.then_some(op.token), wanted }
    }

    /// Has this replica be of no use any more.
    fn set_broken(&self, py: Python<'_>, why: &str) -> PyErr {
        if let Err(error) = self.replica.bind(py).setattr(intern!(py, "broken"), why) {
            return error;
        }
        error(py, why.to_string())
    }

    /// # Errors
    /// The object is deleted, or this replica is of no use.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_deleted {
            return Err(error(py, format!("{} has been deleted", self.shown_name())));
        }
        let broken = self.replica.bind(py).getattr(intern!(py, "broken"))?;
        match broken.is_none() {
            true => Ok(()),
            false => Err(error(py, format!("{} is broken: {broken}", self.shown_name()))),
        }
    }

    /// # Errors
    /// This rank's class has no such operation; then its replica of an object on all ranks is of no
    /// use any more.
    fn known(&self, py: Python<'_>, method: &str) -> PyResult<&Known> {
        if let Some(known) = self.methods.get(method) {
            return Ok(known);
        }
        if self.stays {
            let name = self.shown_name();
            return Err(error(py, format!("{name} has no operation '{method}'")));
        }
        let kind = self.replica.bind(py).getattr("kind")?.getattr("__qualname__")?;
        let why = format!(
            "rank {} has no operation '{method}' in {kind}: ranks run different programs",
            self.rank
        );
        Err(self.set_broken(py, &why))
    }

    /// Makes the call of an operation. `by_value`: as if the arguments came from another rank.
    ///
    /// # Errors
    /// The arguments cannot be read; then this replica of an object on all ranks is of no use any
    /// more.
    fn call<'py>(&self, py: Python<'py>, op: &Operation, by_value: bool) -> PyResult<Call<'py>> {
        let replica = self.replica.bind(py).clone();
        let is_own = matches!(op.arguments, Arguments::Given { .. });
        let (made, names) = op.arguments.made(py, by_value).map_err(|error| {
            if is_own {
                return error;
            }
            match self.stays {
                true => self::error(py, format!("the arguments cannot be read: {error}")),
                false => {
                    let (rank, method) = (self.rank, &op.method);
                    let why = format!("rank {rank} cannot read arguments of {method}: {error}");
                    self.set_broken(py, &why)
                }
            }
        })?;
        let state = replica.getattr(intern!(py, "state"))?;
        let all = match made.is_empty() {
            true => PyTuple::new(py, [&state])?,
            false => {
                let all = std::iter::once(state.clone()).chain(made.iter());
                PyTuple::new(py, all.collect::<Vec<_>>())?
            }
        };
        Ok(Call { replica, state, all, names, is_own })
    }

    /// Calls a read or a guard, and has the 1st, 2nd, 4th, 8th, ... execution checked: all ranks
    /// check the same ones of the guard of a write. Reads of a replica count for themselves.
    fn unchanging<'py>(
        &self,
        call: &Call<'py>,
        function: &Counted,
        (method, is_guard, writes): (&str, bool, bool),
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = call.all.py();
        let is_due = if call.is_own && !writes && self.is_everywhere {
            function.turns.bind(py).call_method0(intern!(py, "is_due"))?.is_truthy()?
        } else {
            let execution = function.executions.get() + 1;
            function.executions.set(execution);
            execution.is_power_of_two()
        };
        if !is_due {
            return function.function.bind(py).call(&call.all, call.names.as_ref());
        }
        let names = call.names.clone().unwrap_or_else(|| PyDict::new(py));
        Tools::get(py)?.checked(&call.replica, (method, is_guard), &call.all, &names)
    }

    /// Executes a read. `None`: its guard is not true. An operation that writes has no result here.
    fn try_read<'py>(
        &self,
        py: Python<'py>,
        op: &Operation,
    ) -> PyResult<Option<Read<Bound<'py, PyAny>>>> {
        if op.method == MADE {
            return self.replica.bind(py).getattr("failure").map(Read::Value).map(Some);
        }
        if op.method == DELETE && !self.is_deleted {
            return Ok(Some(Read::Write));
        }
        self.check(py)?;
        let known = self.known(py, &op.method)?;
        if known.writes {
            return Ok(Some(Read::Write));
        }
        let call = self.call(py, op, false)?;
        if let Some(guard) = &known.guard {
            if !self.unchanging(&call, guard, (&op.method, true, false))?.is_truthy()? {
                return Ok(None);
            }
        }
        self.unchanging(&call, &known.function, (&op.method, false, false))
            .map(Read::Value)
            .map(Some)
    }

    /// # Errors
    /// The exception of the guard, or that of the arguments.
    fn try_guard(&self, py: Python<'_>, op: &Operation) -> PyResult<bool> {
        let Some(guard) = self.methods.get(&op.method).and_then(|known| known.guard.as_ref())
        else {
            return Ok(true);
        };
        let call = self.call(py, op, true)?;
        self.unchanging(&call, guard, (&op.method, true, true))?.is_truthy()
    }

    fn try_write<'py>(&mut self, py: Python<'py>, op: &Operation) -> PyResult<Bound<'py, PyAny>> {
        if op.method == DELETE {
            self.is_deleted = true;
            let replica = self.replica.bind(py);
            // Reads that Python executes by itself end, too.
            replica.setattr(intern!(py, "broken"), "it has been deleted")?;
            replica.call_method1("put", (py.None(),))?;
            return Ok(py.None().into_bound(py));
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let known = self.known(py, &op.method)?;
        let call = self.call(py, op, true)?;
        let function = known.function.function.bind(py);
        Tools::get(py)?.thawed(&call.state, || function.call(&call.all, call.names.as_ref()))
    }

    /// Has the replica here be of no use if other ranks may have done what has failed here: they
    /// have other stacks and other memory.
    fn doubt(&self, py: Python<'_>, op: &Operation, error: &PyErr) -> PyResult<()> {
        let depends = error.is_instance_of::<PyRecursionError>(py)
            || error.is_instance_of::<PyMemoryError>(py);
        if !depends || self.stays {
            return Ok(());
        }
        Tools::get(py)?.doubt(self.replica.bind(py), &op.method, error)
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // The state has moved to another rank, unless the replica has another state already.
        Python::try_attach(|py| {
            let replica = self.replica.bind(py);
            let is_mine = || replica.getattr("number")?.extract::<u64>();
            if is_mine().is_ok_and(|number| number == self.number) {
                if let Err(error) = replica.call_method1("put", (py.None(),)) {
                    error.write_unraisable(py, None);
                }
            }
        });
    }
}

impl Object for State {
    type Op = Operation;
    type Reply = Reply;

    fn read(&self, op: &Operation) -> Read<Reply> {
        let State::Here(here) = self else { return Read::Write };
        Python::attach(|py| match here.try_read(py, op) {
            Ok(None) => Read::Wait,
            Ok(Some(Read::Write)) => Read::Write,
            Ok(Some(Read::Wait)) => Read::Wait,
            Ok(Some(Read::Value(value))) => Read::Value(here.reply(py, op, Ok(value))),
            Err(error) => Read::Value(here.reply(py, op, Err(error))),
        })
    }

    fn guard(&self, op: &Operation) -> bool {
        let State::Here(here) = self else { return true };
        Python::attach(|py| {
            here.try_guard(py, op).unwrap_or_else(|error| {
                here.failed.replace(Some(error));
                true
            })
        })
    }

    fn apply(&mut self, op: Operation) -> Reply {
        let State::Here(here) = self else { return Reply::Nothing };
        Python::attach(|py| {
            let mut result = here.try_write(py, &op);
            if let Err(error) = &result {
                if let Err(error) = here.doubt(py, &op, error) {
                    result = Err(error);
                }
            }
            here.reply(py, &op, result)
        })
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            State::Saved(bytes) => operation::write_bytes(bytes, to),
            State::Here(here) => Python::attach(|py| {
                // All ranks count anew from here on.
                let all = here.methods.values();
                all.flat_map(|known| [Some(&known.function), known.guard.as_ref()])
                    .flatten()
                    .for_each(|counted| counted.executions.set(0));
                let saved = Tools::get(py)
                    .and_then(|tools| tools.save_state(here.replica.bind(py)))
                    .map_err(|_| S::Error::custom("a state that cannot be pickled"))?;
                operation::write_bytes(saved.as_bytes(), to)
            }),
        }
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<State, D::Error> {
        let bytes = operation::read_bytes(from)?;
        Python::attach(|py| {
            let replica = Tools::get(py)?.load_state(py, &bytes)?;
            Here::new(&replica).map(State::Here)
        })
        .map_err(|error: PyErr| serde::de::Error::custom(error))
    }
}
