//! `weft sockets`: unmodified socket programs over weft.

use anyhow::{bail, Context, Result};
use clap::Subcommand;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use weft_run::lists::program::{self, Program};
use weft_run::lists::{self, List, Shown, State};

/// File name of the library that programs load.
const NAME: &str = "libweft-sockets.so";
/// File name that the build gives it.
const BUILT: &str = "libweft_sockets.so";
/// Name of the variable with another path.
const VARIABLE: &str = "WEFT_SOCKETS_LIBRARY";

/// Run unmodified socket programs: by memory inside a host, with fewer wake-ups between hosts
///
/// TCP connections inside a host share memory if both ends are started so and the host has an agent
/// (`weftd`); all others are the kernel's TCP. A program that waits for another host looks for
/// bytes for a moment before it sleeps; the other end, and agents, need not do anything for that.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  weftd &
  weft sockets run redis-server --port 7000 &
  weft sockets run redis-benchmark -p 7000 -t get,set
  weft sockets status                        in memory, or why not
  weft sockets run --policy :6379 redis-cli  only this port
  weft sockets off 1234                      process 1234 uses TCP
  WEFT_SOCKETS=0 weft sockets run PROGRAM    the same without weft")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Run a program with the library
    ///
    /// The program takes this process over. Its children have the library too.
    Run(Run),
    /// Print the library's path, for LD_PRELOAD
    Library,
    /// Show what the agent of this host did for socket programs, and their connections
    Status,
    /// Have programs that run go on by TCP
    Off(Which),
    /// Let programs that were turned off use weft again
    On(Which),
}

#[derive(Debug, clap::Args)]
struct Which {
    /// Processes [default: all of this user; of root: of all users]
    process: Vec<u64>,
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Calls on a connection, once bytes have gone both ways, after which its other end is looked
    /// for [8]
    #[arg(long, value_name = "N", env = "WEFT_SOCKETS_AFTER")]
    after: Option<u32>,
    /// Longest time for which a call looks for bytes before it sleeps; 0: it sleeps at once [20]
    #[arg(long, value_name = "US", env = "WEFT_SOCKETS_SPIN_US")]
    spin_us: Option<u32>,
    /// Most connections of a process that share memory, 64 KiB each [1024]
    #[arg(long, value_name = "N", env = "WEFT_SOCKETS_CONNECTIONS")]
    connections: Option<u32>,
    /// Connections that may share memory, by addresses and ports of either end; the first rule
    /// that fits decides, `!` leaves it to TCP: `:6379,:7000-7100`, `!10.1.0.0/16`,
    /// `[fd00::]/8:80` [all]
    #[arg(long, value_name = "RULES", env = "WEFT_SOCKETS_POLICY")]
    policy: Option<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    program: Vec<OsString>,
}

/// Runs `weft sockets`.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.action {
        Action::Run(args) => start(args),
        Action::Library => {
            println!("{}", library()?.display());
            Ok(ExitCode::SUCCESS)
        }
        Action::Status => status(),
        Action::Off(which) => turn(which, true),
        Action::On(which) => turn(which, false),
    }
}

/// Finds the library: the file in `WEFT_SOCKETS_LIBRARY`, else one beside this program, in
/// `../lib/weft`, or just built beside this program.
fn library() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        let named = PathBuf::from(named);
        if !named.is_file() {
            bail!("{VARIABLE}: there is no file {}; unset it or correct it", named.display());
        }
        return Ok(named.canonicalize()?);
    }
    let program = std::env::current_exe().context("finding this program's path")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let up = beside.parent().unwrap_or(beside);
    let places = [beside.join(NAME), up.join("lib/weft").join(NAME), beside.join(BUILT)];
    let Some(file) = places.iter().find(|file| file.is_file()) else {
        let list: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        bail!(
            "the library {NAME} is not there (looked for {}); in the sources `cargo build \
             --release -p weft-preload` makes it; {VARIABLE}=FILE names it elsewhere",
            list.join(", ")
        );
    };
    Ok(file.clone())
}

/// Names of agents, the first that answers first.
fn agents() -> Vec<String> {
    match std::env::var("WEFT_AGENT").ok().filter(|name| !name.is_empty()) {
        Some(name) => vec![name],
        None => weft_agent::usual_names(),
    }
}

/// Says for `weft doctor` if socket programs of this host can share memory.
///
/// # Errors
/// The agent does not serve them, though it answers.
pub fn finding() -> Result<String> {
    let library = match library() {
        Ok(library) => library,
        Err(_) if std::env::var_os(VARIABLE).is_none_or(|named| named.is_empty()) => {
            return Ok("the library of `weft sockets run` is not installed here".into());
        }
        Err(error) => return Err(error),
    };
    let library = library.display();
    let answers =
        |name: &String| weft_cluster::desk::status(name).ok().map(|text| (name.clone(), text));
    let Some((name, text)) = agents().iter().find_map(answers) else {
        return Ok(format!("{library}; no agent answers: their connections stay TCP"));
    };
    let programs = lists::programs(&name).with_context(|| {
        format!("the agent at {name} answers, but not socket programs, at {name}-sockets")
    })?;
    let joined = text.lines().find_map(|line| line.strip_prefix("sockets_paired "));
    let (programs, joined) = (programs.len(), joined.unwrap_or("no"));
    Ok(format!("{library}; the agent has {programs} programs, and has joined {joined} connections"))
}

fn start(args: &Run) -> Result<ExitCode> {
    let library = library()?;
    let mut preload = library.clone().into_os_string();
    if preload.as_encoded_bytes().iter().any(|b| b" :".contains(b)) {
        bail!("{}: the loader takes no path with a space or a colon", library.display());
    }
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        // The address sanitizer ends programs in which it is not the first one.
        let [first, next] = match program::has_sanitizer(others.as_encoded_bytes()) {
            true => [others, preload],
            false => [preload, others],
        };
        preload = first;
        preload.push(":");
        preload.push(next);
    }
    let (program, rest) = args.program.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(rest);
    match target(program).and_then(|kind| Some((kind, kind.why()?))) {
        // A static program reads no such variable, but programs that it starts may.
        Some((Program::Static, why)) => {
            say_without(program, why);
            command.env("LD_PRELOAD", preload);
        }
        Some((_, why)) => say_without(program, why),
        None => _ = command.env("LD_PRELOAD", preload),
    }
    for (name, value) in [
        ("WEFT_SOCKETS_AFTER", args.after),
        ("WEFT_SOCKETS_SPIN_US", args.spin_us),
        ("WEFT_SOCKETS_CONNECTIONS", args.connections),
    ] {
        if let Some(value) = value {
            command.env(name, value.to_string());
        }
    }
    if let Some(policy) = &args.policy {
        if let Err(rule) = lists::Policy::parse(policy) {
            bail!(
                "--policy: {rule:?} is no rule, or one too many: ADDRESS, ADDRESS/BITS, :PORT or \
                 ADDRESS:PORT-PORT, addresses of IPv6 in brackets, `!` before it to deny"
            );
        }
        command.env("WEFT_SOCKETS_POLICY", policy);
    }
    for (name, most) in NUMBERS {
        let value = std::env::var(name).unwrap_or_default();
        if !value.is_empty() && value.parse::<u32>().map_or(true, |value| value > most) {
            bail!("{name}: {value:?} is no number from 0 to {most}");
        }
    }
    // One that is stopped, or busy, is not waited for.
    if !agents().iter().any(|name| weft_cluster::desk::serves(name)) {
        eprintln!(
            "weft sockets: no agent serves at {}: connections inside this host stay TCP until one \
             is started (`weftd`)",
            agents().join(", ")
        );
    }
    let why = command.exec();
    eprintln!("weft sockets: running {}: {why}", Path::new(program).display());
    // Shells and env(1) end with these codes.
    Ok(ExitCode::from(if why.kind() == ErrorKind::NotFound { 127 } else { 126 }))
}

/// Says that a program does not use weft.
fn say_without(program: &OsString, why: &str) {
    let name = Path::new(program).display();
    eprintln!("weft sockets: {name} runs without weft: {why}; all its connections are TCP");
}

/// Scripts whose interpreter is a script, at most.
const SCRIPTS: usize = 4;

/// Looks at the file of a program that is named as for a shell.
fn target(program: &OsString) -> Option<Program> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join(program));
    let mut file =
        if is_path { program.into() } else { places.find(|place: &PathBuf| place.is_file())? };
    for _ in 0..SCRIPTS {
        let open = std::fs::File::open(&file).ok()?;
        match program::look(|at, to| read_at(&open, at, to)) {
            Program::Script(name) => file = OsStr::from_bytes(name.bytes()).into(),
            found => return Some(found),
        }
    }
    None
}

/// Fills a buffer from this place of a file on; returns the number of bytes, less at the end.
fn read_at(file: &std::fs::File, at: u64, to: &mut [u8]) -> usize {
    let mut len = 0;
    while let Ok(n @ 1..) = file.read_at(&mut to[len..], at + len as u64) {
        len += n;
    }
    len
}

/// Variables that have no option, and the largest number of each.
const NUMBERS: [(&str, u32); 1] = [("WEFT_SOCKETS", 1)];

/// Counters of the agent, and the meaning of each.
const COUNTERS: [(&str, &str); 5] = [
    ("sockets_programs", "programs"),
    ("sockets_asked", "ends that asked for their other end"),
    ("sockets_paired", "connections joined"),
    ("sockets_refused", "ends refused"),
    ("sockets_asking", "ends that wait for their other end"),
];

fn status() -> Result<ExitCode> {
    let names = agents();
    let Some((name, text)) =
        names.iter().find_map(|name| Some((name, weft_cluster::desk::status(name).ok()?)))
    else {
        bail!("no agent answers at {}; start one: `weftd`", names.join(", "));
    };
    println!("agent at {name}");
    for (counter, meaning) in COUNTERS {
        let value = text.lines().find_map(|line| line.strip_prefix(counter)?.strip_prefix(' '));
        let Some(value) = value else {
            bail!("the agent at {name} is of a version without socket programs");
        };
        println!("{value:>10}  {meaning}");
    }
    for program in lists::programs(name).with_context(|| format!("the agent at {name}"))? {
        let List { is_off, spun, connections } = program.shows;
        let off = if is_off { ", turned off" } else { "" };
        println!("\nprocess {}{off}", program.process);
        if spun > 0 {
            println!("  {spun} waits for other hosts ended by a spin, without a sleep");
        }
        for one in &connections {
            let state = match &one.state {
                State::Shares | State::Asks if is_off => "TCP: turned off".to_string(),
                State::Shares => "in memory".to_string(),
                State::Asks | State::Stays(_) if one.spins && !is_off => {
                    "TCP to another host; waits spin before they sleep".to_string()
                }
                State::Asks => "TCP: its other end does not ask".to_string(),
                State::Stays(why) => format!("TCP: {why}"),
            };
            let Shown { local, remote, received, sent, .. } = one;
            println!("  {local} to {remote}: {state}");
            if received + sent > 0 {
                println!("    by memory: {received} bytes received, {sent} sent");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Turns the use of weft off, or on again, in programs that run.
fn turn(which: &Which, off: bool) -> Result<ExitCode> {
    let names = agents();
    let Some(programs) = names.iter().find_map(|name| lists::programs(name).ok()) else {
        bail!("no agent answers at {}; start one: `weftd`", names.join(", "));
    };
    let missing = which.process.iter().find(|&&at| programs.iter().all(|one| one.process != at));
    if let Some(missing) = missing {
        bail!("no socket program {missing} is known to the agent (`weft sockets status`)");
    }
    let wanted = |at: u64| which.process.is_empty() || which.process.contains(&at);
    for program in programs.iter().filter(|one| wanted(one.process)) {
        program.turn(off).with_context(|| format!("process {}", program.process))?;
        println!("process {}: {}", program.process, if off { "off" } else { "on" });
    }
    Ok(ExitCode::SUCCESS)
}
