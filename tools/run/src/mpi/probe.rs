//! Probing an MPI's library, its libfabric and the provider in a process of its own, so that a
//! crash or hang there affects no other process.

use super::detect::Mpi;
use super::provider::Provider;
use super::sys::{leave, Library};
use super::variables::{variables, Choice, PROVIDER};
use crate::limited::output_within;
use crate::program;
use anyhow::{anyhow, bail, Result};
use serde::{Deserialize, Serialize};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Version that the provider must have.
const OURS: &str = env!("CARGO_PKG_VERSION");
/// Longest time of one probe.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Probe libraries for `weft doctor`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Libraries of an MPI, to be loaded in this order
    #[arg(long, value_name = "FILE")]
    library: Vec<PathBuf>,
    /// A libfabric provider
    #[arg(long, value_name = "FILE")]
    provider: Option<PathBuf>,
}

/// A libfabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Libfabric {
    /// Its file.
    pub path: PathBuf,
    /// Major and minor version.
    pub version: (u32, u32),
}

/// Result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Version text that the MPI library reports.
    pub library: Option<String>,
    /// The libfabric that the MPI library loads.
    pub libfabric: Option<Libfabric>,
    /// Name and version of the providers that this libfabric offers when asked for weft.
    pub providers: Vec<(String, (u32, u32))>,
    /// Name of the provider in the file, and its version of weft; `None` for other providers.
    pub provider: Option<(String, Option<String>)>,
    /// Reason why part of the result is missing.
    pub error: Option<String>,
}

/// Unpacks a number made by `FI_VERSION`.
fn unpack(version: u32) -> (u32, u32) {
    (version >> 16, version & 0xffff)
}

/// Returns the file of a library that is mapped into this process.
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let is = |path: &&Path| {
        path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(name))
    };
    files.into_iter().find(is).map(Path::to_path_buf)
}

fn look(args: &Args) -> Seen {
    let mut seen = Seen::default();
    for file in &args.library {
        match Library::open(file, false) {
            Ok(library) => seen.library = seen.library.or_else(|| library.mpi_version()),
            Err(why) => seen.error = Some(why),
        }
    }
    let fabric = (!args.library.is_empty()).then(|| mapped("libfabric.so")).flatten();
    if let Some((path, fabric)) =
        fabric.and_then(|p| Some((p.clone(), Library::open(&p, false).ok()?)))
    {
        let version = unpack(fabric.libfabric_version().unwrap_or(0));
        seen.libfabric = Some(Libfabric { path, version });
        if let Ok(found) = fabric.providers() {
            seen.providers = found.into_iter().map(|(n, v)| (n, unpack(v))).collect();
        }
    }
    if let Some(file) = &args.provider {
        match Library::open(file, true).map(Library::provider) {
            Ok(Some(found)) => seen.provider = Some(found),
            Ok(None) => seen.error = Some("it is no libfabric provider (no fi_prov_ini)".into()),
            Err(why) => seen.error = Some(why),
        }
    }
    seen
}

/// Runs the subcommand: prints the result as one JSON object, after any output of the libraries.
pub fn run(args: &Args) -> Result<ExitCode> {
    println!("\n{}", serde_json::to_string(&look(args))?);
    leave()
}

/// Runs the subcommand in another process and reads its result.
fn ask(arguments: &[(&str, &Path)], env: &[(String, String)]) -> Result<Seen> {
    let mut command = Command::new(program::weft()?);
    // Some libraries write a file into the current folder when they crash.
    command.arg("mpi-probe").current_dir(std::env::temp_dir());
    for (option, file) in arguments {
        command.arg(option).arg(file);
    }
    command.envs(env.iter().map(|(name, value)| (name, value)));
    let output = output_within(command, TIMEOUT)?;
    if let Some(signal) = output.status.signal() {
        bail!("it crashes when it is loaded (signal {signal})");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    // Some libraries catch the signals of a crash and exit.
    serde_json::from_str(last).map_err(|_| anyhow!("it ends the process that loads it"))
}

/// Probes the libraries that programs of this MPI load, with the provider if there is one.
///
/// # Errors
/// The libraries cannot be loaded without a crash or a hang.
pub fn mpi(mpi: &Mpi, library: &Path, provider: Option<&Provider>) -> Result<Seen> {
    let plugin = mpi.plugin();
    let files: Vec<(&str, &Path)> =
        [library].into_iter().chain(plugin.as_deref()).map(|file| ("--library", file)).collect();
    let folder = provider.map_or(Path::new("/"), |p| p.folder.as_path());
    ask(&files, &variables(mpi.family, folder, &Choice::default()))
}

/// Returns the fault of the provider file, if it has one. Files that cannot be loaded, and those of
/// other libraries or of another version of weft, are refused.
pub fn provider_fault(provider: &Provider) -> Option<String> {
    let seen = match ask(&[("--provider", &provider.file)], &[]) {
        Ok(seen) => seen,
        Err(why) => return Some(format!("{why:#}")),
    };
    let Some((name, version)) = seen.provider else {
        return Some(seen.error.unwrap_or_else(|| "it cannot be loaded".into()));
    };
    match version {
        Some(version) if name == PROVIDER && version == OURS => None,
        Some(version) if name == PROVIDER => Some(format!(
            "it is of weft {version}, this is weft {OURS}: ranks of both would not understand \
             each other"
        )),
        _ => Some(format!("it is the provider {name:?}, not weft's")),
    }
}
