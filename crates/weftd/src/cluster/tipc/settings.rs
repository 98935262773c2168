//! Options of a socket that programs set and read.

use std::time::Duration;
use weft_streams::tipc::{kind, option};

/// Longest time that a connection may take.
const TIMEOUT_MAX: u32 = 3_600_000;

/// The options of a socket.
pub(super) struct Settings {
    kind: u8,
    pub importance: u8,
    src_droppable: bool,
    pub dest_droppable: bool,
    /// Time to connect.
    pub timeout: Duration,
    no_delay: u32,
}

impl Settings {
    /// Returns the options that a socket of a kind begins with.
    pub fn of(kind: u8) -> Settings {
        Settings {
            kind,
            importance: 0,
            src_droppable: kind == kind::DGRAM,
            dest_droppable: matches!(kind, kind::DGRAM | kind::RDM),
            timeout: Duration::from_secs(8),
            no_delay: 0,
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// The number of an error of the system: the value is not allowed, or there is no such option.
    pub fn set(&mut self, name: u32, value: u32) -> Result<(), i32> {
        match name {
            option::IMPORTANCE if value > 3 => return Err(libc::EINVAL),
            option::IMPORTANCE => self.importance = value as u8,
            option::SRC_DROPPABLE if self.kind == kind::STREAM => return Err(libc::ENOPROTOOPT),
            option::SRC_DROPPABLE => self.src_droppable = value != 0,
            option::DEST_DROPPABLE => self.dest_droppable = value != 0,
            option::CONN_TIMEOUT => {
                self.timeout = Duration::from_millis(value.min(TIMEOUT_MAX).into());
            }
            option::MCAST_BROADCAST | option::MCAST_REPLICAST => {}
            option::NODELAY => self.no_delay = value,
            _ => return Err(libc::ENOPROTOOPT),
        }
        Ok(())
    }

    /// Returns the value of an option; `None`: there is none that programs set.
    pub fn get(&self, name: u32) -> Option<u32> {
        match name {
            option::IMPORTANCE => Some(self.importance.into()),
            option::SRC_DROPPABLE => Some(self.src_droppable.into()),
            option::DEST_DROPPABLE => Some(self.dest_droppable.into()),
            option::CONN_TIMEOUT => Some(self.timeout.as_millis() as u32),
            option::NODELAY => Some(self.no_delay),
            _ => None,
        }
    }
}
