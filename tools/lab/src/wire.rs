//! Requests of the command to a lab's keeper: one request and one answer per connection, as JSON.

use super::spec::{check_name, Spec};
use anyhow::{bail, ensure, Context, Result};
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// A request to a keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// A description of the lab.
    Describe,
    /// A description of the lab, and a descriptor of this host's first process, if the host is up.
    Host(usize),
    /// End the lab; the connection closes when all of it is gone.
    Down,
    /// Run a command on this host, for a caller that is on a host itself and cannot enter another.
    /// The rest of the connection is between the caller and a proxy ([`super::proxy`]).
    Exec(usize),
}

/// A host as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, if it has one.
    pub v6: Option<Ipv6Addr>,
    /// Process ID of its first process in the keeper's PID namespace.
    pub pid: i32,
    /// True if that process is alive.
    pub up: bool,
}

/// A lab as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Its specification.
    pub spec: Spec,
    /// Its hosts.
    pub hosts: Vec<HostState>,
    /// Process ID of the keeper.
    pub keeper: u32,
    /// True if the lab has a user namespace of its own, as without root.
    pub own_user_namespace: bool,
    /// Shortcomings of the lab.
    pub notes: Vec<String>,
    /// True if the sender of the request is on a host of the lab.
    pub inside: bool,
    /// Packets dropped because the delaying switch was full; `None` without such a switch.
    pub overflowed: Option<u64>,
}

/// Longest time that either side waits for the few bytes of the other.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time in which a lab may end.
const END: Duration = Duration::from_secs(240);
/// Longest request, in bytes.
const MAX_REQUEST: u64 = 256;
/// Most descriptors in a message.
const MOST: usize = 3;
/// Longest answer, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

fn prefix() -> String {
    format!("weft-lab-{}-", rustix::process::getuid().as_raw())
}

fn address(name: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{}{name}", prefix()))
}

/// Listens at the socket of a lab's keeper. Its name exists as long as the keeper.
pub fn listen(name: &str) -> std::io::Result<UnixListener> {
    UnixListener::bind_addr(&address(name)?)
}

/// Returns the names of this user's labs.
///
/// # Errors
/// The kernel's table of sockets cannot be read.
pub fn names() -> Result<Vec<String>> {
    let table = std::fs::read_to_string("/proc/net/unix").context("/proc/net/unix")?;
    let start = format!("@{}", prefix());
    let name = |line: &str| line.split_whitespace().last()?.strip_prefix(&start).map(String::from);
    let mut names: Vec<String> = table.lines().filter_map(name).collect();
    names.retain(|name| check_name(name).is_ok());
    names.sort();
    names.dedup();
    Ok(names)
}

/// Checks if the process at the other end is of the same user; the inner error is the reason why
/// not.
fn is_own(stream: &UnixStream) -> Result<Result<(), String>> {
    Ok(weft_sys::Peer::of(stream)?.is_own())
}

pub(super) fn connect(name: &str) -> Result<UnixStream> {
    check_name(name)?;
    let stream = match UnixStream::connect_addr(&address(name)?) {
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => bail!(
            "no lab named {name} is up here: `weft lab up 4 --name {name}` makes one, \
             `weft lab list` shows those there are"
        ),
        other => other.with_context(|| format!("the lab {name}"))?,
    };
    // Any user may take the name of the socket first.
    if let Err(why) = is_own(&stream)? {
        bail!("another user holds the name of lab {name}: {why}");
    }
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

pub(super) fn ask(stream: &UnixStream, request: &Request) -> Result<()> {
    let mut text = serde_json::to_string(request)?;
    text.push('\n');
    let mut stream = stream;
    stream.write_all(text.as_bytes()).context("the lab does not listen")
}

/// Asks a lab for its description and, if `host` is given, for that host's first process.
///
/// # Errors
/// There is no such lab, or it does not answer.
pub fn describe(name: &str, host: Option<usize>) -> Result<(Description, Option<OwnedFd>)> {
    let stream = connect(name)?;
    ask(&stream, &host.map_or(Request::Describe, Request::Host))?;
    let mut text = vec![0; 4096];
    let (got, mut fds) =
        receive(&stream, &mut text).with_context(|| format!("lab {name} does not answer"))?;
    text.truncate(got);
    (&stream).take(MAX_ANSWER).read_to_end(&mut text)?;
    let description = serde_json::from_slice(&text);
    Ok((description.with_context(|| format!("lab {name} does not answer"))?, fds.pop()))
}

/// Ends a lab and waits until it is gone.
///
/// # Errors
/// There is no such lab, or it does not end.
pub fn down(name: &str) -> Result<()> {
    let stream = connect(name)?;
    ask(&stream, &Request::Down)?;
    stream.set_read_timeout(Some(END))?;
    match (&stream).read(&mut [0]) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(e) => Err(e).with_context(|| format!("lab {name} does not end")),
    }
}

/// Reads the request of a connection; `None` if another user sent it.
pub fn receive_request(stream: &UnixStream) -> Result<Option<Request>> {
    if is_own(stream)?.is_err() {
        return Ok(None);
    }
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    Ok(Some(serde_json::from_str(&line)?))
}

/// Sends a description and, if given, a descriptor.
pub fn reply(stream: &UnixStream, answer: &Description, fd: Option<&OwnedFd>) -> Result<()> {
    let fds: Vec<BorrowedFd<'_>> = fd.iter().map(|fd| fd.as_fd()).collect();
    send(stream, &serde_json::to_vec(answer)?, &fds)
}

/// Sends bytes; descriptors go with the first of them.
pub(super) fn send(mut stream: &UnixStream, text: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ensure!(control.push(SendAncillaryMessage::ScmRights(fds)), "no room for descriptors");
    }
    let sent = sendmsg(stream, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL)?;
    stream.write_all(&text[sent..])?;
    Ok(())
}

/// Receives some bytes and the descriptors that came with them.
pub(super) fn receive(stream: &UnixStream, into: &mut [u8]) -> Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            fds.extend(passed);
        }
    }
    Ok((got.bytes, fds))
}
