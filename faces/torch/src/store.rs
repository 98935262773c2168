//! The start-up of a process group by the key-value store that torch gives to it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::HashMap;
use std::time::Duration;
use weft::launch::{Bootstrap, LaunchError};

/// The ranks of a process group, and the store by which they find each other.
pub struct StoreBoot {
    /// `None` after the start-up: nothing asks the store any more, and no object of Python is
    /// left.
    store: Option<Py<PyAny>>,
    name: String,
    rank: usize,
    size: usize,
    limit: Duration,
    fences: usize,
    /// The name of the value that was put last.
    put: String,
    /// Values that were fetched, by rank and name.
    kept: HashMap<(usize, String), Vec<u8>>,
}

impl StoreBoot {
    /// Takes over a store; `limit` is the longest wait for other ranks.
    pub fn new(
        store: Py<PyAny>,
        name: String,
        (rank, size): (usize, usize),
        limit: Duration,
    ) -> StoreBoot {
        let (put, kept) = (String::new(), HashMap::new());
        StoreBoot { store: Some(store), name, rank, size, limit, fences: 0, put, kept }
    }

    /// Returns the number of ranks on the host of this one.
    ///
    /// # Errors
    /// The store fails, or a rank does not come.
    pub fn ranks_here(&mut self) -> Result<usize, LaunchError> {
        const HOST: &str = "host";
        let host = weft_link::shm::host().unwrap_or_else(|_| weft_link::random_u64()).to_le_bytes();
        self.put(HOST, &host)?;
        self.fence()?;
        self.fetch(HOST)?;
        Ok(self.kept.drain().filter(|(_, other)| other[..] == host).count().max(1))
    }

    /// Calls a function with the store.
    fn with<T>(
        &self,
        asked: &str,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> Result<T, LaunchError> {
        let problem = |problem| LaunchError::Protocol { asked: asked.to_owned(), problem };
        let gone = || problem("the start-up is over".to_owned());
        let store = self.store.as_ref().ok_or_else(gone)?;
        Python::attach(|py| {
            call(store.bind(py)).map_err(|error| problem(format!("torch's store: {error}")))
        })
    }

    /// Fetches the values of all ranks.
    fn fetch(&mut self, key: &str) -> Result<(), LaunchError> {
        let names: Vec<String> = (0..self.size).map(|rank| name_of(rank, key)).collect();
        let values = self.with("multi_get", |store| {
            store.call_method1("multi_get", (names,))?.extract::<Vec<Vec<u8>>>()
        })?;
        for (rank, value) in values.into_iter().enumerate() {
            self.kept.insert((rank, key.to_owned()), value);
        }
        Ok(())
    }

    /// Waits until the store has the values of these names.
    fn await_names(&self, names: Vec<String>) -> Result<(), LaunchError> {
        self.with("wait", |store| {
            let seconds = PyDict::new(store.py());
            seconds.set_item("seconds", self.limit.as_secs_f64())?;
            let limit = store.py().import("datetime")?.getattr("timedelta")?;
            store.call_method1("wait", (names, limit.call((), Some(&seconds))?)).map(drop)
        })
    }

    /// Returns the ranks whose last value is not there.
    fn late(&self) -> Vec<usize> {
        let is_there = |rank: usize| {
            let name = [name_of(rank, &self.put)];
            self.with("check", |store| store.call_method1("check", (name,))?.extract::<bool>())
        };
        (0..self.size).filter(|&rank| matches!(is_there(rank), Ok(false))).collect()
    }
}

/// Returns the name of a rank's value in the store.
fn name_of(rank: usize, key: &str) -> String {
    format!("weft/{key}/{rank}")
}

impl Bootstrap for StoreBoot {
    fn launcher(&self) -> &'static str {
        "torch"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn job_id(&self) -> String {
        self.name.clone()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        key.clone_into(&mut self.put);
        let name = name_of(self.rank, key);
        self.with("set", |store| {
            store.call_method1("set", (name, PyBytes::new(store.py(), value))).map(drop)
        })
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        if self.size == 1 {
            return Ok(());
        }
        self.fences += 1;
        let (count, done) =
            (format!("weft/fence/{}", self.fences), format!("weft/past/{}", self.fences));
        let came =
            self.with("add", |store| store.call_method1("add", (count, 1))?.extract::<usize>())?;
        if came >= self.size {
            return self.with("set", |store| store.call_method1("set", (done, "1")).map(drop));
        }
        self.await_names(vec![done]).map_err(|error| match self.late() {
            missing if missing.is_empty() => error,
            missing => LaunchError::Timeout {
                during: format!("the start of process group {:?}", self.name),
                seconds: self.limit.as_secs(),
                missing,
            },
        })
    }

    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError> {
        if rank >= self.size {
            return Err(LaunchError::NoSuchRank { rank, size: self.size });
        }
        if let Some(value) = self.kept.get(&(rank, key.to_owned())) {
            return Ok(value.clone());
        }
        self.with("get", |store| store.call_method1("get", (name_of(rank, key),))?.extract())
    }

    /// Fetches the values of all ranks, and lets the store go: nobody asks it under the lock of the
    /// process group, which waits for no interpreter.
    fn keep(&mut self, key: &str) -> Result<(), LaunchError> {
        self.fetch(key)?;
        Python::attach(|_| self.store = None);
        Ok(())
    }

    fn preseeded(&mut self, _key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
        Ok(None)
    }

    fn abort(&mut self, code: i32, message: &str) -> ! {
        eprintln!("weft: rank {} ends its process: {message}", self.rank);
        std::process::exit(code)
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }
}
