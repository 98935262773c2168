//! Sockets of agents: their names, and messages by them.

use crate::own::HIDDEN;
use crate::settings;
use crate::sys::{calls, socket};
use std::os::fd::RawFd;
use weft_streams::message::{Message, MESSAGE_MAX};

/// Returns the first descriptor that `each` returns for the names of agents' sockets that end so.
fn each_name(end: &[u8], each: impl Fn(&[&[u8]]) -> Option<RawFd>) -> Option<RawFd> {
    if let Some(name) = settings::agent() {
        return each(&[name, end]);
    }
    let of_user = || each(&[settings::folder()?, b"/weft/agent.sock", end]);
    let found = each(&[b"/run/weft/agent.sock", end]).or_else(of_user);
    found.or_else(|| each(&[b"@weft-agent", end]))
}

/// Connects to a socket of the agent whose name ends so. Calls on it never wait.
pub fn connect(end: &[u8]) -> Option<RawFd> {
    each_name(end, |name| {
        let fd = socket::connect(name)?;
        // Any user may take an abstract name first.
        let is_trusted = socket::user(fd).is_some_and(|user| weft_sys::user::trusts(user).is_ok());
        if !is_trusted {
            calls::close(fd);
            return None;
        }
        calls::move_to(fd, HIDDEN)
    })
}

/// Connects to a socket of the agent whose name ends so. Calls on it wait.
pub fn connect_to_wait(end: &[u8]) -> Option<RawFd> {
    let fd = connect(end)?;
    calls::set_flags(fd, 0);
    Some(fd)
}

/// Sends a message to the agent, and a descriptor; never waits. False if it takes none now.
pub fn say(socket: RawFd, message: &Message, pass: Option<RawFd>) -> bool {
    socket::send(socket, &message.encode(), pass, libc::MSG_DONTWAIT) > 0
}

/// A message of the agent, and the descriptor that came with it (-1: none).
pub enum Heard {
    /// A message.
    Message(Message, RawFd),
    /// There is none now.
    Nothing,
    /// The agent has ended, or says something that this library does not understand.
    End,
}

/// Receives the next message of the agent.
pub fn hear(socket: RawFd) -> Heard {
    let mut bytes = [0u8; MESSAGE_MAX];
    let (len, passed) = socket::receive_passed(socket, &mut bytes, libc::MSG_DONTWAIT);
    match len {
        1.. => match Message::decode(&bytes[..len as usize]) {
            Ok(message) => Heard::Message(message, passed),
            Err(_) => {
                calls::close(passed);
                Heard::End
            }
        },
        0 => Heard::End,
        _ => Heard::Nothing,
    }
}
