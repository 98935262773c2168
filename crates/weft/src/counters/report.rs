//! Handing the page to the agent of the host, which tells others of the cluster on request.
//!
//! Nothing waits for the agent: a rank without one loses a few system calls every few seconds. An
//! agent that starts later, or again, gets the page when the rank next writes it.

use rustix::net::{recv, RecvFlags};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use weft_cluster::local::{Request, VERSION};
use weft_core::Instant;
use weft_sys::agent::{self, Kind};

/// Time between two looks at the connection, at least; it doubles while there is no agent.
const AGAIN: Duration = Duration::from_secs(2);
/// The longest such time.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A rank's connection to the agent that has its page.
#[derive(Default)]
pub(super) struct Report {
    socket: Option<OwnedFd>,
    next: Instant,
    again: Duration,
}

/// Gives a page to the agent at a place. It has to be of this user or of root, as one that gets the
/// key of a job.
fn give(place: &str, page: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (socket, _) = agent::reach(&weft_cluster::socket_name(place), Kind::Stream)?;
    let mut bytes = Request::Hello(VERSION).encode(1);
    bytes.extend(Request::Show.encode(2));
    // The connection is new, so all of it goes at once.
    weft_sys::passing::send(&socket, &bytes, Some(page))?;
    Ok(socket)
}

/// True if the agent has not ended the connection. Its answers are of no interest.
fn is_open(socket: &OwnedFd) -> bool {
    let mut buffer = [0; 256];
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return why == rustix::io::Errno::AGAIN,
        }
    }
}

impl Report {
    /// Sees to it, now and then, that the agent has the page.
    pub fn keep_up(&mut self, now: Instant, page: BorrowedFd<'_>) {
        if now < self.next {
            return;
        }
        let was_there = self.socket.is_some();
        self.socket = self.socket.take().filter(is_open);
        if self.socket.is_none() {
            let places = weft_cluster::client::places();
            self.socket = places.iter().find_map(|place| give(place, page).ok());
        }
        self.again = match self.socket.is_some() || was_there {
            true => AGAIN,
            false => (self.again * 2).clamp(AGAIN, AGAIN_MAX),
        };
        self.next = now + self.again;
    }
}
