//! A job of one, for a program started without a launcher.

use super::{announce_abort, check_key, check_rank, wire, Bootstrap, LaunchError};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A job whose only rank is this process.
#[derive(Debug)]
pub struct Singleton {
    job_id: String,
    values: BTreeMap<String, Vec<u8>>,
}

impl Singleton {
    /// Makes a job of one.
    ///
    /// # Errors
    /// [`LaunchError::Io`] when the system gives no random bytes.
    pub fn new() -> Result<Self, LaunchError> {
        let mut salt = [0; 8];
        super::fill_random(&mut salt)?;
        let job_id = format!("single-{}-{}", std::process::id(), wire::to_hex(&salt));
        Ok(Singleton { job_id, values: BTreeMap::new() })
    }
}

impl Bootstrap for Singleton {
    fn launcher(&self) -> &'static str {
        "none"
    }
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn job_id(&self) -> String {
        self.job_id.clone()
    }
    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        check_key(key)?;
        self.values.insert(key.to_owned(), value.to_vec());
        Ok(())
    }
    fn fence(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }
    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError> {
        check_rank(rank, 1)?;
        let value = self.values.get(key).cloned();
        value.ok_or_else(|| LaunchError::NotPublished { rank, key: key.to_owned() })
    }
    fn preseeded(&mut self, _key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
        Ok(None)
    }
    fn abort(&mut self, code: i32, message: &str) -> ! {
        announce_abort(0, message);
        std::process::exit(code)
    }
    fn finalize(&mut self) -> Result<(), LaunchError> {
        // Nobody else knows of this job: the process may make another one, as a notebook does
        // where a cell runs again.
        super::JOINED.store(false, Ordering::SeqCst);
        Ok(())
    }
}
