//! iperf3 as a peer: TCP measured by a common tool.

use super::rank::{Outcome, Rank, Task};
use super::sys::{self, Setup};
use anyhow::{ensure, Context, Result};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Longest write that iperf3 accepts, in bytes.
const WRITE_MAX: usize = 1 << 20;
/// Fewest bytes sent: iperf3 reports no rate for less.
const BYTES_MIN: u64 = 1 << 20;

/// A running iperf3 server; dropping this value ends it.
struct Server {
    process: Child,
    /// Not read beyond the first lines: the rest of the output fits the pipe.
    said: Option<BufReader<ChildStdout>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends by itself after one client. This is for a server whose client never came.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn iperf3(words: &[&str]) -> Command {
    let mut command = Command::new("iperf3");
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    sys::prepare(&mut command, Setup { inherited: vec![], cpus: None, host: None });
    command
}

/// Rank 1 serves one client, which is rank 0. Each runs on the core of its rank.
pub fn rank(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    rank.locate()?;
    if rank.me == 1 {
        // Port 0 means that there is no server.
        let server = serve(rank);
        let port = server.as_ref().map_or(0, |&(_, port)| u64::from(port));
        rank.tell(&port.to_le_bytes())?;
        rank.sync()?;
        return Ok(Outcome::Elsewhere);
    }
    let port = rank.hear_u64()?;
    let outcome = match port {
        0 => Ok(Outcome::Absent("iperf3 is not installed".into())),
        port => client(rank, task, port),
    };
    rank.sync()?;
    outcome
}

/// Starts a server that listens; returns it and its port.
fn serve(rank: &Rank) -> Option<(Server, u16)> {
    let host = rank.hosts()[1];
    // iperf3 cannot choose a free port by itself; this port was free a moment ago.
    let ports = weft::job::ports_from_env().ok()?;
    let listener = ports.bind(None, |port| TcpListener::bind((host, port)));
    let port = listener.and_then(|l| l.local_addr()).ok()?.port();
    let (host, number) = (host.to_string(), port.to_string());
    let words = ["--server", "--one-off", "--forceflush", "--bind", &host, "--port", &number];
    let process = iperf3(&words).spawn().ok()?;
    let mut server = Server { process, said: None };
    let mut said = BufReader::new(server.process.stdout.take()?);
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        if said.read_line(&mut line).ok()? == 0 {
            return None;
        }
    }
    server.said = Some(said);
    Some((server, port))
}

fn client(rank: &Rank, task: &Task, port: u64) -> Result<Outcome> {
    let write = task.size.clamp(1, WRITE_MAX).to_string();
    let bytes = (task.size as u64 * task.iters).max(BYTES_MIN).to_string();
    let (host, port) = (rank.hosts()[1].to_string(), port.to_string());
    let words = ["--json", "--client", &host, "--port", &port, "--length", &write];
    let output = iperf3(&words).args(["--bytes", &bytes]).output().context("iperf3")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "iperf3: {text}");
    let report: serde_json::Value = serde_json::from_str(&text).context("iperf3's report")?;
    // The rate is that of the bytes received.
    let received = &report["end"]["sum_received"]["bits_per_second"];
    match received.as_f64().filter(|&rate| rate > 0.0) {
        Some(rate) => Ok(Outcome::Value(task.size as f64 * 8.0 / rate)),
        None => Ok(Outcome::Absent("iperf3 reports no rate".into())),
    }
}
