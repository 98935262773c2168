//! Processes that tests start. Crates that this one depends on include this file.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};

/// A process that is killed when this value is dropped.
#[derive(Debug)]
pub struct Started(pub Child);

impl Started {
    /// Sends it a signal of this name.
    ///
    /// # Panics
    /// The signal cannot be sent.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args(["-s", name, &self.id().to_string()]).status();
        assert!(kill.expect("kill is a program").success(), "the process is there");
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A process that has ended needs neither.
        let _ = self.kill();
        let _ = self.wait();
    }
}
