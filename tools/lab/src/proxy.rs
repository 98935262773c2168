//! A command on a host for a caller on another host. Hosts cannot enter each other, so a process in
//! the keeper's namespaces starts the command and passes on signals and exit status.
//!
//! The caller sends `Request::Exec` to the keeper, whose connection then leads to the proxy. The
//! proxy sends `READY`, or `SORRY` and the reason; the caller sends the command with its three
//! descriptors, and then a byte for each signal. The proxy's last byte is the exit status. If the
//! caller vanishes, the command ends.

use super::client::Entrance;
use super::exec::{self, Caught};
use super::wire::{self, Request};
use anyhow::{bail, ensure, Context, Result};
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::time::Duration;
use weft_run::run::poll::{Set, READ};

const READY: u8 = b'r';
const SORRY: u8 = b'x';
/// Longest command with its environment, in bytes: more than the kernel takes.
const LONGEST: usize = 16 << 20;
/// Longest time that either side waits for the next bytes while the command is passed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Start a command for a caller on another host; started by `weft lab`
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    lab: String,
    #[arg(long)]
    host: usize,
}

/// The command to run.
#[derive(Debug, PartialEq)]
struct Wanted {
    folder: OsString,
    words: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
}

impl Wanted {
    /// Each part ends with a NUL; none holds a NUL.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |parts: &[&OsStr]| {
            parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
            out.push(0);
        };
        put(&[&self.folder]);
        put(&[OsStr::new(&self.words.len().to_string())]);
        self.words.iter().for_each(|word| put(&[word]));
        self.variables.iter().for_each(|(name, value)| put(&[name, OsStr::new("="), value]));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Wanted> {
        let mut parts = bytes.strip_suffix(&[0])?.split(|&byte| byte == 0);
        let own = |part: &[u8]| OsString::from_vec(part.to_vec());
        let folder = own(parts.next()?);
        let count: usize = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        let words: Vec<_> = parts.by_ref().take(count).map(own).collect();
        let pair = |part: &[u8]| {
            // A name may begin with `=`, but is never empty.
            let at = part.iter().skip(1).position(|&byte| byte == b'=')? + 1;
            Some((own(&part[..at]), own(&part[at + 1..])))
        };
        let variables = parts.map(pair).collect::<Option<_>>()?;
        (count > 0 && words.len() == count).then_some(Wanted { folder, words, variables })
    }
}

/// Asks for the command on a host and waits for its exit status.
///
/// # Errors
/// The host, or the lab, has ended.
pub fn ask(lab: &str, host: usize, command: &[String]) -> Result<ExitCode> {
    let mut stream = wire::connect(lab)?;
    wire::ask(&stream, &Request::Exec(host))?;
    let mut said = [0];
    let gone = || format!("lab {lab} could not start a process");
    stream.read_exact(&mut said).with_context(gone)?;
    if said != [READY] {
        let mut why = String::new();
        (&stream).take(4096).read_to_string(&mut why).with_context(gone)?;
        bail!("{why}");
    }
    let wanted = Wanted {
        folder: std::env::current_dir().unwrap_or_else(|_| "/".into()).into(),
        words: command.iter().map(OsString::from).collect(),
        variables: std::env::vars_os().collect(),
    };
    // From here on all signals go to the command, which is not at this terminal.
    let caught = Caught::of(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP])?;
    let body = wanted.encode();
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    wire::send(&stream, &bytes, &[input.as_fd(), output.as_fd(), errors.as_fd()])?;
    stream.set_read_timeout(None)?;
    loop {
        let mut set = Set::default();
        set.add(None, stream.as_fd(), READ);
        caught.add_to(&mut set);
        for ready in set.wait(None)? {
            match ready {
                Some(signal) => stream.write_all(&[caught.take(signal)?.as_raw() as u8])?,
                None => {
                    let ended = || format!("lab {lab} has ended");
                    stream.read_exact(&mut said).with_context(ended)?;
                    return Ok(ExitCode::from(said[0]));
                }
            }
        }
    }
}

/// Runs the proxy: its standard input is the connection.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let host = match Entrance::for_proxy(&args.lab, args.host) {
        Ok(host) => host,
        Err(e) => {
            stream.write_all(&[SORRY])?;
            stream.write_all(format!("{e:#}").as_bytes())?;
            return Ok(ExitCode::FAILURE);
        }
    };
    stream.write_all(&[READY])?;
    let (wanted, standard) = receive(&stream)?;
    let code = start_and_wait(args, &host, &wanted, standard, &mut stream)?;
    stream.write_all(&[code])?;
    Ok(ExitCode::SUCCESS)
}

fn receive(mut stream: &UnixStream) -> Result<(Wanted, [OwnedFd; 3])> {
    let mut len = [0; 4];
    let (got, fds) = wire::receive(stream, &mut len)?;
    stream.read_exact(&mut len[got..])?;
    let len = u32::from_le_bytes(len) as usize;
    ensure!(len <= LONGEST, "a command of {len} bytes");
    let mut body = vec![0; len];
    stream.read_exact(&mut body)?;
    let wanted = Wanted::decode(&body).context("an invalid command")?;
    let standard = fds.try_into().ok().context("three descriptors come with a command")?;
    Ok((wanted, standard))
}

fn start_and_wait(
    args: &Args,
    host: &Entrance,
    wanted: &Wanted,
    [input, output, errors]: [OwnedFd; 3],
    stream: &mut UnixStream,
) -> Result<u8> {
    // The host sees the same folder.
    let _or_root = std::env::set_current_dir(&wanted.folder);
    host.enter()?;
    let mut said = std::fs::File::from(errors.try_clone()?);
    let mut command = Command::new(&wanted.words[0]);
    command.args(&wanted.words[1..]).env_clear();
    command.envs(wanted.variables.iter().map(|(name, value)| (name, value)));
    command.stdin(input).stdout(output).stderr(errors);
    let mut child = match exec::start(command, &args.lab, &host.name) {
        Ok(child) => child,
        Err((code, why)) => {
            let _unheard = writeln!(said, "{why}");
            return Ok(code);
        }
    };
    drop(said);
    stream.set_read_timeout(None)?;
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    let mut listening = true;
    loop {
        let mut set = Set::default();
        set.add(false, process.as_fd(), READ);
        if listening {
            set.add(true, stream.as_fd(), READ);
        }
        if set.wait(None)?.contains(&false) {
            return Ok(exec::code(child.wait().context("waiting for the command")?));
        }
        let mut signal = [0];
        listening = matches!(stream.read(&mut signal), Ok(1));
        let signal = if listening { Signal::from_named_raw(signal[0].into()) } else { None };
        // Without its caller the command is killed. It may have ended already.
        let _ = pidfd_send_signal(&process, signal.unwrap_or(Signal::KILL));
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn wanted(words: &[&str], variables: &[(&str, &str)]) -> Wanted {
        let own = |text: &&str| OsString::from(*text);
        Wanted {
            folder: "/a b".into(),
            words: words.iter().map(own).collect(),
            variables: variables.iter().map(|(n, v)| (own(n), own(v))).collect(),
        }
    }

    #[test]
    fn decode__gives_back_what_was_encoded() {
        let mut some = vec![
            wanted(&["sh", "-c", "", "a=b"], &[("A", ""), ("B", "x=y"), ("=C:", "z")]),
            wanted(&["true"], &[]),
        ];
        some.push(wanted(&["x"], &[("A", "1")]));
        some[2].words[0] = OsString::from_vec(vec![0xff, 0xfe]);
        for one in some {
            assert_eq!(Wanted::decode(&one.encode()), Some(one));
        }
    }

    #[test]
    fn decode__refuses_what_makes_no_sense() {
        let lies: [&[u8]; 9] = [
            b"",
            b"\0",
            b"/\0",
            b"/\x000\0",
            b"/\x002\0one\0",
            b"/\x0099999999999999999999\0a\0",
            b"/\0x\0a\0",
            b"/\x001\0a\0NOSIGN\0",
            b"/\x001\0a",
        ];
        for lie in lies {
            assert_eq!(Wanted::decode(lie), None, "{lie:?}");
        }
    }
}
