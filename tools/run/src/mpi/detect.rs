//! The MPIs of this machine.

use crate::limited::output_within;
use anyhow::{bail, Context, Result};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Families of MPIs; each needs other variables or options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// MPICH and other MPIs started by its launcher Hydra.
    Mpich,
    /// Open MPI 4 and older: its own launcher (ORTE).
    OpenMpi4,
    /// Open MPI from 5 on, launched by PRRTE.
    OpenMpi5,
    /// Intel MPI.
    Intel,
}

impl Family {
    /// True for an Open MPI.
    pub fn is_open_mpi(self) -> bool {
        matches!(self, Family::OpenMpi4 | Family::OpenMpi5)
    }

    /// Returns the file names of its library.
    pub fn libraries(self) -> &'static [&'static str] {
        match self {
            // MPICH and Intel MPI have the same binary interface.
            Family::Mpich | Family::Intel => &["libmpi.so.12", "libmpich.so.12"],
            Family::OpenMpi4 | Family::OpenMpi5 => &["libmpi.so.40", "libmpi.so.80"],
        }
    }

    /// True if programs linked with a library of this file name are programs of this MPI.
    pub fn runs(self, library: &str) -> bool {
        // Full names have more numbers at the end: libmpi.so.40.30.4.
        let of = |name: &&str| library.strip_prefix(*name).is_some_and(|r| !starts_digit(r));
        let known = [Family::Mpich, Family::OpenMpi5].iter().any(|f| f.libraries().iter().any(of));
        !known || self.libraries().iter().any(of)
    }
}

fn starts_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Mpich => "MPICH",
            Family::OpenMpi4 | Family::OpenMpi5 => "Open MPI",
            Family::Intel => "Intel MPI",
        })
    }
}

/// An MPI, found by its launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mpi {
    /// Its family.
    pub family: Family,
    /// Version that the launcher reports, such as 5.0.2.
    pub version: String,
    /// Its mpiexec.
    pub launcher: PathBuf,
    /// Folder that holds its `bin` and `lib`.
    pub prefix: PathBuf,
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.version)
    }
}

/// Parses the output of `mpiexec --version`.
fn parse_version(text: &str) -> Option<(Family, String)> {
    let number = |text: &str| {
        let part = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        let word: String = text.trim_start().chars().take_while(|&c| part(c)).take(40).collect();
        starts_digit(&word).then_some(word)
    };
    let after = |mark: &str| text.split_once(mark).and_then(|(_, rest)| number(rest));
    if text.contains("Intel(R) MPI Library") {
        return Some((Family::Intel, after("Version ")?));
    }
    if text.contains("HYDRA build details") {
        return Some((Family::Mpich, after("Version:")?));
    }
    let version = after("(OpenRTE)").or_else(|| after("(Open MPI)"))?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    Some((if major < 5 { Family::OpenMpi4 } else { Family::OpenMpi5 }, version))
}

/// Longest time until a launcher reports its version.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs a launcher to find its family and version.
///
/// # Errors
/// The launcher cannot be run, or belongs to an unknown MPI.
fn identify(launcher: &Path) -> Result<Mpi> {
    let name = launcher.display();
    let mut command = Command::new(launcher);
    // The output is parsed, so it must be in English.
    command.arg("--version").env("LC_ALL", "C");
    let output = output_within(command, TIMEOUT).with_context(|| format!("running {name}"))?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let Some((family, version)) = parse_version(&said) else {
        let first: String = said.lines().next().unwrap_or("nothing").chars().take(120).collect();
        bail!(
            "{name} is no launcher of MPICH, Open MPI or Intel MPI that works: `{name} --version` \
             says: {first}"
        );
    };
    let real = launcher.canonicalize().unwrap_or_else(|_| launcher.to_path_buf());
    let prefix = real.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_path_buf();
    Ok(Mpi { family, version, launcher: launcher.to_path_buf(), prefix })
}

/// Names under which launchers are installed. Where several MPIs share a folder, the longer names
/// distinguish them.
const LAUNCHERS: [&str; 7] = [
    "mpiexec",
    "mpirun",
    "mpiexec.hydra",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpiexec.openmpi",
    "mpirun.openmpi",
];

/// Returns the folders of launchers, in the order in which a user prefers them.
fn folders() -> Vec<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut folders: Vec<PathBuf> =
        var("VIRTUAL_ENV").map(|env| env.join("bin")).into_iter().collect();
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path).filter(|dir| dir.is_absolute()));
    }
    for name in ["CONDA_PREFIX", "MPI_HOME", "MPI_ROOT", "I_MPI_ROOT"] {
        folders.extend(var(name).map(|root| root.join("bin")));
    }
    folders.extend(var("HOME").map(|home| home.join(".local/bin")));
    let usual = [
        "/usr/bin",
        "/usr/local/bin",
        "/usr/lib64/openmpi/bin",
        "/usr/lib64/mpich/bin",
        "/usr/lib64/mpi/gcc/openmpi5/bin",
        "/usr/lib64/mpi/gcc/openmpi4/bin",
        "/usr/lib64/mpi/gcc/mpich/bin",
        "/opt/openmpi/bin",
        "/opt/mpich/bin",
        "/opt/intel/oneapi/mpi/latest/bin",
    ];
    folders.extend(usual.map(PathBuf::from));
    folders
}

/// True if this file exists and is executable.
fn runnable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns all MPIs of these folders, and the errors of launchers that do not answer as one.
fn search(folders: impl IntoIterator<Item = PathBuf>) -> (Vec<Mpi>, Vec<String>) {
    let (mut files, mut seen) = (HashSet::new(), HashSet::new());
    let (mut found, mut odd) = (Vec::new(), Vec::new());
    for folder in folders {
        let (before, mut odd_here) = (found.len(), Vec::new());
        for launcher in LAUNCHERS.map(|name| folder.join(name)) {
            let Ok(real) = launcher.canonicalize() else { continue };
            if !runnable(&real) || !files.insert(real) {
                continue;
            }
            match identify(&launcher) {
                // An MPI has several launchers in one folder.
                Ok(mpi) if seen.insert((mpi.prefix.clone(), mpi.family)) => found.push(mpi),
                Ok(_) => {}
                Err(why) => odd_here.push(format!("{why:#}")),
            }
        }
        // One launcher of an MPI is enough.
        if found.len() == before {
            odd.append(&mut odd_here);
        }
    }
    (found, odd)
}

/// Returns all MPIs that are found, preferred ones first, and the errors of launchers that do not
/// answer as one.
pub fn all() -> (Vec<Mpi>, Vec<String>) {
    search(folders())
}

/// Returns the MPI named by `--mpi`: the path of a launcher, a folder that holds one or its `bin`,
/// or a word for the first of a family.
///
/// # Errors
/// There is none; the error lists those that exist.
pub fn named(what: &str) -> Result<Mpi> {
    let wanted: fn(Family) -> bool = match what {
        "mpich" => |f| f == Family::Mpich,
        "openmpi" => Family::is_open_mpi,
        "intel" => |f| f == Family::Intel,
        path => return at(Path::new(path)),
    };
    let (all, _) = all();
    match all.iter().position(|mpi| wanted(mpi.family)) {
        Some(at) => Ok(all[at].clone()),
        None => bail!("no {what} was found{}; --mpi PATH names its mpiexec", list(&all)),
    }
}

fn at(path: &Path) -> Result<Mpi> {
    if path.is_dir() {
        let path = path.canonicalize()?;
        let (found, odd) = search([path.join("bin"), path.clone()]);
        let none = || match odd.first() {
            Some(odd) => odd.clone(),
            None => format!("{} holds no mpiexec, nor does its bin", path.display()),
        };
        return found.into_iter().next().with_context(none);
    }
    if !path.exists() {
        misuse!(
            "--mpi {}: there is no such file; give the path of an mpiexec, or mpich, openmpi or \
             intel",
            path.display()
        );
    }
    // Ranks and prefix must not depend on the current folder.
    identify(&std::path::absolute(path)?)
}

fn list(all: &[Mpi]) -> String {
    let each: Vec<String> =
        all.iter().map(|mpi| format!("{mpi} ({})", mpi.launcher.display())).collect();
    if each.is_empty() {
        String::new()
    } else {
        format!(", but {}", each.join(", "))
    }
}

/// Returns the default MPI: the first found.
///
/// # Errors
/// There is none; the error says how to get one.
pub fn first() -> Result<Mpi> {
    let (all, odd) = all();
    let Some(mpi) = all.into_iter().next() else {
        let odd = odd.first().map_or(String::new(), |odd| format!(" ({odd})"));
        bail!("no MPI was found{odd}: {GET_ONE}; --mpi PATH names one that is elsewhere")
    };
    Ok(mpi)
}

/// Advice how to get an MPI.
pub const GET_ONE: &str =
    "`pip install mpich` gets one (in a virtual environment: python3 -m venv \
                           mpi && . mpi/bin/activate)";

/// Returns folders that may hold an MPI's libraries.
fn library_folders(prefix: &Path) -> Vec<PathBuf> {
    let triplet = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    ["lib", "lib64", &triplet, "lib/release"].map(|dir| prefix.join(dir)).to_vec()
}

impl Mpi {
    /// Returns the library that its programs load, if it is in a usual folder.
    pub fn library(&self) -> Option<PathBuf> {
        let names = self.family.libraries();
        let mut files = library_folders(&self.prefix)
            .into_iter()
            .flat_map(|dir| names.iter().map(move |name| dir.join(name)));
        files.find(|file| file.exists())
    }

    /// Returns the file that loads libfabric, or is it, where the library itself loads it only when
    /// a program runs: Open MPI's component, Intel's own libfabric.
    pub fn plugin(&self) -> Option<PathBuf> {
        let below: &[&str] = match self.family {
            Family::Mpich => return None,
            Family::OpenMpi4 | Family::OpenMpi5 => &[
                "openmpi/mca_mtl_ofi.so",
                "openmpi/lib/openmpi3/mca_mtl_ofi.so",
                "openmpi/lib/openmpi/mca_mtl_ofi.so",
                "openmpi3/mca_mtl_ofi.so",
            ],
            Family::Intel => &["libfabric.so.1", "../opt/mpi/libfabric/lib/libfabric.so.1"],
        };
        let mut files = library_folders(&self.prefix)
            .into_iter()
            .flat_map(|dir| below.iter().map(move |name| dir.join(name)));
        files.find(|file| file.exists())
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    const HYDRA: &str =
        "HYDRA build details:\n    Version:                                 5.0.2\n \
                         Release Date:                            Fri Sep 25 20:45:26 UTC 2026\n";

    #[test]
    fn parse_version__every_family_as_its_launcher_prints_it() {
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: \
                     b44796a)\nCopyright 2003-2026, Intel Corporation.\n";
        let hydra_of_intel = format!("Intel(R) MPI Library for Linux* OS, Version 2019\n{HYDRA}");
        for (text, family, version) in [
            (HYDRA, Family::Mpich, "5.0.2"),
            ("mpiexec (OpenRTE) 4.1.4\n\nReport bugs to", Family::OpenMpi4, "4.1.4"),
            ("mpirun (Open MPI) 4.1.6\n", Family::OpenMpi4, "4.1.6"),
            ("mpiexec (Open MPI) 5.0.11\n\nReport", Family::OpenMpi5, "5.0.11"),
            ("mpirun (Open MPI) 6.1.0a1\n", Family::OpenMpi5, "6.1.0a1"),
            (intel, Family::Intel, "2021.18.1"),
            (&hydra_of_intel, Family::Intel, "2019"),
        ] {
            assert_eq!(parse_version(text), Some((family, version.to_owned())), "{text}");
        }
    }

    #[test]
    fn parse_version__what_is_no_mpi() {
        for text in [
            "",
            "prterun (PRRTE) 3.0.8",
            "slurm 22.05.8",
            "mpiexec (Open MPI)",
            "mpiexec (Open MPI) new",
            "HYDRA build details:",
            "error while loading shared libraries: libslurm.so.38",
        ] {
            assert_eq!(parse_version(text), None, "{text}");
        }
    }

    #[test]
    fn runs__programs_of_another_mpi_are_recognised() {
        for (family, library, runs) in [
            (Family::Mpich, "libmpi.so.12", true),
            (Family::Mpich, "libmpi.so.12.5.0", true),
            (Family::Mpich, "libmpich.so.12", true),
            (Family::Mpich, "libmpi.so.40", false),
            (Family::Intel, "libmpich.so.12", true),
            (Family::OpenMpi4, "libmpi.so.40.30.4", true),
            (Family::OpenMpi5, "libmpi.so.12", false),
            (Family::OpenMpi5, "libmpi.so.123", true),
            (Family::OpenMpi5, "libmpi_abi.so.1", true),
        ] {
            assert_eq!(family.runs(library), runs, "{family:?} {library}");
        }
    }

    #[test]
    fn at__what_is_no_launcher_is_named() {
        let error = named("/nonexistent/mpiexec").unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
        let error = named("/proc/self/exe").map(|m| m.version).unwrap_err().to_string();
        assert!(error.contains("no launcher"), "{error}");
    }
}
