//! Subscriptions of programs: to names, and to hosts.

use crate::client::{Connection, NamesError};
use crate::local::Say;
use crate::name::Name;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use weft_names::{NameEvent, Notice};

/// A subscription to a name.
pub struct Watch {
    pub(crate) connection: Connection,
    pub(crate) early: VecDeque<Say>,
    pub(crate) name: Name,
}

impl Watch {
    /// Returns a descriptor that is readable when [`Watch::next`] may have something.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    /// Takes the next event, and waits for it at most for a time.
    ///
    /// # Errors
    /// The connection ended.
    pub fn next(&mut self, limit: Duration) -> Result<Option<NameEvent>, NamesError> {
        let end = Instant::now() + limit;
        loop {
            match next_say(&mut self.connection, &mut self.early, end)? {
                Some(Say::Name(_, event)) => {
                    let is_ours = match &event.notice {
                        Notice::Published(b) | Notice::Withdrawn(b, _) => self.name.has(&b.name),
                        _ => true,
                    };
                    if is_ours {
                        return Ok(Some(event));
                    }
                }
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Takes the next message: one that came early, or one that comes until a time.
fn next_say(
    connection: &mut Connection,
    early: &mut VecDeque<Say>,
    end: Instant,
) -> Result<Option<Say>, NamesError> {
    match early.pop_front() {
        Some(say) => Ok(Some(say)),
        None => Ok(connection.next(Some(end))?.map(|(_, say)| say)),
    }
}

/// The events of hosts.
pub struct HostWatch {
    pub(crate) connection: Connection,
    pub(crate) early: VecDeque<Say>,
}

impl HostWatch {
    /// Takes the next event ([`Say::Member`] or [`Say::Hears`]), and waits for it at most for a
    /// time.
    ///
    /// # Errors
    /// The connection ended.
    pub fn next(&mut self, limit: Duration) -> Result<Option<Say>, NamesError> {
        let end = Instant::now() + limit;
        loop {
            match next_say(&mut self.connection, &mut self.early, end)? {
                Some(say @ (Say::Member(..) | Say::Hears(_))) => return Ok(Some(say)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}
