//! The agents that this command starts and asks.

use anyhow::{bail, ensure, Context, Result};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Variable that has the proxy of a host start an agent for its ranks.
pub const START: &str = "WEFT_RUN_AGENT";
/// Variable that names the agent's socket.
pub const NAME: &str = "WEFT_AGENT";

/// `weftd` beside this program, else the one in `PATH`.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join("weftd")));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("weftd"))
}

/// A name that no other agent of this host has.
pub fn fresh_name() -> String {
    format!("@weft-agent-{:016x}", weft_link::random_u64())
}

/// The command that starts an agent that ends with its last rank, with counters in the kernel or
/// not.
pub fn command(name: &str, kernel: bool) -> Command {
    let mut command = lasting(name);
    command.arg("--once").args(kernel.then_some("--kernel"));
    command
}

/// The command that starts an agent that ends when it is told to.
pub fn lasting(name: &str) -> Command {
    let mut command = Command::new(program());
    command.args(["--name", name, "--user", ""]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Waits until a started agent says that it serves; what it said.
///
/// # Errors
/// It ended instead; its own words went to standard error.
pub fn await_ready(agent: &mut Child) -> Result<String> {
    let out = agent.stdout.take().context("the agent's output is not a pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).context("reading what the agent says")?;
    ensure!(!line.is_empty(), "weftd ended at once");
    Ok(line.trim().to_string())
}

/// Starts the agent of a host for the ranks of a job, if their environment asks for one. The ranks
/// do without when it fails.
pub fn start_for(env: &[(String, String)]) {
    let value = |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let (Some("1"), Some(name)) = (value(START), value(NAME)) else { return };
    let kernel = value("WEFT_FETCH_ADD").is_some_and(|server| server.contains("kernel"));
    if let Err(why) = start(name, kernel) {
        eprintln!("weft run: no agent on this host: {why:#}; its ranks do without");
    }
}

fn start(name: &str, kernel: bool) -> Result<()> {
    let program = program();
    let show = program.display();
    let mut agent = match command(name, kernel).spawn() {
        Ok(agent) => agent,
        Err(e) => bail!("starting {show}: {e} (install weftd beside weft)"),
    };
    let said = await_ready(&mut agent)?;
    log::debug!("{said}");
    Ok(())
}

/// What the agents say that serve at the usual places, or at the one of `WEFT_AGENT`: name, and
/// each line as name and value.
pub fn serving() -> Vec<(String, Vec<(String, String)>)> {
    let names = weft::job::agent_from_env().names;
    let lines = |text: String| {
        let pair = |l: &str| l.split_once(' ').map(|(n, v)| (n.to_string(), v.to_string()));
        text.lines().filter_map(pair).collect()
    };
    let ask = |name: String| Some((name.clone(), lines(weftd::status::status(&name).ok()?)));
    names.into_iter().filter_map(ask).collect()
}
