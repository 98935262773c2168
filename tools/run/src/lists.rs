//! The lists that socket programs show to their agent, for commands: the connections that share
//! memory, and the switch that turns a program's use of weft off and on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use weft_streams::board;
pub use weft_streams::board::{List, Shown, State};
use weft_streams::message::{Message, MESSAGE_MAX};
pub use weft_streams::policy::Policy;
pub use weft_streams::program;
use weft_streams::socket_name;
use weft_sys::agent::{self, Kind};
use weft_sys::foreign::ANYBODY;
use weft_sys::{memory, passing, Foreign};

/// Most bytes of a list that are read.
const LIST_MAX: usize = 4 << 20;

/// A socket program that has asked the agent for another end.
#[derive(Debug)]
pub struct Program {
    /// The number of its process.
    pub process: u64,
    /// Its list, of the connections that have looked for their other ends.
    pub shows: List,
    list: File,
}

/// Returns the socket programs of this user, for root of all users, that the agent at `name` knows.
/// Those whose lists cannot be read are left out.
///
/// # Errors
/// No agent answers there, or another user runs it.
pub fn programs(name: &str) -> io::Result<Vec<Program>> {
    Ok(lists(name)?.into_iter().filter_map(|(process, list)| program(process, list)).collect())
}

fn program(process: u64, list: Foreign) -> Option<Program> {
    // A stranger made it, where root asks.
    let len = memory::steady_len(&list)?.min(LIST_MAX);
    let list = File::from(list.into_inner());
    let mut bytes = vec![0; len];
    list.read_exact_at(&mut bytes, 0).ok()?;
    let shows = board::read(&bytes)?;
    Some(Program { process, shows, list })
}

impl Program {
    /// Turns its use of weft off, or on again: connections go back to TCP when their ends sleep
    /// next.
    ///
    /// # Errors
    /// Its memory cannot be written.
    pub fn turn(&self, is_off: bool) -> io::Result<()> {
        self.list.write_all_at(&u64::from(is_off).to_ne_bytes(), board::OFF as u64)
    }
}

fn lists(name: &str) -> io::Result<Vec<(u64, Foreign)>> {
    let name = socket_name(name);
    let (socket, peer) = agent::reach(&name, Kind::Messages)?;
    let (mut lists, mut after, mut buf) = (Vec::new(), 0, [0; MESSAGE_MAX]);
    loop {
        passing::send(&socket, &Message::List(after).encode(), None)?;
        after = loop {
            passing::awaits(&socket, agent::PATIENCE).map_err(|e| match e.kind() {
                io::ErrorKind::TimedOut => agent::silent(&name, peer),
                _ => e,
            })?;
            let (len, passed) = passing::recv(&socket, &mut buf, ANYBODY)?.only()?;
            match (Message::decode(&buf[..len]), passed) {
                (Ok(Message::Listed(process)), Some(list)) => lists.push((process, list)),
                (Ok(Message::More(after)), None) => break after,
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        };
        if after == 0 {
            return Ok(lists);
        }
    }
}
