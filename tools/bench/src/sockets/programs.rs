//! Servers that others wrote, and the programs that load them: nginx, memcached and PostgreSQL.

use super::{output, port, Process, Run, Way, START};
use crate::table::Better;
use anyhow::{ensure, Context, Result};
use rustix::process::{getuid, kill_process, Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use weft_run::folder::Folder;

/// Returns the number after a word of a text.
fn number_after(text: &str, word: &str) -> Result<f64> {
    let rest = text.split_once(word).map(|(_, rest)| rest.trim_start());
    let number = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("a number after {word:?} in {text:?}"))
}

/// Returns the configuration of an nginx of one process, which serves the files of its folder.
fn configuration(scratch: &Folder, port: &str) -> Result<String> {
    let here = scratch.file("")?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {here}{name};\n"))
        .concat();
    Ok(format!(
        "daemon off; master_process off; pid {here}pid; error_log {here}log;
         events {{ worker_connections 256; }}
         http {{
             access_log off; keepalive_requests 1000000000; sendfile on; {temporary}
             server {{ listen 127.0.0.1:{port}; root {here}; }}
         }}"
    ))
}

impl Run<'_> {
    /// Requests by 8 connections that are kept.
    pub(super) fn nginx(&mut self) -> Result<()> {
        if !self.has(&["nginx", "wrk"]) {
            return Ok(());
        }
        let scratch = Folder::new()?;
        let sizes = if self.options.quick { &[1 << 10][..] } else { &[1 << 10, 1 << 20] };
        let seconds = if self.options.quick { "1" } else { "3" };
        for &size in sizes {
            std::fs::write(scratch.file("file")?, vec![7; size]).context("writing a file")?;
            let line = ("nginx, keep-alive, 8 connections", size, "1/s", Better::Higher);
            let figures = self.in_turn(line, &[Way::Weft, Way::Tcp], |run, way| {
                let port = port()?;
                let (conf, log) = (scratch.file("conf")?, scratch.file("log")?);
                std::fs::write(&conf, configuration(&scratch, &port)?).context("writing a file")?;
                let _server = run.listening(way, "nginx", &["-c", &conf, "-e", &log], &port)?;
                let address = format!("http://127.0.0.1:{port}/file");
                let words = ["-t", "1", "-c", "8", "-d", seconds, &address];
                let text = output(run.command(way, 0, "wrk", &words)?)?;
                let is_good = !text.contains("Non-2xx") && !text.contains("Socket errors");
                ensure!(is_good, "wrk: {text}");
                number_after(&text, "Requests/sec:")
            })?;
            self.push(line, Way::Weft, &figures, 1.2);
        }
        Ok(())
    }

    pub(super) fn memcached(&mut self) -> Result<()> {
        if !self.has(&["memcached", "memcaslap"]) {
            return Ok(());
        }
        let line = ("memcached, 9 gets a set, 8 clients", 1024, "1/s", Better::Higher);
        let requests = self.iters(200_000);
        let figures = self.in_turn(line, &[Way::Weft, Way::Tcp], |run, way| {
            let port = port()?;
            let words = ["-u", "root", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "1"];
            let _server = run.listening(way, "memcached", &words, &port)?;
            let to = format!("127.0.0.1:{port}");
            let words = ["-s", &to, "-T", "1", "-c", "8", "-x", &requests];
            number_after(&output(run.command(way, 0, "memcaslap", &words)?)?, "TPS:")
        })?;
        self.push(line, Way::Weft, &figures, 1.3);
        Ok(())
    }

    /// Selections of one row each, by one client.
    pub(super) fn postgres(&mut self) -> Result<()> {
        if !self.has(&["pgbench", "setpriv"]) {
            return Ok(());
        }
        let Some(programs) = newest_server() else {
            self.notes.push("left out: PostgreSQL's server is not installed".into());
            return Ok(());
        };
        let postgres = Postgres { scratch: Folder::new()?, programs };
        if let Err(why) = postgres.prepare(self) {
            self.notes.push(format!("left out: PostgreSQL: {why:#}"));
            return Ok(());
        }
        let line = ("pgbench -S, 1 client", 100, "1/s", Better::Higher);
        let requests = self.iters(30_000);
        let paired = self.paired()?;
        let figures = self.in_turn(line, &[Way::Weft, Way::Tcp], |run, way| {
            let (server, port) = postgres.start(run, way)?;
            let words = ["-S", "-n", "-c", "1", "-t", &requests];
            let text = output(postgres.client(run, way, &port, &words)?)?;
            stop(server)?;
            number_after(&text, "tps =")
        })?;
        ensure!(self.paired()? > paired, "PostgreSQL's connections do not share memory");
        self.push(line, Way::Weft, &figures, 1.1);
        Ok(())
    }
}

/// Returns the folder of the programs of the newest server, where Debian has them.
fn newest_server() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").is_file()).max()
}

/// A cluster of databases of PostgreSQL. Its server does not run as root.
struct Postgres {
    scratch: Folder,
    programs: PathBuf,
}

impl Postgres {
    fn command(
        &self,
        run: &Run<'_>,
        (way, end): (Way, usize),
        program: &Path,
        words: &[&str],
    ) -> Result<std::process::Command> {
        let program = program.to_str().context("a path in UTF-8")?;
        let user = ["--reuid=postgres", "--regid=postgres", "--clear-groups", program];
        let mut command = match getuid().is_root() {
            true => run.command(way, end, "setpriv", &[&user[..], words].concat())?,
            false => run.command(way, end, program, words)?,
        };
        // The user postgres may not see the folder of the library.
        command.env("WEFT_SOCKETS_LIBRARY", self.scratch.file("libweft_sockets.so")?);
        command.current_dir(&self.scratch.0);
        Ok(command)
    }

    fn client(
        &self,
        run: &Run<'_>,
        way: Way,
        port: &str,
        words: &[&str],
    ) -> Result<std::process::Command> {
        let words = [&["-h", "127.0.0.1", "-p", port], words, &["postgres"]].concat();
        self.command(run, (way, 0), Path::new("pgbench"), &words)
    }

    /// Makes the cluster and its tables.
    fn prepare(&self, run: &Run<'_>) -> Result<()> {
        let library = crate::names::weft(&["sockets", "library"])?;
        let library = output(library)?;
        std::fs::copy(library.trim(), self.scratch.file("libweft_sockets.so")?)
            .with_context(|| format!("copying {}", library.trim()))?;
        if getuid().is_root() {
            let mut chown = std::process::Command::new("chown");
            chown.arg("postgres").arg(&self.scratch.0);
            output(chown)?;
        }
        let data = self.scratch.file("data")?;
        let words = ["-D", &data, "-A", "trust", "-U", "postgres", "-N"];
        output(self.command(run, (Way::Tcp, 1), &self.programs.join("initdb"), &words)?)?;
        let (server, port) = self.start(run, Way::Tcp)?;
        output(self.client(run, Way::Tcp, &port, &["-i", "-q"])?)?;
        stop(server)
    }

    fn start(&self, run: &Run<'_>, way: Way) -> Result<(Process, String)> {
        let (port, data) = (port()?, self.scratch.file("data")?);
        let words = ["-D", &data, "-p", &port, "-c", "listen_addresses=127.0.0.1"];
        let words = [&words[..], &["-c", "unix_socket_directories=", "-c", "fsync=off"]].concat();
        let mut command = self.command(run, (way, 1), &self.programs.join("postgres"), &words)?;
        let mut server = Process(command.stdout(Stdio::null()).spawn().context("a server")?);
        let end = Instant::now() + START;
        let mut asks = std::process::Command::new("pg_isready");
        asks.args(["-q", "-h", "127.0.0.1", "-p", &port]);
        while !asks.status().context("pg_isready")?.success() {
            ensure!(Instant::now() < end, "PostgreSQL does not answer");
            ensure!(server.0.try_wait()?.is_none(), "PostgreSQL has ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok((server, port))
    }
}

/// Ends a server of PostgreSQL as its administrator does.
fn stop(mut server: Process) -> Result<()> {
    kill_process(Pid::from_child(&server.0), Signal::INT).context("ending PostgreSQL")?;
    server.0.wait().context("the end of PostgreSQL")?;
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn number_after__of_wrk_memcaslap_and_pgbench() {
        let wrk =
            "  10 requests in 1.00s, 13.25MB read\nRequests/sec:  11045.20\nTransfer/sec: 1MB\n";
        assert_eq!(number_after(wrk, "Requests/sec:").unwrap(), 11045.2);
        let memcaslap = "Run time: 0.2s Ops: 20000 TPS: 96213 Net_rate: 107.7M/s\n";
        assert_eq!(number_after(memcaslap, "TPS:").unwrap(), 96213.0);
        let pgbench = "tps = 14312.555 (without initial connection time)\n";
        assert_eq!(number_after(pgbench, "tps =").unwrap(), 14312.555);
        assert!(number_after(pgbench, "TPS:").is_err());
    }
}
