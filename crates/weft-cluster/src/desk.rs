//! The asking side of an agent's status socket: any user may ask for the status, and the owner may
//! ask the agent to end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;
use weft_sys::agent::{self, Kind};
use weft_sys::Peer;

/// Asks for the status.
pub const STATUS: u8 = b's';
/// Asks the agent to end, if no ranks are attached.
pub const STOP: u8 = b'q';
/// The first word of the answer of an agent that ends.
pub const ENDING: &str = "ending";
/// Longest answer, in bytes.
const ANSWER_MAX: usize = 1 << 20;

/// Returns a version as agents and commands have it: with the commit, where the builder named it.
pub fn version(number: &str, commit: Option<&str>) -> String {
    commit.map_or(number.into(), |commit| format!("{number} ({commit})"))
}

/// Returns the name of the status socket of the agent at `name`.
pub fn socket_name(name: &str) -> String {
    format!("{name}-desk")
}

/// True if an agent serves under a name, whether it answers at once or not.
pub fn serves(name: &str) -> bool {
    agent::connect_to(&socket_name(name), Kind::Stream).is_ok()
}

fn connect(name: &str) -> io::Result<(UnixStream, Peer)> {
    let (socket, peer) = agent::connect_to(&socket_name(name), Kind::Stream)?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(agent::PATIENCE))?;
    stream.set_write_timeout(Some(agent::PATIENCE))?;
    Ok((stream, peer))
}

/// Asks until there is an answer: the agent closes a connection whose process got no processor
/// between connecting and asking.
fn ask(name: &str, question: u8, is_checked: bool) -> io::Result<(String, Peer)> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let end = Instant::now() + agent::PATIENCE;
    loop {
        match ask_once(name, question, is_checked, end) {
            Err(e)
                if matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
                    && Instant::now() < end => {}
            done => return done,
        }
    }
}

/// Reads an answer to its end, which is there by `end`. A process that takes itself for the agent
/// may send a byte now and then.
fn read_until(stream: &mut UnixStream, end: Instant) -> io::Result<String> {
    let (mut answer, mut some) = (Vec::new(), [0; 4096]);
    while answer.len() < ANSWER_MAX {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut some) {
            Ok(0) => break,
            Ok(n) => answer.extend_from_slice(&some[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    String::from_utf8(answer).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn ask_once(
    name: &str,
    question: u8,
    is_checked: bool,
    end: Instant,
) -> io::Result<(String, Peer)> {
    let (mut stream, peer) = connect(name)?;
    if is_checked {
        agent::check_at(name, peer).map_err(agent::distrust)?;
    }
    stream.write_all(&[question])?;
    match read_until(&mut stream, end) {
        Ok(answer) if answer.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(answer) => Ok((answer, peer)),
        Err(e) if is_early(&e) => Err(agent::silent(&socket_name(name), peer)),
        Err(e) => Err(e),
    }
}

/// Returns the status of the agent at `name`: lines of names and values.
///
/// # Errors
/// No agent listens there, it is not believed as another user runs it, or it does not answer.
pub fn status(name: &str) -> io::Result<String> {
    ask(name, STATUS, true).map(|(text, _)| text)
}

/// Does what [`status`] does for an agent of any user. Returns also the reason why this user's
/// programs do not believe that agent, if there is one. Of a stranger's text only what can be
/// printed is left.
///
/// # Errors
/// No agent listens there, or it does not answer.
pub fn status_of_any(name: &str) -> io::Result<(String, Option<String>)> {
    let (text, peer) = ask(name, STATUS, false)?;
    let shown = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    Ok((text.chars().map(shown).collect(), agent::check_at(name, peer).err()))
}

/// Asks the agent at `name` to end; returns its answer, and its process.
///
/// # Errors
/// No agent listens there, or it does not answer.
pub fn stop(name: &str) -> io::Result<(String, Peer)> {
    ask(name, STOP, false)
}

/// Returns the reason why ranks of this user do not trust the agent at `name`; `None`: they trust
/// it, because root or this user started it.
///
/// # Errors
/// No agent answers there.
pub fn distrust(name: &str) -> io::Result<Option<String>> {
    let (_, peer) = connect(name)?;
    Ok(agent::check(peer).err())
}

fn is_early(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::time::Duration;

    #[test]
    fn status__of_a_process_that_sends_a_byte_now_and_then() {
        let name = format!("@weft-desk-test-{:016x}", weft_link::random_u64());
        let listener = UnixListener::bind_addr(
            &SocketAddr::from_abstract_name(socket_name(&name).trim_start_matches('@')).unwrap(),
        )
        .unwrap();
        let sends = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            // The question comes first, and nothing after it.
            while stream.write_all(b"x").is_ok() {
                let _ = stream.read(&mut [0]);
            }
        });
        let why = status_of_any(&name).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::TimedOut, "{why}");
        sends.join().unwrap();
    }
}
