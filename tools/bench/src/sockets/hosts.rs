//! Programs over sockets on two hosts of a lab, which have no agents.

use super::{iperf3, output, words_of, Line, Process, Run, Way};
use crate::names::cluster::Hosts;
use crate::names::own;
use crate::pair::core;
use crate::table::Better;
use anyhow::{Context, Result};
use std::process::Command;

/// Name of an agent that is not there.
const NOBODY: &str = "@weft-bench-nobody";

/// Two hosts: 0 has the clients, 1 the servers.
struct Two {
    hosts: Hosts,
}

impl Two {
    fn start() -> Result<Two> {
        Ok(Two { hosts: Hosts::joined()? })
    }

    fn command(&self, way: Way, end: usize, program: &str, words: &[&str]) -> Result<Command> {
        let mut command = words_of(way, NOBODY, core(end), program, words)?;
        self.hosts.place(end, &mut command);
        Ok(command)
    }

    fn own(&self, way: Way, end: usize, words: &[&str]) -> Result<Command> {
        let program = own(&[])?.get_program().to_str().context("this program's path")?.to_string();
        let to = self.hosts.address(1);
        self.command(way, end, &program, &[&["bench-sockets"], words, &["--host", &to]].concat())
    }

    /// Starts a server of our own; returns it and its port.
    fn serve(&self, way: Way, role: &str) -> Result<(Process, String)> {
        Process::serving(self.own(way, 1, &[role, "0"])?)
    }
}

/// Measures requests and answers, and a stream.
pub(super) fn measure(run: &mut Run<'_>) -> Result<()> {
    let two = match Two::start() {
        Ok(two) => two,
        Err(why) => {
            run.notes.push(format!("left out: between two hosts of a lab: {why:#}"));
            return Ok(());
        }
    };
    for size in [64, 4096, 16_384] {
        let line: Line = ("between two lab hosts, one way", size, "us", Better::Lower);
        let (size, iters) = (size.to_string(), run.iters(50_000));
        let figures = run.in_turn(line, &[Way::Weft, Way::Tcp], |_, way| {
            let (_server, port) = two.serve(way, "echo")?;
            let words = ["ask", &port, "--size", &size, "--iters", &iters];
            output(two.own(way, 0, &words)?)?.trim().parse().context("a figure")
        })?;
        run.push(line, Way::Weft, &figures, 0.6);
    }
    if run.has(&["iperf3"]) {
        let line: Line = ("between two lab hosts, iperf3", 128 << 10, "GB/s", Better::Higher);
        let bytes = if run.options.quick { "20M" } else { "8G" };
        let figures = run.in_turn(line, &[Way::Weft, Way::Tcp], |_, way| {
            let to = two.hosts.address(1);
            iperf3((way, &to), ("5201", bytes), |end, words| two.command(way, end, "iperf3", words))
        })?;
        run.push(line, Way::Weft, &figures, 1.2);
    }
    Ok(())
}
