//! Ranks with providers of different versions.

use super::harness::{provider, run, scratch, Mpi};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use weft_conformance::skip;

/// The text before the provider's version in its file; see `src/name.rs`.
const MARK: &[u8] = b"weft-fi version ";

/// Returns the folder of a provider of another version than that of [`provider`], for one MPI's
/// tests.
fn other(mpi: Mpi) -> Result<PathBuf, String> {
    let mut bytes = std::fs::read(provider()?.join("libweft-fi.so")).expect("the provider");
    let marks: Vec<usize> =
        (0..bytes.len() - MARK.len()).filter(|&at| bytes[at..].starts_with(MARK)).collect();
    assert!(!marks.is_empty(), "the provider names no version");
    for at in marks {
        bytes[at + MARK.len()] += 1;
    }
    let folder = scratch().join(format!("other-version-{mpi:?}"));
    let fresh = folder.join(format!("fresh-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(&fresh, bytes).expect("the provider, changed");
    std::fs::rename(&fresh, folder.join("libweft-fi.so")).expect("the provider, changed");
    Ok(folder)
}

/// Checks that ranks with different providers end with an error that names the versions.
fn mixed(mpi: Mpi) {
    let job = || -> Result<Command, String> {
        let program = mpi.build("collectives")?;
        let mut command = mpi.launcher(1)?;
        let folder = other(mpi)?;
        command.arg(&program).arg("2").args([":", "-n", "1"]);
        if mpi.is_hydra() {
            command.args(["-env", "FI_PROVIDER_PATH"]).arg(folder);
        } else {
            command.arg("-x").arg(format!("FI_PROVIDER_PATH={}", folder.display()));
        }
        command.arg(&program).arg("2");
        Ok(command)
    };
    let ended = match job() {
        Ok(command) => run(command, Duration::from_secs(60)),
        Err(why) => return skip(&why),
    };
    assert!(ended.in_time, "ranks of mixed versions wait for each other:\n{}", ended.said);
    assert!(!ended.ok, "{}", ended.said);
    let told = ended.said.contains("weft provider of version")
        && ended.said.contains("all ranks need the same weft");
    assert!(told, "{}", ended.said);
}

/// Checks that ranks with different keys end with an error that names the setting.
fn keys(mpi: Mpi) {
    let job = || -> Result<Command, String> {
        let program = mpi.build("collectives")?;
        let mut command = mpi.launcher(1)?;
        let key = "5a".repeat(32);
        command.arg(&program).arg("2").args([":", "-n", "1"]);
        match mpi.is_hydra() {
            true => command.args(["-env", "WEFT_KEY"]).arg(key),
            false => command.arg("-x").arg(format!("WEFT_KEY={key}")),
        };
        command.arg(&program).arg("2");
        Ok(command)
    };
    let ended = match job() {
        Ok(command) => run(command, Duration::from_secs(60)),
        Err(why) => return skip(&why),
    };
    assert!(ended.in_time, "ranks with different keys wait for each other:\n{}", ended.said);
    let told = ended.said.contains("another key: WEFT_KEY has to be the same for all ranks");
    assert!(!ended.ok && told, "{}", ended.said);
}

tests! { keys:
    keys__different_mpich(Mpi::Mpich);
    keys__different_open_mpi(Mpi::Open);
}

tests! { mixed:
    versions__mixed_mpich(Mpi::Mpich);
    versions__mixed_open_mpi(Mpi::Open);
    versions__mixed_system(Mpi::System);
    versions__mixed_intel(Mpi::Intel);
}
