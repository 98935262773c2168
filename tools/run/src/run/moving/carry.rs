//! The processes that carry a copy from host to host: one copies the rank's process and sends the
//! files of the copy, one receives them. The copy travels in messages of weft, authenticated under
//! a key that the launcher made for this move alone.
//!
//! Each is started by the proxy of its host. It reads a task, as a line of JSON, and then orders
//! from its standard input, and writes a line of JSON for each thing that it has done.

use super::criu;
use anyhow::{bail, ensure, Context, Result};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use weft::endpoint::Operation;
use weft::job::{open_endpoint, Links};
use weft::launch::wire::{from_hex, to_hex};
use weft::{Config, Endpoint, PeerId};
use weft_link::Address;

/// Bytes of a message with a part of the copy.
const PART: usize = 256 << 10;
/// Parts on the way at a time.
const PARTS: usize = 8;
/// Longest silence of the other side.
const PATIENCE: Duration = Duration::from_secs(20);
/// Tags: the list of files, their bytes, the end.
const LIST: u64 = 1;
const BYTES: u64 = 2;
const END: u64 = 3;

/// Carry a copy of a rank; started by `weft run`
#[derive(Debug, clap::Args)]
pub struct Args {}

/// The work of the process.
#[derive(Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Task {
    /// Copy the process into the folder when told `copy`, and send the folder when told `send`.
    Give { key: String, place: String, folder: PathBuf, pid: i32, sockets: Vec<u64> },
    /// Receive a copy into the folder.
    Take { key: String, folder: PathBuf },
}

/// A step that the process has done.
#[derive(Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Did {
    /// Waits at this place.
    Waits { place: String },
    /// Has found the other side.
    Met,
    /// Has copied the process.
    Copied { bytes: u64 },
    /// Has sent so many bytes.
    Sent { bytes: u64 },
    /// Has everything: the other side too.
    Done,
    /// Cannot go on.
    Failed { why: String },
}

fn say(did: &Did) -> Result<()> {
    let mut line = serde_json::to_vec(did)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.flush()?;
    Ok(())
}

fn hear() -> Result<String> {
    let mut line = String::new();
    ensure!(std::io::stdin().lock().read_line(&mut line)? > 0, "the launcher is gone");
    Ok(line.trim().to_owned())
}

/// Does the task that standard input names.
///
/// # Errors
/// Standard output is closed.
pub fn run(_args: &Args) -> Result<ExitCode> {
    let done = serde_json::from_str(&hear()?).context("task").and_then(|task| match task {
        Task::Give { key, place, folder, pid, sockets } => {
            give(&key, &place, &folder, (pid, &sockets))
        }
        Task::Take { key, folder } => take(&key, &folder),
    });
    if let Err(why) = done {
        say(&Did::Failed { why: format!("{why:#}") })?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn open(key: &str) -> Result<Endpoint> {
    let key = from_hex(key).and_then(|key| key.try_into().ok()).context("the key of the move")?;
    let links = Links::parse("udp").context("links")?;
    Ok(open_endpoint(Config::default(), links, key)?)
}

/// Makes progress until `done` gives a value.
fn until<R>(endpoint: &Endpoint, mut done: impl FnMut() -> Option<R>) -> Result<R> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(result) = done() {
            return Ok(result);
        }
        ensure!(Instant::now() < end, "the other host says nothing for {} s", PATIENCE.as_secs());
        endpoint.wait(Some(Duration::from_millis(100)));
    }
}

/// Waits for the end of a send.
fn sent(endpoint: &Endpoint, operation: Operation) -> Result<()> {
    until(endpoint, || operation.is_done().then_some(()))?;
    operation.wait().0.map(drop).map_err(|why| anyhow::anyhow!("{}", endpoint.explain(why)))
}

/// Receives a message.
fn received(endpoint: &Endpoint, from: Option<PeerId>, tag: u64, len: usize) -> Result<Vec<u8>> {
    let operation = endpoint.recv(from, tag, 0, vec![0; len]);
    until(endpoint, || operation.is_done().then_some(()))?;
    let (status, mut bytes) = operation.wait();
    let status = status.map_err(|why| anyhow::anyhow!("{}", endpoint.explain(why)))?;
    bytes.truncate(status.len);
    Ok(bytes)
}

/// Lists the files of a folder with their lengths.
fn files(folder: &Path) -> Result<Vec<(String, u64)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a file's name")?;
        if !name.ends_with(".log") {
            all.push((name, entry.metadata()?.len()));
        }
    }
    Ok(all)
}

/// Copies and sends a process.
fn give(key: &str, place: &str, folder: &Path, (pid, sockets): (i32, &[u64])) -> Result<()> {
    let endpoint = open(key)?;
    let address = from_hex(place).context("the place of the copy")?;
    let to = endpoint.connect(&Address::decode(&address)?)?;
    sent(&endpoint, endpoint.send(to, LIST, Vec::new()))?;
    say(&Did::Met)?;
    ensure!(hear()? == "copy", "no copy is wanted");
    criu::dump(Pid::from_raw(pid).context("the process")?, folder, sockets)?;
    let bytes = files(folder)?.iter().map(|(_, len)| len).sum();
    say(&Did::Copied { bytes })?;
    ensure!(hear()? == "send", "the copy is not wanted");
    send(&endpoint, to, folder)?;
    received(&endpoint, Some(to), END, 0)?;
    say(&Did::Done)?;
    endpoint.close(Duration::from_millis(200));
    Ok(())
}

/// Sends the files of a folder.
fn send(endpoint: &Endpoint, to: PeerId, folder: &Path) -> Result<()> {
    let list = files(folder)?;
    sent(endpoint, endpoint.send(to, LIST, serde_json::to_vec(&list)?))?;
    let (mut on_the_way, mut total) = (VecDeque::new(), 0);
    for (name, len) in list {
        let mut file = fs::File::open(folder.join(name))?;
        let mut left = len as usize;
        while left > 0 {
            let mut part = vec![0; left.min(PART)];
            std::io::Read::read_exact(&mut file, &mut part)?;
            left -= part.len();
            total += part.len() as u64;
            on_the_way.push_back(endpoint.send(to, BYTES, part));
            if on_the_way.len() >= PARTS {
                on_the_way.pop_front().map_or(Ok(()), |oldest| sent(endpoint, oldest))?;
                say(&Did::Sent { bytes: total })?;
            }
        }
    }
    for rest in on_the_way {
        sent(endpoint, rest)?;
    }
    Ok(())
}

/// Receives a copy.
fn take(key: &str, folder: &Path) -> Result<()> {
    let endpoint = open(key)?;
    say(&Did::Waits { place: to_hex(&endpoint.address().encode()) })?;
    // The other side first says that it is there.
    let hello = endpoint.recv(None, LIST, 0, Vec::new());
    until(&endpoint, || hello.is_done().then_some(()))?;
    let status = hello.wait().0.map_err(|why| anyhow::anyhow!("{}", endpoint.explain(why)))?;
    let from = status.source.context("the other side")?;
    say(&Did::Met)?;
    let list = received(&endpoint, Some(from), LIST, 1 << 20)?;
    let list: Vec<(String, u64)> = serde_json::from_slice(&list).context("the list of files")?;
    for (name, len) in list {
        if name.contains('/') || name.starts_with('.') {
            bail!("{name:?} is no name of a file of a copy");
        }
        receive(&endpoint, from, &folder.join(name), len)?;
    }
    sent(&endpoint, endpoint.send(from, END, Vec::new()))?;
    say(&Did::Done)?;
    endpoint.close(Duration::from_millis(200));
    Ok(())
}

/// Receives a file.
fn receive(endpoint: &Endpoint, from: PeerId, path: &Path, len: u64) -> Result<()> {
    let mut file = fs::File::create(path)?;
    let (mut asked, mut left) = (VecDeque::new(), len as usize);
    loop {
        while left > 0 && asked.len() < PARTS {
            let part = left.min(PART);
            left -= part;
            asked.push_back((part, endpoint.recv(Some(from), BYTES, 0, vec![0; part])));
        }
        let Some((part, operation)) = asked.pop_front() else { return Ok(()) };
        until(endpoint, || operation.is_done().then_some(()))?;
        let (status, bytes) = operation.wait();
        let status = status.map_err(|why| anyhow::anyhow!("{}", endpoint.explain(why)))?;
        ensure!(status.len == part, "a part of the copy has another length");
        file.write_all(&bytes)?;
    }
}
