//! The MPIs of this machine that can run on weft, and the command for each.

use super::{Check, Verdict};
use serde::Serialize;
use std::path::PathBuf;
use weft::launch::keyfile::{self, KeyError};
use weft_run::mpi::detect::{self, Mpi, GET_ONE};
use weft_run::mpi::judge::{self, Fit, Found};

/// Facts about an MPI, for programs.
#[derive(Debug, Serialize)]
pub struct Details {
    #[serde(flatten)]
    mpi: Mpi,
    /// The library's file.
    library: Option<PathBuf>,
    /// The libfabric that it loads, and its version.
    libfabric: Option<PathBuf>,
    libfabric_version: Option<String>,
    /// True if it can use weft; absent if that is unknown.
    usable: Option<bool>,
    /// The command that runs a program.
    command: Option<String>,
}

/// Runs all checks; also returns true if an MPI was seen to work with weft.
pub fn checks() -> (Vec<Check>, bool) {
    let provider = judge::provider();
    let (all, odd) = detect::all();
    let mut checks = vec![provider_check(&provider)];
    checks.extend(all.iter().enumerate().map(|(at, mpi)| one(mpi, at == 0, &provider)));
    for why in odd {
        checks.push(Check::warn("MPI", why, "nothing, if you do not use it"));
    }
    let works = checks.iter().any(|c| c.mpi.as_ref().is_some_and(|m| m.usable == Some(true)));
    let doubtful = checks.iter().any(|c| c.mpi.as_ref().is_some_and(|m| m.usable.is_none()));
    if all.is_empty() {
        checks.push(Check::warn("MPI", "none was found: MPI programs need one", GET_ONE));
    } else if !works && !doubtful {
        let remedy = format!("see above; {GET_ONE}");
        // A machine may have MPIs that nobody uses with weft.
        checks.push(Check::warn("MPI", "no MPI of this machine can use weft", remedy));
    }
    checks.push(key());
    (checks, works)
}

fn provider_check(provider: &Found) -> Check {
    match provider {
        Ok(found) => Check::ok("provider", found.file.display().to_string()),
        Err(fault) => Check::warn("provider", fault.why.clone(), fault.remedy.clone()),
    }
}

/// Returns the command that runs a program with this MPI; the default MPI needs no name.
fn command(mpi: &Mpi, first: bool) -> String {
    match first {
        true => "weft mpi -n 4 ./a.out".into(),
        false => format!("weft mpi --mpi {} -n 4 ./a.out", mpi.launcher.display()),
    }
}

fn one(mpi: &Mpi, first: bool, provider: &Found) -> Check {
    let (fit, seen) = judge::fit(mpi, provider);
    let version = seen.libfabric.as_ref().map(|f| format!("{}.{}", f.version.0, f.version.1));
    let fabric = match (&seen.libfabric, &version) {
        (Some(fabric), Some(version)) => {
            format!(", {} libfabric {version}", judge::origin(mpi, fabric))
        }
        _ => String::new(),
    };
    let what = format!("({}{fabric})", mpi.launcher.display());
    let (verdict, finding, remedy, usable) = match fit {
        Fit::Yes => (Verdict::Ok, format!("can use weft {what}"), command(mpi, first), Some(true)),
        Fit::Unknown(fault) => {
            (Verdict::Warn, format!("may use weft {what}: {}", fault.why), fault.remedy, None)
        }
        Fit::No(fault) => {
            let same = provider.as_ref().is_err_and(|provider| *provider == fault);
            let why = if same { "the provider is missing" } else { fault.why.as_str() };
            let finding = format!("cannot use weft {what}: {why}");
            (Verdict::Warn, finding, fault.remedy, Some(false))
        }
    };
    let details = Details {
        mpi: mpi.clone(),
        library: mpi.library(),
        libfabric: seen.libfabric.map(|f| f.path),
        libfabric_version: version,
        usable,
        command: (usable == Some(true)).then(|| command(mpi, first)),
    };
    let finding = format!("{mpi} {finding}");
    Check { verdict, topic: "MPI", finding, remedy: Some(remedy), mpi: Some(Box::new(details)) }
}

/// Checks the key of programs that weft does not launch.
fn key() -> Check {
    let topic = "MPI key";
    match keyfile::from_env() {
        Ok(Some(_)) => return Check::ok(topic, format!("{} holds one", keyfile::VARIABLE)),
        Err(error) => return Check::fail(topic, error.to_string(), "correct or unset it"),
        Ok(None) => {}
    }
    let loaded = keyfile::path().and_then(|path| keyfile::load(&path).map(|_| path));
    match loaded {
        Ok(path) => Check::ok(topic, format!("{} is for this user alone", path.display())),
        Err(KeyError::Missing(path)) => {
            Check::ok(topic, format!("none yet; {} is made when it is needed", path.display()))
        }
        Err(error) => {
            Check::fail(topic, error.to_string(), "programs under mpiexec need it between hosts")
        }
    }
}
