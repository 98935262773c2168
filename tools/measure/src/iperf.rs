//! iperf3 as a peer: TCP measured by a common tool.

use super::rank::{Outcome, Rank, Task};
use super::sys::{self, Setup};
use anyhow::{ensure, Context, Result};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use weft_run::limited::output_within;

/// Longest write that iperf3 accepts, in bytes.
const WRITE_MAX: usize = 1 << 20;
/// Fewest bytes sent: iperf3 reports no rate for less.
const BYTES_MIN: u64 = 1 << 20;
/// Longest wait for a server that starts.
const START: Duration = Duration::from_secs(20);
/// Longest run of a client. The pair waits longer for its ranks.
const RUN: Duration = Duration::from_secs(120);

/// A running iperf3 server; dropping this value ends it.
struct Server {
    process: Child,
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
        0 => Ok(Outcome::Absent("iperf3 is not installed, or does not listen".into())),
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
    let mut server = Server { process };
    let said = server.process.stdout.take()?;
    listens(said, START).then_some((server, port))
}

/// Waits until a server says that it listens. A thread reads its output to the end, so that the
/// server never waits for a reader.
fn listens(said: impl Read + Send + 'static, limit: Duration) -> bool {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if line.contains("listening") {
                // After the time limit the receiver is gone.
                let _ = tell.send(());
            }
        }
    });
    told.recv_timeout(limit).is_ok()
}

fn client(rank: &Rank, task: &Task, port: u64) -> Result<Outcome> {
    let write = task.size.clamp(1, WRITE_MAX).to_string();
    let bytes = (task.size as u64 * task.iters).max(BYTES_MIN).to_string();
    let (host, port) = (rank.hosts()[1].to_string(), port.to_string());
    let words = ["--json", "--client", &host, "--port", &port, "--length", &write];
    let mut command = iperf3(&words);
    command.args(["--bytes", &bytes]);
    rate_of(command, RUN, task.size)
}

/// Runs a client; returns the seconds for `size` bytes.
fn rate_of(command: Command, limit: Duration, size: usize) -> Result<Outcome> {
    let output = match output_within(command, limit) {
        Err(e) if e.kind() == ErrorKind::TimedOut => {
            return Ok(Outcome::Absent(format!("iperf3: {e}")));
        }
        other => other.context("iperf3")?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "iperf3: {text}");
    let report: serde_json::Value = serde_json::from_str(&text).context("iperf3's report")?;
    // The rate is that of the bytes received.
    let received = &report["end"]["sum_received"]["bits_per_second"];
    match received.as_f64().filter(|&rate| rate > 0.0) {
        Some(rate) => Ok(Outcome::Value(size as f64 * 8.0 / rate)),
        None => Ok(Outcome::Absent("iperf3 reports no rate".into())),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        command
    }

    #[test]
    fn rate_of__a_client_that_hangs_is_left_out() {
        let hangs = rate_of(shell("exec sleep 600"), Duration::from_millis(1), 8).unwrap();
        assert!(matches!(&hangs, Outcome::Absent(why) if why.contains("no end")), "{hangs:?}");
        let report = r#"echo '{"end": {"sum_received": {"bits_per_second": 32.0}}}'"#;
        let well = rate_of(shell(report), RUN, 8).unwrap();
        assert!(matches!(well, Outcome::Value(seconds) if seconds == 2.0), "{well:?}");
    }

    #[test]
    fn listens__a_server_that_is_silent_or_ends_does_not() {
        let mut hangs = shell("echo Server; exec sleep 600").spawn().unwrap();
        let said = hangs.stdout.take().unwrap();
        assert!(!listens(said, Duration::from_millis(1)));
        hangs.kill().unwrap();
        hangs.wait().unwrap();
        let mut ends = shell("echo Server").spawn().unwrap();
        assert!(!listens(ends.stdout.take().unwrap(), Duration::from_secs(300)));
        ends.wait().unwrap();
        let mut listening = shell("echo; echo Server listening on 5201").spawn().unwrap();
        assert!(listens(listening.stdout.take().unwrap(), Duration::from_secs(300)));
        listening.wait().unwrap();
    }
}
