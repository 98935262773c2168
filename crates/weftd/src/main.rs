//! The `weftd` command.
#![deny(unsafe_code)]
#![warn(missing_docs)]

use log::Log;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;
use weft_cluster::desk;
use weft_link::copied::Origin;
use weft_sys::agent::PATIENCE;
use weftd::limit::Limited;
use weftd::options::{Action, Options};
use weftd::{places, rights, status, sys, Agent};

/// The log of this process.
type Logger = Limited<env_logger::Logger>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(options) => options,
        // Help ends with status 0, a wrong command line with 2, as in every command.
        Err(said) => said.exit(),
    };
    let logger = start_log();
    let result = run(options, logger);
    logger.flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weftd: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the log of this process, within its limits.
fn start_log() -> &'static Logger {
    let env = env_logger::Env::default().filter_or("WEFT_LOG", "info");
    let logger = env_logger::Builder::from_env(env).format(line).build();
    let most = logger.filter();
    let logger: &Logger = Box::leak(Box::new(Limited::new(logger)));
    if log::set_logger(logger).is_ok() {
        log::set_max_level(most);
    }
    logger
}

fn line(out: &mut env_logger::fmt::Formatter, record: &log::Record<'_>) -> std::io::Result<()> {
    writeln!(out, "weftd: {}: {}", record.level().as_str().to_lowercase(), record.args())
}

fn run(options: Options, logger: &Logger) -> Result<(), String> {
    let absent = |e: std::io::Error| format!("no agent answers at {}: {e}", options.name);
    match options.action {
        Action::Status => {
            let (text, foreign) = status::status_of_any(&options.name).map_err(absent)?;
            show(&options.name, &text, foreign.as_deref());
        }
        Action::Find => found()?,
        Action::Stop => {
            let (answer, agent) = status::stop(&options.name).map_err(absent)?;
            print!("{answer}");
            if !answer.starts_with(desk::ENDING) {
                return Err(format!("the agent at {} goes on", options.name));
            }
            sys::await_end(agent.pid.unsigned_abs(), PATIENCE);
            places::remove_sockets(&options.name);
        }
        Action::Serve => return serve(options, logger),
    }
    Ok(())
}

/// Tells that no program of this user believes the agent at a name: any user may take an abstract
/// name first.
fn no_agent(name: &str, why: &str) -> String {
    format!("the process at {name} is no agent of root's or of this user's: {why}")
}

/// Prints the status of the first agent among those that ranks look for.
///
/// # Errors
/// None answers; the error names the places.
fn found() -> Result<(), String> {
    let names = weft_agent::usual_names();
    for name in &names {
        if let Ok((text, foreign)) = status::status_of_any(name) {
            show(name, &text, foreign.as_deref());
            return Ok(());
        }
    }
    Err(format!("no agent answers at {}", names.join(", ")))
}

/// Prints the status of an agent, and the reason why no program of this user believes it.
fn show(name: &str, text: &str, foreign: Option<&str>) {
    print!("{text}");
    if let Some(why) = foreign {
        eprintln!("weftd: {}", no_agent(name, why));
    }
}

fn serve(options: Options, logger: &Logger) -> Result<(), String> {
    if let Ok((text, foreign)) = status::status_of_any(&options.name) {
        if let Some(why) = foreign.map(|why| no_agent(&options.name, &why)) {
            return Err(format!("{why}; serve elsewhere: weftd --name PATH, and WEFT_AGENT=PATH"));
        }
        let of = |key: &str| {
            let value = |l: &str| l.strip_prefix(key).map(|v| v.trim().to_string());
            text.lines().find_map(value).unwrap_or_default()
        };
        return Err(format!(
            "an agent serves at {} already: process {}, {}, {} ranks attached; `weftd --name {} \
             --stop` ends it once they have left",
            options.name,
            of("process "),
            text.lines().next().unwrap_or("weftd"),
            of("ranks "),
            options.name,
        ));
    }
    if options.once {
        sys::end_with_parent();
    }
    let (name, user) = (options.name.clone(), options.user.clone());
    let mut agent = Agent::open(options).map_err(|e| e.to_string())?;
    let left = rights::give_up(user.as_deref()).map_err(|e| format!("giving up rights: {e}"))?;
    sys::catch_ends().map_err(|e| format!("catching signals: {e}"))?;
    let raw = agent.raw_sockets();
    println!("weftd: serving at {name}, {raw} sessions with raw sockets, as {left}");
    let _ = std::io::stdout().flush();
    notify("READY=1");
    let mut ends = 0;
    let origin = Origin::here();
    while !agent.is_done() {
        if !origin.is_here() {
            return Err(
                "this machine is a clone: its ranks and their keys are the original's".into()
            );
        }
        agent.step();
        logger.tell(Instant::now());
        let asked = sys::ends();
        if asked > 1 && agent.ranks() > 0 {
            return Err(format!("ended with {} ranks attached", agent.ranks()));
        }
        if asked != ends {
            ends = asked;
            notify("STOPPING=1");
            agent.drain();
            if agent.ranks() > 0 {
                let ranks = agent.ranks();
                log::warn!("ending when {ranks} ranks have left; a second signal ends it at once");
            }
        }
    }
    agent.leave();
    drop(agent);
    // If this user may not remove them, `weftd --stop` does, or the next agent.
    places::remove_sockets(&name);
    Ok(())
}

/// Notifies the service manager, if there is one (sd_notify(3)).
fn notify(state: &str) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else { return };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        // Without this message the manager reports a timeout.
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
