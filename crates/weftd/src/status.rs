//! The desk: a socket beside the agent's where anybody asks how it is, and its owner ends it.

use crate::sys;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};
use weft_link::{LinkError, WaitFd};

/// How is it?
const STATUS: u8 = b's';
/// End, if nobody needs you.
const STOP: u8 = b'q';
/// Questions answered in one go.
const AT_ONCE: usize = 8;
/// Who asks has so long, since everybody else waits.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long a question may take.
const ANSWER: Duration = Duration::from_secs(10);

/// The listener.
pub struct Desk {
    listener: UnixListener,
}

fn address(name: &str) -> io::Result<SocketAddr> {
    match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(format!("{name}-desk")),
        None => SocketAddr::from_pathname(format!("{name}-desk")),
    }
}

fn connect(name: &str) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(name)?)?;
    stream.set_read_timeout(Some(ANSWER))?;
    Ok(stream)
}

/// Asks until there is an answer: an agent does not wait for one who has no processor between
/// connecting and asking.
fn ask(name: &str, question: u8) -> io::Result<String> {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let end = Instant::now() + ANSWER;
    loop {
        match ask_once(name, question) {
            Err(e)
                if matches!(e.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
                    && Instant::now() < end => {}
            done => return done,
        }
    }
}

fn ask_once(name: &str, question: u8) -> io::Result<String> {
    let mut stream = connect(name)?;
    stream.write_all(&[question])?;
    let mut answer = String::new();
    match stream.take(1 << 20).read_to_string(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(answer),
    }
}

/// What the agent at `name` says of itself: lines of names and values.
///
/// # Errors
/// None listens there, or it does not answer.
pub fn status(name: &str) -> io::Result<String> {
    ask(name, STATUS)
}

/// Asks the agent at `name` to end; what it says to that.
///
/// # Errors
/// None listens there, or it does not answer.
pub fn stop(name: &str) -> io::Result<String> {
    ask(name, STOP)
}

impl Desk {
    /// Beside the agent's own socket.
    ///
    /// # Errors
    /// Somebody else has it.
    pub fn open(name: &str) -> Result<Desk, LinkError> {
        let fail = |source| LinkError::System {
            what: format!("listening beside {name}"),
            source,
            fix: "another agent may serve there (`weftd --status`)",
        };
        sys::make_way(&format!("{name}-desk"));
        let listener = address(name).and_then(|a| UnixListener::bind_addr(&a)).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        sys::let_all_connect(&format!("{name}-desk"));
        Ok(Desk { listener })
    }

    /// Descriptor that becomes readable when somebody asks.
    pub fn wait_fds(&self, out: &mut Vec<WaitFd>) {
        out.push(WaitFd { fd: self.listener.as_raw_fd() });
    }

    /// Answers who asks. To end it takes the same user or root, and nobody who needs it: `ranks`.
    pub fn serve(&self, report: impl Fn() -> String, ranks: usize, drain: &mut bool) {
        for _ in 0..AT_ONCE {
            let Ok((mut stream, _)) = self.listener.accept() else { return };
            let mut question = [0];
            let asked = stream
                .set_read_timeout(Some(PATIENCE))
                .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
                .and_then(|()| stream.read_exact(&mut question));
            if asked.is_err() {
                continue;
            }
            let answer = match question[0] {
                STATUS => report(),
                STOP if !sys::may_command(&stream) => "refused: not its owner\n".to_string(),
                STOP if ranks > 0 => format!(
                    "refused: {ranks} ranks are attached; try again when their jobs have ended, \
                     or end it by SIGTERM, twice to lose them\n"
                ),
                STOP => {
                    *drain = true;
                    "ending\n".to_string()
                }
                _ => "not understood\n".to_string(),
            };
            // Who has left does not wait for the answer.
            let _ = stream.write_all(answer.as_bytes());
        }
    }
}
