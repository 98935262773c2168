//! Launchers, rights and settings.

use super::host::read;
use super::Check;
use std::path::PathBuf;
use weft::launch::{detect, Launcher};
use weft::{settings, JobError};
use weft_core::config::{Key, Table};
use weft_lab::client::{plan, Attached};
use weft_lab::spec::Conditions;
use weft_packets::Settings;

/// Runs all checks.
pub fn checks() -> Vec<Check> {
    let mut checks = vec![launcher(), launchers(), rights(), lab()];
    checks.push(configuration());
    checks.extend(old_variables());
    checks
}

/// Reports the launcher that a rank in this place would find.
fn launcher() -> Check {
    let lookup = |name: &str| std::env::var(name).ok();
    let topic = "started by";
    match detect(&lookup) {
        Ok(Launcher::Singleton) => {
            Check::ok(topic, "no launcher: a program started like this is a job of one rank")
        }
        Ok(other) => Check::ok(topic, format!("a launcher: {other:?}")),
        Err(error) => {
            Check::warn(topic, error.to_string(), "unset these variables, or use weft run")
        }
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn launchers() -> Check {
    let known = ["mpiexec", "mpirun", "prterun", "srun"];
    let found: Vec<&str> = known.into_iter().filter(|name| on_path(name).is_some()).collect();
    let finding = match found.is_empty() {
        true => "weft run; no other on PATH, and none is needed".to_string(),
        false => format!("weft run; on PATH: {}", found.join(", ")),
    };
    let ssh = if on_path("ssh").is_some() { "" } else { "; no ssh: one host only" };
    Check::ok("launchers", format!("{finding}{ssh}"))
}

/// Checks if a lab can be made: makes one and ends it. Its loss needs `tc` beside `ip`.
fn lab() -> Check {
    let name = format!("doctor-{}", std::process::id());
    let conditions = Conditions { mtu: 1500, loss: Some(0.0), ..Conditions::default() };
    let made = plan(&name, 2, &conditions).and_then(|spec| Attached::start(&spec));
    let Err(error) = made else {
        return Check::ok("lab", "can be made: weft lab, tune, and bench between two hosts");
    };
    let why = format!("{error:#}");
    let why = why.strip_prefix(&format!("lab {name}: ")).unwrap_or(&why);
    Check::warn(
        "lab",
        why,
        "follow the message to use weft lab, and tune and bench between hosts; jobs need no lab",
    )
}

/// Number of CAP_NET_RAW (linux/capability.h).
const NET_RAW: u32 = 13;

fn rights() -> Check {
    let status = read("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let has = effective >> NET_RAW & 1 == 1;
    let finding = if has { "CAP_NET_RAW is here" } else { "no CAP_NET_RAW" };
    Check::ok("rights", format!("{finding}; only the links packet, gso and xdp need it"))
}

/// Returns the settings of a table that are not as usual.
fn differences<T: Table>(table: &T, usual: &T) -> Vec<String> {
    let differs = |key: &&Key| table.get(key.name) != usual.get(key.name);
    let shown = |key: &Key| format!("{}={}", key.name, table.get(key.name).unwrap_or_default());
    T::KEYS.iter().filter(differs).map(shown).collect()
}

/// Names the variables of MX and Open-MX that mean nothing, if there are any of them.
fn old_variables() -> Option<Check> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let found = weft_ffi::mx::meaningless(names);
    let finding = format!("programs of MX ignore {}", found.join(", "));
    let honoured: Vec<&str> = weft_ffi::mx::HONOURED.iter().map(|variable| variable.name).collect();
    let remedy = format!("unset them; these count: {}", honoured.join(", "));
    (!found.is_empty()).then(|| Check::warn("MX", finding, remedy))
}

fn configuration() -> Check {
    let topic = "configuration";
    let read = || {
        settings::check()?;
        Ok::<_, JobError>((weft::job::config_from_env()?, Settings::from_env()?))
    };
    let (config, packets) = match read() {
        Ok(both) => both,
        Err(error) => return Check::fail(topic, error.to_string(), "correct or unset it"),
    };
    let unknown = settings::unknown();
    if !unknown.is_empty() {
        return Check::warn(
            topic,
            format!("nothing reads {}", unknown.join(", ")),
            "correct the name (`weft info --config` lists all) or unset it",
        );
    }
    if std::env::var("WEFT_SECURITY").as_deref() == Ok("none") {
        return Check::warn(
            topic,
            "WEFT_SECURITY=none: anyone on the network can forge frames",
            "unset WEFT_SECURITY",
        );
    }
    let usual = settings::usual();
    let mut changed = differences(&config, &usual);
    changed.extend(differences(&packets, &Settings::default()));
    let shown = |v: &&settings::Variable| !v.secret && std::env::var_os(v.name).is_some();
    changed.extend(settings::VARIABLES.iter().filter(shown).map(|v| {
        let value = std::env::var_os(v.name).unwrap_or_default();
        format!("{}={}", v.name, value.to_string_lossy())
    }));
    match changed.is_empty() {
        true => Check::ok(topic, "all defaults"),
        false => Check::ok(topic, format!("set: {}", changed.join(", "))),
    }
}
